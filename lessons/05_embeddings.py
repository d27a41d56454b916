# %% [markdown]
"""# Lesson 05. Embeddings and positions

A word becomes a vector, and so does its position (sections 3.4 and 3.5).

You need lessons 01 to 04. At the end you will have turned words into vectors, and
vectors back into scores of words, with one and the same matrix; and you will have given
the model what attention lacks, the order of the words.
"""

# %%
from math import cos, exp, log, pi, sin, sqrt

import numpy as np

from minitf import functions as F
from minitf.check import claim, grad_check, same, show
from minitf.config import Config
from minitf.course import figures
from minitf.course.architecture import figure_1
from minitf.course.lesson import begin, draw, finish, toy_model
from minitf.errors import UserError
from minitf.nn import Embedding, Module, Parameter
from minitf.tensor import Tensor, record
from minitf.transformer import EncoderLayer, Positions, padding_mask, sinusoid

# Reads the options --figures and --backend, and starts to count the claims.
begin("05_embeddings")
rng = np.random.default_rng(1)  # random numbers, the same in each run

# %% [markdown]
# ## Who bites whom?
# "Dog bites man" is no news; "man bites dog" is. Let attention read both, with three
# vectors that fit on paper: dog (2, 0), bites (1, 1), man (0, 2). "Bites" looks around,
# as "bank" did in lesson 01. Its scores are
#
# - with dog: 1 · 2 + 1 · 0 = 2,
# - with bites: 1 · 1 + 1 · 1 = 2,
# - with man: 1 · 0 + 1 · 2 = 2.
#
# Equal scores make equal weights, a third each. The average is (1, 1). Now turn the
# sentence round. The same three scores, the same three weights, the same sum in another
# order: (1, 1) again. Attention has read the news and missed it.
#
# The cure of the paper is one line: add to each word a vector that says where it is.
# For two numbers that is (sin pos, cos pos), where pos is the position, counted from 0
# and read as an angle in radians:
#
# | position | 0 | 1 | 2 |
# |---|---|---|---|
# | vector | (0, 1) | (0.84, 0.54) | (0.91, -0.42) |
#
# Then "dog" is (2, 1) at the beginning and (2.91, -0.42) at the end. The two sentences
# are no longer made of the same vectors.

# %%
dog = np.array([2.0, 0.0])
bites = np.array([1.0, 1.0])
man = np.array([0.0, 2.0])
dog_bites_man = np.array([dog, bites, man])
man_bites_dog = np.array([man, bites, dog])


def answer_of_bites(sentence):
    return F.attention(sentence, sentence, sentence).numpy()[1]


same("in 'dog bites man', 'bites' gets (1, 1)", answer_of_bites(dog_bites_man), [1, 1])
same("in 'man bites dog' as well", answer_of_bites(man_bites_dog), [1, 1])

# %%
clock = np.array([[sin(pos), cos(pos)] for pos in range(3)])
print("the vectors of positions 0, 1 and 2:", clock.round(2).tolist())
print("dog at the end:", (dog + clock[2]).round(2))
news = answer_of_bites(man_bites_dog + clock)
no_news = answer_of_bites(dog_bites_man + clock)
claim(
    "with positions, 'bites' gets something else in each order",
    abs(news - no_news).max() > 0.05,
    f"{no_news.round(2)} and {news.round(2)}",
)
draw(figure_1, "05_here.png", here=["embedding", "positions", "linear"])

# %% [markdown]
# ![Figure 1 of the paper, a diagram of the Transformer. Marked are the two embeddings at the bottom, the positional encodings added to them, and the linear layer at the top of the decoder.](figures/05_here.png)
#
# *What to see: this lesson makes the two ends of the model. At the bottom, words and
# positions become vectors; at the top, vectors become scores of words.*

# %% [markdown]
# ## How does a word become a vector?
# A text is first cut into *subwords*: a frequent word remains in one piece, a rare one
# is cut into several (lesson 09 learns from text how). The list of all V subwords is
# the *vocabulary*, and the number of a subword in it is its *id*. A subword of a text
# is also called a *token*.

