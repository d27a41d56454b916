# %% [markdown]
"""# Lesson 01. Attention

A word means little alone. This lesson builds the operation by which each word of a
sentence looks at the others and takes from them what it needs. The paper, Attention Is
All You Need, is named after it (section 3.2.1).

You need Python and matrices. At the end you will have computed attention on paper, in
loops and in three lines, and you will know why it divides by a square root, what a mask
does, and what attention costs beside the layers that it replaced.
"""

# %%
import math

import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.check import claim, same, show
from minitf.course import figures
from minitf.course.architecture import figure_1
from minitf.course.lesson import begin, draw, finish, toy_model
from minitf.plot import join_pieces
from minitf.transformer import causal_mask, padding_mask

# Reads the options --figures and --backend, and starts to count the claims.
begin("01_attention")
rng = np.random.default_rng(1)  # random numbers, the same in each run

# %% [markdown]
# ## What is attention good for?
# Before any formula, watch it at work. A small Transformer comes with these lessons. It
# has learned to translate the sentences of a toy grammar from English to German. One
# line loads it, another asks it.

# %%
translator = toy_model()
sentence = "The old man will read the new book."
best_of_each = translator.translate([sentence])[0]
translation = best_of_each[0].text
print(f"{sentence}  ->  {translation}")

# `claim` prints a line if its statement is true, and ends the lesson if it is false.
last_word = translation.strip(".").split()[-1]
claim("the last German word is the verb", last_word == "lesen", last_word)

# %% [markdown]
# The model got something right that a dictionary cannot. "Read" is the fifth English
# word, and "lesen", the same verb, is the last German one, because after "wird" (will)
# German puts the other verb at the end. So when the model wrote its last word, it had
# to look back at the fifth of ours.
#
# Attention is the way in which it looks back. For each word that it writes, it gives
# each word of the *source*, the sentence to translate, a *weight*. The weights are
# numbers from 0 to 1 and sum to 1, so they say which share of the looking a word gets.
# We can read them out of the model. (It has several attentions side by side, called
# *heads*; lesson 03 says why. We read one that is quick to understand; the others look
# at other things.)

# %%
pieces_of_all_heads, german_pieces, english_pieces = translator.attention(sentence)
weights_of_all_heads, german, english = join_pieces(
    pieces_of_all_heads, german_pieces, english_pieces, words=True
)
one_head = weights_of_all_heads[3]  # (German words, English words)

lesen = german.index("lesen")
read = english.index("read")
claim(
    "writing 'lesen', the model looks at 'read', with the weight",
    one_head[lesen, read] > 0.9,
    f"{one_head[lesen, read]:.2f}",
)
claim(
    "the weights of each German word sum to 1",
    np.allclose(one_head.sum(axis=1), 1),
    f"{one_head.sum(axis=1).min():.6f} to {one_head.sum(axis=1).max():.6f}",
)
draw(
    figures.matrices,
    "01_translation.png",
    {"": one_head},
    rows="the model writes",
    columns="and looks at",
    row_labels=german,
    column_labels=english,
    bar="attention weight",
    limits=(0, 1),
    mark=[(lesen, read)],
)

# %% [markdown]
# ![A map with a row for each German word and a column for each English word. The dark cells run down from the upper left to the lower right, except that the row of "lesen", the eighth, is dark at "read", the fifth column.](figures/01_translation.png)
#
# *What to see: one dark cell in every row. They run down from left to right, word after
# word; but the framed one leads from "lesen" back to "read". ("(end)" is the mark that
# ends a sentence.)*
#
# Nobody told the model which word translates which. It found out, because attention can
# be learned. Here is the place of attention in the model of the paper, its figure 1.
# You need none of the other boxes yet.

# %%
draw(
    figure_1,
    "01_here.png",
    here=[
        "self-attention",
        "masked self-attention",
        "source attention",
        "attention inside a head",
    ],
)

# %% [markdown]
# ![Figure 1 of the paper, a diagram of the Transformer: the encoder on the left, the decoder on the right. The three attention boxes are marked: one in the encoder, two in the decoder; so is the small diagram of one attention.](figures/01_here.png)
#
# *What to see: attention is used in three places, and it is the same operation in all
# three, the diagram at the lower right. On the left, the English words look at each
# other. In the lower box of the middle column, the German words look at each other; in
# the upper one they look at the English words, as above, along the thick line.*

