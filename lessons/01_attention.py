# %% [markdown]
"""# Lesson 01. Attention

Is a bank a place for money, or the side of a river? A word means little alone. This
lesson builds the operation by which each word of a sentence looks at the others and
takes from them what it needs. The paper that this course rebuilds, Attention Is All You
Need (by Vaswani and others, in 2017), is named after it. Its section 3.2.1 defines it.

You need Python, matrices and a little NumPy. At the end you will have computed
attention on paper, in loops and in three lines. You will know why it divides by a
square root, what a mask does, and what attention costs compared with the layers that it
replaced.
"""

# %% [markdown]
# ## What is attention good for?
# Before any formula, watch it at work. A small Transformer, the kind of model that the
# paper invented, comes with these lessons. It has learned to translate the sentences of
# a toy grammar from English to German. One line loads it, another asks it.

# %%
import math

import numpy as np

# minitf is the library that these lessons explain: a Transformer in NumPy.
from minitf import forms
from minitf import functions as F
from minitf.check import claim, same
from minitf.course.architecture import figure_1
from minitf.course.checks import attention as checks
from minitf.course.figures import attention as figures
from minitf.course.lesson import begin, draw, finish, show, toy_model
from minitf.plot import join_pieces
from minitf.transformer import causal_mask, padding_mask

# Reads the options --figures and --backend, and starts to count the claims.
begin("01_attention")
rng = np.random.default_rng(1)  # random numbers, the same in each run

# %%
translator = toy_model()
sentence = "The old man will read the new book."
translations = translator.translate([sentence])  # several translations of each sentence
translation = translations[0][0].text  # of the first sentence, the best
print(f"{sentence}  ->  {translation}")

last_word = translation.strip(".").split()[-1]
claim("the last German word is the verb", last_word == "lesen", last_word)

# %% [markdown]
# A program checks each claim of this course and stops at a false one. In the book such
# a claim has a ✓, and a click on it shows how it was checked.
#
# The model got something right that a dictionary cannot. "Read" is the fifth English
# word, and "lesen", the same verb, is the last German one, because after "wird" (will)
# German puts the other verb at the end. So when the model wrote its last word, it had
# to look back at the fifth of ours.
#
# Attention is the way in which it looks back. For each word that it writes, it gives
# each word of the *source*, the sentence to translate, a *weight*. The weights are
# numbers from 0 to 1, and they sum to 1: they say how the model divides its attention
# among the words. We can read them out of it. The model has several attentions side by
# side, called *heads* (lesson 03); here is one of its last layer that is quick to
# understand. A row is named after the word that is written next. That word does not
# exist yet: the one that looks is the newest word, which stands before it.

# %%
# The model reads pieces of words (lesson 05). join_pieces joins them.
attended = translator.attention(sentence)
weights_of_heads, german, english = join_pieces(*attended, words=True)
one_head = weights_of_heads[3]  # (German words, English words)

weight_of_read = one_head[german.index("lesen"), english.index("read")]
claim(
    "writing 'lesen', the model looks at 'read', with the weight",
    weight_of_read > 0.9,
    f"{weight_of_read:.2f}",
)
draw(
    figures.translation,
    "01_translation.png",
    one_head,
    german,
    english,
    "lesen",
    "read",
)

# %% [markdown]
# ![A map with a row for each German word and a column for each English word. The dark cells run down from the upper left to the lower right, except that the row of "lesen", the eighth, is dark at "read", the fifth column.](figures/01_translation.png)
#
# *What to see: the dark cells run down from left to right, word after word; but the
# framed one leads from "lesen" back to "read". The mark "(end)" ends a sentence.*
#
# [The same, played word for word in an interactive picture](toy-page.html#source-9)
#
# *What to see: the sentence "The old woman gave the child a red book.", before its last
# German word, "gegeben" (given). The lines are weights, the mean over the heads, and
# "gave" has nearly all. Press "Back" to see where the model looked before.*
#
# Nobody told the model which word translates which. The weights come from numbers that
# it learned, and this is what it found out.
#
# The model of the paper uses attention in three places. Here they are in its figure 1.
# You need none of the other boxes yet. What the lessons write, by letter and by word:
# [symbols, shapes and words](WORDS.md).

# %%
attentions = [
    "self-attention",
    "masked self-attention",
    "source attention",
    "attention inside a head",
]
draw(figure_1, "01_here.svg", here=attentions)

