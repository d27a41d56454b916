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
# "man bites dog", with three vectors of two numbers: man (2, 0) and dog (0, 2), as in
# lesson 03, and bites (1, 1). "Bites" looks around, as "bank" did in lesson 01. Its
# scores are
#
# - with man: 1 · 2 + 1 · 0 = 2,
# - with bites: 1 · 1 + 1 · 1 = 2,
# - with dog: 1 · 0 + 1 · 2 = 2.
#
# Equal scores make equal weights, a third each. The average of the three vectors is
# (1, 1). Now turn the sentence round. The same three scores, the same three weights,
# the same sum in another order: (1, 1) again. Attention has read the news and missed
# it.
#
# The equal scores only spare us work. With any other vectors, too, both sentences have
# the same scores and the same terms, and a sum has no order. What would you do? Try an
# idea of your own before you read on.
#
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
from minitf.transformer import EncoderLayer, Positions, padding_mask, sinusoid

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
# The two answers differ by little, as nothing was chosen for it: "What can a model read
# from the hands?" builds a head that gets "dog" in the one and "man" in the other.

# %%
draw(figure_1, "05_here.svg", here=["embedding", "positions", "linear"])

# %% [markdown]
# ![Figure 1 of the paper, a diagram of the Transformer. Marked are the two embeddings at the bottom, the positional encodings added to them, and the linear layer at the top of the decoder.](figures/05_here.svg)
#
# *What to see: this lesson makes the two ends of the model. At the bottom, words and
# positions become vectors; at the top, vectors become scores of words.*

# %% [markdown]
# ## Does a layer know the order of the words?
# Exchange two words, and attention exchanges their answers, and nothing else ("Why does
# reordering the words reorder the answers?" in "More on ..." has the proof). The rest
# of an encoder layer treats each row alone, and all in the same way (lesson 04). So no
# stack of such layers, however deep, can tell who bites.

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
# and after 44 positions, 7 rounds and a little, it shows nearly the same as at 0.
#
# A clock on the wall solves this with several hands. The seconds hand tells apart
# moments that are close, but soon comes round again; the hour hand hardly moves between
# such moments, but it tells morning from noon.
#
# Each hand gives two numbers, the coordinates of its tip.
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
# 100 positions as of 100 to 1000. The last hand goes round once in 47,117 positions
# (its exponent is 62/64). Why so slowly? See "Why 10000?" in "More on ...".
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
print(f"the last one goes round in {2 * pi * 10000 ** (62 / 64):,.0f} positions")

# %%
for i in (0, 8, 16):  # three of the 32
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
#
# **Use.** With one hand, the vectors of positions 0 and 44 are only 0.02 apart. With
# all 32 hands they are 5.1 apart. Of the first 100 positions, the one nearest to
# position 0 is its neighbour, position 1, and even that is 1.47 away. (Each vector has
# the length 5.7.)

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
# waves come from the fast hands: at a distance of 25, hands 0 and 1 are both back where
# they were.*

