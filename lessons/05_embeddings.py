# %% [markdown]
"""# Lesson 05. Embeddings and positions

"Dog bites man" is no news, and "man bites dog" is. To the attention of lessons 01 to 04
they are the same (without a mask). In this lesson a position becomes a vector, and so
does a word, and then the two sentences differ (section 3.4, section 3.5).

You need lessons 01 to 04. At the end you will have given the model what attention
lacks, the order of the words; and you will have turned words into vectors, and vectors
back into scores of words, with one and the same matrix.
"""

# %% [markdown]
# ## Who bites whom?
#
# Lesson 03 gave "sees" two heads, one for the word before and one for the word after.
# But how can a head know which word is before? Let attention read "dog bites man" and
# "man bites dog". "Bites" looks around, as "bank" did in lesson 01:
#
# | word | vector | score with "bites" | weight |
# |---|---|---|---|
# | man | (2, 0) | 1 · 2 + 1 · 0 = 2 | 1/3 |
# | bites | (1, 1) | 1 · 1 + 1 · 1 = 2 | 1/3 |
# | dog | (0, 2) | 1 · 0 + 1 · 2 = 2 | 1/3 |
#
# The average is (1, 1). Now turn the sentence round. The same three scores, the same
# three weights, the same sum in another order: (1, 1) again. Attention has read the
# news and missed it. The equal scores only spare us work: with any other vectors, too,
# both sentences have the same terms, and a sum has no order. What would you do? Try an
# idea of your own before you read on.

# %%
from math import cos, exp, log, pi, sin, sqrt

import numpy as np

from minitf import functions as F
from minitf.check import claim, grad_check, same
from minitf.config import Config
from minitf.course.architecture import figure_1
from minitf.course.checks import embeddings as checks
from minitf.course.figures import embeddings as figures
from minitf.course.lesson import begin, draw, finish, show, toy_model
from minitf.data.toy import grammar
from minitf.errors import UserError
from minitf.nn import Embedding, Parameter
from minitf.tensor import Tensor, record  # noqa: F401 (record: for an exercise)
from minitf.transformer import EncoderLayer, Positions, sinusoid

# Reads the options --figures and --backend, and starts to count the claims.
begin("05_embeddings")
rng = np.random.default_rng(1)  # random numbers, the same in each run

# %%
man = np.array([2.0, 0.0])
bites = np.array([1.0, 1.0])
dog = np.array([0.0, 2.0])
dog_bites_man = np.array([dog, bites, man])
man_bites_dog = np.array([man, bites, dog])


def answer_of_bites(sentence):
    return F.attention(sentence, sentence, sentence).numpy()[1]


same("in 'dog bites man', 'bites' gets (1, 1)", answer_of_bites(dog_bites_man), [1, 1])
same("in 'man bites dog' as well", answer_of_bites(man_bites_dog), [1, 1])

# %% [markdown]
# The cure of the paper is one line: add to each word a vector that says where it is.
# For two numbers that is $(\sin pos, \cos pos)$, where $pos$ is the position, counted
# from 0 and read as an angle in radians. It is the tip of a hand of a clock (how far to
# the right, how far up) that begins at twelve and turns by 57 degrees with each word.
#
# | position | 0 | 1 | 2 |
# |---|---|---|---|
# | vector | (0, 1) | (0.84, 0.54) | (0.91, -0.42) |
#
# Then "dog" is (0, 2) + (0, 1) = (0, 3) at the beginning, and (0, 2) + (0.91, -0.42) =
# (0.91, 1.58) at the end. The two sentences are no longer made of the same vectors.

# %%
clock = np.array([[sin(pos), cos(pos)] for pos in range(3)])
by_table = [[0, 1], [0.84, 0.54], [0.91, -0.42]]
same("the three vectors of the table", clock.round(2), by_table)
print(f"1 radian is {np.degrees(1):.0f} degrees")
print("dog at the end:", (dog + clock[2]).round(2))
news = answer_of_bites(man_bites_dog + clock)
no_news = answer_of_bites(dog_bites_man + clock)
print("with positions, 'dog bites man' gives 'bites'", no_news.round(2))
print("and 'man bites dog' gives it", news.round(2))
difference = abs(news - no_news).max()
claim("the answers to 'bites' now differ by", difference > 0.05, f"{difference:.2f}")

# %% [markdown]
# The two answers differ by little, because no matrix was chosen to read the positions:
# "What can a model read from the hands?" builds a head that gets "dog" in the one and
# "man" in the other.

# %%
draw(figure_1, "05_here.svg", here=["embedding", "positions", "linear"])

# %% [markdown]
# ![Figure 1 of the paper, a diagram of the Transformer. Marked are the two embeddings at the bottom, the positional encodings added to them, and the linear layer at the top of the decoder.](figures/05_here.svg)
#
# *What to see: this lesson makes the two ends of the model. At the bottom, words and
# positions become vectors; at the top, vectors become scores of words.*

# %% [markdown]
# ## Does a layer know the order of the words?
# Exchange two words, and attention exchanges their answers, and nothing else. Each
# query meets the same keys, only in another order. So the softmax gives the same
# weights in that order, and the sum of weighted values is the same. The rest of an
# encoder layer treats each row alone, and all in the same way (lesson 04). So no stack
# of such layers, however deep, can tell who bites.

# %%
config = Config(vocabulary_size=20, d_model=64, d_ff=128, n_heads=4, dropout=0.0)
encoder_layer = EncoderLayer(config, rng).astype(np.float64)
dog_first = rng.standard_normal((1, 3, 64))  # dog bites man
order = [2, 1, 0]  # exchange the first and the third
man_first = dog_first[:, order]  # man bites dog

# Equate: the answers change their order with the words, and nothing else.
layered_dog = encoder_layer(Tensor(dog_first), None)
layered_man = encoder_layer(Tensor(man_first), None)
same("a layer: reordered words, reordered answers", layered_man, layered_dog[:, order])

# %% [markdown]
# ## How does a position become a vector?
# Why not add the number of the position itself? It grows without end: at position 50 it
# would drown every word. Why not divide it by the length of the sentence? Then "one
# word back" would be another number in each sentence, and no head could learn to look
# there.
#
# Why not a single wave, $(\sin pos, \cos pos)$, as at the beginning? It stays small.
# But it is a clock with one hand. The hand goes round once in $2 \pi = 6.28$ positions,
# and after 44 positions, 7 rounds and a little, it shows nearly the same as at 0:

