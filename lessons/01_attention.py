# %% [markdown]
"""# Lesson 01. Attention

Every position asks all positions, and averages what they answer (section 3.2.1
of the paper).

You need Python, matrices, and what a variance is. You will have built the operation
that gives the paper its name, and know why it divides by sqrt(d_k), what a mask does,
and what it costs beside the layers that it replaced.
"""

# %%
import math
from timeit import repeat

import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.check import claim, same, show
from minitf.course import figures
from minitf.course.lesson import begin, draw, finish, toy_model
from minitf.transformer import causal_mask, padding_mask

# Reads the options --figures and --backend, and starts to count the claims.
begin("01_attention")
rng = np.random.default_rng(1)

# %% [markdown]
# ## How can a word look at other words?
# A sentence is a row of vectors, one for each word; the place of a word in the row is
# its *position*. What "bank" means in "the bank of the river" stands three positions
# further on. Attention lets each position fetch what it needs: it holds a *query* q
# (what am I looking for?), and every position holds a *key* k (what do I offer?) and
# a *value* v (what you get). The dot product q . k says how well a key fits a query.
#
# **State.** Equation 1, with the queries, keys and values as rows of Q, K and V, and
# d_k the length of a key:
#
#     Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V
#
# The *softmax* turns a row of scores into weights, positive and with the
# sum 1: y_i = exp(x_i) / sum_j exp(x_j).


# %%
# Derive: one query at a time, as the words above say it.
def attention_by_loops(queries, keys, values):
    answers = []
    for query in queries:
        scores = [
            sum(q * k for q, k in zip(query, key, strict=True)) / math.sqrt(len(query))
            for key in keys
        ]
        exponentials = [math.exp(score) for score in scores]
        weights = [e / sum(exponentials) for e in exponentials]
        answers.append(
            [
                sum(w * v for w, v in zip(weights, column, strict=True))
                for column in values.T
            ]
        )
    return np.array(answers)


Q, K, V = (
    rng.standard_normal((3, 4)),
    rng.standard_normal((5, 4)),
    rng.standard_normal((5, 2)),
)
by_loops = attention_by_loops(Q, K, V)
# All dot products at once are one matrix product, Q K^T (row i: the scores of query i),
# the averages another one.
scores = Q @ K.T / math.sqrt(4)  # (3, 5)
weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)  # (3, 5)
same("three lines of arrays = loops", weights @ V, by_loops)
claim(
    "the weights of each query sum to 1",
    np.allclose(weights.sum(axis=-1), 1),
    f"{weights.sum(axis=-1)}",
)

# Equate: the library computes these lines. (Tensors, `backward`, `record`: lesson 02.
# y.numpy() is the array in y.)
show(F.softmax)
same("softmax = exp(x) / sum exp(x)", F.softmax(scores), weights)
same(
    "attention_weights = softmax(Q K^T / sqrt(d_k))", F.attention_weights(Q, K), weights
)

# %%
# The library holds some operations twice: as their equation, which `show` prints and
# all lessons run, and as a *form*, a faster program of the same meaning. A training or
# a timing turns the forms on, in a block that says so.
show(F.attention)
same("attention = loops", F.attention(Q, K, V), by_loops)
with forms.on():
    same("attention, its form = loops", F.attention(Q, K, V), by_loops)

# %%
# Use: the library subtracts the largest score before exp, which changes no weight
# (numerator and denominator shrink alike) and keeps exp from overflowing. And it takes
# any axes in front: a *batch* of sentences goes through at once.
with np.errstate(over="ignore", invalid="ignore"):
    overflowed = np.exp([1000.0, 999.0]) / np.exp([1000.0, 999.0]).sum()
claim(
    "exp(1000) overflows: the definition gives no number",
    np.isnan(overflowed).all(),
    overflowed,
)
same(
    "softmax with the largest score subtracted",
    F.softmax([1000.0, 999.0]),
    1 / (1 + np.exp([-1.0, 1.0])),
)
batch = [rng.standard_normal((7, n, 4)) for n in (3, 5, 5)]
same(
    "attention of a batch of 7 = 7 attentions",
    F.attention(*batch),
    list(map(attention_by_loops, *batch)),
)