# %% [markdown]
# ## What can a model read from the hands?
# **State.** Section 3.5: for any fixed offset $k$, $PE(pos+k)$ is a linear function of
# $PE(pos)$, the same at every $pos$. The authors expected that a model would therefore
# learn to look $k$ words away. Why? A head has one matrix $W^Q$ for all positions. If
# it turns each $PE(pos)$ into $PE(pos - 1)$, and the keys stay the positions as they
# are, then each word asks for the position before its own. And $PE(pos - 1)$ is most
# like itself, as the last section said. So each word looks at the word before.
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
# Try it with the clock of the beginning, for which $\omega$ is 1. For one step back,
# $k = -1$, $\cos(\omega k)$ is 0.54 and $\sin(\omega k)$ is -0.84. Position 2, (0.91,
# -0.42), becomes (0.91 · 0.54 + 0.42 · 0.84, 0.91 · 0.84 - 0.42 · 0.54). That is (0.84,
# 0.54), position 1.
#
# The matrix is a rotation: to move $k$ positions ahead, turn each hand by the angle
# $\omega k$. To move back, take a negative $k$. The same matrix does it for every $p$,
# because a hand turns by its own angle in each step, wherever it points. Each hand has
# such a block, with its own $\omega$; the 32 blocks along the diagonal, with zeros
# elsewhere, are one matrix of 64 by 64. The new sine needs the old cosine: this is why
# each hand has two numbers.


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
# **Use.** Build that head, as wide as the model: $d_k = 64$. Its queries are the
# positions, turned one step back, its keys the positions as they are. The dot product
# with the right key is 32, with the next best 30.9: a lead of 1.1. Divided by
# $\sqrt{d_k} = 8$, that makes the right weight only 14% larger than the next best. But
# only the direction of the query is fixed, not its length. So we multiply the matrix,
# say by 16, as training could. Then the lead is 1.1 · 16 / 8 = 2.2, and the right
# weight is $e^{2.2}$, or 9, times the next best. There are two of these, one on each
# side, so it is about 9/11:


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
# *What to see: position 1 looks at 0, position 2 at 1, and so on. (Position 0 has none
# before it: its row is hatched. It looks at the nearest one, itself.)*
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
# is cut into several (lesson 09). The list of all $V$ subwords is the *vocabulary*, and
# the number of a subword in it is its *id*. Each occurrence of a subword in a text is
# called a *token*. Positions count tokens, so from here on "the word before" is the
# token before. Below is a sentence in the subwords of the small model that comes with
# the course. "Bites", which never occurred in its texts, is three tokens.

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
# Its product with $E$ picks one row of $E$. So looking up is a matrix product (without
# the multiplications with 0), and lesson 03 has its gradient. With a row of onehot for
# each token,
#
# $$y = \text{onehot} \cdot E, \qquad gE = \text{onehot}^T \cdot gy$$
#
# In words: row $v$ of $gE$ is the sum of the $gy$ of all tokens whose id is $v$, 0 if
# there is none.

# %%
few = np.array([4, 2, 4, 4, 1])  # five tokens; the id 4 comes three times
E = rng.standard_normal((6, 3))  # a vocabulary of 6, d_model 3
gy = rng.standard_normal((5, 3))  # a gradient for each token
one_hot = np.zeros((5, 6))
for token, i in enumerate(few):
    one_hot[token, i] = 1

# Equate: the library reads the rows, and adds up the gradients of equal ids.
table = Parameter(E)
looked_up = F.embedding(table, few)
same("F.embedding = one-hot matrix times table", looked_up, one_hot @ E)
looked_up.backward(gy)
same("the table's gradient is onehot^T gy", table.grad, one_hot.T @ gy)

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
# Nobody told the model what an adjective is, or a name. Yet of 72 nouns and adjectives,
# 71 are most like one of their own kind; by chance it would be 43 ("More on ..." counts
# them). Words that are used alike get similar gradients in step after step, and so
# their rows become similar, even of opposites like "small" and "big". Most alike are
# words with the same translation: in its sentences, "small" and "little" are both
# "klein", "big" and "tall" both "groß". A row holds what the task needs to know about a
# word.

# %% [markdown]
# ## Why is one table used three times?
# **State.** Section 3.4: the table is used in three places. It embeds the source, it
# embeds the target (the translation), and at the top of the decoder, as the box
# "Linear", it turns the last vector $h$ of each position into a score for each subword,
# its *logit*:
#
# $$\text{logits} = h E^T$$
#
# The logit of a subword is the dot product of $h$ with its row, as a score of attention
# is that of a query with a key. The softmax makes probabilities of logits. All three
# uses are *tied*: they share one matrix.
#
# Why should source and target share? Both languages have one vocabulary, and names,
# numbers and many pieces are the same in both: one row serves both.
#
# Why should a row that reads a word also write it? It need not. But the decoder reads
# the words that it wrote. Take two words that mean nearly the same, such as "rasch" and
# "schnell" (quick, fast). The decoder should treat them alike when it reads them and
# when it scores them, and one table learns that once.
#
# **Derive.** A matrix that is used three times has as its gradient the sum of three
# (lesson 02). "Is the tied gradient the sum of three, and which rows does each reach?"
# in "More on ..." checks it.
#
# **Use.** Tying also saves two of three tables. With the paper's vocabulary of 37,000
# subwords and $d_{model}$ 512, a table has 18.9 million numbers. Without tying, the
# base model would have 103 million parameters in place of 65.