# %% [markdown]
# ![Figure 1 of the paper, a diagram of the Transformer: the encoder on the left, the decoder on the right. The three attention boxes are marked: one in the encoder, two in the decoder; so is the small diagram of one attention.](figures/01_here.svg)
#
# *What to see: it is the same operation in all three places, the diagram at the lower
# right. On the left is the* encoder, *which reads the English: there the English words
# look at each other. The middle column is the* decoder, *which writes the German: in
# its lower box, the German words look at each other; in the upper one they look at the
# English words, as above, along the thick line.*
#
# ## How can a word look at other words?
# English has one "bank", German has two: "Ufer" for the bank of a river, "Bank" for
# the one with the money. To translate the "bank" in "bank by river", a model must look
# at its neighbours, as in the box on the left.
#
# A word enters the model as a *vector*, a list of numbers (lesson 05). Let ours have
# two: how much the word has to do with water, and how much with money.
#
# | word | water | money | |
# |---|---|---|---|
# | bank | 1 | 1 | alone, it can be either |
# | by | 0 | 0 | |
# | river | 3 | 0 | |
#
# Now "bank" looks around. Take a pencil:
#
# 1. **Score.** Take the dot product of "bank" with each word, also with itself:
#    multiply number by number, and add. It is large if both are large in the same
#    places. "Bank" scores 2 with itself, and 3 with "river", although "river" shares
#    only the water: it is long, and says "water" three times as loudly as "bank" does.
# 2. **Scale.** Divide each score by $\sqrt{2} = 1.414$, as our vectors have two
#    numbers. A section below says why.
# 3. **Weigh.** Raise $e = 2.718$ to the power of each score. Then divide by the sum, so
#    that the weights sum to 1. This step is called the *softmax*. The reason for powers
#    is given below the table.
# 4. **Average.** Add up the vectors, each times its weight (a *weighted average*).
#
# | word | vector | score | score / $\sqrt{2}$ | $e$ to that | weight |
# |---|---|---|---|---|---|
# | bank | (1, 1) | 1 · 1 + 1 · 1 = 2 | 1.414 | 4.11 | 4.11 / 13.45 = 0.31 |
# | by | (0, 0) | 1 · 0 + 1 · 0 = 0 | 0.000 | 1.00 | 1.00 / 13.45 = 0.07 |
# | river | (3, 0) | 1 · 3 + 1 · 0 = 3 | 2.121 | 8.34 | 8.34 / 13.45 = 0.62 |
# | sum | | | | 13.45 | 1.00 |
#
# The average is
#
# $$0.31 \cdot (1, 1) + 0.07 \cdot (0, 0)$$
#
# $$+ \; 0.62 \cdot (3, 0) = (2.17, 0.31)$$
#
# "Bank" is no longer a riddle: beside a river it has seven times as much to do with
# water as with money.
#
# Why powers of $e$? Scores divided by their sum would give "by" (score 0) nothing, and
# a negative score a negative weight. Squares are positive, but -3 would count as much
# as 3. Powers of $e$ are positive and grow with the score; and the ratio of two
# weights, $e^a / e^b = e^{a - b}$, depends only on how far one score leads the other.
# So adding the same number to all scores changes nothing: only comparisons count.
# "River" leads "bank" by 2.121 - 1.414 = 0.707, so its weight is $e^{0.707}$ = 2.03
# times as large. Powers of 2 would do as well; with $e$ the derivative is the shortest
# (lesson 02). Now the same by code, line by line as in the table.

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
    row = f"{word:6s} {scores[i]:6.2f}  {scaled[i]:6.3f}  {powers[i]:6.2f}"
    print(f"{row}  {weights[i]:6.2f}")
print(f"e = {math.e:.3f}; its powers as above sum to {powers.round(2).sum():.2f}")
print(f"e^{scaled[2] - scaled[0]:.3f} = {math.exp(scaled[2] - scaled[0]):.2f}")
claim(
    "by river, 'bank' has seven times as much water as money",
    round(new_bank[0] / new_bank[1]) == 7,
    f"({new_bank[0]:.2f}, {new_bank[1]:.2f})",
)

# %% [markdown]
# Put (0, 3), "money", in place of "river", and the same four steps lead elsewhere. No
# rule about banks was programmed: there are only vectors, and a model learns those,
# too.

# %%
with_money = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 3.0]])
powers_by_money = np.exp(with_money @ bank / math.sqrt(2))
bank_by_money = powers_by_money / powers_by_money.sum() @ with_money
claim(
    "by money, it is the other way round",
    round(bank_by_money[1] / bank_by_money[0]) == 7,
    f"({bank_by_money[0]:.2f}, {bank_by_money[1]:.2f})",
)
draw(
    figures.moved_words,
    "01_bank.png",
    {"bank, alone": bank},
    {"bank by river": new_bank, "bank by money": bank_by_money},
    {"by": vectors[1], "river": vectors[2], "money": with_money[2]},
)

# %% [markdown]
# ![The plane of water and money. From the point (1, 1), "bank, alone", one arrow leads to (2.17, 0.31), near "river" at (3, 0), another to (0.31, 2.17), near "money" at (0, 3). Each ends inside a shaded triangle, whose corners are bank, by, and the neighbour.](figures/01_bank.png)
#
# *What to see: both arrows begin at the same "bank". Attention moves it towards the
# word beside it: a vector after attention is a vector in context. And it stays inside
# the shaded triangle of the words: the weights are positive and sum to 1, so an average
# never leaves what it averages.*
#
# Here a vector played three roles, which have names:
#
# - the **query** $q$: the question of the word that looks around ("bank", above),
# - the **key** $k$: the label by which a word is found (each row, in the dot products),
# - the **value** $v$: the answer that a word gives (each row, in the average).
#
# In a model these are three different vectors, made from the word's one vector by three
# learned matrices (lesson 03). So a word may look for one thing, be found by another,
# and give a third. When the model above is about to write "lesen", the newest word is
# "Buch", so the query is made of "Buch". It may say "next I need the verb", the key of
# "read" may say "I am a verb", and its value "the act of reading".
#
# The names come from looking up. A Python `dict` compares a query with each key by
# `==`, and returns the one value whose key is equal. Attention is a soft dict: every
# key fits more or less, and all values come back, mixed by how well their keys fit. Let
# the query change a little, from (1, 1) to (1, 1.1):

