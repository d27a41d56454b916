# %% [markdown]
"""# Lesson 05. Embeddings and positions

A word becomes a vector, and so does its place (sections 3.4 and 3.5).

You need lessons 01 to 04. You will have turned words into vectors, and vectors into
scores of words, with one and the same matrix, and have given the model what attention
lacks: the order of the words.
"""

# %%
import contextlib
from math import cos, log, sin, sqrt

import numpy as np

from minitf import functions as F
from minitf.check import claim, grad_check, same, show
from minitf.config import Config
from minitf.course import figures
from minitf.course.lesson import begin, draw, finish, toy_model
from minitf.errors import UserError
from minitf.nn import Embedding, Module, Parameter
from minitf.tensor import Tensor, record
from minitf.transformer import EncoderLayer, Positions, padding_mask, sinusoid

# Reads the options --figures and --backend, and starts to count the claims.
begin("05_embeddings")
rng = np.random.default_rng(1)

# %% [markdown]
# ## How does a word become a vector?
#
# A text is first cut into *subwords*: frequent words whole, rare ones in pieces
# (lesson 09 learns them from text). The list of all V subwords is the *vocabulary*;
# the number of a subword in it is its *id*.
#
# **State.** Section 3.4: a learned matrix E, the *embedding table*, holds one row of
# d_model numbers for each id, the *embedding* of that word.
#
# **Derive.** Write an id as a *one-hot* row: zeros, with a 1 in the place of the id.
# Times E, that is the row of the id. So the lookup is a product, one_hot E, and
# lesson 02 gave the gradient of products: gE = one_hot^T gy. Its row v is the sum of
# the gy of all words whose id is v, and exactly 0 where no word used the row.

# %%
subwords = toy_model().subwords
ids = subwords.encode(["The dog bites the man."])[0]
print(
    f"of {len(subwords)} subwords ('▁' is a blank):",
    dict(zip(subwords.pieces(ids), ids, strict=True)),
)
# Id 4 three times
few, E, gy = (
    np.array([4, 2, 4, 4, 1]),
    rng.standard_normal((6, 3)),
    rng.standard_normal((5, 3)),
)
one_hot = np.array([[1 if v == i else 0 for v in range(6)] for i in few])
print("the one-hot matrix of the ids", few, "\n", one_hot)
# Equate: the library reads the rows, and adds up the gradients of equal ids
# (this is called *scatter-add*).
show(F.embedding)
same("embedding = one-hot matrix times table", F.embedding(E, few), one_hot @ E)
grad_check(F.embedding, E, few)
# A layer that holds its table as a Parameter.
layer = Embedding(6, 3, rng).astype(np.float64)
same("Embedding looks up its own table", layer(few), one_hot @ layer.weight.numpy())
layer(few).backward(gy)
same(
    "its gradient = one-hot matrix transposed, times gy",
    layer.weight.grad,
    one_hot.T @ gy,
)
# Use: no one-hot matrix (3.7 GB for a batch of 25,000 words, V = 37,000). Repeated ids
# add up, wrong ids are refused.
wrong, found = np.zeros_like(E), []
wrong[few] += gy  # reads g[4] once, adds each of the three to that, and keeps the last
claim(
    "g[ids] += gy keeps only the last of three gradients",
    (wrong[4] == gy[3]).all(),
    wrong[4].round(2),
)
for outside in (-1, 6):
    with contextlib.suppress(IndexError):
        found.append(F.embedding(E, np.array([outside])))
claim(
    "id 6 is an error, and -1, where NumPy reads the last row",
    not found,
    E[-1].round(2),
)
# Padding (lesson 01) has an id, 0, and so a row. With the mask no word reads it; as
# an input it learns nothing.
table, padded = Parameter(E), np.array([[4, 2, 1, 0, 0]])
x = F.embedding(table, padded)  # (1, 5, 3)
F.attention(x, x, x, padding_mask(padded)[:, 0])[0, :3].backward(gy[:3])
claim(
    "read as padding, its row gets the gradient 0, exactly",
    not table.grad[0].any(),
    0.0,
)

# %% [markdown]
# ## Which weights are shared?
#
# **State.** Section 3.4: the table stands in three places. Two embed the words of the
# source and of the target; the third makes of each last vector x one score per word,
# its *logit*: logits = x E^T, the dot product of x with each row. (Their softmax is the
# probabilities of the words.) All three are *tied*: they are one matrix, for which both
# languages share one vocabulary.
#
# **Derive.** A parameter used in three places gets the sum of three gradients. Below,
# one attention stands for all the layers, and the loss is the mean of -ln(probability
# of the right next word).