# %%
V = 37_000
embeddings = Embedding(V, 512, None)  # None: no random numbers, only the sizes count
one_table = embeddings.weight.size
claim("a table has V d_model numbers", one_table == V * 512, f"{one_table:,}")
untied = 65 + 2 * one_table / 1e6  # 65: with one table (section 6.2, table 3)
print(f"in millions: a table {one_table / 1e6:.1f}, the model untied {untied:.0f}")

# %% [markdown]
# ## What enters the model?
# **State.** By section 3.4 and section 3.5, the input is
#
# $$x = \text{embedding} \cdot \sqrt{d_{model}} + PE$$
#
# followed by dropout (section 5.4), which is off here. Where does the root come from?
# The paper does not say. Tying gives a good reason: the same row of $E$ has to be right
# at both ends of the model. At the top its numbers must be small, or the logits are too
# large. At the bottom they must be large, or the position drowns the word. The factor
# serves both.
#
# **Derive, at the top.** There, a row of $E$ meets the vector that leaves the last
# layer. A layer ends with a norm (lesson 04), so at first the numbers of this vector
# have variance 1. Its dot product with the row, a logit, is a sum of $d_{model}$
# products of such a number and one of $E$. So, as in lesson 01, the logit's variance is
# $d_{model}$ times that of the numbers in $E$. The logits should begin small: were they
# large, a new model would be sure of one subword, and nearly always of a wrong one.
# Variance 1 is small enough: the model then begins hardly worse than a fair guess
# ("What is the loss of a new model?" in "More on ..."). So `Embedding` draws the
# numbers of $E$ with variance $1/d_{model}$.
#
# **Derive, at the bottom.** There, the same row meets $PE$. The row has $d_{model}$
# numbers of variance $1/d_{model}$, so its squares sum to about 1: its length is 1.
# $PE$ has $d_{model}/2$ pairs with $\sin^2 + \cos^2 = 1$, so its length is
# $\sqrt{d_{model}/2}$, which is 16 for $d_{model}$ 512. If they were added as they are,
# the word would drown in its position. Times $\sqrt{d_{model}}$, the row has length
# 22.6, and word and position are of about one size.

# %%
# Equate: each step with numbers, for d_model 512 and a vocabulary of 8,000.
rows = Embedding(8000, 512, rng).weight.numpy()
vectors = rng.standard_normal((200, 512))
hidden = F.layer_norm(vectors, np.ones(512), np.zeros(512)).numpy()
logits = hidden @ rows.T  # (200, 8000)
claim("the variance of the logits is", abs(logits.var() - 1) < 0.05, logits.var())
row_length = np.linalg.norm(rows, axis=1).mean()
PE_length = np.linalg.norm(sinusoid(11, 512)[10])
claim("the length of a row is 1", abs(row_length - 1) < 0.01, row_length)
claim("the length of PE is sqrt(512 / 2)", abs(PE_length - 16) < 1e-3, PE_length)
print(f"a row times sqrt(512): {row_length * sqrt(512):.1f}; PE: {PE_length:.1f}")

# %% [markdown]
# **What adding costs.** A word and its position now share the same numbers, of about
# equal size. But neighbouring positions differ by little. In the head that read the
# news ($d_{model}$ 64) the right position led by only 1.1, and now a query contains its
# word, and so does the key at its own place. The turn of one step hardly changes the
# word: with itself it has a dot product of 62. So each word looks at itself.
#
# But a model is not built, it is trained. With the trained words of the small model, in
# random order, a matrix that is learned from such sums finds the word before in 61% of
# the cases, and a guess in 5%. For more, and whether it would help to write the
# position *beside* the word, see "What does adding cost?" in "More on ...". (The paper
# does not say why it adds.)

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
# Nothing later needs what follows. Open what you are curious about.
#
# ### How many words are most like one of their own kind?
# Here are all nouns and adjectives of the small model's texts that are one subword
# each. For each we look which of the others has the row most like its own.