# %% [markdown]
# ## Why divide by sqrt(d_k)?
# **State.** Section 3.2.1 suspects that for large d_k the dot products grow large
# and push the softmax to where its gradients (slopes: lesson 02) are extremely small.
# If the components of q and k are independent, with mean 0 and variance 1, then q . k
# has mean 0 and variance d_k.
#
# **Derive.** q . k is a sum of d_k products, each of mean 0 and variance 1, and
# variances of independent terms add. So q . k is spread like sqrt(d_k); divided by
# that, it is spread like 1, whatever d_k. To see what the softmax makes of it, take its
# *entropy*, -sum w ln w: ln n where all n weights are equal, 0 where one of them is 1.

# %%
sizes, n_keys = [2, 8, 32, 128, 512, 2048], 16
variance, entropy, slope = {}, {}, {}
for name, power in (("q.k", 0.0), ("q.k / sqrt(d_k)", 0.5)):
    draws = [rng.standard_normal((2, 1000, n_keys, d_k)) for d_k in sizes]
    dots = [
        (q * k).sum(axis=-1) / d_k**power
        for (q, k), d_k in zip(draws, sizes, strict=True)
    ]  # each (1000, 16)
    softmaxes = [F.softmax(x).numpy() for x in dots]
    variance[name] = sizes, np.array([x.var() for x in dots])
    entropy[name] = (
        sizes,
        [-(w * np.log(w + 1e-300)).sum(axis=-1).mean() for w in softmaxes],
    )
    # How much w_i moves with x_i: lesson 02 derives it.
    slope[name] = [(w * (1 - w)).mean() for w in softmaxes]

raw, scaled = variance
ratio, spread = variance[raw][1] / sizes, variance[scaled][1]
claim(
    "the variance of q.k is d_k, to 10%",
    abs(ratio - 1).max() < 0.1,
    f"{ratio.min():.3f} to {ratio.max():.3f} d_k",
)
claim(
    "of q.k / sqrt(d_k) it is 1, to 10%",
    abs(spread - 1).max() < 0.1,
    f"{spread.min():.3f} to {spread.max():.3f}",
)
ends, fall = (
    (entropy[raw][1][-1], entropy[scaled][1][-1]),
    slope[raw][-1] / slope[scaled][-1],
)
claim(
    "at d_k = 2048 the entropy has collapsed",
    ends[0] < 0.2 and ends[1] > 2,
    "{:.2f}; scaled {:.2f}".format(*ends),
)
claim("and the softmax's gradient with it", fall < 0.2, f"{fall:.3f} of the scaled one")
draw(
    figures.lines,
    "01_variance.png",
    variance,
    x="d_k",
    y="variance of the scores",
    log="xy",
)
draw(
    figures.lines,
    "01_entropy.png",
    entropy,
    x="d_k",
    y=f"entropy of the softmax over {n_keys} keys",
    log="x",
)

# %% [markdown]
# ## How is a position kept from looking?
# **State.** Two kinds of keys must not count. Sentences of a batch differ in length,
# so short ones are filled up with *padding*, which means nothing. And while it learns,
# a model that writes word after word must not see the words to come, or it would
# copy them: position t may look at positions up to t (section 3.2.3). A *mask* says
# who may attend.
#
# **Derive.** Give a forbidden key the score minus infinity: exp makes exactly 0 of it,
# and the others share the sum.


# %%
def masked_weights_by_loops(queries, keys, may_attend):
    rows = np.zeros((len(queries), len(keys)))
    for t, query in enumerate(queries):
        allowed = [s for s in range(len(keys)) if may_attend(t, s)]
        rows[t, allowed] = F.softmax(
            keys[allowed] @ query / math.sqrt(len(query))
        ).numpy()
    return rows


# The numbers of four words, and two of padding, whose *id* is 0.
ids = np.array([[11, 12, 13, 14, 0, 0]])
X, past, words = (
    rng.standard_normal((6, 4)),
    causal_mask(6)[0, 0],
    padding_mask(ids)[0, 0],
)
# Equate: the library's masks, (batch, head, query, key), are these rules; [0, 0] takes
# that of the one sentence.
causal, padded = (
    F.attention_weights(X, X, past).numpy(),
    F.attention_weights(X, X, words).numpy(),
)
same(
    "causal_mask: position t sees up to t",
    causal,
    masked_weights_by_loops(X, X, lambda t, s: s <= t),
)
same(
    "padding_mask: nobody sees padding",
    padded,
    masked_weights_by_loops(X, X, lambda t, s: ids[0, s] != 0),
)
largest = max(causal[np.triu_indices(6, 1)].max(), padded[:, 4:].max())
claim("a masked weight is exactly 0", largest == 0, f"the largest is {largest}")