# %%
hard_dict = {(1, 1): "bank", (0, 0): "by", (3, 0): "river"}
for query in ((1, 1), (1, 1.1)):
    fits = np.exp(vectors @ query / math.sqrt(2))
    soft = fits / fits.sum()  # for (1, 1) these are the weights of the table
    print(f"{query}: dict {hard_dict.get(query)}, attention {soft.round(3)}")
moved = abs(soft - weights).max()
claim("a small change of the query moves no weight by more than", moved < 0.02, moved)

# %% [markdown]
# The dict jumps from "bank" to nothing; the weights of attention move by 0.015 at most.
# A small change of the query has a small effect, which can be measured. So one can ask
# which way the query should move for a better answer. This is how it is learned (lesson
# 02).
#
# ## How is attention computed?
# Four words mark what a paragraph does. **State**: the paper's equation. **Derive**:
# where it comes from, or a slow program that is quickly believed. **Equate**: the
# library gives the same. **Use**: a small experiment.
#
# **State.** Let $n$ queries be the rows of a matrix $Q$, and $m$ keys and values the
# rows of $K$ and $V$. Queries and keys have the length $d_k$, values the length $d_v$.
# Equation 1 of the paper is the four steps above for all queries at once:
#
# $$\text{Attention}(Q, K, V) = \text{softmax}(Q K^T / \sqrt{d_k}) V$$
#
# $$\text{softmax}(x)_i = e^{x_i} / \sum_j e^{x_j}$$
#
# So $Q$ is $(n, d_k)$, $K$ is $(m, d_k)$ and $V$ is $(m, d_v)$. Then $Q K^T$ is
# $(n, m)$, a row of scores for each query, and the answer is $(n, d_v)$. The softmax is
# taken of each row by itself. The diagram at the lower right of the figure above is
# this equation, read from below: MatMul (matrix product) is step 1, Scale step 2,
# Softmax step 3, and the upper MatMul step 4. Mask comes in a section below.
#
# **Derive.** One query after another, and for each query one key after another. `same`
# claims that two arrays are equal, and says by how much they differ at most.


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
same("attention by loops, first row = 'bank' above", by_loops[0], new_bank)
for i, word in enumerate(words):
    print(f"{word:6s} {vectors[i]} -> {by_loops[i].round(2)}")

# %% [markdown]
# The loops answered for all three words, each as the query once. "By", the vector of
# zeros, has the score 0 with everything, so it gets the plain average of all three.
# "River" scores 9 with itself and only 3 with "bank", so it stays nearly as it is.
#
# Nothing here depends on where a word stands: "river by bank" gives "bank" the same
# vector. Lesson 05 changes that.
#
# Matrices make the loops disappear. All dot products at once are one matrix product,
# $Q K^T$: its row $t$ has the scores of query $t$. All averages are another one. So
# attention is three lines. From here on $Q$, $K$ and $V$ are random, and their sizes,
# $n = 3$, $m = 5$, $d_k = 4$ and $d_v = 2$, differ: a mix-up of rows and columns would
# be an error.

# %%
Q = rng.standard_normal((3, 4))  # three queries of length 4
K = rng.standard_normal((5, 4))  # five keys, as long as the queries
V = rng.standard_normal((5, 2))  # five values, of any length

powers_of_all = np.exp(Q @ K.T / math.sqrt(4))  # (3, 5): e to the power of each score
W = powers_of_all / powers_of_all.sum(axis=1, keepdims=True)  # (3, 5): rows sum to 1
by_arrays = W @ V  # (3, 2): an answer for each query

same("three lines of arrays = loops", by_arrays, attention_by_loops(Q, K, V))

# %% [markdown]
# The difference is about `1e-16`, which means $10^{-16}$, and nothing is wrong. A
# computer keeps about 16 digits of a number and rounds after each addition, and the two
# programs add in different orders.
#
# ## What does the library compute?
# **Equate.** The library's functions compute what we have written. They return a
# *Tensor*, an array that remembers how it was computed (lesson 02). `.numpy()` is the
# array.

# %%
scaled_scores = Q @ K.T / math.sqrt(4)
same("F.softmax of each row = our weights", F.softmax(scaled_scores), W)
same("F.attention_weights = our weights, too", F.attention_weights(Q, K), W)
same("F.attention = loops", F.attention(Q, K, V), attention_by_loops(Q, K, V))

# %% [markdown]
# The library adds a guard against large scores to our three lines. $e^{1000}$ is too
# large for a computer: it *overflows* to infinity, and infinity divided by infinity is
# no longer a number, "NaN". The cure is to subtract the largest score from all scores
# first. As above, no weight changes, and the largest power is 1.

# %%
large = np.array([1000.0, 999.0])
with np.errstate(over="ignore", invalid="ignore"):
    naive = np.exp(large) / np.exp(large).sum()
    careful = F.softmax(large).numpy()
claim("e^1000 overflows: the naive softmax gives NaN", np.isnan(naive).all(), naive)
same("F.softmax of 1000 and 999 = that of 1 and 0", careful, F.softmax(large - 999))