# %%
subwords = toy_model().subwords
ids = subwords.encode(["The dog bites the man."])[0]
pieces = subwords.pieces(ids)
print(f"{len(subwords):,} subwords; '▁' marks the beginning of a word:")
for piece, i in zip(pieces, ids, strict=True):
    print(f"    {piece:8s} has the id {i}")

# %% [markdown]
# **State.** Section 3.4: a learned matrix E, the *embedding table*, has a row of
# d_model numbers for each id. This row is the *embedding* of the subword.
#
# **Derive.** Write an id as a *one-hot* row: zeros, and a 1 at the place of the id. Its
# product with E picks one row of E. So looking up is a matrix product, and lesson 03
# has its gradient:
#
# $$y = \text{onehot} \cdot E, \qquad gE = \text{onehot}^T \cdot gy$$
#
# In words: row v of gE is the sum of the gy of all tokens whose id is v. It is 0 if no
# token has the id v.

# %%
few = np.array([4, 2, 4, 4, 1])  # five tokens; the id 4 comes three times
E = rng.standard_normal((6, 3))  # a vocabulary of 6, d_model 3
gy = rng.standard_normal((5, 3))  # a gradient for each token
one_hot = np.zeros((5, 6))
for token, i in enumerate(few):
    one_hot[token, i] = 1
print(one_hot.astype(int))

# Equate: the library reads the rows, and adds up the gradients of equal ids.
show(F.embedding)
same("F.embedding = one-hot matrix times table", F.embedding(E, few), one_hot @ E)
grad_check(F.embedding, E, few)

# %%
layer = Embedding(6, 3, rng).astype(np.float64)  # holds its table as a Parameter
same("Embedding looks up its own table", layer(few), one_hot @ layer.weight.numpy())
layer(few).backward(gy)
same("the table's gradient is onehot^T gy", layer.weight.grad, one_hot.T @ gy)

# %% [markdown]
# **Use.** Why does the library not multiply? The paper's batches have about 25,000
# tokens, its vocabulary 37,000 subwords: a one-hot matrix of them would take 3.7 GB,
# nearly all zeros. But reading rows has a trap, on the way back. NumPy's
# `g[ids] += gy` reads each row, adds, and writes; if an id comes three times, the last
# write wins, and two gradients are lost. `np.add.at` adds each. (Other libraries call
# this *scatter-add*.)

# %%
tokens = 25_000
V = 37_000
gigabytes = tokens * V * 4 / 1e9  # 4 bytes for each number
print(f"the one-hot matrix of {tokens:,} by {V:,} numbers: {gigabytes:.1f} GB")
last_wins = np.zeros_like(E)
last_wins[few] += gy
all_added = np.zeros_like(E)
np.add.at(all_added, few, gy)
same("g[ids] += gy keeps only the last of three gradients", last_wins[4], gy[3])
same("np.add.at adds all three", all_added[4], gy[0] + gy[2] + gy[3])

# %% [markdown]
# A second trap: an id that is not in the table. 6 is one too many; -1 is worse, because
# Python reads the last row without a word. The library refuses both.


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
# And padding, which fills up short sentences? Its id is 0, so it has a row like any
# other. But behind the mask of lesson 01 no token reads it, and nobody uses the answers
# at its own positions (the program below takes the first three). So as an input it
# learns nothing: the gradient of its row is exactly 0.

# %%
table = Parameter(E)
padded = np.array([[4, 2, 1, 0, 0]])
x = F.embedding(table, padded)  # (1, 5, 3)
attended = F.attention(x, x, x, padding_mask(padded)[:, 0])
attended[0, :3].backward(gy[:3])
padding_gradient = float(abs(table.grad[0]).max())
claim("padding's row gets a gradient of", padding_gradient == 0, padding_gradient)
word_gradient = table.grad[4]
claim("a word's row gets one of", abs(word_gradient).min() > 0, word_gradient.round(2))