# %%
print(f"at 0: {sin(0):.2f} {cos(0):.2f}, and at 44: {sin(44):.2f} {cos(44):.2f}")

# %% [markdown]
# A clock on the wall solves this with several hands. The seconds hand tells apart
# moments that are close, but soon comes round again; the hour hand hardly moves between
# such moments, but it tells morning from noon. Each hand gives two numbers, the
# coordinates of its tip.
#
# **State.** Section 3.5: a position has $d_{model}/2$ hands, each a pair of columns, a
# sine and a cosine. They are its *positional encoding* $PE$ (one name, not a product),
# and are called *sinusoids*:
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}})$$
#
# $$PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$
#
# Here $i$, from 0 to $d_{model}/2 - 1$, is the number of a hand. It has the columns
# $2i$ and $2i + 1$, and the quotient in the brackets is its angle at $pos$.
#
# Hand 0 goes round once in $2 \pi$ positions. Each following hand is slower than the
# one before by the same factor, $10000^{2/d_{model}}$. Here and in the next two
# sections $d_{model}$ is 64, and the factor 1.33. Why the same factor? We do not know
# which distances will matter. With the same factor, as many hands have a round of 10 to
# 100 positions as of 100 to 1000. The last hand is number 31, so its exponent is 62/64,
# and it goes round once in 47,117 positions.
#
# The formula as a program, one number at a time:


# %%
def waves(length, d_model):
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i] = sin(angle)
            table[pos, 2 * i + 1] = cos(angle)
    return table


# Equate.
PE = sinusoid(100, 64, dtype=np.float64)
same("sinusoid = one number at a time", PE, waves(100, 64))
print(f"each hand is slower by a factor of {10000 ** (2 / 64):.2f}")
print(f"hand 31 goes round in {2 * pi * 10000 ** (62 / 64):,.0f} positions")

# %%
for i in (0, 1, 8, 16):  # four of the 32
    positions_per_round = 2 * pi * 10000 ** (2 * i / 64)
    print(f"hand {i:2d} goes round in {positions_per_round:6.2f} positions")
print(f"hand 16 at position 44: {np.degrees(44 / 10000 ** (2 * 16 / 64)):.0f} degrees")
draw(figures.hands, "05_hands.png", PE, (0, 1, 2, 3, 6, 44), (0, 8, 16))

# %% [markdown]
# ![Dials of three hands at the positions 0, 1, 2, 3, 6 and 44. Hand 0 points elsewhere at each of the first four, and nearly up at 44, as at 0. Hand 8 turns slowly. Hand 16 has turned by 3 degrees at 6, and by 25 at 44.](figures/05_hands.png)
#
# *What to see: a column is a position. The tip of a hand lies at (sine, cosine), as on
# a clock. The fast hand tells neighbours apart, but shows nearly the same at 0 and at
# 44. The two slow ones turn by 6 degrees and less in a step, but they tell 0 from 44.
# Together they do both.*

# %%
draw(figures.table, "05_table.png", PE)

# %% [markdown]
# ![The table of the sinusoids as a map, position down and column across. On the left fine stripes, blue and brown, that alternate from position to position; to the right they become longer and longer, and the last columns are plain.](figures/05_table.png)
#
# *What to see: each pair of columns is a hand. On the left the fast ones, whose stripes
# are short; on the right the slow ones, which hardly move in 100 positions: their sines
# stay near 0, their cosines near 1.*
#
# **Use.** With one hand, the vectors of positions 0 and 44 are only 0.02 apart. With
# all 32 hands they are 5.1 apart. Of the first 100 positions, the one nearest to
# position 0 is its neighbour, position 1, and even that is 1.47 away. Each vector has
# the length $\sqrt{32} = 5.7$: of each of the 32 hands, the squares of sine and cosine
# sum to 1.

# %%
from_zero = np.linalg.norm(PE - PE[0], axis=1)
one_hand = np.linalg.norm(PE[:, :2] - PE[0, :2], axis=1)
nearest = from_zero[1:].argmin() + 1
claim("one hand: positions 0 and 44 differ by", one_hand[44] < 0.02, one_hand[44])
far = from_zero[44]
claim("32 hands: positions 0 and 44 differ by", far > 5, f"{far:.1f}")
claim("the position nearest to 0 is", nearest == 1, nearest)
print(f"it is {from_zero[nearest]:.2f} away; length {np.linalg.norm(PE[0]):.1f}")

# %% [markdown]
# ## Is a position most like itself?
# Soon a query will be the vector of a position, and is to find that position among the
# keys. It does if no other position has a larger dot product with it.
#
# **Derive.** A hand turns by some angle $\omega$ per position. By the rule for the
# cosine of a difference, the dot product of two positions $a$ and $b$ is, hand by hand,
#
# $$\sin(\omega a) \sin(\omega b) + \cos(\omega a) \cos(\omega b)
# = \cos(\omega (a - b))$$
#
# **Only the distance $a - b$ counts**, not where the two positions are. The dot product
# is largest at the distance 0: there each of the 32 hands adds 1.

# %%
speeds = np.array([1 / 10000 ** (2 * i / 64) for i in range(32)])  # omega of each hand
distances = np.arange(100)[:, None] - np.arange(100)  # (100, 100)
by_distance = np.cos(distances[:, :, None] * speeds).sum(axis=2)
same("PE(a) . PE(b) = sum of cos(omega (a - b))", PE @ PE.T, by_distance)

# %%
around_50 = sinusoid(101, 64)  # 50 positions on each side of position 50
of_PE = around_50 @ around_50[50]  # the dot products of position 50 with all
print(f"position 50 with itself {of_PE[50]:.0f}, with its neighbour {of_PE[51]:.1f}")
claim("the position most like position 50 is", of_PE.argmax() == 50, of_PE.argmax())
draw(figures.distance, "05_distance.png", of_PE)

# %% [markdown]
# ![The dot product of two positions over their distance, from -50 to 50: a peak of 32 at the distance 0, with slopes on both sides and waves on them, down to about 15.](figures/05_distance.png)
#
# *What to see: the peak is at 0, and on the whole nearer positions are more alike. The
# waves come from the fast hands. At a distance of 25, hand 0 has gone round 4 times, in
# 6.28 positions each, and hand 1 three times, in 8.38: both are back where they were.*