# %% [markdown]
# ## Why divide by a square root?
# **State.** The paper: "We suspect that for large values of $d_k$, the dot products
# grow large in magnitude, pushing the softmax function into regions where it has
# extremely small gradients."
#
# **Derive.** How large are dot products? Let the numbers in $q$ and $k$ be independent,
# with mean 0 and variance 1; the *variance* is the average squared distance from the
# mean. Now $q · k$ is a sum of $d_k$ products. Each product $q_i k_i$ has mean 0, and
# its mean square is that of $q_i$ times that of $k_i$, as the two are independent:
# $1 · 1 = 1$. With a mean of 0 the mean square is the variance. Variances of
# independent numbers add:
#
# $$\text{var}(q \cdot k) = 1 + 1 + ... + 1 = d_k$$
#
# The root of the variance is called the *standard deviation*, here also the *spread*.
# Scores have the spread $\sqrt{d_k}$: 8 for the paper's $d_k$ of 64. Divided by
# $\sqrt{d_k}$, they have the spread 1, whatever $d_k$ is. Divided by $d_k$ itself, they
# would have 1/8: all weights nearly equal, attention a plain average.
#
# What is bad about a spread of 8? Take two keys. The score of the first leads by 0, by
# 1, or by 8. Look at its weight. Then raise its score by a little, a millionth, and see
# how much the weight grows. Growth divided by a millionth is the *slope* of the weight,
# which the paper calls gradient.


# %%
def weight_of_first(lead):
    return F.softmax(np.array([lead, 0.0])).numpy()[0]


def slope_of_first(lead):
    return (weight_of_first(lead + 1e-6) - weight_of_first(lead)) / 1e-6


leads = np.array([0, 1, 8])
firsts = np.array([weight_of_first(lead) for lead in leads])
slopes = np.array([slope_of_first(lead) for lead in leads])
slopes_of_eighths = [slope_of_first(lead / 8) for lead in leads]
print("lead    weight     slope     lead / 8    slope")
for i, lead in enumerate(leads):
    columns = f"{lead:4}  {firsts[i]:8.4f}  {slopes[i]:8.6f}  {lead / 8:11.3f}"
    print(f"{columns} {slopes_of_eighths[i]:8.4f}")
print(f"the first slope / the last one: {slopes[0] / slopes[2]:.0f}")
# Equal to 5 digits: a step measures a slope no better.
same("the slope of a weight w is w (1 - w)", slopes, firsts * (1 - firsts), rtol=1e-5)

# %% [markdown]
# Without a lead, the weight is 0.5, and it follows its score with a slope of 0.25. With
# a lead of 8, the first key takes everything, and its slope is 0.000335, which is 746
# times smaller. A model follows slopes in small steps (lesson 02): where there is none,
# it cannot learn. The slope of a weight $w$ is $w (1 - w)$, as lesson 02 derives, so a
# weight near 0 has none either.
#
# Divided by 8, as for a $d_k$ of 64, the lead of 8 becomes a lead of 1, and the slopes
# are nearly equal. **That counts, because all queries share one step:** one learned
# matrix makes them all (lesson 03). A longer step makes up for slopes that are small
# everywhere. It cannot make up for one that is small here and large there: what suits
# the query with the slope 0.25 does nothing for the one whose slope is 746 times
# smaller. Lesson 07 tries it.
#
# So compare slopes: those of 2000 random queries, with 16 keys, for four sizes $d_k$.
# Of each query take the largest weight $w$, and its slope. If $w$ is near 1, all others
# are near 0, and no weight of this query has a slope. A query with less than a tenth of
# the average slope in its line has *nearly no slope*: a step that suits the average
# moves it less than a tenth as far. Another limit than our tenth changes the numbers,
# but not what they show.


# %%
def random_scores(d_k):
    generator = np.random.default_rng(d_k)
    queries = generator.standard_normal((2000, d_k))
    keys = generator.standard_normal((16, d_k))
    return queries @ keys.T  # (2000, 16)


def measure(name, scores):
    """Return the mean of the largest weights, and the share with nearly no slope."""
    w = F.softmax(scores).numpy().max(axis=1)
    slope = w * (1 - w)
    stuck = (slope < slope.mean() / 10).mean()
    print(f"{name:>16s}   largest {w.mean():.2f}   nearly no slope {stuck:.2f}")
    return w.mean(), stuck


sizes = [8, 64, 512, 2048]
undivided = []
divided = []
for d_k in sizes:
    dots = random_scores(d_k)
    print(f"d_k = {d_k:4d}: variance of the scores {dots.var():6.1f}")
    undivided.append(measure("q.k", dots))
    divided.append(measure("q.k / sqrt(d_k)", dots / math.sqrt(d_k)))

stuck_at = np.array(undivided)[:, 1]
rises = (stuck_at[1:] > [0.2, 0.5, 0.7]).all()
claim("undivided, ever more queries have nearly no slope", rises, stuck_at.round(2))
claim("divided, no query has", not np.array(divided)[:, 1].any(), 0.0)
draw(figures.dot_products, "01_sqrt.png", sizes, undivided, divided)