# %% [markdown]
# ## How can a word look at other words?
# English has one "bank", German has two: "Ufer" for the bank of a river, "Bank" for
# the one with the money. To translate "bank by river", the word "bank" must look at its
# neighbours.
#
# A word enters the model as a *vector*, a list of numbers. (Lesson 05 says where it
# comes from.) Let ours have two numbers: how much the word has to do with water, and
# how much with money. "Bank" alone can be either: (1, 1). "By" has to do with neither:
# (0, 0). "River" is (3, 0). Now "bank" looks around. Take a pencil:
#
# 1. **Score.** Take the dot product of "bank" with each word: multiply number by
#    number, and add. It is large if both are large in the same places.
# 2. **Scale.** Divide each score by 1.414, the square root of 2, as our vectors have
#    two numbers. (A section below says why.)
# 3. **Weigh.** Raise e to the power of each score. That makes it positive, and each
#    point by which a score leads multiplies its weight by e, 2.718. Then divide by the
#    sum, so that the weights sum to 1. This step is called the *softmax*.
# 4. **Average.** Add up the vectors, each times its weight (a *weighted average*).
#
# | word | vector | score | score / 1.414 | e to that | weight |
# |---|---|---|---|---|---|
# | bank | (1, 1) | 1 · 1 + 1 · 1 = 2 | 1.414 | 4.11 | 4.11 / 13.45 = 0.31 |
# | by | (0, 0) | 1 · 0 + 1 · 0 = 0 | 0.000 | 1.00 | 1.00 / 13.45 = 0.07 |
# | river | (3, 0) | 1 · 3 + 1 · 0 = 3 | 2.121 | 8.34 | 8.34 / 13.45 = 0.62 |
#
# (The powers, 4.11 + 1.00 + 8.34, sum to 13.45.) The average is
#
# $$0.31 \cdot (1, 1) + 0.07 \cdot (0, 0) + 0.62 \cdot (3, 0) = (2.17, 0.31)$$
#
# "Bank" is no longer a riddle: beside a river it has seven times as much to do with
# water as with money. Now the same by code, line by line as in the table.

# %%
words = ["bank", "by", "river"]
vectors = np.array([[1.0, 1.0], [0.0, 0.0], [3.0, 0.0]])  # one row for each word
bank = vectors[0]

scores = vectors @ bank  # the dot product of each row with "bank"
scaled = scores / math.sqrt(2)
powers = np.exp(scaled)
weights = powers / powers.sum()
new_bank = weights @ vectors  # the average

print("word    score  scaled   power  weight")
for i, word in enumerate(words):
    print(
        f"{word:6s} {scores[i]:6.2f}  {scaled[i]:6.3f}  {powers[i]:6.2f}"
        f"  {weights[i]:6.2f}"
    )
print(f"each point of lead multiplies a weight by {math.e:.3f}")
print(f"the powers, rounded like this, sum to {powers.round(2).sum():.2f}")
claim(
    "by river, 'bank' has seven times as much water as money",
    round(new_bank[0] / new_bank[1]) == 7,
    f"({new_bank[0]:.2f}, {new_bank[1]:.2f})",
)

# %% [markdown]
# Put (0, 3), "money", in place of "river", and the same four steps lead elsewhere. No
# rule about banks was programmed. The neighbour has pulled the word to its side.

# %%
with_money = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 3.0]])
powers_by_money = np.exp(with_money @ bank / math.sqrt(2))
bank_by_money = powers_by_money / powers_by_money.sum() @ with_money
claim(
    "by money, it is the other way round",
    bank_by_money[1] > 6 * bank_by_money[0],
    f"({bank_by_money[0]:.2f}, {bank_by_money[1]:.2f})",
)
draw(
    figures.lines,
    "01_bank.png",
    {
        "bank by river": ([1, new_bank[0]], [1, new_bank[1]]),
        "bank by money": ([1, bank_by_money[0]], [1, bank_by_money[1]]),
        "river": ([3], [0]),
        "money": ([0], [3]),
    },
    x="water",
    y="money",
    notes={"bank, alone": (1, 1)},
)

# %% [markdown]
# ![The plane of water and money. From the point (1, 1), "bank, alone", one line leads to (2.17, 0.31), near "river" at (3, 0), another to (0.31, 2.17), near "money" at (0, 3).](figures/01_bank.png)
#
# *What to see: both lines begin at the same "bank". Attention moves it towards the word
# beside it: a vector after attention is a vector in context.*
#
# In this example a vector played three roles, and they have names:
#
# - the **query** q: the question of the word that looks around ("bank", above),
# - the **key** k: the label by which a word is found (each row, in the dot products),
# - the **value** v: the answer that a word gives (each row, in the average).
#
# In a model these are three different vectors, made from the word's one vector by three
# learned matrices (lesson 03). So a word may look for one thing, be found by another,
# and give a third. When the model above writes "lesen", its query may say "I need the
# verb", the key of "read" may say "I am a verb", and its value "the act of reading".

# %% [markdown]
# ## How is attention computed?
# Each lesson goes round in four steps, and these words mark them:
#
# - **State**: the equation, as the paper has it.
# - **Derive**: the most naive program that is plainly this equation.
# - **Equate**: the library's program gives the same numbers; the difference is printed.
# - **Use**: what the library adds, by a small experiment that fails without it.
#
# **State.** Let the queries be the rows of a matrix Q, the keys and values the rows of
# K and V, and let d_k be the length of a key. Equation 1 of the paper is the four steps
# above for all queries at once:
#
# $$\text{Attention}(Q, K, V) = \text{softmax}(Q K^T / \sqrt{d_k}) V$$
#
# $$\text{softmax}(x)_i = e^{x_i} / \sum_j e^{x_j}$$
#
# The softmax is taken of each row by itself, since a row has the scores of one query.
# The diagram at the lower right of the figure above is this equation, read from below:
# MatMul (matrix product) is step 1, Scale step 2, Softmax step 3, and the upper MatMul
# step 4. Mask comes in a section below.
#
# **Derive.** One query after another, and for each query one key after another.