# %%
kind_of = dict.fromkeys(grammar.NOUNS, "noun") | dict.fromkeys(
    grammar.ADJECTIVES, "adjective"
)
whole = [word for word in kind_of if "▁" + word in names]
rows_of_whole = directions[[names.index("▁" + word) for word in whole]]
with_others = rows_of_whole @ rows_of_whole.T - 2 * np.eye(len(whole))  # not itself
kinds = np.array([kind_of[word] for word in whole])
nearest_one = with_others.argmax(axis=1)
n_same = (kinds == kinds[nearest_one]).sum()
claim("most like one of their kind:", n_same == 71, f"{n_same} of {len(whole)}")
same_kind = (kinds[:, None] == kinds) & ~np.eye(len(whole), dtype=bool)
by_chance = same_kind.sum() / (len(whole) * (len(whole) - 1))
print(f"    {(kinds == 'noun').sum()} of them are nouns", end=": ")
print(f"by chance {by_chance:.0%}, or {by_chance * len(whole):.0f}")
for i in np.flatnonzero(kinds != kinds[nearest_one]):
    print(f"    the exception: {whole[i]}, most like {whole[nearest_one[i]]}")

# %% [markdown]
# ### What does adding cost?
# A word and its position share the same numbers. Does the head that read the news still
# find the word before? Here are 20 words of a new model, with $d_{model}$ 64
# again. 19 of them have a word before. (`Positions` is the library's layer that adds
# $PE$.)

# %%
embed = Embedding(len(subwords), 64, rng).astype(np.float64)
add_positions = Positions(config, rng)
words = embed(np.arange(20)[None]) * 8.0  # (1, 20, 64); sqrt(64)
entering = add_positions(words).numpy()[0]
same("Positions adds PE", entering, words.numpy()[0] + waves(20, 64))
products = entering @ turn(-1) @ entering.T  # times 16, the largest stays the largest
best = products.argmax(axis=1)
n_before = (best[1:] == np.arange(19)).sum()
claim("queries that find the word before", n_before == 0, f"{n_before} of 19")
at_itself = (best == np.arange(20)).sum()
claim("queries that find their own word", at_itself == 20, f"{at_itself} of 20")
all_words = embed.weight.numpy() * 8.0
with_itself = ((all_words @ turn(-1)) * all_words).sum(axis=1).mean()
print(f"a word, turned, with itself: {with_itself:.0f} on average")

# %% [markdown]
# It finds none of the 19. Each query finds its own key, because there a word meets
# itself. That adds 62 to the dot product, on average; the lead of the position before
# was only 1.1.
#
# What if the position were written *beside* the word? Then the matrix could have zeros
# for the word and the turn for the position, and our head would work as before. **By
# adding we lose this free choice.** In return, vectors and matrices are smaller. (The
# paper does not say why it adds.)
#
# Is the word before lost, then? Not to a matrix that is learned. We chose ours for
# positions alone; training can choose one for sums. With the trained words of the small
# model, in random order, a learned matrix finds the word before in 61% of the cases,
# our head in 10%, and a guess in 5% ("Can a head learn to find the word before?" in
# "More on ..."). And in a model, training chooses the rows of the words, too.

# %% [markdown]
# ### Can a head read the position out of a sum?
# In "What does adding cost?" our head, which reads all 64 numbers, found itself. Are
# the other words noise to it, too? They are again random rows of variance 1, with
# $d_{model}$ 64.
#
# Let $W$ be $W^Q$ times the transpose of $W^K$; in our head that is the turn. The score
# of the sum $w + p$ with the sum $w' + p'$ has four terms:
#
# $$(w + p) W (w' + p')^T = p W p'^T + w W p'^T + p W w'^T + w W w'^T$$
#
# 1. Position with position: it tells where, with its lead of 1.1. The rest is noise.
# 2. The word that asks, with the position of a key. The $PE$ of two neighbours are 1.47
#    apart, so between two neighbouring keys this differs by 1.47 (the spread): less
#    than what follows, but already more than the lead.
# 3. The position that asks, with the word of a key: the length of a $PE$ is
#    $\sqrt{32}$, so the spread is $\sqrt{32} = 5.7$.
# 4. Word with word: the spread is 8 (lesson 01), and at the position that asks, where
#    both words are the same one, the product is about 62 (64 without the turn).
#
# The squares of the last two spreads add: $32 + 64 = 96$. So even without itself the
# head would meet noise of the spread 9.8, nine times the lead.
#
# Smaller words are no way out. We try 1/4 of the size, and 1/8, the size without the
# factor. And can one still tell which word is in a sum: is it, of 1,600 words, the one
# that is most like the sum?