# %%
source, target, tied = (
    np.array([7, 5, 9]),
    np.array([2, 4, 5, 4, 3]),
    rng.standard_normal((11, 6)),
)


def loss(source_table, target_table, output_table):
    x, y = F.embedding(source_table, source), F.embedding(target_table, target[:-1])
    probabilities = F.softmax(
        F.linear(y + F.attention(y, x, x), output_table.transpose())
    )  # (4, 11)
    return -F.log(probabilities)[np.arange(4), target[1:]].mean()


# Equate: one matrix in three places, and three equal matrices.
one, three = Parameter(tied), [Parameter(tied) for _ in range(3)]
loss(one, one, one).backward()
loss(*three).backward()
same(
    "the tied gradient = the sum of the three",
    one.grad,
    three[0].grad + three[1].grad + three[2].grad,
)
grad_check(lambda table: loss(table, table, table), tied, name="tied embedding")
reached = [np.unique(np.nonzero(table.grad)[0]).tolist() for table in three]
claim(
    "embeddings learn rows that occur, the output all rows",
    reached == [[5, 7, 9], [2, 4, 5], [*range(11)]],
    reached,
)
# Use: what tying saves. A Module counts each Parameter once (lesson 03).
V, shared, apart = 37_000, Module(), Module()
apart.tables = [Embedding(V, 512, None) for _ in range(3)]
shared.tables = [apart.tables[0]] * 3
sizes = [sum(p.size for p in model.parameters()) for model in (shared, apart)]
claim(
    "tying saves 2 V d_model numbers",
    sizes[1] - sizes[0] == 2 * V * 512,
    f"{sizes[0]:,} in place of {sizes[1]:,}",
)

# %% [markdown]
# ## Does attention know the order of the words?
#
# **State.** Exchange "dog" and "man" in the sentence above: the same rows enter, in
# another order. Say that the matrix P puts the rows of x into this order; then P^T
# puts them back.
#
# **Derive.** softmax(PQ (PK)^T) PV = P softmax(Q K^T) P^T P V = P softmax(Q K^T) V,
# as the softmax takes each row by itself: without a mask, attention gives the same
# answers, in the new order. The rest of a layer looks at one position at a time
# (lesson 04). So no stack of such layers can tell who bites.

# %%
config = Config(len(subwords), d_model=64, d_ff=128, n_heads=4, dropout=0.0)
embed, encoder = (
    Embedding(len(subwords), 64, rng).astype(np.float64),
    EncoderLayer(config, rng).astype(np.float64),
)
swap = [0, 6, 2, 3, 4, 5, 1, 7]  # P, as the list of which row comes from where
print("exchanged:", *subwords.decode([np.array(ids)[swap].tolist()]))
# The last section explains 8.
bites, bitten = embed(np.array([ids])) * 8.0, embed(np.array([ids])[:, swap]) * 8.0
attend = encoder.self_attention  # Equate: the order of the answers is that of the words
same(
    "MultiHeadAttention(P x) = P MultiHeadAttention(x)",
    attend(bitten, bitten),
    attend(bites, bites)[:, swap],
)
same("and so for a whole layer", encoder(bitten, None), encoder(bites, None)[:, swap])

# %% [markdown]
# ## How does a position become a vector?
#
# **State.** Section 3.5: position pos has a vector of d_model sines and cosines,
# the *sinusoids*:
#
#     PE(pos, 2i) = sin(pos / 10000^(2i/d_model))
#     PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))
#
# Each pair of columns turns like the hand of a clock: the first once in 2 pi positions,
# its *wavelength*, and each pair after it more slowly, up to nearly 10000 * 2 pi.
#
# **Derive.** One number at a time.