# %%
def attention_by_loops(queries, keys, values):
    answers = []
    for query in queries:
        powers_of_keys = []
        for key in keys:
            score = sum(query * key) / math.sqrt(len(query))
            powers_of_keys.append(math.exp(score))
        answer = np.zeros(values.shape[1])
        for power, value in zip(powers_of_keys, values, strict=True):
            weight = power / sum(powers_of_keys)
            answer += weight * value
        answers.append(answer)
    return np.array(answers)


by_loops = attention_by_loops(vectors, vectors, vectors)
same("attention by loops, first row = 'bank' on paper", by_loops[0], new_bank)
for i, word in enumerate(words):
    print(f"{word:6s} {vectors[i]} -> {by_loops[i].round(2)}")

# %% [markdown]
# The loops answered for all three words, each as the query once. "By", the vector of
# zeros, has the score 0 with everything. It asks for nothing, so it gets the plain
# average of all three. "River" looks almost only at itself: its score with itself is
# 9, and the next is 3. Divided by 1.414, it leads by 4.24, and e^4.24 is about 70: it
# weighs 70 times as much as the next.
#
# Matrices make the loops disappear. All dot products at once are one matrix product,
# Q K^T: its row t has the scores of query t. All averages are another one. So attention
# is three lines. From here on, Q, K and V are random matrices, with sizes that are all
# different, because then a mix-up of rows and columns cannot pass.

# %%
Q = rng.standard_normal((3, 4))  # three queries of length 4
K = rng.standard_normal((5, 4))  # five keys, as long as the queries
V = rng.standard_normal((5, 2))  # five values, of any length

powers_of_all = np.exp(Q @ K.T / math.sqrt(4))  # (3, 5): e to the power of each score
W = powers_of_all / powers_of_all.sum(axis=1, keepdims=True)  # (3, 5): rows sum to 1
by_arrays = W @ V  # (3, 2): an answer for each query
lead = 6 / math.sqrt(2)
print(f"'River' leads by {lead:.2f}, and e to that is {math.exp(lead):.0f}")

same("three lines of arrays = loops", by_arrays, attention_by_loops(Q, K, V))

# %% [markdown]
# ## Why is the difference not exactly zero?
# `same` printed a largest error of about 1e-16 above, which means 10^-16. Nothing is
# wrong. A computer keeps 16 digits of a number (in 64 bits; 7 digits in 32 bits) and
# rounds after each addition. In another order, other sums are rounded: on a computer
# (a + b) + c is not always a + (b + c). The loops and the matrix product add the same
# numbers in different orders, and that is the difference.

# %%
left_first = (0.1 + 0.2) + 0.3
right_first = 0.1 + (0.2 + 0.3)
print(left_first, "and", right_first)
claim(
    "0.1 + 0.2 + 0.3 depends on the order of addition, by",
    left_first != right_first,
    f"{left_first - right_first:.1e}",
)

# %% [markdown]
# So there are two kinds of agreement in these lessons. Where two programs add in
# different orders, the error is about 1e-16 (1e-7 in 32 bits), more after long sums.
# An error of exactly 0 has one of two reasons: the very same additions happened, or a
# number does not enter at all. Where a lesson *changes* something and claims an exact
# 0, it is the second: the change cannot matter.

# %% [markdown]
# ## What does the library compute?
# **Equate.** Here is the library's softmax; `show` prints the code that runs. Read `xp`
# as `np`, and read past `record` and `backward` until lesson 02. A function of the
# library returns a *Tensor*, an array that remembers how it was computed; `.numpy()` is
# the array in it.

# %%
show(F.softmax)
same("F.softmax = e^x / sum of e^x", F.softmax(Q @ K.T / math.sqrt(4)), W)
same("along the other axis", F.softmax((Q @ K.T / math.sqrt(4)).T, axis=0), W.T)
same("F.attention_weights = the softmax of scaled scores", F.attention_weights(Q, K), W)

# %% [markdown]
# And this is attention. `weights` holds our first two lines, with `scale` for the
# division by the root, and `used @ v` is the third; `swap(k)` is the transposed matrix
# of keys. The other names are for later:
# `attention_arrays` checks the shapes, `masked_softmax` is the softmax with the masks
# of a section below, `next_mask` and `drop` belong to dropout (lesson 04), which does
# nothing here. `@accelerated` says that the library has a second, faster program for
# attention, its *form*. Lessons compute with the equation that `show` prints, unless a
# block says `forms.on()`.

# %%
show(F.attention)
same("F.attention = loops", F.attention(Q, K, V), attention_by_loops(Q, K, V))
with forms.on():
    same("its faster form = loops", F.attention(Q, K, V), attention_by_loops(Q, K, V))