# %% [markdown]
# ## Why is one table used three times?
# **State.** Section 3.4: the table is used in three places. It embeds the source, it
# embeds the target, and at the top of the model it turns the last vector x of each
# position into a score for each subword, its *logit*:
#
# $$\text{logits} = x E^T$$
#
# The logit of a subword is the dot product of x with its row, as a score of attention
# is that of a query with a key. The softmax makes probabilities of logits. All three
# uses are *tied*: they share one matrix. (So both languages share one vocabulary.)
#
# Why should the row that reads a word also write it? The row of "dog" says what the
# word means. A vector x that is to become "dog" should be like the row of "dog", and
# its dot product with that row measures how much it is.
#
# **Derive.** What is the gradient of a matrix that is used three times? Call its uses
# E_1, E_2 and E_3. The loss L, the number that training makes small, depends on each.
# If E moves, all three move, and by the chain rule the effects add:
#
# $$\frac{dL}{dE} = \frac{dL}{dE_1} + \frac{dL}{dE_2} + \frac{dL}{dE_3}$$
#
# Below is the smallest model with all three uses: one attention in place of all
# layers. Its loss is the mean of -ln(probability of the right next token).

# %%
source = np.array([7, 5, 9])
target = np.array([2, 4, 5, 4, 3])


def loss(source_table, target_table, output_table):
    x = F.embedding(source_table, source)  # (3, 6)
    y = F.embedding(target_table, target[:-1])  # (4, 6): each predicts the next token
    hidden = y + F.attention(y, x, x)
    logits = F.linear(hidden, output_table.transpose())  # (4, 11)
    right = F.softmax(logits)[np.arange(4), target[1:]]  # probabilities of the next
    return -F.log(right).mean()


# Equate: one matrix in three places, against three equal matrices.
start = rng.standard_normal((11, 6))
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
# No line of the model adds the three. `Tensor.backward` does, which lesson 02 showed:
# whenever a gradient arrives at a tensor that has one already, the two are added.
#
# The three parts differ in the rows that they reach.


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
# The last line matters: an embedding learns only when its word occurs, but as a row of
# the output it learns in every update, if only that it was not the right word.
#
# **Use.** What tying saves, for the paper's vocabulary and d_model of 512. A Module
# counts each Parameter once (lesson 03).

# %%
apart = Module()
apart.tables = [Embedding(V, 512, None) for _ in range(3)]
shared = Module()
shared.tables = [apart.tables[0], apart.tables[0], apart.tables[0]]
size_apart = sum(parameter.size for parameter in apart.parameters())
size_shared = sum(parameter.size for parameter in shared.parameters())
claim(
    "tying saves 2 V d_model numbers",
    size_apart - size_shared == 2 * V * 512,
    f"{size_shared:,} in place of {size_apart:,}",
)

# %% [markdown]
# ## Does a layer know the order of the words?
# **State.** Exchange "dog" and "man" in the sentence above: the same rows enter, in
# another order. Let P be the matrix that puts the rows of x into the new order; then
# its transposed matrix P^T puts them back.
#
# **Derive.** The rows of Q, K and V move with those of x. Each row of a softmax is
# computed by itself, so its rows and columns move along, too:
#
# $$\text{softmax}(P Q (P K)^T) P V = P \, \text{softmax}(Q K^T) P^T P V$$
#
# and P^T P is the matrix of ones on the diagonal that changes nothing. What remains is
# P softmax(Q K^T) V: without a mask, attention gives the same answers, in the new
# order. The rest of a layer looks at one position at a time (lesson 04). So no stack of
# such layers, however deep, can tell who bites.

# %%
config = Config(len(subwords), d_model=64, d_ff=128, n_heads=4, dropout=0.0)
embed = Embedding(len(subwords), 64, rng).astype(np.float64)
encoder_layer = EncoderLayer(config, rng).astype(np.float64)
attend = encoder_layer.self_attention