# %%
def share_found(vectors, W):
    """Return the share of positions 1 to 19 whose best key is the one before.

    vectors: (..., 20, 64).
    """
    scores = vectors @ W @ np.swapaxes(vectors, -1, -2)
    return (scores.argmax(axis=-1)[..., 1:] == np.arange(19)).mean()


PE_20 = PE[:20]
of_noise = 32 + 64
print(f"    spread, PE with a word: {sqrt(32):.1f}", end=", ")
print(f"both: {sqrt(of_noise):.1f}, the root of {of_noise}")
sizes = (1 / 8, 1 / 4, 1)  # of the words
before_found = {size: [] for size in sizes}
word_named = {size: [] for size in sizes}
for _ in range(100):
    vocabulary = rng.standard_normal((1600, 64))
    for size in sizes:
        sums = size * vocabulary[:20] + PE_20
        before_found[size].append(share_found(sums, turn(-1)))
        most_like = (sums @ vocabulary.T).argmax(axis=1)
        word_named[size].append((most_like == np.arange(20)).mean())
for size in sizes:
    print(f"    words times 1/{1 / size:.0f}, found: ", end="")
    print(f"the word before {np.mean(before_found[size]):.0%}, ", end="")
    print(f"which word it is {np.mean(word_named[size]):.0%}")
of_large = np.mean(before_found[1])
claim("with the factor the word before is found", of_large < 0.1, f"{of_large:.0%}")
of_small_words = np.mean(word_named[1 / 8])
claim("without it, which word it is", of_small_words < 0.1, f"{of_small_words:.0%}")

# %% [markdown]
# With the factor, this head never finds the word before. Without it (1/8), it finds it
# in half of the rows, but the position drowns the word. At 1/4 both are mostly lost.
#
# ### Does it help to read less?
# How many numbers do 20 positions need? `svd`, a function of NumPy, finds fixed vectors
# of length 1, at right angles to each other, such that the first few make up most of
# every position: it is nearly a sum of them, each times a number. Such a vector is a
# *direction*, and a matrix reads it with one column: the dot product with it is one
# number. 8 of the 64 directions are enough for 20 positions: they hold more than 99.9%
# of their squared lengths.
#
# So let $d_k$ be 8. $W^K$ reads these 8 numbers from a sum, and nothing else. $W^Q$
# reads the same 8, makes a position of them, turns it one step back, and reads the 8
# numbers of the result. We try this head with random words, and with words from which
# all that lies in the 8 directions is taken away.

# %%
_, lengths_in, directions_of_PE = np.linalg.svd(PE_20)
in_8 = (lengths_in[:8] ** 2).sum() / (lengths_in**2).sum()
claim("of 20 positions, 8 directions hold", in_8 > 0.999, f"{in_8:.2%}")
W_k = directions_of_PE[:8].T  # (64, 8)
W_q = W_k @ W_k.T @ turn(-1) @ W_k  # (64, 8): reads, makes a position, turns, reads
random_words = rng.standard_normal((1000, 20, 64))
found_in_8 = share_found(random_words + PE_20, W_q @ W_k.T)
print(f"    reading 8 directions: found {found_in_8:.0%}, by chance {1 / 20:.0%}")
with_room = random_words - random_words @ W_k @ W_k.T
all_found = share_found(with_room + PE_20, W_q @ W_k.T)
claim("if words have nothing in the 8, found", all_found > 0.999, f"{all_found:.0%}")

# %% [markdown]
# This head finds the word before at 15% of the positions (by chance it would be 5%).
# The noise that remains is what the words have in these 8. If they have nothing there,
# the head sees positions alone, and finds them all.
#
# ### Can a head learn to find the word before?
# These heads are built by hand. Now $W$, the product of $W^Q$ and $(W^K)^T$, is learned
# by gradient descent, from sums of a position and a word drawn at random. The loss is
# the mean of $-\ln p$, where $p$ is the weight on the word before. We try it with
# random rows, with the trained rows of the small model, and with these trained rows,
# all turned by one random rotation.


# %%
def sums_of(rows):
    """Return 32 times 20 sums of a word, drawn at random, and its position."""
    return 8.0 * rows[rng.integers(4, 1600, (32, 20))] + PE_20  # ids below 4 are marks