# %% [markdown]
# **Use.** The library adds two things to our three lines. The first: e to the power of
# 1000 is too large for a computer (it *overflows* to infinity), and infinity divided by
# infinity is no longer a number, "NaN". The cure is to subtract the largest score from
# all of them first. Numerator and denominator are then divided by the same number,
# e to the power of the largest, so no weight changes; and the largest power is 1.

# %%
large = np.array([1000.0, 999.0])
with np.errstate(over="ignore", invalid="ignore"):
    naive = np.exp(large) / np.exp(large).sum()
    careful = F.softmax(large).numpy()
    attended = F.attention_weights([[1000.0]], [[1.0], [0.999]]).numpy()
claim("e^1000 overflows: the naive softmax gives NaN", np.isnan(naive).all(), naive)
same("F.softmax of 1000 and 999 = that of 1 and 0", careful, F.softmax([1.0, 0.0]))
same("F.attention_weights does not overflow either", attended[0], careful)

# %% [markdown]
# The second: many sentences go through at once, as a *batch*. A batch of 7 is an array
# with one more axis in front, (7, 3, 4) in place of (3, 4), and each sentence is
# attended to separately.

# %%
many_Q = rng.standard_normal((7, 3, 4))
many_K = rng.standard_normal((7, 5, 4))
many_V = rng.standard_normal((7, 5, 2))
one_by_one = [attention_by_loops(many_Q[b], many_K[b], many_V[b]) for b in range(7)]
same("a batch of 7 = 7 attentions", F.attention(many_Q, many_K, many_V), one_by_one)

# %% [markdown]
# ## Why divide by the square root of d_k?
# **State.** The paper: "We suspect that for large values of d_k, the dot products grow
# large in magnitude, pushing the softmax function into regions where it has extremely
# small gradients." (The *gradient* is the slope: how much a weight moves when a score
# moves a little. A model learns by following slopes; where there is none, it cannot.)
# And: if the numbers in q and k are independent, with mean 0 and variance 1, then q · k
# has mean 0 and variance d_k.
#
# **Derive.** The *variance* is the average squared distance from the mean. Now q · k is
# a sum of d_k products. Each product q_i k_i has mean 0, and its mean square is
# that of q_i times that of k_i, 1 · 1 = 1; so its variance is 1. Variances of
# independent numbers add:
#
# $$\text{var}(q \cdot k) = 1 + 1 + ... + 1 = d_k$$
#
# So scores are spread like $\sqrt{d_k}$: 8 for the paper's d_k of 64. Dividing by
# $\sqrt{d_k}$ brings every spread back to 1.
#
# What does a spread of 8 do to the softmax? A score that leads by 8 gets e^8 times the
# weight of the next: 2,981 times. One key takes everything. Let us measure that, for
# 2000 random queries of 16 keys each. If the score x_i grows by a little, its weight
# w_i grows by w_i (1 - w_i) times as much; lesson 02 derives this slope, and the first
# check below measures it. It is small where w_i is near 0 and where it is near 1.


# %%
def random_scores(d_k):
    queries = rng.standard_normal((200, 10, d_k))  # 2000: 200 sentences, 10 in each
    keys = rng.standard_normal((200, 16, d_k))
    return queries @ keys.swapaxes(1, 2)  # (200, 10, 16)


some_scores = random_scores(64)[0, 0] / 8
nudged = some_scores + 1e-6 * np.eye(16)  # row i: score i is larger by a millionth
before = F.softmax(some_scores).numpy()
growth = (np.diagonal(F.softmax(nudged).numpy()) - before) / 1e-6
same("the slope of weight w is w (1 - w)", growth, before * (1 - before), rtol=1e-4)
print(f"e^8 = {math.exp(8):,.0f}; sqrt(64) = {math.sqrt(64):.0f}")

# %%
sizes = [8, 64, 512, 2048]
variance = []
largest = {"q.k": [], "q.k / sqrt(d_k)": []}
slope = {"q.k": [], "q.k / sqrt(d_k)": []}
for d_k in sizes:
    products = random_scores(d_k)
    variance.append(products.var() / d_k)
    for name, power in (("q.k", 0.0), ("q.k / sqrt(d_k)", 0.5)):
        softened = F.softmax(products / d_k**power).numpy()  # d_k**0.5 is sqrt(d_k)
        largest[name].append(softened.max(axis=-1).mean())
        slope[name].append((softened * (1 - softened)).mean())
        print(
            f"d_k = {d_k:4d}, {name:16s} largest weight {largest[name][-1]:.2f}, "
            f"slope {slope[name][-1]:.3f}"
        )