order = [0, 6, 2, 3, 4, 5, 1, 7]  # position 1 gets token 6, and position 6 token 1
dog_first = np.array([ids])
man_first = dog_first[:, order]
print(*subwords.decode(dog_first.tolist()), "->", *subwords.decode(man_first.tolist()))

# Equate: the answers change their order with the words, and nothing else.
x_dog = embed(dog_first) * 8.0  # 8 is the root of d_model; the last section explains it
x_man = embed(man_first) * 8.0
from_dog = attend(x_dog, x_dog)
from_man = attend(x_man, x_man)
same("attention: reordered words, reordered answers", from_man, from_dog[:, order])
layered_dog = encoder_layer(x_dog, None)
layered_man = encoder_layer(x_man, None)
same("all of an encoder layer: the same", layered_man, layered_dog[:, order])

# %% [markdown]
# ## How does a position become a vector?
# Why not add the number of the position itself? It grows without end: at position 50 it
# would drown every embedding. And a single wave, (sin pos, cos pos), stays small, but
# is a clock with one hand, which goes round once in 2 pi = 6.28 positions. After 44
# positions, almost exactly 7 rounds, it shows the same as at 0.
#
# A clock on the wall solves this with several hands. The seconds hand tells apart
# moments that are close, but soon comes round again; the hour hand hardly moves between
# such moments, but it tells morning from noon.
#
# And why is the position *added* to the word, and not written beside it? A matrix that
# reads the pair (word, position) is two matrices, and its result the sum of two
# products; adding first needs no second matrix and no longer vectors. With 512 numbers
# there is room for both: word and position point in nearly perpendicular directions, so
# a matrix can read one and ignore the other.
#
# **State.** Section 3.5: a position has d_model/2 hands, each a pair of columns, a sine
# and a cosine. These are the *sinusoids*:
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}})$$
#
# $$PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$
#
# Hand 0 goes round once in 2 pi positions. Each following hand is slower by the same
# factor, and the last one goes round once in nearly 10000 · 2 pi positions. The length
# of a round is the *wavelength* of the pair.
#
# **Derive.** One number at a time. (Hand i has the columns 2i and 2i + 1.)


# %%
def waves(length, d_model):
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i] = sin(angle)
            table[pos, 2 * i + 1] = cos(angle)
    return table


# Equate. (The options layout and base are for models of other programs: see the end.)
show(sinusoid)
PE = sinusoid(100, 64, dtype=np.float64)
same("sinusoid = one number at a time", PE, waves(100, 64))

# %%
hands = {}
for i in (0, 8, 16, 24):  # four of the 32
    round_trip = 2 * pi * 10000 ** (2 * i / 64)
    print(f"hand {i:2d} goes round in {round_trip:7.2f} positions")
    hands[f"hand {i}: {round_trip:.0f} positions"] = (np.arange(50), PE[:50, 2 * i])
draw(
    figures.lines,
    "05_hands.png",
    hands,
    x="position",
    y="sine of the hand",
    marks=False,
    limits=(-1.1, 2.4),
)

# %% [markdown]
# ![The sines of four hands over 50 positions. Hand 0 swings eight times, hand 8 not quite once, hand 16 climbs slowly, hand 24 stays near 0.](figures/05_hands.png)
#
# *What to see: hand 0 changes from each position to the next, but repeats itself; the
# slower a hand, the longer it takes to repeat anything.*
#
# **Use.** How well does a position know itself? Take the distance between the vector of
# position 0 and that of every other: once with one hand, once with all 32.

# %%
from_zero = np.linalg.norm(PE - PE[0], axis=1)
one_hand = np.linalg.norm(PE[:, :2] - PE[0, :2], axis=1)
nearest = from_zero[1:].min()
claim("one hand: from position 0 to 44 it is only", one_hand[44] < 0.02, one_hand[44])
claim("32 hands: to the nearest position it is", nearest > 1, nearest)
draw(
    figures.lines,
    "05_alone.png",
    {
        "32 hands": (np.arange(100), from_zero),
        "one hand": (np.arange(100), one_hand),
    },
    x="position",
    y="distance from position 0",
    marks=False,
)