def learned_head(rows):
    W = Parameter(np.zeros((64, 64)))
    of_each = np.arange(32)[:, None]
    asks = np.arange(1, 20)
    for _ in range(300):
        sums = sums_of(rows)
        scores = Tensor(sums) @ W @ Tensor(sums.swapaxes(1, 2))
        right = F.softmax(scores)[of_each, asks, asks - 1]  # weights on the word before
        (-F.log(right).mean()).backward()
        W.data -= 0.02 * W.grad
        W.grad = None
    return W.numpy()


def learned_and_tried(name, rows):
    W = learned_head(rows)
    found = np.mean([share_found(sums_of(rows), W) for _ in range(20)])
    squares = np.linalg.svd(W, compute_uv=False) ** 2
    in_8 = squares[:8].sum() / squares.sum()
    print(f"    {name}: found {found:.0%}; 8 directions hold {in_8:.0%} of W")
    return found


untrained = rng.standard_normal(trained.shape) * trained.std()
rotation = np.linalg.qr(rng.standard_normal((64, 64)))[0]
in_random = learned_and_tried("random rows", untrained)
in_trained = learned_and_tried("trained rows", trained)
in_turned = learned_and_tried("trained rows, turned", trained @ rotation)
claim("random rows: the word before found", in_random > 0.25, f"{in_random:.0%}")
near_60 = abs(in_trained - 0.6) < 0.07
claim("trained rows: the word before found", near_60, f"{in_trained:.0%}")
by_turn = np.mean([share_found(sums_of(trained), turn(-1)) for _ in range(20)])
claim("trained rows: our head finds", by_turn < 0.2, f"{by_turn:.0%}")
for name, rows_of in (("random", untrained), ("trained", trained)):
    squares = np.linalg.svd(rows_of, compute_uv=False) ** 2
    print(f"    {name}: 32 directions hold {squares[:32].sum() / squares.sum():.0%}")
    in_those_of_PE = ((rows_of @ W_k) ** 2).sum() / squares.sum()
    print(f"    {name}: the 8 directions of the positions hold {in_those_of_PE:.1%}")

# %% [markdown]
# With random rows the learned head finds the word before at 32% of the positions, twice
# as many as the one that reads 8 numbers; with trained rows at 61% (our first head, the
# turn, at 10%). It, too, reads little: 8 directions hold most of $W$.
#
# Why is it easier with trained words? They hardly left the directions of the positions:
# these 8 hold 11.6% of the squares of the trained rows, and 12.8% of those of the
# random ones. And when all rows are turned, so that they lie in other directions, a
# head still learns to find 55%. So it matters little where the rows lie. What matters
# is how unevenly they are spread: 32 of the 64 directions hold 78% of their squares (of
# random rows 58%), and in the others there is room. (Words that are used alike have
# similar rows; that is probably why. And 512 numbers have more room: "Why is the
# position added, and not written beside the word?")

# %% [markdown]
# ### Could one leave out the factor at the bottom?
# One could draw the rows with variance 1, and leave the factor out. Then the bottom
# would be right and the top wrong. The logits would have the standard
# deviation 22.6: one word of the 8,000 would get nearly all the probability, and seldom
# the right one. One could as well make $PE$ shorter: the ratio would be the same. But
# all that enters would be 22.6 times smaller. A score of the first layer is a product
# of two such vectors, so it would be 512 times smaller, and all weights would begin
# equal. (Later layers follow a norm, lesson 04. How much this would harm we do not
# measure.)
#
# ### Why does reordering the words reorder the answers?
# Let $x$ have the rows dog, bites and man. A matrix $R$ reorders them. Here it
# exchanges the first and the third:
#
# $$R = \begin{pmatrix} 0 & 0 & 1 \\ 0 & 1 & 0 \\ 1 & 0 & 0 \end{pmatrix}$$
#
# $R x$ has the rows man, bites and dog. From the right, $R^T$ exchanges columns in the
# same way. And $R^T R$ changes nothing: $R^T$ undoes $R$.
#
# What does attention answer to $R x$? ($\sqrt{d_k}$ is left out; it changes
# nothing here.)
#
# 1. The queries are $(R x) W^Q = R (x W^Q)$: the old queries, reordered. So are keys
#    and values. In place of $Q$, $K$ and $V$ we have $R Q$, $R K$ and $R V$.
# 2. The scores were $S = Q K^T$. Now they are $R Q (R K)^T = R Q K^T R^T = R S R^T$:
#    rows and columns are exchanged alike.
# 3. Each row holds the same numbers in another order, so the softmax gives the same
#    weights in that order: $R \, \text{softmax}(S) \, R^T$.
# 4. The answers are $R \, \text{softmax}(S) \, R^T R V$, which is
#    $R \, \text{softmax}(S) \, V$: the old answers, reordered.
#
# With the causal mask of a decoder this does not hold: there the first word sees one
# word, and the last sees all.
#
# ### How does the library compute the two tables?
# `F.embedding` reads rows, and on the way back adds up the gradients of equal ids. Why
# does it not multiply? The paper's batches have about 25,000 source tokens, its
# vocabulary 37,000 subwords: a one-hot matrix of them would take 3.7 GB, nearly all
# zeros.
# `sinusoid` computes all positions at once. (Its options: "What do other programs do
# differently?")

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
same("and its gradient is onehot^T gy", layer.weight.grad, one_hot.T @ gy)

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
# ### What if an id is not in the table?
# For a table of 6 rows, 6 is one too many. And -1 is worse, because NumPy silently
# reads the last row. The library refuses both.