# Use: without the mask, position 3 sees position 4; with it nothing that comes later
# matters. Nor does padding.
Y = X + (np.arange(6) >= 4)[:, None]
leaks = [
    abs(F.attention(X, X, X, m).numpy() - F.attention(Y, Y, Y, m).numpy())[:4].max()
    for m in (past, None)
]
claim("changing positions 4 and 5 leaves 0 to 3 as they are", leaks[0] == 0, leaks[0])
claim("without the mask it does not", leaks[1] > 0.01, leaks[1])
same(
    "padding changes no answer",
    F.attention(X, X, X, words).numpy()[:4],
    F.attention(X[:4], X[:4], X[:4]),
)
same(
    "who may look at nothing gets zeros, not NaN",
    F.attention(X, X, X, np.zeros((6, 6), bool)),
    0 * X,
)

# Here are the weights of a real sentence, cut into pieces of words, with two positions
# of padding. The vectors and matrices are a trained encoder's (lessons 03 to 07; 8.0:
# lesson 05). It never uses a causal mask itself. Darker means more attention.
translator = toy_model()
ids = [
    [
        *translator.subwords.encode(
            ["The old teacher reads the new book in the garden."]
        )[0],
        0,
        0,
    ]
]
names = [piece.strip("▁") for piece in translator.subwords.pieces(ids[0])]
trained = translator.model.encoder.layers[0].self_attention
vectors = translator.model.source_positions(translator.model.embedding(ids) * 8.0)
q, k = (
    trained.split_heads(matrix(vectors)).numpy()[0, 1]
    for matrix in (trained.query, trained.key)
)
words = padding_mask(ids)[0, 0]
masks = {
    "no mask": None,
    "padding mask": words,
    "padding and causal mask": words & causal_mask(len(names))[0, 0],
}
panels = {name: F.attention_weights(q, k, mask).numpy() for name, mask in masks.items()}
draw(
    figures.matrices,
    "01_masks.png",
    panels,
    "queries",
    "keys",
    names,
    names,
    bar="attention weight",
)

# %% [markdown]
# ## What does it cost, and what does it buy?
# **State.** Before the Transformer, a *recurrent* layer read a sentence: one vector
# of memory, changed by each word in turn. A *convolution* gives each position its k
# nearest neighbours, through k matrices. Table 1 compares them for n words of d numbers
# each: multiplications, and the *path* of a signal from the first word to the last.
#
# | layer | multiplications | steps that wait | longest path |
# |---|---|---|---|
# | attention | n^2 d | 1 | 1 |
# | recurrent | n d^2 | n | n |
# | convolution | k n d^2 | 1 | n / k (or log_k n, where its gaps widen) |
# | attention to r neighbours | r n d | 1 | n / r |
#
# **Derive.** Each layer in two or three lines, with a product that counts
# its multiplications.


# %%
def product(a, b):
    done.append(a.shape[0] * a.shape[1] * b.shape[1])  # so many multiplications
    return a @ b


def layer(name, x):
    if name == "convolution":
        wide = np.pad(x, ((1, 1), (0, 0)))
        return sum(product(wide[j : j + len(x)], C[j]) for j in range(3))
    if name == "attention":
        return product(F.softmax(product(x, x.T) / 8).numpy(), x)
    if name == "to 4 neighbours":
        near = [x[max(0, t - 2) : t + 3] for t in range(len(x))]
        return np.concatenate(
            [
                product(F.softmax(product(x[t : t + 1], y.T) / 8).numpy(), y)
                for t, y in enumerate(near)
            ]
        )
    memories = [np.zeros((1, d))]
    for word in x:
        memories.append(np.tanh(product(word[None], A) + product(memories[-1], B)))
    return np.concatenate(memories[1:])