# %% [markdown]
# ## What can a model read from the hands?
# **State.** Section 3.5: for any fixed offset $k$, $PE(pos+k)$ is a linear function of
# $PE(pos)$, the same at every $pos$. The authors expected that a model would therefore
# learn to look $k$ words away.
#
# **Derive.** By the rules for the sine and the cosine of a sum, a hand shows at
# $p + k$ (with $p$ for $pos$)
#
# $$\sin(\omega p + \omega k)
# = \sin(\omega p) \cos(\omega k) + \cos(\omega p) \sin(\omega k)$$
#
# $$\cos(\omega p + \omega k)
# = -\sin(\omega p) \sin(\omega k) + \cos(\omega p) \cos(\omega k)$$
#
# The two numbers at $p$, as a row, times one matrix, in which there is no $p$:
#
# $$(\sin(\omega p), \cos(\omega p)) \begin{pmatrix}
# \cos(\omega k) & -\sin(\omega k) \\
# \sin(\omega k) & \cos(\omega k) \end{pmatrix}$$
#
# Try it with the clock of the beginning, for which $\omega$ is 1, one step back, from
# position 2, (0.91, -0.42), to position 1, (0.84, 0.54):

# %%
one_back = np.array([[cos(-1), -sin(-1)], [sin(-1), cos(-1)]])
print(f"{clock[2].round(2)} times\n{one_back.round(2)}")
print("is", (clock[2] @ one_back).round(2))
same("one step back from position 2 is position 1", clock[2] @ one_back, clock[1])

# %% [markdown]
# The matrix is a rotation: to move $k$ positions ahead, turn each hand by the angle
# $\omega k$. To move back, take a negative $k$. The same matrix does it for every $p$,
# because a hand turns by its own angle in each step, wherever it points. So a score
# through this matrix depends on the distance alone. Each hand has such a block, with
# its own $\omega$; the 32 blocks along the diagonal, with zeros elsewhere, are one
# matrix of 64 by 64. The new sine needs the old cosine: this is why each hand has two
# numbers.


# %%
def turn(k):
    """Return the matrix that turns the row PE(pos) into PE(pos + k)."""
    matrix = np.zeros((64, 64))
    for i, omega in enumerate(speeds):
        matrix[2 * i, 2 * i] = cos(omega * k)
        matrix[2 * i, 2 * i + 1] = -sin(omega * k)
        matrix[2 * i + 1, 2 * i] = sin(omega * k)
        matrix[2 * i + 1, 2 * i + 1] = cos(omega * k)
    return matrix


# Equate.
same("PE(pos + 7) = PE(pos), turned by one matrix", PE[7:], PE[:93] @ turn(7))

# %% [markdown]
# **Use.** So a head can look back: let $W^Q$ be this matrix for one step back, and
# $W^K$ the identity, so that the keys are the positions themselves. Then each word asks
# for the position before its own, and $PE(pos - 1)$ is most like itself, as the last
# section said.
#
# Build that head, as wide as the model: $d_k = 64$. The dot product with the right key
# is 32, with the next best 30.9: a lead of 1.1. Divided by $\sqrt{d_k} = 8$, that makes
# the right weight only 14% larger than the next best. The matrix says which way the
# query points; training may choose how long it is. So we multiply the matrix, say by
# 16. Then the lead is 1.1 · 16 / 8 = 2.2, and the right weight is $e^{2.2}$, or 9,
# times the next best. There are two next best keys, one on each side, so the right
# weight is about 9/11:


# %%
def weights_of_head(positions, W_q):
    return F.attention_weights(positions @ W_q, positions).numpy()


to_itself = PE[6] @ PE[6]
to_next = PE[6] @ PE[5]
lead = to_itself - to_next
print(f"PE with itself {to_itself:.1f}, with the next one {to_next:.1f}", end=": ")
print(f"a lead of {lead:.1f}")
print(f"divided by 8: e^{lead / 8:.3f}, or {exp(lead / 8) - 1:.0%} more")
print(f"times 16 / 8: {lead * 16 / 8:.1f}; e^2.2 = {exp(2.2):.0f}")
sharp = weights_of_head(PE[:10], 16 * turn(-1))
least = sharp.diagonal(-1).min()  # diagonal(-1): one below the main diagonal
claim("weight on the word before at least", least > 0.8, f"{least:.2f}")
draw(figures.back, "05_back.png", sharp)

# %% [markdown]
# ![A map of the weights of positions 0 to 9 on positions 0 to 9. Row 0 is hatched. In each other row one cell is dark, at least 0.81, left of the diagonal, in the column of the position before.](figures/05_back.png)
#
# *What to see: position 1 looks at 0, position 2 at 1, and so on. Position 0 has none
# before it: its row is hatched.*
#
# Now let it read the news. Its queries and keys are the positions, of 64 numbers; its
# values are the three words of the beginning, of two numbers each:

# %%
before = weights_of_head(PE[:3], 16 * turn(-1))[1]  # [1]: the weights of "bites"
after = weights_of_head(PE[:3], 16 * turn(1))[1]
print("                        dog bites man   man bites dog")
for name, weights in (("before", before), ("after", after)):
    in_the_one = (weights @ dog_bites_man).round(1)
    in_the_other = (weights @ man_bites_dog).round(1)
    print(f"    the word {name:6s} is     {in_the_one}       {in_the_other}")
biter = before @ dog_bites_man
claim("in 'dog bites man', the dog bites", biter[1] > 5 * biter[0], biter.round(2))
other_biter = before @ man_bites_dog
the_man = other_biter[0] > 5 * other_biter[1]
claim("in 'man bites dog', the man does", the_man, other_biter.round(2))

# %% [markdown]
# Now "bites" gets nearly the dog in the one sentence, and nearly the man in the other.
# A second head, for the word after, tells it who is bitten. So "bites" knows who bites
# whom.
#
# But our head got positions alone. In a model each vector is the *sum* of a position
# and a word. So we need words as vectors, too.