# %%
def is_refused(outside):
    try:
        F.embedding(E, np.array([outside]))
    except IndexError as error:
        print(f"    {error}")
        return True
    return False


claim("the id 6 of a table of 6 rows is an error", is_refused(6), "IndexError")
claim("and so is the id -1", is_refused(-1), "IndexError")

# %% [markdown]
# ### Does padding learn anything?
# Padding fills up short sentences. Its id is 0, so it has a row like any other. But
# behind the mask of lesson 01 no token reads it, and nobody uses the answers at its own
# positions (the program below takes the first three). So as an input it learns nothing:
# the gradient of its row is exactly 0.

# %%
padded_table = Parameter(E)
padded = np.array([[4, 2, 1, 0, 0]])
x = F.embedding(padded_table, padded)  # (1, 5, 3)
mask = padding_mask(padded)[:, 0]  # (1, 1, 5): there are no heads here
attended = F.attention(x, x, x, mask)
attended[0, :3].backward(gy[:3])
padding_gradient = float(abs(padded_table.grad[0]).max())
claim("padding's row gets the gradient", padding_gradient == 0, padding_gradient)
word_gradient = padded_table.grad[4]
claim(
    "the row of a word gets the gradient",
    abs(word_gradient).min() > 0,
    word_gradient.round(2),
)

# %% [markdown]
# ### Is the tied gradient the sum of three, and which rows does each reach?
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


# %%
def rows_reached(parameter):
    return np.flatnonzero(abs(parameter.grad).sum(axis=1)).tolist()


found = rows_reached(for_source)
claim("the source's use reaches the rows of its ids", found == [5, 7, 9], found)
found_in_target = rows_reached(for_target)
claim("the target's use likewise", found_in_target == [2, 4, 5], found_in_target)
found_in_output = rows_reached(for_output)
claim("the output's use reaches all rows", len(found_in_output) == 11, found_in_output)

# %% [markdown]
# ### What if a piece is a word of both languages?
# "die" is an English verb and a German article, in one row. The encoder reads it as the
# verb, the decoder as the article: each has matrices of its own to read it.
#
# ### Could random rows be the positions?
# A random row, too, is most like itself. But a head that looks at the word before needs
# one matrix that turns each row into the row before. Random rows have in general no
# such matrix, if there are more than $d_{model} + 1$ of them: a column of the matrix
# has $d_{model}$ unknowns, 64 here, and each step from a row to its neighbour gives one
# equation for them. For 65 rows or fewer there is a matrix, but it says nothing of
# further rows.
#
# ### What does the whole table look like?

# %%
draw(figures.table, "05_table.png", PE)

# %% [markdown]
# ![The table of the sinusoids as a map, position down and column across. On the left fine stripes, blue and brown, that alternate from position to position; to the right they become longer and longer, and the last columns are plain.](figures/05_table.png)
#
# *What to see: each pair of columns is a hand. On the left the fast ones, whose stripes
# are short; on the right the slow ones, which hardly move in 100 positions: their sines
# stay near 0, their cosines near 1.*
#
# ### What if the words come one at a time?
# They do when a decoder writes a translation. Then `start` says how many came before.