kept_slope = np.array(slope["q.k"]) / np.array(slope["q.k / sqrt(d_k)"])
claim(
    "the variance of q.k is d_k, up to a factor of",
    abs(np.array(variance) - 1).max() < 0.1,
    f"{min(variance):.3f} to {max(variance):.3f}",
)
claim(
    "slope without the division / with it, at d_k = 64, 512, 2048",
    np.allclose(kept_slope[1:], [0.253, 0.09, 0.045], rtol=0.2),
    kept_slope[1:].round(3),
)
draw(
    figures.line_panels,
    "01_sqrt.png",
    {
        "The softmax picks one key ...": {
            "q.k": (sizes, largest["q.k"]),
            "q.k / sqrt(d_k)": (sizes, largest["q.k / sqrt(d_k)"]),
        },
        "... and stops learning": {
            "q.k": (sizes, slope["q.k"]),
            "q.k / sqrt(d_k)": (sizes, slope["q.k / sqrt(d_k)"]),
        },
    },
    x="d_k",
    y={
        "The softmax picks one key ...": "largest of 16 weights",
        "... and stops learning": "slope of a weight",
    },
    log="x",
)

# %% [markdown]
# ![Two panels over d_k from 8 to 2048. Left: without the division the largest of 16 weights climbs from 0.56 to 0.98; with it, it stays near 0.25. Right: without the division the slope falls from 0.036 to 0.002; with it, it stays at 0.054.](figures/01_sqrt.png)
#
# *What to see: divided scores make flat lines, so the softmax stays soft, whatever d_k.
# Undivided, it points at a single key, and its slope goes to nothing.*
#
# For random vectors, and a model begins with random ones, the paper's suspicion is
# right. At its own d_k of 64, undivided scores leave a quarter of the slope, at 512
# less than a tenth, at 2048 less than a twentieth. Could the model not learn smaller
# numbers by itself? It could, if it learned; but it would start where slopes are nearly
# 0. The division is a good start for free.

# %% [markdown]
# ## How is a position kept from looking?
# The place of a word in its sentence is its *position*. Two kinds of positions must not
# be looked at.
#
# - **Padding.** The sentences of a batch share one array, so short ones are filled up
#   at the end with a word that means nothing. Nobody may look at it.
# - **The future.** A model that writes word after word learns from finished texts. If
#   the position that must predict the next word could see that word, it would copy it
#   and learn nothing. So position t may look at positions up to t, itself included, and
#   no further (section 3.2.3).
#
# **State.** A *mask* has True where a query may attend to a key, False where not.
#
# **Derive.** The naive way: leave the forbidden keys out, and take the softmax over
# the others.


# %%
def masked_weights_by_loops(queries, keys, may_attend):
    weights = np.zeros((len(queries), len(keys)))
    for t, query in enumerate(queries):
        allowed = [s for s in range(len(keys)) if may_attend(t, s)]
        scores_of_allowed = keys[allowed] @ query / math.sqrt(len(query))
        weights[t, allowed] = F.softmax(scores_of_allowed).numpy()
    return weights


def sees_the_past(t, s):
    return s <= t


def sees_words_only(t, s):
    return s < 4  # positions 4 and 5 are padding


names = ["the", "old", "man", "reads", "(pad)", "(pad)"]
X = rng.standard_normal((6, 4))  # a vector for each
past_by_loops = masked_weights_by_loops(X, X, sees_the_past)
words_by_loops = masked_weights_by_loops(X, X, sees_words_only)

# %% [markdown]
# Rows with different numbers of keys make no matrix product. The library's way gives
# the same: **give a forbidden key the score minus infinity**. Then e to that power is
# exactly 0, and the other keys share the sum among them.
#
# **Equate.** A word reaches the program as a number, its *id*; the id of padding is 0.
# `padding_mask` makes the mask from the ids, `causal_mask` from the length. (Causal:
# the past cannot depend on the future.) The next section explains the `[0, 0]`.

# %%
show(padding_mask)
show(causal_mask)
ids = np.array([[11, 12, 13, 14, 0, 0]])  # one sentence: four words, two of padding
words_only = padding_mask(ids)[0, 0]  # (1, 6)
past_only = causal_mask(6)[0, 0]  # (6, 6)
print(past_only.astype(int))
causal = F.attention_weights(X, X, past_only).numpy()
padded = F.attention_weights(X, X, words_only).numpy()
same("causal_mask: position t looks at 0 to t", causal, past_by_loops)
same("padding_mask: nobody looks at padding", padded, words_by_loops)
forbidden = np.concatenate([causal[~past_only], padded[:, 4:].ravel()])
claim("the weights of forbidden keys are exactly 0", not forbidden.any(), 0.0)

# %%
draw(
    figures.matrices,
    "01_masks.png",
    {
        "no mask": F.attention_weights(X, X).numpy(),
        "padding mask": padded,
        "causal mask": causal,
    },
    rows="query",
    columns="key",
    row_labels=names,
    column_labels=names,
    values=".2f",
    mark={
        "padding mask": np.argwhere(padded == 0),  # (row, column) of each zero
        "causal mask": np.argwhere(causal == 0),
    },
)