# %% [markdown]
# ## How does a word become a vector?
# A text is first cut into *subwords*: a frequent word remains in one piece, a rare one
# is cut into several (lesson 09). The list of all subwords is the *vocabulary*, and the
# number of a subword in it is its *id*. In this lesson $V$ is the size of the
# vocabulary, and no longer the values of attention. Each occurrence of a subword in a
# text is called a *token*. Positions count tokens, so from here on "the word before" is
# the token before. Below is a sentence in the subwords of the small model that comes
# with the course. "Bites", which never occurred in its texts, is three tokens.

# %%
subwords = toy_model().subwords
ids = subwords.encode(["The dog bites the man."])[0]
pieces = subwords.pieces(ids)
print(f"{len(subwords):,} subwords; '▁' marks the beginning of a word:")
for piece, i in zip(pieces, ids, strict=True):
    print(f"    {piece:8s} has the id {i}")

# %% [markdown]
# **State.** Section 3.4: a learned matrix $E$, the *embedding table*, has a row of
# $d_{model}$ numbers for each id. This row is the *embedding* of the subword.
#
# **Derive.** Write an id as a *one-hot* row: zeros, and a 1 in the column of the id.
# Its product with $E$ picks one row of $E$. In a table of three subwords, the id 1
# picks the middle one:
#
# $$(0, 1, 0) \begin{pmatrix} 5 & 6 \\ 7 & 8 \\ 9 & 4 \end{pmatrix} = (7, 8)$$
#
# So looking up is a matrix product (without the multiplications with 0), and lesson 03
# has its gradient. Let $O$ have a one-hot row for each token. Then
#
# $$y = O E, \qquad gE = O^T gy$$
#
# In words: row $v$ of $gE$ is the sum of the $gy$ of all tokens whose id is $v$, 0 if
# there is none.

# %%
few = np.array([4, 2, 4, 4, 1])  # five tokens; the id 4 comes three times
E = rng.standard_normal((6, 3))  # a vocabulary of 6, d_model 3
gy = rng.standard_normal((5, 3))  # a gradient for each token
one_hot = np.zeros((5, 6))  # O
for token, i in enumerate(few):
    one_hot[token, i] = 1

# Equate: the library reads the rows, and adds up the gradients of equal ids.
table = Parameter(E)
looked_up = F.embedding(table, few)
same("F.embedding = one-hot matrix times table", looked_up, one_hot @ E)
looked_up.backward(gy)
same("the table's gradient is O^T gy", table.grad, one_hot.T @ gy)

# %% [markdown]
# ## What does a row come to hold?
# At first a row is random numbers. Here is what training (lesson 07) has made of it in
# the small model, which learned to translate simple sentences from English to German.
# Two rows are compared by the *cosine* of the angle between them: their dot product,
# divided by both lengths. It is 1 for rows of the same direction. For random rows it is
# near 0.

# %%
# A row for each subword:
trained = toy_model().model.embedding.weight.numpy()
directions = trained / np.linalg.norm(trained, axis=1, keepdims=True)
names = subwords.pieces(range(len(subwords)))


def neighbours(word):
    """Return the three subwords whose rows are most like that of a word."""
    row = names.index("▁" + word)
    cosines = directions @ directions[row]
    nearest_first = np.argsort(-cosines)  # itself first of all
    return [f"{names[i].strip('▁')} ({cosines[i]:.2f})" for i in nearest_first[1:4]]


for word in ("small", "big", "help"):
    print(f"    {word:6s} is most like {', '.join(neighbours(word))}")
nearest_to_small = neighbours("small")[0]
claim("nearest to 'small'", nearest_to_small.startswith("little"), nearest_to_small)
nearest_to_big = neighbours("big")[0]
claim("nearest to 'big'", nearest_to_big.startswith("tall"), nearest_to_big)

# %%
twelve = [
    "small", "little", "big", "tall", "help", "helped", "helping", "give",
    "Tom", "Anna", "Lena", "Paul",
]  # fmt: skip
at = [names.index("▁" + word) for word in twelve]
cosines = directions[at] @ directions[at].T
across = np.mean([cosines[:4, 4:8], cosines[4:8, 8:], cosines[:4, 8:]])
claim("words of different kinds: mean cosine", abs(across) < 0.1, f"{across:.2f}")
draw(figures.words, "05_words.png", cosines, twelve)

# %% [markdown]
# ![Map of the cosines of twelve words with each other. Three blocks of four lie on the diagonal: small, little, big, tall; help, helped, helping, give; and, paler, the names Tom, Anna, Lena and Paul. Everything else is nearly white.](figures/05_words.png)
#
# *What to see: three blocks of four words. Adjectives are like adjectives, verbs like
# verbs, and names like names. Outside the blocks the cosines are small or negative
# (light blue or white).*
#
# Nobody told the model what an adjective is, or a name. Yet of 52 nouns and 20
# adjectives, 71 of these 72 words are most like one of their own kind. By chance it
# would be 43, since most of them are nouns, and so are most of the others:

# %%
kind_of = dict.fromkeys(grammar.NOUNS, "noun") | dict.fromkeys(
    grammar.ADJECTIVES, "adjective"
)
whole = [word for word in kind_of if "▁" + word in names]
rows_of_whole = directions[[names.index("▁" + word) for word in whole]]
with_others = rows_of_whole @ rows_of_whole.T - 2 * np.eye(len(whole))  # not itself
kinds = np.array([kind_of[word] for word in whole])
n_same = (kinds == kinds[with_others.argmax(axis=1)]).sum()
claim("most like one of their kind:", n_same == 71, f"{n_same} of {len(whole)}")
by_chance = sum((kinds == kind).sum() - 1 for kind in kinds) / (len(kinds) - 1)
n_nouns = (kinds == "noun").sum()
print(f"    by chance {by_chance:.0f}; nouns {n_nouns}, others {len(kinds) - n_nouns}")

# %% [markdown]
# Why? A row learns mostly where its word is read, and where it has to be written.
#
# *Read.* Put another word for "small" in a sentence. The rest of the sentence asks the
# same of both rows. If the same German word has to come out, the loss depends on the
# two rows in the same way, and training moves both down the same slope:
#
# | for "small" | comes out | cosine with "small" |
# |---|---|---|
# | "little", the same | "klein", too | 0.85 |
# | "big", the opposite | "groß" | 0.58 |
#
# *Written.* The score of a word is its row times the last vector $h$ (next section).
# The loss of the right word is $-\ln p$, which is 0 for $p = 1$ and large for a small
# $p$ (lesson 07). Its slope in $p$ is $-1/p$, and that of the softmax is $p (1 - p)$
# (lesson 02): in the score it is $-\frac{1}{p} \cdot p (1 - p) = p - 1$. So a step of
# training moves the row by $(1 - p) \, h$ times the step size. Words that follow in the
# same places meet the same $h$: their rows move in the same direction.
#
# So a row holds what the task needs to know about a word. The figure has English words,
# which the model only reads. German words are read and written.