# %%
X = Tensor(rng.standard_normal((2, 70, 64)))
added = add_positions(X)
same("Positions adds PE, to any length", added, X.numpy() + waves(70, 64))
fifth = add_positions(X[:, 5:6], start=5)
same("with start = 5, a position alone = position 5 of all", fifth, added[:, 5:6])

# %% [markdown]
# ### Why is the position added, and not written beside the word?
# Beside it, a matrix would have two parts, $A$ for the word and $B$ for the position,
# and make $\text{word} · A + \text{position} · B$. Added, both go through one matrix
# $W$, and $(\text{word} + \text{position}) · W$ is
# $\text{word} · W + \text{position} · W$. That is the same sum, with shorter vectors
# and half the matrix. What is lost is that $A$ and $B$ could be chosen freely. Is that
# much? Suppose that a head needs only the word. Then $W$ must drop the position, and
# with it everything that lies in the same directions. But the positions need few
# directions. Of the 512 that the paper's vectors have, a hundred positions need hardly
# more than 30, and the others are left to the words. (`svd` finds the directions, with
# the length in each.)

# %%
lengths = np.linalg.svd(sinusoid(100, 512, dtype=np.float64), compute_uv=False)
shares = lengths**2 / (lengths**2).sum()
in_30 = shares[:30].sum()
claim("of 100 positions, 30 of 512 directions hold", in_30 > 0.98, f"{in_30:.1%}")

# %% [markdown]
# ### Why 10000?
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
# of it. So the sum is nearly this number times an integral along the axis. A step on it
# is $d\omega / \omega$, so the factor $\omega$ cancels:
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
# and rises after it: there a farther position looks nearer. (The distances that we
# tried are up to 20% apart: it cannot be told more exactly. The bend near 6 is the wave
# $\cos(k)$: there the mean is over few distances.)*
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
# $e^{1/2} = 1.65$. So the sum is about $1.65 V$, and the loss $\ln V + 1/2$: hardly
# worse than a guess. (Below it is a little less, as 200 rows have a mean of $z_{right}$
# that is not quite 0.)

# %%
mean_power = np.exp(logits).mean()
claim("the mean of e^logit is", abs(mean_power / exp(0.5) - 1) < 0.05, mean_power)
print(f"e^(1/2) = {exp(0.5):.2f}")


def first_loss(logits):
    right = F.softmax(logits).numpy()[:, 0]  # let the right word be number 0, always
    return -np.log(right).mean()


guess = log(8000)
measured = first_loss(logits)
print(f"a fair guess among 8,000 words: ln 8000 = {guess:.2f}")
print(f"the mean of z_right in these 200 rows: {logits[:, 0].mean():.2f}")
claim("the first loss of the model", guess < measured < guess + 0.7, measured)
loud = first_loss(hidden @ (rows * sqrt(512)).T)
claim("rows of variance 1: the first loss is", loud > 5 * guess, loud)

# %% [markdown]
# ### Could positions be learned instead?
# Yes: section 3.5 tried a table of learned positions, and found nearly the same BLEU (a
# score of translations, lesson 08). A table ends, though; sinusoids go on. (Whether a
# model can use positions that it never met in training is another question.)

# %%
learned_config = config.replace(positions="learned", max_length=70)
learned = Positions(learned_config, rng).astype(np.float64)


def positions_from(start):
    try:
        return f"positions {start} to {start + 69}: {learned(X, start=start).shape}"
    except UserError as error:
        return str(error)


told = positions_from(0)
claim("a table of 70 serves 70 positions", told.startswith("positions"), told)
refused = positions_from(1)
claim("but not position 70", "max_length 70" in refused, refused)

# %%
# The rows are drawn as small as those of E, so they need the same factor.
learned_X = X.numpy() + 8.0 * learned.learned.weight.numpy()
same("learned positions are a table, times sqrt(d_model)", learned(X), learned_X)
same("with a start, too", learned(X[:, 5:6], start=5), learned_X[:, 5:6])

# %% [markdown]
# ### What do other programs do differently?
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
# `embedding`, `sinusoids` and `enter`. (`python lessons/build.py` writes the file, if
# you have none.)

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = (
    "functions.embedding",
    "nn.Embedding",
    "transformer.sinusoid",
    "transformer.Positions",
)