def path(name, n=17):
    # Through how many layers a change of the first of n words goes until the
    # last one notices.
    before, layers = rng.standard_normal((n, d)) / 10, 0
    after = before + (np.arange(n) == 0)[:, None] / 10
    while (before[-1] == after[-1]).all():
        before, after, layers = layer(name, before), layer(name, after), layers + 1
    return layers


d, done, lengths, counts, times = 64, [], [16, 64, 256, 1024], {}, {}  # sqrt(d) = 8
A, B, *C = rng.standard_normal((5, d, d)) / 8
for name in ("attention", "recurrent", "convolution", "to 4 neighbours"):
    for n in lengths:
        done[:], x = [], rng.standard_normal((n, d))
        with forms.on():
            # Others may be at work.
            seconds = min(
                repeat("layer(name, x)", globals=globals(), number=1, repeat=5)
            )
        counts.setdefault(name, (lengths, []))[1].append(sum(done) // 5)
        times.setdefault(name, (lengths, []))[1].append(1000 * seconds)

# Equate: the counts are Table 1's, up to a constant factor, and like it without
# the 4 n d^2 that lesson 03 adds.
n, x, near = (
    np.array(lengths),
    rng.standard_normal((17, d)),
    abs(np.subtract.outer(np.arange(17), np.arange(17))) <= 2,
)
same("attention multiplies 2 n^2 d times", counts["attention"][1], 2 * n**2 * d)
same("recurrent 2 n d^2", counts["recurrent"][1], 2 * n * d**2)
same("convolution k n d^2", counts["convolution"][1], 3 * n * d**2)
same(
    "attention to r neighbours 2 (r + 1) n d, less at the ends",
    counts["to 4 neighbours"][1],
    2 * (5 * n - 6) * d,
)
same(
    "attention to r neighbours = attention with a mask",
    layer("to 4 neighbours", x),
    F.attention(x, x, x, near),
)
same(
    "paths: attention, width 3, 4 neighbours",
    [path(name) for name in counts if name != "recurrent"],
    [1, 16, 8],
)

# Use: by this count attention pays less than recurrence while n < d, for a path of 1;
# and nothing in it has to wait. Time is no count: each neighbour, as each step of the
# recurrence, is an operation of its own here, begun in Python.
draw(
    figures.lines,
    "01_multiplications.png",
    counts,
    x="words n",
    y=f"multiplications (d = {d})",
    log="xy",
)
draw(
    figures.lines,
    "01_milliseconds.png",
    times,
    x="words n",
    y=f"milliseconds (d = {d})",
    log="xy",
)
finish(
    "Attention is an average with softmax weights: sqrt(d_k) keeps them soft, "
    "a mask makes some exactly 0."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 01` writes this part to `my_01_attention.py`: fill in the
# bodies, and run that file.


# %%
def additive_mask(mask):
    """Turn a mask (True: may attend) into numbers to add to the scores:
    softmax(scores + additive_mask(mask)).

    Hint: "How is a position kept from looking?" has the score of a forbidden key.
    """
    ...


def softmax_average(scores, values):
    """Give softmax(scores) @ values in one loop over the keys, without
    storing the weights.

    Keep the largest score so far, the sum of exponentials, and the weighted
    sum of values.

    Hint: "How can a word look at other words?" subtracts the largest score of all. Here
    a larger one may still come: then both sums so far were made with the smaller one,
    and need a factor.
    """
    ...


def check_additive_mask():
    scores, mask = (
        np.random.default_rng(5).standard_normal((4, 4)),
        causal_mask(4)[0, 0],
    )
    # d_k is 4, and its root 2.
    expected = F.attention_weights(2 * scores, np.eye(4), mask)
    same(
        "softmax(scores + additive_mask)",
        F.softmax(scores + additive_mask(mask)),
        expected,
    )


def check_softmax_average():
    values = np.random.default_rng(7).standard_normal((50, 3))
    for name, scores in (
        ("rising", np.linspace(-999, 999, 50)),
        ("falling", np.linspace(999, -999, 50)),
    ):
        same(
            f"softmax_average, {name}",
            softmax_average(scores, values),
            F.softmax(scores).numpy() @ values,
        )


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("forms.on", "functions.softmax", "functions.attention_weights",
              "functions.attention", "transformer.causal_mask",
              "transformer.padding_mask")  # fmt: skip