# %% [markdown]
# ## Why is one table used three times?
# **State.** Section 3.4: the table is used in three places. It embeds the source, it
# embeds the target (the translation), and at the top of the decoder, as the box
# "Linear", it turns the last vector of each position into a score for each subword, its
# *logit*:
#
# $$\text{logits} = \text{last vector} \cdot E^T$$
#
# The logit of a subword is the dot product of that vector with its row. The softmax
# makes probabilities of logits. All three uses are *tied*: they share one matrix.
#
# **Use.** Tying saves two of three tables. With the paper's vocabulary of 37,000
# subwords and $d_{model}$ 512, a table has 18.9 million numbers. Without tying there
# would be two more of them, in a model of about 63 million (counted in lesson 06).

# %%
V = 37_000
embeddings = Embedding(V, 512, None)  # None: no random numbers, only the sizes count
one_table = embeddings.weight.size
claim("a table has V d_model numbers", one_table == V * 512, f"{one_table:,}")
untied = 63.0 + 2 * one_table / 1e6  # 63.0: with one table (lesson 06)
print(f"in millions: a table {one_table / 1e6:.1f}, the model untied {untied:.0f}")

# %% [markdown]
# Why should source and target share? Both languages have one vocabulary, and names,
# numbers and many pieces are the same in both: one row serves both.
#
# Why should a row that reads a word also write it? It need not: three tables work, too,
# in a model of 101 million numbers. But Press and Wolf, whom the paper cites, tied the
# tables of translators. That took away more than half of the models' numbers, and they
# translated as well as before. A reason is that the decoder reads what it wrote. It
# should treat two words of one meaning, such as "rasch" and "schnell" (quick, fast),
# alike when it reads them and when it scores them, and one table learns that once.
#
# **Derive.** A matrix that is used three times has as its gradient the sum of three
# (lesson 02).

# %% [markdown]
# ## What enters the model?
# **State.** By section 3.4 and section 3.5, the input is
#
# $$x = \text{embedding} \cdot \sqrt{d_{model}} + PE$$
#
# followed by dropout (section 5.4), which is off here.
#
# Where does the root come from? The paper does not say. Tying gives a good reason: the
# same row of $E$ has to be right at both ends of the model. The factor serves both.
#
# | end of the model | a row of $E$ meets | its numbers must be | or else |
# |---|---|---|---|
# | top | the last vector, $h$ | small | the logits are too large |
# | bottom | $PE$ | large | the position drowns the word |
#
# **Derive, at the top.** There, a row of $E$ meets the last vector, $h$. A layer ends
# with a norm (lesson 04), so at first $\text{Var}(h_i) = 1$. The logit is their dot
# product, $\sum_i h_i E_i$. As in lesson 01 the variances of the products add up:
#
# $$\text{Var}(\text{logit}) = d_{model} \text{Var}(E)$$
#
# The logits should begin small: were they large, a new model would be sure of one
# subword, and nearly always of a wrong one. For variance 1 we need
# $\text{Var}(E) = 1/d_{model}$, and so `Embedding` draws them:

# %%
rows = Embedding(8000, 512, rng).weight.numpy()  # d_model 512, 8,000 subwords
vectors = rng.standard_normal((200, 512))
hidden = F.layer_norm(vectors, np.ones(512), np.zeros(512)).numpy()
logits = hidden @ rows.T  # (200, 8000)
claim("the variance of the logits is", abs(logits.var() - 1) < 0.05, logits.var())

# %% [markdown]
# **Derive, at the bottom.** There, the same row meets $PE$. The row has $d_{model}$
# numbers of variance $1/d_{model}$, so its squares sum to about 1: its length is 1.
# $PE$ has $d_{model}/2$ pairs with $\sin^2 + \cos^2 = 1$, so its length is
# $\sqrt{d_{model}/2}$, which is 16 for $d_{model}$ 512. If they were added as they are,
# the word would drown in its position. Times $\sqrt{d_{model}}$, the row has length
# 22.6, and word and position are of about one size.

# %%
row_length = np.linalg.norm(rows, axis=1).mean()
PE_length = np.linalg.norm(sinusoid(11, 512)[10])
claim("the length of a row is 1", abs(row_length - 1) < 0.01, row_length)
claim("the length of PE is sqrt(512 / 2)", abs(PE_length - 16) < 1e-3, PE_length)
print(f"a row times sqrt(512): {row_length * sqrt(512):.1f}; PE: {PE_length:.1f}")

# %% [markdown]
# **What adding costs.** A word and its position now share the same numbers, of about
# equal size. Does the head that read the news still find the word before? No. It finds
# its own word.
#
# Call the word that asks $w$, its position $p$, and those that answer $w'$ and $p'$.
# The head turns the whole sum by a matrix $R$, and multiplies it with another sum. So a
# score has four products:
#
# $$(w + p) R \cdot (w' + p') = wR \cdot w' + pR \cdot p' + wR \cdot p' + pR \cdot w'$$
#
# The second, of two positions, is largest at the place before, but only by 32 to 30.9.
# The first, of two words: a small turn hardly changes $w$, so it fits *itself* with
# about 62, nearly all of its squared length of 64, and any other word with 0 on
# average. The last two, of a word and a position, are 0 on average, too. So in a new
# model a word's own place wins, 93 to 32:
#
# | score with | $wR \cdot w'$ | $pR \cdot p'$ | the last two | together |
# |---|---|---|---|---|
# | its own place | 62 | 30.9 | 0 | 93 |
# | the place before | 0 | 32 | 0 | 32 |