# %% [markdown]
# ![Three maps of the weights of six positions: no mask; padding mask, with zeros in the two last columns; causal mask, with zeros above the diagonal.](figures/01_masks.png)
#
# *What to see: the framed cells are 0. The padding mask empties the two last columns,
# the causal mask all cells above the diagonal. The other weights of a row grow, so that
# it still sums to 1. The first word can look at itself only: 1.00. (The vectors are
# random here. The rows of padding are computed too, but nobody will use them.)*

# %% [markdown]
# ## Which shape does a mask have?
# In the model, the scores have four axes: (B, H, T, S), for B sentences in the batch, H
# heads (attentions side by side), T queries and S keys. A mask need not repeat what is
# the same along an axis: it has size 1 there, and NumPy stretches it, which is called
# *broadcasting*.
#
# - `padding_mask(ids)` is (B, 1, 1, S): each sentence has its own padding, and a key
#   is padding for all heads and for all queries.
# - `causal_mask(T)` is (1, 1, T, T): each query has its own past, and that is the same
#   in all sentences and heads.
#
# Where both apply, `mask & mask` is (B, 1, T, T).

# %%
two_ids = np.array([[11, 12, 13, 14, 15], [16, 17, 18, 0, 0]])
two_padded = padding_mask(two_ids)
both = two_padded & causal_mask(5)
shapes = [two_padded.shape, causal_mask(5).shape, both.shape]
claim(
    "padding, causal, and both have the shapes",
    shapes == [(2, 1, 1, 5), (1, 1, 5, 5), (2, 1, 5, 5)],
    shapes,
)

# Use: short and long sentences share a batch, and a sentence does not notice.
batch = rng.standard_normal((2, 3, 5, 4))  # 2 sentences, 3 heads, 5 positions
together = F.attention(batch, batch, batch, two_padded).numpy()
short = batch[1, :, :3]  # the second sentence alone, without its padding
alone = F.attention(short, short, short)
same("a sentence with padding = the sentence alone", together[1, :, :3], alone)

# %% [markdown]
# Padding is on the right here, always. Then the causal mask hides it from all real
# words, because it comes after them, and a causal attention needs no padding mask. With
# padding on the left it would.

# %%
causal_alone = F.attention(batch, batch, batch, causal_mask(5)).numpy()
causal_both = F.attention(batch, batch, batch, both).numpy()
unlike = abs(causal_alone - causal_both)[1, :, :3].max()
claim("for real words the causal mask hides padding too", unlike == 0, float(unlike))

# %% [markdown]
# ## Why minus infinity, and not zero afterwards?
# It looks simpler to take the softmax as it is and then write 0 over the forbidden
# weights. **Use**: here is what goes wrong. The sum in the softmax's denominator still
# contains the forbidden keys. So the weights no longer sum to 1, and worse, the future
# *leaks* into the past through that sum.
#
# The test for a leak: change the last two positions, and see whether an earlier answer
# moves. With the mask it must not, not even in the last digit.


# %%
def zero_afterwards(x):
    weights = F.attention_weights(x, x).numpy() * past_only
    return weights @ x


def minus_infinity(x):
    return F.attention(x, x, x, past_only).numpy()


def leak(attend):
    other_future = X.copy()
    other_future[4:] += 1
    return abs(attend(X) - attend(other_future))[:4].max()


leaked = leak(minus_infinity)
claim("minus infinity: the future changes the past by", leaked == 0, float(leaked))
leaked_by_zeros = leak(zero_afterwards)
claim("zero afterwards: it changes it by", leaked_by_zeros > 0.01, leaked_by_zeros)
row_sums = (F.attention_weights(X, X).numpy() * past_only).sum(axis=1)
claim("and the weights of the first word sum to", row_sums[0] < 0.9, row_sums[0])

# %% [markdown]
# One case is left: a query that may look at nothing. All its scores are minus infinity,
# all powers 0, and 0 / 0 is NaN, which would spread through the model. The library
# answers with zeros: who may ask nobody learns nothing.

# %%
nobody = np.zeros((6, 6), bool)
with np.errstate(invalid="ignore"):
    naive_row = np.exp([-np.inf, -np.inf]) / np.exp([-np.inf, -np.inf]).sum()
    lonely = F.attention(X, X, X, nobody).numpy()
naive_is_nan = np.isnan(naive_row).all()
claim("by the naive softmax, who may look at nothing gets", naive_is_nan, naive_row)
same("by the library, who may look at nothing gets zeros", lonely, np.zeros((6, 4)))

# %% [markdown]
# ## What does attention cost, and what does it buy?
# A *layer* is one step of a model: n vectors in, n new vectors out. Before the
# Transformer, two other kinds of layers read sentences.
#
# - A *recurrent* layer has one vector of memory and reads word after word: the new
#   memory is made of the old memory and the word.
# - A *convolution* of width k makes each new vector from k neighbouring words.
#
# **State.** Table 1 of the paper compares them for n words of d numbers each. It also
# has a restricted attention, in which a word looks at r neighbours only.
#
# | layer | multiplications | steps that wait for each other | longest path |
# |---|---|---|---|
# | attention | n^2 · d | 1 | 1 |
# | recurrent | n · d^2 | n | n |
# | convolution | k · n · d^2 | 1 | n/k, or log_k(n) |
# | attention to r neighbours | r · n · d | 1 | n/r |
#
# All entries leave constant factors out. The *path* is the number of computations that
# a signal passes from the first word to the last. The shorter it is, the easier it is
# to learn that one of them depends on the other.
#
# **Derive.** Each layer in a few lines. `product` counts its multiplications: each
# element of a product of (a, b) with (b, c) takes b of them. The matrices would be
# learned; random ones cost the same.