# %% [markdown]
# ![Two panels over d_k from 8 to 2048. Left: without the division the largest of 16 weights climbs from 0.51 to 0.97; with it, it stays near 0.25. Right: without the division the share of queries with nearly no slope climbs from 0.01 to 0.76; with it, it is 0.](figures/01_sqrt.png)
#
# *What to see: divided scores make flat lines, whatever $d_k$ is: the softmax stays
# soft, and no query is stuck. Undivided, it points at a single key, and more and more
# queries have nearly no slope.*
#
# So the paper's suspicion is right, for the random vectors with which a model begins:
# at the paper's own $d_k$ of 64, 29% of the queries would have nearly no slope. Could
# the model not learn smaller numbers by itself? It could, but learning needs slopes,
# and the queries that need it most have none. The division is a good start for free.
#
# ## How is a position kept from looking?
# The place of a word in its sentence is its *position*. Two kinds of positions must not
# be looked at.
#
# - **Padding.** Many sentences go through at once, as a *batch*: one array, (7, 3, 4)
#   for seven sentences of three words of four numbers, and attention runs in each
#   separately. Short ones are filled up at the end with a word that means nothing, the
#   *padding*. Nobody may look at it.
# - **The future.** When a model writes, the future does not exist yet. But when it
#   learns, the finished text is there, and the model predicts all its words in one
#   pass. If it could see the word that it has to predict, it would copy it and learn
#   nothing. So (section 3.2.3) a position may look at those up to itself, and no
#   further:
#
# | at the word | it may look at | it predicts |
# |---|---|---|
# | the | the | old |
# | old | the, old | man |
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
X = np.random.default_rng(8).standard_normal((6, 4))  # a vector for each
X[5] = X[4]  # padding is one word, and has one vector
past_by_loops = masked_weights_by_loops(X, X, sees_the_past)
print(past_by_loops[:3].round(2))  # the first three words, and what each may look at
words_by_loops = masked_weights_by_loops(X, X, sees_words_only)

# %% [markdown]
# Rows with different numbers of keys do not fit into one matrix product. The library's
# way gives the same: **a forbidden key gets the score minus infinity**. Then $e$ to
# that power is exactly 0, and the other keys share the weight of 1 among them. If all
# keys were forbidden, that would be 0 / 0, no number. It does not happen: a sentence
# has a word, and the causal mask leaves each position itself.
#
# **Equate.** A word reaches the program as a number, its *id*; the id of padding is 0.
# `padding_mask` makes the mask from the ids, `causal_mask` from the length; it is
# *causal*, as no effect comes before its cause. A mask of the library has the axes
# (sentences, heads, queries, keys), as heads work side by side (lesson 03). [0, 0]
# takes the first sentence and the first head, and leaves (queries, keys).

# %%
ids = np.array([[11, 12, 13, 14, 0, 0]])  # one sentence: four words, two of padding
words_only = padding_mask(ids)[0, 0]  # (1, 6): it is the same for all queries
past_only = causal_mask(6)[0, 0]  # (6, 6)
print(past_only.astype(int))
no_mask = F.attention_weights(X, X).numpy()
causal = F.attention_weights(X, X, past_only).numpy()
padded = F.attention_weights(X, X, words_only).numpy()
same("causal_mask: position t looks at 0 to t", causal, past_by_loops)
same("padding_mask: nobody looks at padding", padded, words_by_loops)
claim("the weights of the future are exactly 0", (causal[~past_only] == 0).all(), 0.0)
draw(figures.masks, "01_masks.png", no_mask, padded, causal, names)

# %% [markdown]
# ![Three maps of the weights of six positions: no mask; padding mask, with zeros in the last two columns; causal mask, with zeros above the diagonal.](figures/01_masks.png)
#
# *What to see: the framed cells are 0, exactly (an unframed 0.00 is only rounded). The
# padding mask empties the last two columns, the causal mask all cells above the
# diagonal. The other weights of a row grow, so that it still sums to 1. The first word
# can look at itself only: 1.00. The rows of padding are computed, and nobody uses
# them.*
#
# ## Why minus infinity, and not zero afterwards?
# It looks simpler to take the softmax as it is and then write 0 over the forbidden
# weights.
#
# **Use.** Here is what goes wrong. The sum in the softmax's denominator still contains
# the forbidden keys. So the weights no longer sum to 1, and worse, the future *leaks*
# into the past through that sum.
#
# The test for a leak: change "reads", and see whether the answer of a word before it
# moves. With the mask it must not: a weight of exactly 0 adds exactly 0, so even the
# last digit stays.


# %%
def zero_afterwards(x):
    weights = F.attention_weights(x, x).numpy() * past_only
    return weights @ x


def minus_infinity(x):
    return F.attention(x, x, x, past_only).numpy()


def leak(attend):
    other_future = X.copy()
    other_future[3] += 1  # "reads" is the future of the three words before it
    return abs(attend(X) - attend(other_future))[:3].max()


leaked = leak(minus_infinity)
claim("minus infinity: the future changes the past by", leaked == 0, float(leaked))
leaked_by_zeros = leak(zero_afterwards)
claim("zero afterwards: it changes it by", leaked_by_zeros > 0.01, leaked_by_zeros)
print("e^-800, rounded by the computer:", math.exp(-800))
row_sums = (no_mask * past_only).sum(axis=1)
claim("and the weights of the first word sum to", row_sums[0] < 0.9, row_sums[0])