# %%
embed = Embedding(len(subwords), 64, rng).astype(np.float64)
add_positions = Positions(config, rng)  # the library's layer that adds PE
words = embed(np.arange(20)[None]) * 8.0  # (1, 20, 64); sqrt(64)
entering = add_positions(words).numpy()[0]
same("Positions adds PE", entering, words.numpy()[0] + waves(20, 64))
all_words = embed.weight.numpy() * 8.0
turned = all_words @ turn(-1)
print(f"word with itself {(turned * all_words).sum(axis=1).mean():.0f},", end=" ")
print(f"with any other 0, give or take {(turned @ all_words.T).std():.0f}")
query_at_5 = (all_words + PE[5]) @ turn(-1)
at_its_own = (query_at_5 * (all_words + PE[5])).sum(axis=1)
before_it = query_at_5 @ (all_words + PE[4]).T  # each word before each
for name, products in (("itself", at_its_own), ("the word before", before_it)):
    print(f"{name}: {products.mean():.0f}, give or take {products.std():.0f}")

# %%
scores = entering @ turn(-1) @ entering.T
at_itself = (scores.argmax(axis=1) == np.arange(20)).sum()
claim("built by hand, of 20 words look at themselves", at_itself == 20, at_itself)

# %% [markdown]
# Can training do better than our hand? Yes. Take vectors of two numbers, one for the
# position and one for the word. Let the position be 2 for two neighbours, and the words
# 1 and -1 or, as often, 1 and 1. With the identity matrix the word's own place gets 4 +
# 1 = 5, and the neighbour 4 + 1 or 4 - 1, on average 4. With $W = \text{diag}(1, -1)$ a
# word counts *against* its own place: that gets 4 - 1 = 3, the neighbour still 4 on
# average, and leads.
#
# A trained head does the same in 64 numbers: it gives a word a score below 0 with
# itself ("How does a head learn to find the word before?"). Then the place before
# leads, but the other words disturb, each by chance. How often is the place before the
# best of 20?
#
# | head | words | looks at the word before |
# |---|---|---|
# | a guess | | 5% |
# | built by hand | random | never |
# | trained | random | 32% |
# | trained | those of the trained model | 60% |
#
# And a real model has more than our one head: wider vectors, and 8 heads in each of 6
# layers. What one head misses, another can find.

# %% [markdown]
# ## What did we learn?
# - Without positions, attention and all encoder layers give a word the same answer in
#   any order of the words.
# - Sinusoids are a clock with $d_{model}/2$ hands: fast ones tell neighbours apart,
#   slow ones tell near from far.
# - $k$ positions on is one rotation, the same everywhere: so with positions alone one
#   matrix lets each word look $k$ words back, and "bites" knows who bites.
# - Word and position are added, so they share the same numbers: a head has to learn how
#   to read the one out of the sum.
# - An embedding is a row of a table; its gradient is the sum over all tokens that read
#   the row. Words that are used alike come to have similar rows.
# - One table embeds source and target and scores the output; its gradient is the sum of
#   three, added up by `Tensor.backward`.
# - The factor $\sqrt{d_{model}}$ can be understood as the price of tying: small rows
#   for the logits, large ones beside $PE$.

# %% [markdown]
# ## More on embeddings and positions
# Nothing below is needed for the next lesson. Of the questions, the two with a ★ are
# worth everybody's click.
#
# ### ★ How does a head learn to find the word before?
# Gradient descent makes the weight on the word before grow, in 32 times 20 sums of a
# word, drawn at random, and its position. It lowers the mean of $-\ln$ of that weight,
# which is 0 where the weight is 1 (lesson 07). The rows of the words are random ones,
# or the trained ones.


# %%
def sums_of(rows):
    ids = rng.integers(4, 1600, (32, 20))  # those below 4 are marks
    return 8.0 * rows[ids] + PE[:20]


def share_found(rows, W):
    """Return the share of words whose best key is the word before."""
    vectors = sums_of(rows)  # (32, 20, 64)
    best = (vectors @ W @ vectors.swapaxes(1, 2)).argmax(axis=2)
    return (best[:, 1:] == np.arange(19)).mean()


def found_by_learning(rows):
    W = Parameter(np.zeros((64, 64)))  # W^Q times the transpose of W^K
    asks = np.arange(1, 20)
    for _ in range(300):
        sums = sums_of(rows)
        weights = F.softmax(Tensor(sums) @ W @ Tensor(sums.swapaxes(1, 2)))
        (-F.log(weights[:, asks, asks - 1]).mean()).backward()
        W.data -= 0.02 * W.grad
        W.grad = None
    return W.numpy(), np.mean([share_found(rows, W.numpy()) for _ in range(20)])


untrained = rng.standard_normal(trained.shape) * trained.std()
W_random, in_random = found_by_learning(untrained)
_, in_trained = found_by_learning(trained)
print(f"a guess: {1 / 20:.0%}")
# At the rate 0.001, with random rows of 512 numbers: 85% (not measured here).
claim("random rows: the word before found", in_random > 0.25, f"{in_random:.0%}")
claim("trained rows", abs(in_trained - 0.6) < 0.07, f"{in_trained:.0%}")

# %%
of_word = (8.0 * untrained @ W_random * 8.0 * untrained).sum(axis=1).mean()
of_positions = PE[:20] @ W_random @ PE[:20].T
own_place = of_positions.diagonal()[1:].mean()
before_own = of_positions.diagonal(-1).mean()
print(f"with itself: word {of_word:.1f}, position {own_place:.1f}", end="")
print(f" ({of_word + own_place:.1f}); with the position before {before_own:.1f}")
print(f"with the position after {of_positions.diagonal(1).mean():.1f}")
claim("the place before leads", before_own > of_word + own_place + 1, before_own)
most_alike = np.linalg.svd(trained, compute_uv=False) ** 2
print(f"32 directions of trained rows: {most_alike[:32].sum() / most_alike.sum():.0%}")

# %% [markdown]
# The scores are on another scale than 62 and 30.9, as training chose the size of the
# matrix, too. Words that are used alike have similar rows, so trained rows fill less of
# the space. Choose 32 of 64 directions, at right angles, that hold most of their
# squares (`np.linalg.svd` finds them): these hold 78%. That leaves more room for
# positions. So do wider vectors: with random rows of 512 numbers the word before was
# found in 85% of the cases. We measured that once; this program does not.

# %% [markdown]
# ### How does the library compute the two tables, and what if an id is not in it?
# `F.embedding` reads rows, and on the way back adds up the gradients of equal ids. Why
# does it not multiply? The paper's batches have about 25,000 source tokens, its
# vocabulary 37,000 subwords: a one-hot matrix of them would take 3.7 GB, nearly all
# zeros. `sinusoid` computes all positions at once.