# %%
d = 64
multiplications = []  # of each product so far
memory_matrix = rng.standard_normal((d, d)) / 8
word_matrix = rng.standard_normal((d, d)) / 8
left_matrix = rng.standard_normal((d, d)) / 8
middle_matrix = rng.standard_normal((d, d)) / 8
right_matrix = rng.standard_normal((d, d)) / 8


def product(a, b):
    multiplications.append(a.shape[0] * a.shape[1] * b.shape[1])
    return a @ b


def attention_layer(x):
    weights = F.softmax(product(x, x.T) / math.sqrt(d)).numpy()
    return product(weights, x)


def recurrent_layer(x):
    memories = []
    memory = np.zeros((1, d))
    for word in x:
        from_word = product(word[None], word_matrix)
        memory = np.tanh(product(memory, memory_matrix) + from_word)
        memories.append(memory[0])
    return np.array(memories)


def convolution_layer(x):
    padded = np.pad(x, ((1, 1), (0, 0)))  # a row of zeros before and after
    left = product(padded[:-2], left_matrix)
    middle = product(padded[1:-1], middle_matrix)
    right = product(padded[2:], right_matrix)
    return left + middle + right


def neighbour_layer(x):
    answers = []
    for t in range(len(x)):
        near = x[max(0, t - 2) : t + 3]  # two words on each side, and itself
        weights = F.softmax(product(x[t : t + 1], near.T) / math.sqrt(d)).numpy()
        answers.append(product(weights, near)[0])
    return np.array(answers)


# %% [markdown]
# Only `recurrent_layer` has a loop in which each round needs the result of the round
# before: these are the steps that wait. (The rounds of `neighbour_layer` could all run
# at the same time.) Now count.

# %%
LAYERS = {
    "attention": attention_layer,
    "recurrent": recurrent_layer,
    "convolution, k = 3": convolution_layer,
    "attention to 4 neighbours": neighbour_layer,
}
lengths = [16, 64, 256, 1024]


def counted(layer, n):
    multiplications.clear()
    layer(rng.standard_normal((n, d)))
    return sum(multiplications)


counts = {}
for name, layer in LAYERS.items():
    counts[name] = [counted(layer, n) for n in lengths]
    print(f"{name:26s}", counts[name])

# %% [markdown]
# **Equate.** The counts are those of Table 1, up to its constant factors. Attention has
# two products, one for the scores and one for the averages. A recurrent layer also has
# two, one for the word and one for the memory.

# %%
n = np.array(lengths)
same("attention multiplies 2 n^2 d times", counts["attention"], 2 * n**2 * d)
same("a recurrent layer 2 n d^2 times", counts["recurrent"], 2 * n * d**2)
same("a convolution k n d^2 times", counts["convolution, k = 3"], 3 * n * d**2)

# %%
# Each of n words looks at r + 1 = 5 words, itself included; 6 are missing at the ends.
pairs = 5 * n - 6
near_counts = counts["attention to 4 neighbours"]
same("4 neighbours: 2 d for each pair of words", near_counts, 2 * pairs * d)
x = rng.standard_normal((17, d))
positions = np.arange(17)
is_near = abs(positions[:, None] - positions) <= 2
near_by_mask = F.attention(x, x, x, is_near)
same("attention to neighbours = a mask", neighbour_layer(x), near_by_mask)
curves = {name: (lengths, counts[name]) for name in LAYERS}
draw(
    figures.lines,
    "01_multiplications.png",
    curves,
    x="words in the sentence, n",
    y=f"multiplications (d = {d})",
    log="xy",
    notes={"n = d": (d, 2 * d**3)},
)

# %% [markdown]
# ![Multiplications over the number of words, both on logarithmic axes. Attention is the steepest line: it begins below the recurrent layer at 16 words, meets it at 64 words, which is d, and is far above it at 1024. The convolution runs above the recurrent layer, attention to 4 neighbours below all.](figures/01_multiplications.png)
#
# *What to see: attention and the recurrent layer cross where n = d. The paper's d is
# 512, and most sentences have fewer than 100 words: there attention is cheaper. (The
# matrices that make Q, K and V are not counted: lesson 03.)*
#
# Last, the paths. How many layers must be stacked until the last of 17 words notices a
# change in the first? We change it and look.


# %%
def layers_until_noticed(layer):
    usual = rng.standard_normal((17, d)) / 10
    changed = usual.copy()
    changed[0] += 0.1
    layers = 0
    while (usual[-1] == changed[-1]).all():
        usual = layer(usual)
        changed = layer(changed)
        layers = layers + 1
    return layers