# %% [markdown]
# The last number is the first cell of the left map above. The rest of that row's weight
# went to the positions after it. One could divide each row by its sum again (exercise
# 3). But if a forbidden score leads by 800, the powers of the allowed ones are at most
# $e^{-800}$ times its own, which a computer rounds to 0, and nothing is left to divide.
#
# ## What does attention cost, and what does it buy?
# A *layer* is one step of a model: $n$ vectors in, $n$ new vectors out. Before the
# Transformer, two other kinds of layers read sentences.
#
# - A *recurrent* layer has one vector, its *hidden state*, and reads word after word:
#   the new state is made of the old state and the word.
# - A *convolution* of width $k$ makes each new vector from $k$ neighbouring words.
#
# **State.** Table 1 of the paper compares them for $n$ words of $d$ numbers each. It
# counts how things *grow*, and leaves constant factors out. And of attention it counts
# the scores and averages only, not the learned matrices that come in lesson 03.
#
# | layer | multiplications | sequential operations | longest path |
# |---|---|---|---|
# | attention | $n^2 · d$ | 1 | 1 |
# | recurrent | $n · d^2$ | $n$ | $n$ |
# | convolution | $k · n · d^2$ | 1 | $n/k$ |
#
# The multiplications: attention has $n \cdot n$ scores, and each takes $d$
# multiplications. A recurrent layer sends $n$ words through a matrix of $d \cdot d$
# numbers, and a convolution through $k$ such matrices.
#
# *Sequential operations* are steps that wait for each other: each needs the result of
# the one before, so no machine can do them at the same time. The *path* is the number
# of steps that a signal takes from the first word to the last. One convolution is
# computed at once, but it reaches neighbours only, so the path of a signal leads
# through many layers, and becomes longer with $n$.
#
# The shorter the path, the easier it is to learn that one word depends on the other:
# each step changes the signal. If each keeps 0.9 of it, 50 steps keep only
# $0.9^{50} = 0.005$.
#
# **Use.** Let $d$ be 512, as in the paper, and let the text grow.

# %%
d = 512
for n in (50, 512, 5_000):
    of_attention = n**2 * d
    of_recurrent = n * d**2
    ratio = of_attention / of_recurrent
    print(f"n = {n:5,}: {of_attention:14,} / {of_recurrent:13,} = {ratio:.1f}")
    if n == d:
        claim("at n = d, attention / recurrent is", ratio == 1, ratio)
print(f"after 50 steps that each keep 0.9 of a signal, {0.9**50:.3f} of it is left")

# %% [markdown]
# For a sentence of 50 words, the scores and averages take a tenth of the recurrent
# layer's multiplications; at $n = d$ they are even; for a text of 5,000 words they take
# ten times as many. Learned matrices come on top: lesson 03 makes the complete bill.
#
# What else does it buy? In attention every word looks at every other directly, and no
# word waits. **Attention has the shortest path, and pays with $n^2$.**

# %% [markdown]
# ## What did we learn?
# - Attention is an average of values; the weights come from dot products of a query
#   with keys.
# - The softmax makes weights of scores: positive, and with the sum 1.
# - $q · k$ has the variance $d_k$. Undivided, many queries would begin with nearly no
#   slope; divided by $\sqrt{d_k}$, none does.
# - A mask gives forbidden keys the score minus infinity; zero afterwards would leak.
# - Scores and averages take $n^2 d$ multiplications, no position waits for another, and
#   every word is one step away from every other.

# %% [markdown]
# ## More on attention
# Nothing below is needed for the next lesson. Of the questions, the two with a ★ are
# worth everybody's click.
#
# ### Why is the difference of two programs not exactly zero?
# A computer rounds after each addition, so $(a + b) + c$ is not always $a + (b + c)$.

# %%
difference = ((0.1 + 0.2) + 0.3) - (0.1 + (0.2 + 0.3))
claim("0.1 + 0.2 + 0.3 depends on the order, by", difference != 0, f"{difference:.1e}")

# %% [markdown]
# Where a line of `same` ends in `0.0e+00`, both programs happened to round alike. That
# is no better than `1e-16`. A 0 has a meaning where a lesson *changes* something and
# claims that the result moved by exactly 0. Then the change cannot matter.
#
# ### ★ What does the library's code look like?
# First two more checks: of its softmax along another axis, and of large scores.

# %%
same("F.softmax of each column, if told so", F.softmax(scaled_scores.T, axis=0), W.T)
with np.errstate(over="ignore", invalid="ignore"):
    # The scores are 1000 and 999 again; d_k is 1.
    of_large = F.attention_weights(np.array([[1000.0]]), [[1.0], [0.999]]).numpy()
same("F.attention_weights does not overflow either", of_large[0], careful)

# %% [markdown]
# `show` prints the code that runs. Look for three lines of it. `scale` is the division
# by the root. `weights` holds our first two lines (`swap(k)` is the transposed matrix
# of keys). `used @ v` is the third. All the rest is for later: `masked_softmax` is the
# softmax with a mask, `next_mask` and `drop` belong to lesson 04 and do nothing here,
# and `@accelerated` says that the library has a second, faster program for attention,
# its *form*. Lessons compute with the equation that `show` prints, unless a block says
# `forms.on()`.

# %%
show(F.attention)
with forms.on():
    same("its faster form = loops", F.attention(Q, K, V), attention_by_loops(Q, K, V))

# %% [markdown]
# ### Does a batch give what its sentences give alone?
# Yes, for the library's attention runs in each sentence separately.