# %%
tokens = 25_000
gigabytes = tokens * V * 4 / 1e9  # 4 bytes for each number
print(f"the one-hot matrix of {tokens:,} by {V:,} numbers: {gigabytes:.1f} GB")
show(F.embedding)
show(sinusoid)
grad_check(F.embedding, E, few)
layer = Embedding(6, 3, rng).astype(np.float64)  # holds its table as a Parameter
same("Embedding looks up its own table", layer(few), one_hot @ layer.weight.numpy())
layer(few).backward(gy)
same("and its gradient is O^T gy", layer.weight.grad, one_hot.T @ gy)

# %% [markdown]
# Why `add.at`? NumPy's `g[ids] += gy` is a trap. If an id comes three times, NumPy
# computes three sums, each of the old row and *one* gradient, and writes all three to
# the same place: the last one wins. `np.add.at` adds one after the other.

# %%
last_wins = np.zeros_like(E)
last_wins[few] += gy
all_added = np.zeros_like(E)
np.add.at(all_added, few, gy)
same("g[ids] += gy keeps only the last of three gradients", last_wins[4], gy[3])
same("np.add.at adds all three", all_added[4], gy[0] + gy[2] + gy[3])

# %% [markdown]
# For a table of 6 rows, 6 is one too many. And -1 is worse, because NumPy silently
# reads the last row. The library refuses both.


# %%
def is_refused(ask):
    try:
        ask()
    except (IndexError, UserError) as error:
        print(f"    {error}")
        return True
    return False


no_6 = is_refused(lambda: F.embedding(E, np.array([6])))
claim("the id 6 of a table of 6 rows is an error", no_6, "IndexError")
no_minus_1 = is_refused(lambda: F.embedding(E, np.array([-1])))
claim("and so is the id -1", no_minus_1, "IndexError")

# %% [markdown]
# When a decoder writes a translation, the words come one at a time. Then `start` says
# how many came before.

# %%
X = Tensor(rng.standard_normal((2, 70, 64)))
added = add_positions(X)
same("Positions adds PE, to any length", added, X.numpy() + waves(70, 64))
fifth = add_positions(X[:, 5:6], start=5)
same("with start = 5, a position alone = position 5 of all", fifth, added[:, 5:6])

# %% [markdown]
# ### Is the tied gradient the sum of three?
# Below is the smallest model with all three uses: one attention in place of all layers.
# Its *loss*, the number that training makes small, is the mean of $-\ln p$, where $p$
# is the probability of the right next token: 0 if the model is sure of it, and larger
# the less it expects it.

# %%
start = rng.standard_normal((11, 6))  # a table for 11 subwords, d_model 6
source = np.array([7, 5, 9])
target = np.array([2, 4, 5, 4, 3])


def loss(source_table, target_table, output_table):
    x = F.embedding(source_table, source)  # (3, 6)
    y = F.embedding(target_table, target[:-1])  # (4, 6): each predicts the next token
    hidden = y + F.attention(y, x, x)
    logits = F.linear(hidden, output_table.transpose())  # (4, 11)
    right = F.softmax(logits)[np.arange(4), target[1:]]  # of the right next tokens
    return -F.log(right).mean()


# Equate: one matrix in three places, against three equal matrices.
tied = Parameter(start)
loss(tied, tied, tied).backward()
for_source = Parameter(start)
for_target = Parameter(start)
for_output = Parameter(start)
loss(for_source, for_target, for_output).backward()
sum_of_three = for_source.grad + for_target.grad + for_output.grad
same("the tied gradient = the sum of three", tied.grad, sum_of_three)
grad_check(lambda table: loss(table, table, table), start, name="tied table")

# %% [markdown]
# ### ★ Why 10000?
# The paper gives no reason. Here is one. Call that number the *base*.
#
# At the distance $k$, a hand's share of the dot product, $\cos(\omega k)$, falls for
# half a round, until the hand points the other way; then it rises again. So other hands
# tell other distances: the fast ones what is near, the slow ones what is far. Beyond
# the reach of the slowest hand, nothing falls any more.
#
# How far is that? The slope of $\cos(\omega k)$ is $-\omega \sin(\omega k)$, and the
# slope of the dot product is the sum over all hands. With $d_{model}$ 512 there are 256
# of them, and each factor of 10 in distance has equally many: they are evenly spread on
# the axis of $\ln \omega$, from $-\ln base$ to 0, $256 / \ln base$ of them on each unit
# of it. So the sum is nearly this number times the integral of $-\omega \sin(\omega k)$
# along that axis, where a step is $d\omega / \omega$: the factor $\omega$ cancels.
#
# $$\sum_i -\omega_i \sin(\omega_i k) \approx
# -\frac{256}{\ln base} \int_{1/base}^1 \sin(\omega k) \, d\omega
# = -\frac{256}{\ln base} \cdot \frac{\cos(k / base) - \cos(k)}{k}$$
#
# Here $\cos(k)$ is a short wave: it repeats after six positions, so in a mean over many
# positions it vanishes. What remains is negative, so the dot product falls, until
# $\cos(k / base)$ is 0: **up to a distance of $\pi/2 = 1.57$ times the base.**
#
# The experiment: the dot product at larger and larger distances $k$, each a mean over
# the distances from $k$ to $1.5 k$, so that the waves vanish. Where is it lowest?


# %%
def dots_at_distances(base):
    omega = 1 / base ** (np.arange(256) / 256)
    middles = []
    dots = []
    for k in np.unique(np.geomspace(1, 4 * base, 60).astype(int)):
        distances = np.arange(k, 1.5 * k)
        middles.append(distances.mean())
        dots.append(np.cos(distances[:, None] * omega).sum(axis=1).mean())
    return np.array(middles), np.array(dots)


of_bases = {}
lowest_at = []
for base in (10, 100, 1000, 10000):
    middles, dots = dots_at_distances(base)
    of_bases[base] = (middles, dots)
    lowest_at.append(middles[dots.argmin()] / base)
    print(f"    base {base:5d}: lowest at a distance of {lowest_at[-1]:.2f} times it")
right = all(1.3 < times < 1.9 for times in lowest_at)
claim("lowest at about 1.57 times the base", right, np.round(lowest_at, 2))
draw(figures.bases, "05_base.png", of_bases)