# %%
def waves(length, d_model, exponent=lambda i, d_model: 2 * i / d_model):
    PE = np.zeros((length, d_model))
    for pos, i in np.ndindex(length, d_model // 2):
        angle = pos / 10000 ** exponent(i, d_model)
        PE[pos, 2 * i], PE[pos, 2 * i + 1] = sin(angle), cos(angle)
    return PE


# Equate: with the two switches that other people's models need ("t2t" is tensor2tensor,
# the authors' own program).
show(sinusoid)
PE, halves = (
    sinusoid(100, 64, dtype=np.float64),
    sinusoid(100, 64, layout="halves", dtype=np.float64),
)
same("sinusoid = one number at a time", PE, waves(100, 64))
same(
    'layout "halves": sines first, then cosines',
    halves,
    PE[:, [*range(0, 64, 2), *range(1, 64, 2)]],
)
t2t = sinusoid(100, 64, base="t2t", dtype=np.float64)
same(
    'base "t2t": exponent i / (d_model/2 - 1)',
    t2t,
    waves(100, 64, lambda i, d_model: i / (d_model / 2 - 1)),
)
draw(
    figures.matrices,
    "05_sinusoids.png",
    {"interleaved (the paper)": PE, 'layout "halves"': halves},
    rows="position",
    columns="column",
    bar="PE",
    limits=(-1, 1),
)
# Use: the last pair's angle at position 1 gives the longest wavelength. The paper's
# formula stops short of 10000.
longest = [
    1 / np.arctan2(*sinusoid(2, 512, base=base, dtype=np.float64)[1, -2:])
    for base in ("paper", "t2t")
]
claim(
    "longest wavelength / 2 pi: paper, t2t",
    np.allclose(longest, [10000 ** (510 / 512), 10000]),
    np.round(longest),
)
# Seen in Kyubyong/transformer #81, BERT-pytorch #18.
broken = waves(100, 64, lambda i, d_model: 2 * i // d_model)
claim(
    "integer division: exponents 0, position 44 is as 0",
    abs(broken[44] - broken[0]).max() < 0.02,
    f"{sin(44):.3f}",
)

# %% [markdown]
# ## What can a model read from the waves?
#
# **State.** Section 3.5: for any offset k, PE(pos+k) is a linear function of PE(pos),
# the same at every pos.
#
# **Derive.** A pair turns by some angle w per position. By the rules for sine and
# cosine of a sum, at pos+k it is
#
#     sin(w pos + w k) =  cos(w k) sin(w pos) + sin(w k) cos(w pos)
#     cos(w pos + w k) = -sin(w k) sin(w pos) + cos(w k) cos(w pos)
#
# a rotation by the angle w k. And two positions a and b have, pair by pair, the dot
# product sin(w a) sin(w b) + cos(w a) cos(w b) = cos(w (a - b)): it depends on their
# distance only.

# %%
# Equate, for all positions at once: the rows of PE times the transposed matrix.
turns, distance = (
    1 / 10000 ** (np.arange(32) / 32),
    np.arange(100)[:, None] - np.arange(100),
)
for k in (1, 7, 50):
    rotation = np.zeros((64, 64))
    for i, w in enumerate(turns):
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [cos(w * k), sin(w * k)],
            [-sin(w * k), cos(w * k)],
        ]
    same(
        f"PE(pos+{k}) = rotation by w {k} of PE(pos)",
        PE[k:],
        PE[: 100 - k] @ rotation.T,
    )
same(
    "PE(a) . PE(b) = sum of cos(w (a - b))",
    PE @ PE.T,
    np.cos(distance[..., None] * turns).sum(axis=-1),
)
# Use: near positions are alike. Rows drawn at random, where learned positions begin,
# know nothing of near and far.
far, random, across = (
    sinusoid(513, 512) @ sinusoid(1, 512)[0],
    rng.standard_normal((101, 512)),
    np.arange(-50, 51),
)
claim(
    "twice as far, less alike",
    (np.diff(far[2 ** np.arange(10)]) < 0).all(),
    far[2 ** np.arange(10)].round(),
)
draw(
    figures.lines,
    "05_distance.png",
    {
        "sinusoids": (across, far[abs(across)]),
        "random rows / 2": (across, random @ random[50] / 2),
    },
    x="distance of two positions",
    y="dot product",
    marks=False,
)

# %% [markdown]
# ## What enters the model, and why times sqrt(d_model)?
#
# **State.** Sections 3.4 and 3.5: x = embedding * sqrt(d_model) + PE, then dropout
# (section 5.4), which is off here.
#
# **Derive.** At the output a row meets a vector that the layer norm gave variance 1.
# For their d_model products to sum to logits of variance 1, Embedding draws normal
# numbers of variance 1/d_model. Then e^logit is e^(1/2) on average, and the first
# loss, ln(sum of e^logit) - logit, about ln V + 1/2, near the ln V of a fair guess.
# At the input such a row has length 1, and PE, d_model/2 pairs with sin^2 + cos^2 = 1,
# sqrt(d_model/2). The factor makes it sqrt(d_model).

# %%
# Equate: Positions adds PE, from row `start` on where a decoder has written
# `start` words before.
place, X = Positions(config, rng), Tensor(rng.standard_normal((2, 70, 64)))
same("Positions adds PE, to any length", place(X), X.numpy() + waves(70, 64))
same(
    "start: position 5 alone = position 5 of all",
    place(X[:, 5:6], start=5),
    place(X)[:, 5:6],
)
grad_check(
    lambda E: place(F.embedding(E, few[None]) * 8.0),
    rng.standard_normal((6, 64)),
    name="through Positions",
)
learned = Positions(config.replace(positions="learned", max_length=70), rng).astype(
    np.float64
)
same(
    'positions="learned": sqrt(d_model) times a table',
    learned(X),
    X.numpy() + 8.0 * learned.learned.weight.numpy(),
)
# Use: learned positions end; order matters at last; one table fits both ends only if it
# is scaled at one of them.
try:
    error = f"none, but {learned(X, start=1).shape}"
except UserError as refused:
    error = str(refused)
claim("learned positions end at max_length", "max_length 70" in error, error)
dogs = (
    encoder(place(bites), None)[:, 1].numpy(),
    encoder(place(bitten), None)[:, 6].numpy(),
)
claim(
    "with positions the two dogs differ",
    abs(dogs[0] - dogs[1]).max() > 0.1,
    float(abs(dogs[0] - dogs[1]).max()),
)
rows, vectors, PE_10 = (
    Embedding(8000, 512, rng).weight.numpy(),
    rng.standard_normal((200, 512)),
    sinusoid(11, 512)[10],
)
hidden = F.layer_norm(vectors, np.ones(512), np.zeros(512)).numpy()
for name, factor in (
    ("rows of variance 1/d_model", 1.0),
    ("rows of variance 1", sqrt(512)),
):
    logits, ratio = (
        hidden @ rows.T * factor,
        np.linalg.norm(rows[0] * factor) / np.linalg.norm(PE_10),
    )
    first = -np.log(
        F.softmax(logits).numpy()[np.arange(200), np.arange(200)]
    ).mean() / (log(8000) + 0.5)
    spread = f"{first:.2f}, the logits spread like {logits.std():.1f}"
    claim(
        f"{name}: first loss / (ln V + 1/2)",
        (0.95 < first < 1.05) == (factor == 1),
        spread,
    )
    claim(
        f"{name}: length / that of PE",
        0.05 < ratio < 0.08 if factor == 1 else 1 < ratio < 2,
        f"{ratio:.2f}",
    )
finish(
    "One table embeds the words and scores them; the sinusoids say where "
    "each word stands."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 05` writes this part to `my_05_embeddings.py`; fill in
# the bodies and run it. `record` is from lesson 02. The second one shows that a single
# matrix is enough for a head that looks k words back.


# %%
def look_up(table, ids):
    """Return the rows of the Tensor `table` at ids (N,), which may repeat, through
    record, with their gradient.

    Hint: "How does a word become a vector?" shows why g[ids] += gy is not enough;
    np.add.at adds each.
    """
    ...


def check_look_up():
    table, ids = (
        np.random.default_rng(5).standard_normal((5, 3)),
        np.array([3, 1, 3, 0, 3]),
    )
    same(
        "the rows",
        look_up(Tensor(table), ids),
        record(np.eye(5)[ids] @ table, (), None),
    )
    grad_check(look_up, table, ids)


def look_back(k, d_model):
    """Return W (d_model, d_model): row pos of (PE W) PE^T holds the dot products of
    PE(pos - k) with every PE.

    Hint: "What can a model read from the waves?" has the matrix that turns PE(pos)
    into PE(pos + k).
    """
    ...


def check_look_back():
    PE, k = sinusoid(60, 32, dtype=np.float64), 3
    scores = PE @ look_back(k, 32) @ PE.T
    claim(
        "the largest score of position 10 is at 7",
        scores[10].argmax() == 7,
        f"it is at {scores[10].argmax()}",
    )
    same("scores of pos = products of pos - k", scores[k:], PE[: 60 - k] @ PE.T)


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = (
    "functions.embedding",
    "nn.Embedding",
    "transformer.sinusoid",
    "transformer.Positions",
)