# %%
many_Q = rng.standard_normal((7, 3, 4))
many_K = rng.standard_normal((7, 5, 4))
many_V = rng.standard_normal((7, 5, 2))
one_by_one = [attention_by_loops(many_Q[b], many_K[b], many_V[b]) for b in range(7)]
same("a batch of 7 = 7 attentions", F.attention(many_Q, many_K, many_V), one_by_one)

# %% [markdown]
# ### Which shapes do masks have, and does a short sentence notice its padding?
# Their shapes have four axes, $(B, H, T, S)$: $B$ sentences in the batch, $H$ heads,
# $T$ queries and $S$ keys. Where all are alike along an axis, the mask has the size 1
# there, and NumPy stretches it, which is called *broadcasting*.
#
# - `padding_mask(ids)` is $(B, 1, 1, S)$: each sentence has its own padding, and it is
#   padding for all heads and for all queries.
# - `causal_mask(T)` is $(1, 1, T, T)$: each query has its own past, and that is the
#   same in all sentences and heads.
# - Where both apply, `padding_mask(ids) & causal_mask(T)` is $(B, 1, T, T)$.
#
# In the code, `batch_of_ids` refuses what is no array of ids, `None` in brackets makes
# an axis of size 1, and `np.tri` has ones up to the diagonal.

# %%
show(padding_mask)
show(causal_mask)

# %% [markdown]
# A short sentence must not notice its padding: its answers are those that it would get
# alone.

# %%
two_ids = np.array([[11, 12, 13, 14, 15], [16, 17, 18, 0, 0]])
two_padded = padding_mask(two_ids)
both = two_padded & causal_mask(5)
shapes = [two_padded.shape, causal_mask(5).shape, both.shape]
expected_shapes = [(2, 1, 1, 5), (1, 1, 5, 5), (2, 1, 5, 5)]
claim("padding, causal, and both have the shapes", shapes == expected_shapes, shapes)
batch = rng.standard_normal((2, 3, 5, 4))  # 2 sentences, 3 heads, 5 positions
together = F.attention(batch, batch, batch, two_padded).numpy()
short = batch[1, :, :3]  # the second sentence alone, without its padding
alone = F.attention(short, short, short)
same("a sentence with padding = the sentence alone", together[1, :, :3], alone)

# %% [markdown]
# ### What if a query may look at nothing?
# That happens in a sentence of padding only. All its powers are 0, and $0 / 0$ would be
# NaN. The library answers with zeros.

# %%
nobody = np.zeros((6, 6), bool)
with np.errstate(invalid="ignore"):  # no warning, but NaN, if the library were naive
    lonely = F.attention(X, X, X, nobody)
same("whoever may look at nothing gets zeros", lonely, np.zeros((6, 4)))

# %% [markdown]
# ### ★ Is table 1 right?
# Here are the first three layers in a few lines each. `product` counts its
# multiplications: each element of a product of $(a, b)$ with $(b, c)$ takes $b$ of
# them. The matrices would be learned; random ones cost the same.

# %%
width = 64  # d, the numbers of each word
counted_products = []  # the multiplications of each product so far
# Divided by 8, the root of 64, so that a product is about as large as its input.
state_matrix = rng.standard_normal((width, width)) / 8
word_matrix = rng.standard_normal((width, width)) / 8
left_matrix = rng.standard_normal((width, width)) / 8
middle_matrix = rng.standard_normal((width, width)) / 8
right_matrix = rng.standard_normal((width, width)) / 8


def product(a, b):
    counted_products.append(a.shape[0] * a.shape[1] * b.shape[1])
    return a @ b


def attention_layer(x):
    weights = F.softmax(product(x, x.T) / math.sqrt(width)).numpy()
    return product(weights, x)


def recurrent_layer(x):
    states = []
    state = np.zeros((1, width))
    for word in x:
        from_word = product(word[None], word_matrix)
        # tanh keeps the numbers from -1 to 1, so the state cannot grow without end.
        state = np.tanh(product(state, state_matrix) + from_word)
        states.append(state[0])
    return np.array(states)


def convolution_layer(x):
    padded = np.pad(x, ((1, 1), (0, 0)))  # a row of zeros before and after
    left = product(padded[:-2], left_matrix)
    middle = product(padded[1:-1], middle_matrix)
    right = product(padded[2:], right_matrix)
    return left + middle + right


# %% [markdown]
# Only `recurrent_layer` has a loop, and each of its $n$ rounds needs the state of the
# round before: these are the steps that wait. Now count the multiplications.

# %%
LAYERS = {
    "attention": attention_layer,
    "recurrent": recurrent_layer,
    "convolution, k = 3": convolution_layer,
}
lengths = [16, 64, 256, 1024]


def counted(layer, n):
    counted_products.clear()
    layer(rng.standard_normal((n, width)))
    return sum(counted_products)


counts = {}
print(f"{'n =':18s}", *[f"{n:11,}" for n in lengths])
for name, layer in LAYERS.items():
    counts[name] = [counted(layer, n) for n in lengths]
    print(f"{name:18s}", *[f"{count:11,}" for count in counts[name]])

# %% [markdown]
# The counts are those of Table 1, up to its constant factors. Attention has two
# products, one for the scores and one for the averages. A recurrent layer also has
# two, one for the word and one for the state.