paths = {name: layers_until_noticed(layer) for name, layer in LAYERS.items()}
for name, right in zip(paths, (1, 1, 16, 8), strict=True):
    claim(f"{name}: layers until it is noticed", paths[name] == right, paths[name])

# %% [markdown]
# Why 16 and 8, and not n/k and n/r, which would be about 6 and 4? The first and the
# last of 17 words are 16 apart. A convolution of width k = 3 reaches (k - 1)/2 = 1 word
# to each side, so it needs 16 layers. Attention to r = 4 neighbours reaches r/2 = 2
# to each side, and needs 8. The table leaves such factors out: the point is that these
# paths grow with n, and that attention's does not. (log_k(n) is for convolutions whose
# gaps widen from layer to layer.)
#
# And the recurrent layer? One layer is enough, but inside it the signal passes through
# one memory after another. Its path is the number of these steps.

# %%
multiplications.clear()
recurrent_layer(x)
steps = len(multiplications) // 2  # two products in each step
claim("steps in a recurrent layer of 17 words, one after another", steps == 17, steps)
finish(
    "Attention is an average with softmax weights: the square root keeps them soft, "
    "a mask makes some exactly 0."
)

# %% [markdown]
# ## What did we learn?
# - Attention is an average of values; the weights come from dot products of a query
#   with keys.
# - The softmax makes weights of scores: positive, and with the sum 1.
# - Equal computations differ by 1e-16 if they add in different orders; an exact 0 means
#   that something cannot matter.
# - q · k has the variance d_k; divided by its root, it lets the softmax keep its slope.
# - A mask gives forbidden keys the score minus infinity; zero afterwards would leak.
# - Masks are (B, 1, 1, S) for padding and (1, 1, T, T) for the past.
# - Attention multiplies n^2 d times, no position waits for another, and every word is
#   one step away from every other.

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 01` writes this part to `my_01_attention.py`: fill in the
# bodies, and run that file. It says what is right, and where an answer goes wrong.


# %%
def predicted_weights():
    """Predict the four weights with which "bank" attends in "bank by by river".

    Compute them on paper, then write down the list of four numbers, to two digits, and
    run.

    Hint: "How can a word look at other words?" has the table; now it has a row more.
    """
    ...


def check_predicted_weights():
    answer = np.array(predicted_weights())
    four = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0]])
    expected = F.attention_weights(four[:1], four).numpy()[0]
    assert answer.shape == (4,), "give four numbers, one for each word"
    for i, word in enumerate(["bank", "by", "by", "river"]):
        near = abs(answer[i] - expected[i]) < 0.0051
        assert near, f"the weight of {word!r}, number {i + 1}, is not {answer[i]}"


# %%
def additive_mask(mask):
    """Turn a mask (True: may attend) into numbers to add to the scores.

    softmax(scores + additive_mask(mask)) are then the weights.

    Hint: "How is a position kept from looking?" has the score of a forbidden key.
    """
    ...


def check_additive_mask():
    scores = np.random.default_rng(5).standard_normal((4, 4))
    mask = causal_mask(4)[0, 0]
    # d_k is 4, and its root 2.
    expected = F.attention_weights(2 * scores, np.eye(4), mask)
    found = F.softmax(scores + additive_mask(mask))
    same("softmax(scores + additive_mask)", found, expected)


# %%
def mended_weights(scores, mask):
    """Find the mistake in F.softmax(scores).numpy() * mask, and return right weights.

    One more line mends it, without minus infinity.

    Hint: "Why minus infinity, and not zero afterwards?" says which property of weights
    is lost. Restore it.
    """
    ...


def check_mended_weights():
    scores = np.random.default_rng(6).standard_normal((5, 5))
    mask = causal_mask(5)[0, 0]
    found = np.asarray(mended_weights(scores, mask))
    same("the weights of each row sum to 1", found.sum(axis=-1), np.ones(5))
    later = scores + 3 * ~mask  # other scores for the future
    same("the future does not matter", mended_weights(later, mask), found)
    expected = F.attention_weights(scores * math.sqrt(5), np.eye(5), mask)
    same("mended_weights = attention's weights", found, expected)


# %%
def softmax_average(scores, values):
    """Return softmax(scores) @ values in one loop, without storing the weights.

    Keep the largest score so far, the sum of powers of e, and the weighted
    sum of values.

    Hint: "What does the library compute?" subtracts the largest score of all. Here
    a larger one may still come: then both sums so far were made with the smaller one,
    and need a factor.
    """
    ...


def check_softmax_average():
    values = np.random.default_rng(7).standard_normal((50, 3))
    rising = np.linspace(-999, 999, 50)
    for name, scores in (("rising", rising), ("falling", rising[::-1])):
        expected = F.softmax(scores).numpy() @ values
        same(f"softmax_average, {name}", softmax_average(scores, values), expected)


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("forms.on", "functions.softmax", "functions.attention_weights",
              "functions.attention", "transformer.causal_mask",
              "transformer.padding_mask")  # fmt: skip