# %% [markdown]
# ![Distance of each position's vector from that of position 0. With one hand it falls back to nearly 0 every six positions; with 32 hands it climbs to about 6 and never comes near 0 again.](figures/05_alone.png)
#
# *What to see: the curve of one hand comes down to 0 again and again; there two
# positions have nearly the same vector. The curve of 32 hands never does.*
#
# The formula has a well-known bug, found in published programs: `2 * i // d_model`, an
# integer division, in place of `2 * i / d_model`. Then all exponents are 0, and 32
# hands move as one.

# %%
for_pos_1 = [sin(1 / 10000 ** (2 * i // 64)) for i in range(32)]
same("by 2 * i // d_model all hands show what hand 0 shows", for_pos_1, [sin(1)] * 32)

# %% [markdown]
# ## What can a model read from the waves?
# **State.** Section 3.5: for any offset k, PE(pos+k) is a linear function of PE(pos),
# the same at every pos. So a head can learn to look k words back with one matrix.
#
# **Derive.** A hand turns by some angle w per position. By the rules for the sine and
# the cosine of a sum, it shows at pos + k
#
# $$\sin(w \, pos + w k) = \cos(w k) \sin(w \, pos) + \sin(w k) \cos(w \, pos)$$
#
# $$\cos(w \, pos + w k) = -\sin(w k) \sin(w \, pos) + \cos(w k) \cos(w \, pos)$$
#
# That is a rotation by the angle w k: to go k positions on, turn each hand on.
#
# And the dot product of two positions a and b is, hand by hand,
#
# $$\sin(w a) \sin(w b) + \cos(w a) \cos(w b) = \cos(w (a - b))$$
#
# It depends on their distance only, not on where they are.

# %%
angles = np.array([1 / 10000 ** (2 * i / 64) for i in range(32)])  # w of each hand


def rotation(k):
    matrix = np.zeros((64, 64))
    for i, w in enumerate(angles):
        matrix[2 * i, 2 * i] = cos(w * k)
        matrix[2 * i, 2 * i + 1] = sin(w * k)
        matrix[2 * i + 1, 2 * i] = -sin(w * k)
        matrix[2 * i + 1, 2 * i + 1] = cos(w * k)
    return matrix


# Equate, for all positions at once.
for k in (1, 7, 50):
    turned = PE[: 100 - k] @ rotation(k).T
    same(f"PE(pos + {k}) = PE(pos), turned by one matrix", PE[k:], turned)
distances = np.arange(100)[:, None] - np.arange(100)  # (100, 100)
by_distance = np.cos(distances[:, :, None] * angles).sum(axis=2)
same("PE(a) . PE(b) = sum of cos(w (a - b))", PE @ PE.T, by_distance)

# %% [markdown]
# **Use.** So near positions are alike, before anything is learned. Rows drawn at
# random, with which learned positions begin, know nothing of near and far.

# %%
wide = sinusoid(101, 512)
random_rows = rng.standard_normal((101, 512)) / sqrt(2)  # as long as those of PE
across = np.arange(-50, 51)
draw(
    figures.lines,
    "05_distance.png",
    {
        "sinusoids": (across, wide @ wide[50]),
        "random rows": (across, random_rows @ random_rows[50]),
    },
    x="distance of two positions",
    y="dot product",
    marks=False,
)
claim(
    "neighbours: dot product of sinusoids, of random rows",
    wide[50] @ wide[51] > 200 > 50 > abs(random_rows[50] @ random_rows[51]),
    f"{wide[50] @ wide[51]:.0f}, {random_rows[50] @ random_rows[51]:.0f}",
)

# %% [markdown]
# ![The dot product of two positions over their distance, from -50 to 50. For sinusoids a peak of 256 at distance 0 with slopes on both sides; for random rows a spike at 0 and noise around 0 elsewhere.](figures/05_distance.png)
#
# *What to see: the peak of the sinusoids has slopes: the nearer, the more alike. Random
# rows have a peak without slopes: the neighbour is as strange as anyone.*
#
# **Why 10000?** The paper gives no reason. Here is one. Double the distance again and
# again, 1, 2, 4, 8 ...: how long does the dot product keep falling? As long as the slow
# hands have not come round. That depends on the base, the number that is 10000 in the
# paper.


# %%
def falls_up_to(base):
    w = 1 / base ** (np.arange(256) / 256)  # 256 hands, as for d_model 512
    doubled = 2 ** np.arange(20)
    dots = np.cos(doubled[:, None] * w).sum(axis=1)
    first_rise = np.flatnonzero(np.diff(dots) > 0)[0]
    return int(doubled[first_rise])


reach = {base: falls_up_to(base) for base in (10, 100, 1000, 10000)}
claim(
    "near and far can be told up to a distance above the base",
    all(distance > base for base, distance in reach.items()),
    reach,
)
claim("with base 10 they can be told no further than", reach[10] == 16, reach[10])

# %% [markdown]
# Each base can tell near from far up to a little more than itself: 10 up to 16, 100 up
# to 128, 10000 up to 16384. So 10000 reaches farther than any sentence, and 1000
# would do as well: the number is not critical. If it is too small, far positions look
# near; if it is too large, most of the hands hardly move.

# %% [markdown]
# ## What enters the model, and why times sqrt(d_model)?
# **State.** Sections 3.4 and 3.5: the input is
#
# $$x = \text{embedding} \cdot \sqrt{d_{model}} + PE$$
#
# followed by dropout (section 5.4), which is off here. Where does the root come from?
# The paper does not say. Tying gives a good reason, in four steps.
#
# **Derive.**
#
# 1. At the top, a row of E meets a vector x to which layer norm gave variance 1. Their
#    dot product is a sum of d_model products. By lesson 01 its variance is d_model
#    times the variance of the numbers in E. Logits should begin with variance 1, so
#    `Embedding` draws the numbers of E with variance 1/d_model.
# 2. How good a beginning is that? Logits are sums of many products, so they are nearly
#    normally distributed. For a normally distributed x of variance 1, the mean of e^x
#    is e^(1/2), as the check below measures. So the sum over V subwords is about
#    V e^(1/2). The loss of the right word is -ln(e^logit / sum), which is ln(sum) minus
#    its logit: about ln V + 1/2. A fair guess among V words has ln V, so the model
#    begins hardly worse than a guess.
# 3. At the bottom, the same row has d_model numbers of variance 1/d_model, so its
#    squares sum to about 1: it has length 1.
# 4. PE has d_model/2 pairs with sin^2 + cos^2 = 1: its length is sqrt(d_model/2), which
#    is 16 for d_model 512. Added to it, the word would drown in its position. Times
#    sqrt(d_model), it has length 22.6, and both can be heard.

# %%
# Equate: each step with numbers, for d_model 512 and a vocabulary of 8,000.
rows = Embedding(8000, 512, rng).weight.numpy()
vectors = rng.standard_normal((200, 512))
hidden = F.layer_norm(vectors, np.ones(512), np.zeros(512)).numpy()
logits = hidden @ rows.T  # (200, 8000)
claim("1. the variance of the logits is", abs(logits.var() - 1) < 0.05, logits.var())
mean_power = np.exp(logits).mean()
print(f"e^(1/2) = {exp(0.5):.2f}; ln 8000 = {log(8000):.2f}")
claim("2. the mean of e^logit is", abs(mean_power / exp(0.5) - 1) < 0.05, mean_power)


def first_loss(logits):
    right = F.softmax(logits).numpy()[:, 0]  # let the right word be number 0, always
    return -np.log(right).mean()


about = log(8000) + 0.5
measured = first_loss(logits)
claim("   the first loss, near ln V + 1/2, is", abs(measured - about) < 0.2, measured)

# %%
row_length = np.linalg.norm(rows, axis=1).mean()
PE_length = np.linalg.norm(sinusoid(11, 512)[10])
claim("3. the length of a row is 1", abs(row_length - 1) < 0.01, row_length)
claim("4. the length of PE is sqrt(512 / 2)", abs(PE_length - 16) < 1e-3, PE_length)
draw(
    figures.bars,
    "05_lengths.png",
    {
        "a row of E": row_length,
        "PE": PE_length,
        "a row times sqrt(d_model)": row_length * sqrt(512),
    },
    y="length (d_model = 512)",
)
print(f"a row times sqrt(512): {row_length * sqrt(512):.1f}; PE: {PE_length:.1f}")

# %% [markdown]
# ![Three bars, the lengths of vectors for d_model 512: a row of E 1.0, PE 16.0, a row times the root of d_model 22.6.](figures/05_lengths.png)
#
# *What to see: without the factor, the position is 16 times as long as the word; with
# it, they are of a size.*
#
# **Use.** Could one not draw the rows with variance 1 in the first place, and leave the
# factor out? Then the bottom would be right and the top wrong: the logits would spread
# like 22.6, and the first loss would be that of a model which is sure, and wrong.

# %%
loud = first_loss(hidden @ (rows * sqrt(512)).T)
claim("rows of variance 1: the first loss is", loud > 5 * about, loud)

# %% [markdown]
# `Positions` is the library's layer that adds PE. When a decoder writes, it comes one
# position at a time; `start` says how many were there before.

# %%
add_positions = Positions(config, rng)
X = Tensor(rng.standard_normal((2, 70, 64)))
added = add_positions(X)
same("Positions adds PE, to any length", added, X.numpy() + waves(70, 64))
fifth = add_positions(X[:, 5:6], start=5)
same("with start = 5, a position alone = position 5 of all", fifth, added[:, 5:6])
grad_check(
    lambda E: add_positions(F.embedding(E, few[None]) * 8.0),
    rng.standard_normal((6, 64)),
    name="through embedding and Positions",
)

# %% [markdown]
# With positions, the layer from above can tell at last who bites.

# %%
answer_dog = encoder_layer(add_positions(x_dog), None)[:, 1].numpy()
answer_dog_last = encoder_layer(add_positions(x_man), None)[:, 6].numpy()
unlike = abs(answer_dog - answer_dog_last).max()
claim("the dog that bites and the dog that is bitten differ by", unlike > 0.1, unlike)

# %% [markdown]
# ## Could positions be learned instead?
# Yes: section 3.5 tried a table of learned positions, and found nearly the same BLEU (a
# score of translations, lesson 08). A table ends, though; sinusoids go on.

# %%
learned_config = config.replace(positions="learned", max_length=70)
learned = Positions(learned_config, rng).astype(np.float64)


def asked_for(start):
    try:
        return f"positions {start} to {start + 69}: {learned(X, start=start).shape}"
    except UserError as error:
        return str(error)


told = asked_for(0)
claim("a table of 70 serves 70 positions", told.startswith("positions"), told)
refused = asked_for(1)
claim("but not position 70", "max_length 70" in refused, refused)

# %%
learned_X = X.numpy() + 8.0 * learned.learned.weight.numpy()
same("learned positions are a table, times sqrt(d_model)", learned(X), learned_X)
later = learned(X[:, 5:6], start=5)
same("they know their start as well", later, learned_X[:, 5:6])

# %% [markdown]
# ## What do other programs do differently?
# A note for those who load other people's models. Some programs have all sines first
# and then all cosines (`layout="halves"`), and tensor2tensor, the authors' own program,
# divides by d_model/2 - 1 in the exponent (`base="t2t"`). Nothing is gained or lost;
# but a model only works with the sinusoids with which it was trained.

# %%
halves = sinusoid(100, 64, layout="halves", dtype=np.float64)
claim("halves: other columns in front", (halves[:, :32] == PE[:, 0::2]).all(), "sines")
same("halves: the cosines behind", halves[:, 32:], PE[:, 1::2])
t2t = sinusoid(100, 64, base="t2t", dtype=np.float64)
last_angle = np.arctan2(t2t[1, -2], t2t[1, -1])  # sine and cosine of the last hand
same("t2t: the last hand goes round in 10000 * 2 pi", 1 / last_angle, 10000)
finish(
    "One table embeds the words and scores them; the sinusoids say where each word is."
)

# %% [markdown]
# ## What did we learn?
# - An embedding is a row of a table; its gradient is the sum over all tokens that read
#   the row.
# - One table embeds source and target and scores the output; its gradient is the sum of
#   three, added up by `Tensor.backward`.
# - Without positions, attention and all layers answer any order of the words alike.
# - Sinusoids are a clock with d_model/2 hands; many, so that no two positions are
#   alike, and slow ones, so that near and far can be told.
# - k positions on is one rotation, the same everywhere.
# - The factor sqrt(d_model) is the price of tying: small rows for the logits, large
#   ones beside PE.

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 05` writes this part to `my_05_embeddings.py`; fill in
# the bodies and run it. `record` is from lesson 02.


# %%
def predicted_position():
    """Predict the four numbers of position 2 in sinusoids of d_model 4.

    Compute them on paper (with a calculator), then write down the list of four numbers,
    to two digits, and run.

    Hint: "How does a position become a vector?" has the formula. There are two hands,
    and the second one is 100 times as slow as the first: 10000^(2/4).
    """
    ...


def check_predicted_position():
    answer = np.array(predicted_position())
    expected = sinusoid(3, 4, dtype=np.float64)[2]
    assert answer.shape == (4,), "give four numbers"
    for i in range(4):
        near = abs(answer[i] - expected[i]) < 0.0051
        assert near, f"number {i} is not {answer[i]}"


# %%
def look_up(table, ids):
    """Return the rows of the Tensor `table` at ids (N,), with their gradient.

    The ids may repeat. Use record.

    Hint: "How does a word become a vector?" shows why g[ids] += gy is not enough;
    np.add.at adds each.
    """
    ...


def check_look_up():
    table = np.random.default_rng(5).standard_normal((5, 3))
    ids = np.array([3, 1, 3, 0, 3])
    rows_of_ids = record(np.eye(5)[ids] @ table, (), None)
    same("the rows", look_up(Tensor(table), ids), rows_of_ids)
    grad_check(look_up, table, ids)


# %%
def right_input(embedding, length):
    """Find the two mistakes in embedding + sinusoid(length + 1, d_model)[1:].

    This was to be the input of the model for one sentence, the embedding (length,
    d_model) with its positions. It runs, and the model even learns. Return the right
    input.

    Hint: "What enters the model, and why times sqrt(d_model)?" has the equation. And
    which number has the first position?
    """
    ...


def check_right_input():
    for length, d_model in ((5, 16), (9, 64)):
        embedding = np.random.default_rng(length).standard_normal((length, d_model))
        vectors = sinusoid(length, d_model, dtype=np.float64)
        expected = embedding * sqrt(d_model) + vectors
        same(f"the input, d_model {d_model}", right_input(embedding, length), expected,
             rtol=1e-5, atol=1e-6)  # fmt: skip


# %%
def look_back(k, d_model):
    """Return the matrix W (d_model, d_model) of a head that looks k positions back.

    Row pos of (PE W) PE^T holds the dot products of PE(pos - k) with every PE.

    Hint: "What can a model read from the waves?" has the matrix that turns PE(pos)
    into PE(pos + k).
    """
    ...


def check_look_back():
    PE = sinusoid(60, 32, dtype=np.float64)
    k = 3
    scores = PE @ look_back(k, 32) @ PE.T
    at = scores[10].argmax()
    claim("the largest score of position 10 is at 7", at == 7, f"it is at {at}")
    same("scores of pos = products of pos - k", scores[k:], PE[: 60 - k] @ PE.T)


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = (
    "functions.embedding",
    "nn.Embedding",
    "transformer.sinusoid",
    "transformer.Positions",
)