# %%
n = np.array(lengths)
same("attention multiplies 2 n^2 d times", counts["attention"], 2 * n**2 * width)
same("a recurrent layer 2 n d^2 times", counts["recurrent"], 2 * n * width**2)
same("a convolution k n d^2 times", counts["convolution, k = 3"], 3 * n * width**2)
draw(figures.multiplications, "01_multiplications.png", lengths, counts, width)

# %% [markdown]
# ![Multiplications over the number of words, both on logarithmic axes. Attention is the steepest line: it begins below the recurrent layer at 16 words, meets it at 64 words, which is d, and is far above it at 1024. The convolution runs above the recurrent layer.](figures/01_multiplications.png)
#
# *What to see: attention and the recurrent layer cross where $n = d$. The paper's $d$
# is 512, and most sentences have fewer than 100 words: there attention's scores and
# averages, which grow with $n^2$, take fewer multiplications than the recurrent layer.
# For long texts it is the other way round: at $n = 1024$ and $d = 64$, they take 16
# times as many.*
#
# Now the paths. How many layers must be stacked until the last of 17 words notices a
# change in the first? We change it and look.


# %%
def layers_until_noticed(layer):
    usual = rng.standard_normal((17, width)) / 10
    changed = usual.copy()
    changed[0] += 0.1
    layers = 0
    while (usual[-1] == changed[-1]).all():
        usual = layer(usual)
        changed = layer(changed)
        layers = layers + 1
    return layers


expected = {"attention": 1, "recurrent": 1, "convolution, k = 3": 16}
for name, layer in LAYERS.items():
    found = layers_until_noticed(layer)
    claim(f"{name}: layers until it is noticed", found == expected[name], found)
finish(
    "Attention is an average with softmax weights: the square root keeps them soft, "
    "a mask makes some exactly 0."
)

# %% [markdown]
# - **Attention** needs one layer. Every word looks at every other directly.
# - **The recurrent layer** needs one, too. But inside it the signal is handed from
#   state to state, one word at a time. Those $n$ steps are its path.
# - **The convolution** of width 3 reaches one word to each side. The first and the last
#   of 17 words are 16 apart, so it needs 16 layers. The table's $n/k$, here about 6,
#   leaves out a factor of nearly 3, which is nearer to 2 for a wide $k$.
#
# The $n/k$ of the table above is from the paper's text; its table has the $\log_k(n)$
# of convolutions whose gaps widen from layer to layer. And it has a fourth row,
# attention to $r$ neighbours only, with $r · n · d$ multiplications and a path of
# $n/r$: a compromise for long texts.

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 01` writes this part to `my_01_attention.py`: fill in the
# bodies, and run that file. It says what is right, and where an answer goes wrong. It
# imports `np`, `math`, `F` and `causal_mask`.


# %%
def predicted_weights():
    """Predict the four weights with which "bank" attends in "bank by by river".

    The vectors are (1, 1) for bank, (0, 0) for by, and (3, 0) for river. Compute the
    weights on paper (with a calculator), then write down the list of four numbers, to
    two digits, and run.

    Hint: "How can a word look at other words?" has the table; now it has one more row.
    """
    ...


def check_predicted_weights():
    checks.check_predicted_weights(predicted_weights)


# %%
def additive_mask(mask):
    """Turn a mask (True: may attend) into numbers to add to the scores.

    mask: (n, m), with at least one True in each row. softmax(scores +
    additive_mask(mask)) are then the weights, for scores from -10^6 to 10^6.

    Hint: "How is a position kept from looking?" has the score of a forbidden key.
    Choose between two numbers instead of multiplying: 0 times infinity is NaN.
    """
    ...


def check_additive_mask():
    checks.check_additive_mask(additive_mask)


# %%
def mended_weights(scores, mask):
    """Find the mistake in F.softmax(scores).numpy() * mask, and return right weights.

    scores, mask: arrays (n, m). One more line mends it, without minus infinity.

    Hint: "Why minus infinity, and not zero afterwards?" says which property of weights
    is lost. Restore it.
    """
    ...


def check_mended_weights():
    checks.check_mended_weights(mended_weights)


# %%
def softmax_average(scores, values):
    """Return softmax(scores) @ values in one loop, without storing the weights.

    scores: an array (n,), of numbers from -1000 to 1000; values: (n, d). Keep the
    largest score so far, the sum of powers of e, and the weighted sum of values. (So
    GPUs compute attention without ever storing all weights: "FlashAttention".)

    Hint: "What does the library compute?" subtracts the largest score of all. Here
    a larger one may still come: then both sums so far were made with the smaller one,
    and need a factor.
    """
    ...


def check_softmax_average():
    checks.check_softmax_average(softmax_average)


# %% [markdown]
# **Now yours: pieces 1 to 4** of `my_transformer.py`. This course ends with a
# Transformer that you have written yourself. `python lessons/build.py` writes the file
# for it, `my_transformer.py`, once for all lessons: it has 34 pieces without bodies,
# and says which of them are right. Of this lesson they are `softmax`,
# `attention_weights`, `padding_mask` and `causal_mask`. A piece may wait: the course
# lends what you have not written. (softmax is meant for arrays here; its gradient comes
# with attention, in lesson 02.)

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("forms.on", "functions.softmax", "functions.attention_weights",
              "functions.attention", "transformer.causal_mask",
              "transformer.padding_mask")  # fmt: skip