# %% [markdown]
# ![The dot product of two positions over their distance, on a logarithmic axis, for the bases 10, 100, 1000 and 10000. Each curve falls from a little below 256, the steeper the smaller the base; after a bend near 6 those of the larger bases are nearly straight. An arrow points at where each is lowest, at about one and a half times its base; after that it rises, and it ends flat at five times its base.](figures/05_base.png)
#
# *What to see: each curve falls to its arrow, at 1.6, 1.6, 1.6 and 1.4 times its base,
# and rises after it: there a farther position looks nearer. The distances that we tried
# are up to 20% apart, so it cannot be told more exactly.*
#
# With 10000, near and far can be told in any sentence. With 1000 they can, too: the
# number is not critical. If it is too small, far positions look near. If it is too
# large, most of the hands hardly move.

# %% [markdown]
# ### What is the loss of a new model?
# Are logits of variance 1 a good beginning? With the logit $z_v$ of each word $v$, the
# loss of the right word is
#
# $$-\ln \frac{e^{z_{right}}}{\sum_v e^{z_v}} = \ln(\sum_v e^{z_v}) - z_{right}$$
#
# and $z_{right}$ is 0 on average. With all $V$ logits at 0, the sum would be $V$, and
# the loss $\ln V$: that of a fair guess among $V$ words. Logits of variance 1 make the
# sum larger: the mean of $e^x$ over normally distributed numbers of variance 1 is
# $e^{1/2} = 1.65$. The reason: $e^x e^{-x^2/2} = e^{1/2} e^{-(x-1)^2/2}$ is $e^{1/2}$
# times the bell of $x$, moved by 1. So the sum is about $1.65 V$, and the loss
# $\ln V + 1/2$: hardly worse than a guess.

# %%
print(f"e^(1/2) = {exp(0.5):.2f}; e^logit has the mean {np.exp(logits).mean():.2f}")
guess = log(8000)
first_loss = -np.log(F.softmax(logits).numpy()[:, 0]).mean()  # word 0 is the right one
print(f"a fair guess among 8,000 words: ln 8000 = {guess:.2f}")
claim("the first loss of the model", guess < first_loss < guess + 0.7, first_loss)

# %% [markdown]
# ### Could positions be learned instead, and what do other programs do?
# Yes: section 3.5 tried a table of learned positions, and found nearly the same BLEU (a
# score of translations, lesson 08). A table ends, though; sinusoids go on.

# %%
learned_config = config.replace(positions="learned", max_length=70)
learned = Positions(learned_config, rng).astype(np.float64)
# The rows are drawn as small as those of E, so they need the same factor.
learned_X = X.numpy() + 8.0 * learned.learned.weight.numpy()
same("learned positions are a table, times sqrt(d_model)", learned(X), learned_X)
no_70 = is_refused(lambda: learned(X, start=1))
claim("position 70 of a table of 70 is an error", no_70, "UserError")

# %% [markdown]
# Some programs have all sines first and then all cosines (`layout="halves"`). So has
# tensor2tensor, the authors' own program, and it divides by $d_{model}/2 - 1$ in the
# exponent (`base="t2t"`: the option chooses an exponent, not the number 10000). Nothing
# is gained or lost; but a model only works with the sinusoids of its training.
#
# Many models of today add no positions. They turn queries and keys by the angles of the
# hands: *rotary* positions.

# %%
halves = sinusoid(100, 64, layout="halves", dtype=np.float64)
same("halves: the sines in front", halves[:, :32], PE[:, 0::2])
same("halves: the cosines behind", halves[:, 32:], PE[:, 1::2])
t2t = sinusoid(100, 64, base="t2t", dtype=np.float64)
last_angle = np.arctan2(t2t[1, -2], t2t[1, -1])  # sine and cosine of the last hand
same("t2t: the last hand goes round in 10000 * 2 pi", 1 / last_angle, 10000)
finish(
    "One table embeds the words and scores them; the sinusoids say where each word is."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 05` writes this part to `my_05_embeddings.py`; fill in the
# bodies and run it. It imports `np`, `sqrt`, `sin`, `cos`, `record`, `Tensor` and
# `sinusoid`; `record` is from lesson 02.


# %%
def predicted_position():
    """Predict the four numbers of position 2 in sinusoids of d_model 4.

    Compute them on paper (with a calculator), then write down the list of four numbers,
    to two digits after the point, and run.

    Hint: "How does a position become a vector?" has the formula. There are two hands,
    and the second one is 100 times as slow as the first: 10000^(2/4). The angles are in
    radians.
    """
    ...


def check_predicted_position():
    checks.check_predicted_position(predicted_position)


# %%
def look_up(table, ids):
    """Return the rows of the Tensor `table` at ids (N,), with their gradient.

    The ids may repeat. Use record. (The check sees the result, not the method.)

    Hint: "How does a word become a vector?" has the gradient. If an id comes three
    times, g[ids] += gy adds only one of its gradients; np.add.at(g, ids, gy) adds all.
    """
    ...


def check_look_up():
    checks.check_look_up(look_up)


# %%
def right_input(embedding, length):
    """Find the two mistakes in embedding + sinusoid(length + 1, d_model)[1:].

    This was to be the input of the model for one sentence. embedding: an array (length,
    d_model); d_model is its number of columns. It runs, and the model even learns.
    Return the right input: an array (length, d_model).

    Hint: "What enters the model?" has the equation. And
    what is the number of the first position?
    """
    ...


def check_right_input():
    checks.check_right_input(right_input)


# %%
def look_back(k, d_model):
    """Return the matrix W (d_model, d_model) of a head that looks k positions back.

    The head is the only one, so d_k = d_model; W makes its queries, and PE are its
    keys: row pos of (PE W) PE^T holds the dot products of PE(pos - k) with every PE.

    Hint: "What can a model read from the hands?" has the matrix that turns PE(pos)
    into PE(pos + k).
    """
    ...


def check_look_back():
    checks.check_look_back(look_back)


# %% [markdown]
# **Now yours: pieces 19 to 21** of `my_transformer.py`. What enters the model:
# `embedding`, `sinusoids` and `enter`. If you have no such file, `python
# lessons/build.py` writes it.

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = (
    "functions.embedding",
    "nn.Embedding",
    "transformer.sinusoid",
    "transformer.Positions",
)
