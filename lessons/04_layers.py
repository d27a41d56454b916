# %% [markdown]
"""# Lesson 04. Layers

A Transformer has six layers, and in each of them its words look at each other. With
attention alone that goes wrong after three looks. This lesson shows how, and builds
what else is in a layer: a network that computes with what was fetched, and three small
parts around it, layer norm, dropout and the residual connection (section 3.1,
section 3.3, section 5.4).

You need lessons 01 to 03. At the end you will know layer norm with its gradient, the
feed-forward network, dropout and the residual connection, and will have measured what
each of them does.
"""

# %% [markdown]
# ## What happens to words that only look at each other?
# In lesson 01 "bank" looked once at the three words of "bank by river", itself among
# them, and became (2.17, 0.31): a bank of a river. In a Transformer the words look
# again in every layer. So let these three look three times: all three get their new
# vectors, and then they look again. What do they become? Guess before you read on.

# %%
import numpy as np

from minitf import functions as F
from minitf.backend import to_numpy
from minitf.check import claim, grad_check, same
from minitf.config import Config
from minitf.course.architecture import figure_1
from minitf.course.checks import layers as checks
from minitf.course.figures import layers as figures
from minitf.course.lesson import begin, draw, finish, show, toy_model
from minitf.nn import Dropout, LayerNorm
from minitf.tensor import Tensor, no_grad
from minitf.transformer import (
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Residual,
    causal_mask,
)

# Reads the options --figures and --backend, and starts to count the claims.
begin("04_layers")
rng = np.random.default_rng(1)

# %%
after_looks = [np.array([[1.0, 1.0], [0.0, 0.0], [3.0, 0.0]])]
for _ in range(3):
    words = after_looks[-1]
    after_looks.append(F.attention(words, words, words).numpy())

print("looks    bank       by         river     (water and money of each)")
for looks, words in enumerate(after_looks):
    numbers = "  ".join(f"{water:.2f} {money:.2f}" for water, money in words)
    print(f"{looks:5}    {numbers}")
furthest = abs(words - words[0]).max()
claim("after three looks the words differ by at most", furthest < 0.01, furthest)

# %% [markdown]
# After three looks all are the same word, a river. Why a river? For bank's query (1, 1)
# the products are 2 with bank, 0 with by and 3 with river, so river has the largest
# weight. "by" is (0, 0): it averages equally, and has water from then on. And why all
# the same? Every weight is above 0, so each new vector is an average of all the old
# ones and lies among them: the words move towards each other at each look.
#
# Is that so in a model, too? There the matrices $W^V$ and $W^O$ come between two
# averages. Write each word as a part that all share, their mean, plus its own
# difference. Weights that sum to 1 hand the shared part on unchanged, but differences
# partly cancel. The random matrices of a new model stretch both by about the same
# factor. So with each look the differences are a smaller share (Dong et al. 2021).
#
# We try it with a sentence of 16 words, a table of random numbers with 16 rows and 32
# columns. A row is a word. A column is one of its 32 numbers, for all 16 words: if they
# are alike, it has no spread. We send the sentence through six attentions of lesson 03,
# then again through six whole layers, and measure how far the words are apart. It is
# about 1 if all numbers are random, and 0 if all words are alike:
#
# $$\text{apart} = \frac{\text{spread of a column, averaged over the columns}}
# {\text{spread of the whole table}}$$

# %%
small = Config(vocabulary_size=10, d_model=32, d_ff=128, n_heads=4, dropout=0.0)
generator = np.random.default_rng(3)
sentence = generator.standard_normal((1, 16, 32))


def how_far_apart(x):
    """Return the spread of the words, as a share of the spread of all numbers."""
    return float(x.std(axis=1).mean() / x.std())


def size_of(x):
    """Return the root of the mean square of all numbers."""
    return float((x**2).mean()) ** 0.5


def attention_alone(x):
    # float64: 64 bits in place of 32, for smaller errors
    fetch = MultiHeadAttention(small, generator).astype(np.float64)
    fetch.keep_weights = True  # of all heads and queries
    fetched = fetch(x, x)
    largest = fetch.weights.max(axis=-1).mean()
    print(f"numbers of size {size_of(x):.2f}, largest weight {largest:.2f}", end=", ")
    print(f"then apart by {how_far_apart(fetched.numpy()):.2f}")
    return fetched


def whole_layer(x):
    layer = EncoderLayer(small, generator).astype(np.float64)
    return layer(x, None)  # None: no mask


def through_six(new_layer):
    x = sentence
    apart = [how_far_apart(x)]
    for _ in range(6):
        x = new_layer(x).numpy()
        apart.append(how_far_apart(x))
    return apart


apart = {
    "attention alone": through_six(attention_alone),
    "the Transformer's layers": through_six(whole_layer),
}
alone = apart["attention alone"][6]
print(f"the words were apart by {how_far_apart(sentence):.2f}")
claim("six attentions: the words are apart by", alone < 1e-9, f"{alone:.0e}")
in_layers = apart["the Transformer's layers"][6]
claim("six layers: the words are apart by", in_layers > 0.1, f"{in_layers:.2f}")
draw(figures.alike, "04_alike.png", apart)

# %% [markdown]
# ![How far words are apart over six layers. With attention alone it falls from nearly 1 to 0 in three layers, most in the second; with the Transformer's layers more slowly, to 0.37 after six.](figures/04_alike.png)
#
# *What to see: after two attentions all words have nearly the same vector; after six
# they differ by rounding errors only. With the other parts of a layer they come closer,
# too, but more slowly.*
#
# The second attention does most. Why?
#
# | | first attention | second |
# |---|---|---|
# | size of the numbers that come in | 1.00 | 0.38 |
# | the largest of a query's 16 weights, on average | 0.25 | 0.07 |
# | how far the words are apart, before and after | 0.96, 0.72 | 0.72, 0.03 |
#
# In the first, the scores differ by about 1, so the weights differ, too: equal ones
# would be 1/16 = 0.06. So each word fetches a mix of its own. But unrelated vectors
# partly cancel in a mix: the numbers shrink to 0.38. A score is made of products of two
# of them, so the scores shrink to a seventh. Then all weights are nearly equal, and all
# words fetch nearly the same mix.
#
# Which of the other parts of a layer slows the fall?
#
# ## What happens to a word inside a layer?
# Take a word as a vector of four numbers, (0, 1, 2, 9). In each layer of the encoder
# (the left tower of Figure 1) it passes through two *sub-layers*. The first is
# attention: it fetches something from the other words, say (1, 2, 1, 0). The second is
# a small network, which computes with the word and what it fetched, for each word
# alone. After each of them the same three things happen:
#
# 1. *Dropout* sets a few of the new numbers to 0, but only while the model learns.
# 2. The *residual connection* adds the new vector to the old one, number by number.
# 3. *Layer norm* brings the sum to a standard size. Without it the numbers would grow
#    from layer to layer, as each adds something, until each softmax gives nearly all
#    weight to one word (lesson 01).
#
# | step | the word |
# |---|---|
# | it enters | (0, 1, 2, 9) |
# | attention has fetched | (1, 2, 1, 0) |
# | their sum | (1, 3, 3, 9) |
# | minus its mean, $16 / 4 = 4$ | (-3, -1, -1, 5) |
# | the mean of the squares | $(9 + 1 + 1 + 25) / 4 = 9$ |
# | divided by its root, 3 | (-1, -0.33, -0.33, 1.67) |
#
# That root is the *standard deviation*, the spread of lesson 01. The result has the
# mean 0 and the standard deviation 1, whatever went in, unless all four numbers were
# equal. With these four numbers the second sub-layer begins, and the same three things
# happen again.

# %%
old = np.array([0.0, 1.0, 2.0, 9.0])
fetched = np.array([1.0, 2.0, 1.0, 0.0])
on_paper = np.array([-3.0, -1.0, -1.0, 5.0]) / 3
print("on paper:", on_paper.round(2))
# The library's function; a gain of 1 and a bias of 0 change nothing.
by_library = F.layer_norm(old + fetched, np.ones(4), np.zeros(4))
# Not up to 1e-16, as in lesson 01: the library adds a tiny number to the variance.
error = abs(by_library.numpy() - on_paper).max()
claim("layer norm of (1, 3, 3, 9) is as on paper, up to", error < 1e-6, f"{error:.0e}")
draw(figure_1, "04_here.svg", here=["add & norm", "feed-forward"])

# %% [markdown]
# ![Figure 1 of the paper with two kinds of boxes marked: the five boxes "Add & Norm", one after each sub-layer, and the two boxes "Feed Forward", one in each tower.](figures/04_here.svg)
#
# *What to see: every sub-layer, of whatever kind, ends in "Add & Norm". The blue arrow
# that goes round it is the residual connection: it carries the old vector to "Add".
# "Norm" is layer norm. "N ×" means N such layers in a row. The paper does not draw
# dropout.*
#
# ## What does layer norm look at?
# The $D = d_{model}$ numbers in the vector of a position, or word, are its *features*.
#
# **State.** Layer norm (section 3.1, after Ba et al., 2016) takes the mean $m$ and the
# standard deviation $s$ of the features of ONE position:
#
# $$m = \frac{1}{D} \sum_j x_j$$
#
# $$s = \sqrt{\frac{1}{D} \sum_j (x_j - m)^2 + \epsilon}$$
#
# $$n_i = (x_i - m) / s$$
#
# $$y_i = \text{gain}_i \, n_i + \text{bias}_i$$
#
# *Gain* and *bias* are learned, one number of each for every feature, the same at all
# positions. With them the model can choose another size where it wants one. The number
# epsilon (`eps`) is 1e-6 here (the paper names none); without it, equal features would
# give $0 / 0$.

# %%
X = rng.normal(3, 2, (5, 6, 8))  # 5 sentences of 6 positions with 8 features
gain = rng.standard_normal(8)
bias = rng.standard_normal(8)


def mean_of_features(x):
    return x.mean(axis=-1, keepdims=True)


from_mean = X - mean_of_features(X)
s = (mean_of_features(from_mean**2) + 1e-6) ** 0.5  # one for each position
N = from_mean / s

# Equate: the function, and the layer that owns a gain and a bias.
same("layer_norm = gain n + bias", F.layer_norm(X, gain, bias), gain * N + bias)
norm = LayerNorm(8).astype(np.float64)
same("LayerNorm begins with gain 1 and bias 0", norm(X), N)

# %% [markdown]
# **Use.** Layer norm looks at ONE position only. That matters: *batch norm*, an older
# norm, takes the mean and the deviation of one feature over many positions, while the
# model learns. Then the first word would see something of the words after it, which a
# causal mask (lesson 01) is to hide. So change all positions of each sentence except
# the first. With layer norm the first must not move, not even in its last digit. With
# batch norm it does.

# %%
ones = np.ones(8)
zeros = np.zeros(8)
is_later = np.arange(6)[:, None] > 0  # all positions of a sentence but the first
changed = X + is_later * rng.standard_normal(X.shape)


def layer_norm(x):
    return F.layer_norm(x, ones, zeros).numpy()


def batch_norm(x):  # of each feature, over all positions of all sentences
    return (x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1))


def first_moves_by(a_norm):
    return float(abs(a_norm(changed) - a_norm(X))[:, 0].max())


moved_by = first_moves_by(layer_norm)
claim("layer norm: other positions change the first by", moved_by == 0, moved_by)
in_batch = first_moves_by(batch_norm)
claim("batch norm: they change it by up to", in_batch > 0.1, f"{in_batch:.2f}")

# %% [markdown]
# ## What is the gradient of layer norm?
# First, numbers. Take (1, 3, 3, 9) again, and raise the 9 by 0.12. The mean rises by
# 0.12 / 4, to 4.03, and the deviation from 3 to 3.05. So *all four* results change,
# though only one feature did. Which one changes least? Guess before you look.

# %%
raised = np.array([1.0, 3.0, 3.0, 9.0 + 0.12])
print(f"mean {raised.mean():.2f}, deviation {raised.std():.2f}")
after = (raised - raised.mean()) / raised.std()
print("before:", on_paper.round(4))
print("after: ", after.round(4))
print("moved: ", (after - on_paper).round(3))

# %% [markdown]
# The last one, the 9 itself! Why?
#
# **Derive.** First with three features, since these can be drawn. The vectors with the
# mean 0 lie in one plane, and those that also have the deviation 1 on a circle in it.
# So every $n$ ends on this circle:

# %%
n_of_three = np.array([-1.0, -1.0, 2.0]) / 2**0.5  # mean 0, deviation 1
a_move = np.array([0.9, -1.1, 1.1])
without_mean = a_move - a_move.mean()
left_of_move = without_mean - n_of_three * (without_mean * n_of_three).mean()
draw(figures.two_means, "04_gradient.png", n_of_three, without_mean, left_of_move)

# %% [markdown]
# ![The top of a circle, and the vector n as an arrow from its middle to its rim. At the tip of n, a move of x, without its mean, leads away at a slant. It is the sum of two arrows: a dashed one along n, marked lost, and one along the circle, marked as what moves n.](figures/04_gradient.png)
#
# *What to see: the picture is the plane. To add one number to all features leads
# straight out of it. A move inside it is the sum of a part along $n$ (dashed), which
# the norm takes back, and one along the circle, which moves $n$.*
#
# So cut any move of $x$ into three parts:
#
# 1. *Adding one number to all features* moves $m$ by as much. So $n$ stays.
# 2. *Stretching all distances from the mean*, a move in proportion to $n$, makes $s$
#    larger by the same factor. So $n$ stays.
# 3. *What is left.*
#
# How much of each? The first part is the mean of the move, for all features. Then the
# others sum to 0. The second is $c \, n$. Choose $c$ so that the products of $n$ and
# what is left sum to 0 as well: those of $n$ and $c \, n$ have the mean $c$, as the
# mean square of $n$ is 1, so $c$ is the mean of the products of $n$ and the move.
#
# Then what is left does not move $m$, as its sum is 0. Nor does it move $s$, if it is
# small: $s^2$ is the mean of $(x_i - m)^2$, and changes by twice the mean of the
# products of $x_i - m$ and the move of $x_i$. But $x_i - m$ is $s \, n_i$, and by our
# choice of $c$ that mean is 0. Only $x$ moves: **$n$ moves by what is left, divided by
# $s$.** For the 9:
#
# | | found by | four numbers |
# |---|---|---|
# | the move | | (0, 0, 0, 0.12) |
# | 1. adding | 0.12 / 4 = 0.03 | (0.03, 0.03, 0.03, 0.03) |
# | 2. stretching | 0.12 · 1.67 / 4 = 0.05; × $n$ | (-0.05, -0.017, -0.017, 0.083) |
# | 3. what is left | | (0.02, -0.013, -0.013, 0.007) |
# | $n$ moves by | what is left / 3 | (0.007, -0.004, -0.004, 0.002) |
#
# The last row is what we saw. Most of the move of the 9 was a stretch, of 0.083.

# %%
n = on_paper
move = np.array([0.0, 0.0, 0.0, 0.12])
adding = np.full(4, move.mean())
stretching = n * (move * n).mean()
left = move - adding - stretching
print("adding one number:", adding)
print("stretching:       ", stretching.round(3))
print("what is left:     ", left.round(3), "  / 3:", (left / 3).round(3))
same("what is left, / s, = how n moved", left / 3, after - on_paper, rtol=0, atol=1e-3)

# %% [markdown]
# For any move $v$ of $x$:
#
# $$n \text{ moves by } (v - \text{mean}(v) - n \, \text{mean}(v n)) / s$$
#
# With $D$ features, $\text{mean}(v) = \sum v_j / D$, and
# $\text{mean}(v n) = \sum v_j n_j / D$.
#
# Now back. The move of $n$ is a matrix times $v$. What $v_j$ does to $n_i$, with the
# $\delta_{ij}$ of lesson 02, is
#
# $$\frac{1}{s} \Big( \delta_{ij} - \frac{1}{D} - \frac{n_i n_j}{D} \Big)$$
#
# Exchange $i$ and $j$, and it is the same. **The matrix is its own transpose**, and the
# walk back multiplies by the transpose (lesson 02). So the formula of the way forward
# is also that of the way back. Let $u$ be the gradient that arrives at $n$. It is
# $gy_i \, \text{gain}_i$, as $y_i = \text{gain}_i \, n_i + \text{bias}_i$. Then
#
# $$gx = (u - \text{mean}(u) - n \, \text{mean}(u n)) / s$$
#
# It has lost the same two parts. So the slope of the loss along the first two moves is
# 0, as it must be: they change nothing in $n$. Try it with a loss that is the first
# result, $n_1$, alone. Then $u = (1, 0, 0, 0)$, and the last number of $gx$, times the
# 0.12, must be what the 9 did to the first result: 0.007.

# %%
u_of_first = np.array([1.0, 0.0, 0.0, 0.0])
without_mean_of_u = u_of_first - u_of_first.mean()
gx_of_first = (without_mean_of_u - n * (u_of_first * n).mean()) / 3
print(f"gx {gx_of_first.round(3)}; the last, times 0.12: {gx_of_first[3] * 0.12:.3f}")
by_adding = gx_of_first.sum()
by_stretching = (gx_of_first * n).sum()
claim("slope of adding a number", abs(by_adding) < 1e-12, f"{by_adding:.0e}")
claim("slope of stretching", abs(by_stretching) < 1e-12, f"{by_stretching:.0e}")

# %% [markdown]
# The gradients of gain and bias are sums over all positions, of $gy \, n$ and of $gy$
# (lesson 02).

# %%
gy = rng.standard_normal(X.shape)
u = gy * gain
gx = (u - mean_of_features(u) - N * mean_of_features(u * N)) / s

# Equate: the library's layer norm has the same gradient, and it is right.
x = Tensor(X)
F.layer_norm(x, gain, bias).backward(gy)
same("gradient of x = the formula", x.grad, gx)
grad_check(F.layer_norm, X, gain, bias)

# %% [markdown]
# ## What is the feed-forward network for?
# A head of attention writes a mix of values, and each value is made from one word.
# Suppose for now that its weights are fixed. Then it hands over $f(a) + g(b)$, a part
# from each of two words. Call such a sum *additive*, with any functions $f$ and $g$,
# straight or curved. Some questions have no additive answer.
#
# Here is the smallest. Do a subject and its verb disagree? Attention has put into one
# feature whether the subject is plural, 1 or 0, and into a second one whether the verb
# is: $(a, b)$. The answer is to be +1 if they differ and -1 if they are equal:
#
# | $(a, b)$ | wanted | an additive answer |
# |---|---|---|
# | (0, 0) | -1 | $f(0) + g(0)$ |
# | (1, 1) | -1 | $f(1) + g(1)$ |
# | (0, 1) | 1 | $f(0) + g(1)$ |
# | (1, 0) | 1 | $f(1) + g(0)$ |
#
# In the column of additive answers the first two rows have the same sum as the last
# two, $f(0) + f(1) + g(0) + g(1)$. Wanted are -2 and 2. So no $f$ and $g$ exist.
#
# So values cannot give such an answer. Weights could: a score multiplies one word with
# another, so it can tell if they agree. But a head has only one weight for a pair of
# words. It needs that weight to choose where to fetch from. So 8 heads could answer 8
# questions about a pair, and would then fetch nothing in particular.
#
# **State.** A matrix makes only sums, too, and two matrices in a row are no better:
# $(x W_1) W_2$ is $x (W_1 W_2)$, so they are one matrix. But bend a sum, and it is
# additive no more: $\max(0, a - b)$ is 0, 0, 0 and 1 in the four rows, so the first two
# sum to 0 and the last two to 1. The *feed-forward network* (section 3.3, equation 2)
# has two matrices. Between them each feature is bent by itself: whatever is below 0
# becomes 0.
#
# $$\text{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2$$
#
# For our question, let the first matrix make $a - b$ and $b - a$, and the second add
# twice each bent one; $b_2$ is -1:
#
# | $(a, b)$ | $\max(0, a - b)$ | $\max(0, b - a)$ | twice both, minus 1 |
# |---|---|---|---|
# | (0, 0) | 0 | 0 | -1 |
# | (1, 1) | 0 | 0 | -1 |
# | (0, 1) | 0 | 1 | 1 |
# | (1, 0) | 1 | 0 | 1 |
#
# $\max(0, x)$ is called *ReLU*, rectified linear unit. The network has $d_{ff}$ inner
# features, or *units*: 2,048 in the paper, for a $d_{model}$ of 512. Read each unit as
# a detector. Its column of $W_1$ says what it looks for, $-b_1$ how much of it is
# needed, and its row of $W_2$ what it writes when it finds it. If the sum with $b_1$ is
# not above 0, it is silent: $\max(0, a + b - 1)$ speaks only if both $a$ and $b$ are 1.

# %%
pairs = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
a_without_b = [1.0, -1.0]
b_without_a = [-1.0, 1.0]
detectors = np.array([a_without_b, b_without_a]).T  # (d_model 2, d_ff 2)
writes = np.array([[2.0], [2.0]])  # (d_ff 2, 1)


def two_maps(x, W_1, b_1, W_2, b_2):
    """Return equation 2: max(0, x W_1 + b_1) W_2 + b_2. F.relu is max(0, x)."""
    return F.relu(Tensor(x) @ W_1 + b_1) @ W_2 + b_2


different = two_maps(pairs, detectors, np.zeros(2), writes, np.array([-1.0]))
for pair, answer in zip(pairs, different.numpy(), strict=True):
    print(f"{pair} -> {answer}")
same("two units tell if words differ", different, [[-1.0], [1.0], [1.0], [-1.0]])

# %% [markdown]
# ### Can it remember?
# Now larger, and learned. Let eight people and eight dishes be words. Attention has
# fetched one of each, and the sum of their two vectors arrives. Who likes what is
# random: 64 facts, +1 or -1, to be learned by heart. We compare answers by their mean
# square error (always answering 0 has the error 1).
#
# Write the facts as a table with a row for each person and a column for each dish. The
# additive answer with the smallest error is the mean of the row, plus the mean of the
# column, minus the mean of the table ("More on layers" has the reason).

# %%
person = rng.standard_normal((8, 16))  # a vector of 16 features for each
dish = rng.standard_normal((8, 16))
likes = np.where(rng.random((8, 8)) < 0.5, -1.0, 1.0)  # (person, dish)
fetched_pairs = person[:, None] + dish  # (8, 8, 16): a vector for each pair
questions = fetched_pairs.reshape(64, 16)
facts = likes.reshape(64, 1)

of_person = likes.mean(axis=1, keepdims=True)
of_dish = likes.mean(axis=0, keepdims=True)
best_additive = of_person + of_dish - likes.mean()
best_additive_error = ((likes - best_additive) ** 2).mean()
print(f"mean square error of the best additive answer: {best_additive_error:.2f}")

# %% [markdown]
# The network learns by *gradient descent* (lesson 02).


# %%
def learn(d_ff, network=two_maps):
    generator = np.random.default_rng(d_ff)
    W_1 = Tensor(generator.standard_normal((16, d_ff)) / 4)
    b_1 = Tensor(np.zeros(d_ff))
    W_2 = Tensor(generator.standard_normal((d_ff, 1)) / d_ff**0.5)
    b_2 = Tensor(np.zeros(1))
    for _ in range(1500):
        error = network(questions, W_1, b_1, W_2, b_2) - facts
        (error * error).mean().backward()
        for parameter in (W_1, b_1, W_2, b_2):
            parameter.data = parameter.data - 0.05 * parameter.grad
            parameter.grad = None  # else the next gradient would be added to it
    return float((error.numpy() ** 2).mean()), W_1, b_1, W_2, b_2


sizes = [1, 2, 4, 8, 16, 32]
learned = {d_ff: learn(d_ff) for d_ff in sizes}
errors = [learned[d_ff][0] for d_ff in sizes]
n_known = {}
for d_ff in sizes:
    answers = two_maps(questions, *learned[d_ff][1:]).numpy()
    n_known[d_ff] = (answers * facts > 0).sum()  # the sign is right
better = errors[2] < best_additive_error / 1.5
claim("four units do better than any additive answer", better, f"{errors[2]:.2f}")
enough_known = n_known[4] > 55 and n_known[8] == 64
known = f"{n_known[4]} and {n_known[8]}"
print("numbers in the network of 4 units:", sum(a.size for a in learned[4][1:]))
claim("four and eight units know, of 64 facts,", enough_known, known)
claim("with 32 units the error is", errors[5] < 0.02, errors[5])
draw(figures.facts, "04_facts.png", sizes, errors, float(best_additive_error))

# %% [markdown]
# ![The mean square error of 64 facts over the number of units: 0.78 with one, above the dashed line of the best additive answer; a hair below it with two; 0.22 with 4; nearly 0 with 16 and 32.](figures/04_facts.png)
#
# *What to see: without ReLU a network is additive, as what it makes of person + dish is
# a part for the person plus a part for the dish. So no training brings it below the
# dashed line, however large it is. With ReLU it is far below from 4 units on.*
#
# So a network can remember, with enough numbers. With 4 units it has 73, hardly more
# than one for each fact, and 60 answers have the right sign. With 8 units all 64 have.
#
# Attention mostly *fetches*, and the network *computes and remembers*. It holds two
# thirds of the *parameters*, the learned numbers, of an encoder layer: two matrices of
# 512 times 2,048, against attention's four of 512 times 512 (lesson 03).
#
# The same network runs at each position, alone: the paper calls it *position-wise*.
# **Attention is the only place where positions meet.** Change one of the 16 words of
# the first section, and see how far the outputs of the others move:

# %%
six = np.random.default_rng(6)
other_word = sentence.copy()
other_word[0, 5] += 1.0  # another word at position 5
not_5 = np.arange(16) != 5


def others_move(sublayer):
    moved = abs(sublayer(other_word).numpy() - sublayer(sentence).numpy())
    return moved.max(axis=-1)[0, not_5]


fetching = MultiHeadAttention(small, six).astype(np.float64)
by_network = others_move(FeedForward(small, six).astype(np.float64)).max()
by_attention = others_move(lambda x: fetching(x, x)).min()
claim("the network: the others move by", by_network == 0, float(by_network))
claim("attention: each of them by at least", by_attention > 1e-3, by_attention)
in_matrices = 2 * 512 * 2048, 4 * 512 * 512
print("numbers in the matrices of a layer: network, attention", in_matrices)

# %% [markdown]
# And the gradient? That of the matrices is known from lesson 02. The slope of ReLU is 1
# where $x > 0$, and 0 elsewhere: the gradient passes where the value did.
#
# ## What does dropout do?
# A network that can remember 64 facts can also remember its training sentences, and
# that is not what it is for. *Dropout* (section 5.4): while the model learns, each
# feature is set to 0 with the probability `rate` (the paper's $P_{drop}$, 0.1 in the
# base model), as if by an unfair coin. What is kept in one feature is forgotten one
# time in ten. Kept in three, it is forgotten only if all three are dropped, one time in
# a thousand. So training should spread each thing over several features, which leaves
# less room for learning single sentences by heart. The paper measured it: without
# dropout its base model scores 1.2 BLEU less (Table 3 (D)); [BLEU](WORDS.md#words)
# says how good translations are.
#
# **State.** The features that stay are divided by $1 - \text{rate}$, as is usual (the
# paper does not say it):
#
# $$y = \text{mask} \cdot x / (1 - \text{rate})$$
#
# Here mask is a *dropout mask*: 1 where a feature stays, 0 where it is dropped. It has
# nothing to do with the masks of attention.

# %%
rate = 0.25
dropped = F.dropout(X, rate, seed=1).numpy()  # the coins come from the seed
mask = dropped != 0
print(f"share that stays: {mask.mean():.2f}, on average {1 - rate:.2f}")
same("dropout = mask x / (1 - rate)", dropped, mask * X / (1 - rate))
drop = Dropout(rate)
drop.eval()
claim("eval() switches it off: the result is x itself", drop(X) is X, "the same object")

# %% [markdown]
# **Derive.** Why divide? With the rate 1/2, (4, 8) becomes (8, 16), (8, 0), (0, 16) or
# (0, 0), each as often: on average (4, 8), as before. In general, a feature stays with
# the probability $1 - \text{rate}$. So on average $y$ is
#
# $$(1 - \text{rate}) \cdot \frac{x}{1 - \text{rate}} + \text{rate} \cdot 0 = x$$
#
# So a trained model can translate without dropout (`eval()` switches it off): what
# follows gets about what it is used to. The gradient is $gy$ times the same mask,
# divided by the same number.
#
# **Use.** Does dropout spread what a network remembers? Let 32 units learn the 64 facts
# again, each dropped with a rate of 0.1. Then silence one unit at a time, here and in
# the network without dropout. How many answers become wrong, at worst?


# %%
def with_dropout(x, W_1, b_1, W_2, b_2):
    return F.dropout(F.relu(Tensor(x) @ W_1 + b_1), 0.1) @ W_2 + b_2


def lost_at_worst(W_1, b_1, W_2, b_2):
    """Return the facts that are lost if the most important of 32 units is silent."""
    lost = []
    for unit in range(32):
        silenced = W_2.numpy() * (np.arange(32) != unit)[:, None]
        of_others = two_maps(questions, W_1, b_1, silenced, b_2).numpy()
        lost.append((of_others * facts <= 0).sum())
    return max(lost)


with F.dropout_state(seed=1, step=0):  # tosses new coins in each call
    spread = learn(32, with_dropout)[1:]
n_lost = int(lost_at_worst(*learned[32][1:])), int(lost_at_worst(*spread))
claim("facts lost, without dropout and with", n_lost[1] < n_lost[0] / 2, n_lost)

# %% [markdown]
# Without dropout one silent unit costs up to 8 of the 64 facts, with it 1.
#
# ## Why is x added to the output of a sub-layer?
# **State.** The output of each sub-layer (section 3.1, and section 5.4 for dropout) is
#
# $$\text{LayerNorm}(x + \text{Dropout}(\text{Sublayer}(x)))$$
#
# This order, norm last, is called *post-norm*; many later models put the norm first.
#
# So an encoder layer is two lines. Here they are without dropout, beside a new layer of
# the library, whose norms have the gain 1 and the bias 0.

# %%
library_layer = EncoderLayer(small, np.random.default_rng(4)).astype(np.float64)


def norm_of(x):
    return F.layer_norm(x, np.ones(32), np.zeros(32))


def two_lines(x):
    x = norm_of(x + library_layer.self_attention(x, x))
    return norm_of(x + library_layer.feed_forward(x))


as_in_library = library_layer(sentence, None)
same("an encoder layer is two lines", as_in_library, two_lines(sentence))

# %% [markdown]
# Why $x + \ldots$? The usual answer, which we shall test, is the gradient. Write $f$
# for a sub-layer. What is left of the gradient after 16 layers, which are 32
# sub-layers? Suppose first that $f$ hands back half of what it gets. (About so much
# does a new network: its ReLU passes the gradient of only half of the units, and its
# matrices shrink that a little more.) Then suppose that $f$ hands back as much as it
# gets, beside the $x$. Two unrelated vectors of one length have a sum that is
# $\sqrt{2}$ times as long, about 1.4 times:
#
# | | a sub-layer hands back | after 32 |
# |---|---|---|
# | $f(x)$ | half | $0.5^{32}$ = 2e-10: it vanishes |
# | $x + f(x)$ | $\sqrt{2}$ times | $(\sqrt{2})^{32} = 2^{16}$ = 65,536: it explodes |
# | $\text{norm}(x + f(x))$, the paper | 1.4 times, and the norm? | ? |
#
# So which saves the gradient, the $x$ or the norm?
#
# **Use.** We measure four ways to connect the sub-layers of 1 to 16 encoder layers,
# before any training. A random gradient starts at the output. Its size, the root of the
# mean of its squares, is about 1. How much arrives at the input, in the median of five
# random stacks?


# %%
def one_layer(x, connect, generator):
    layer = EncoderLayer(small, generator).astype(np.float64)
    x = connect(x, lambda words: layer.self_attention(words, words))
    return connect(x, layer.feed_forward)


def through_a_stack(n_layers, connect, seed):
    """Return the input and the output of new layers, and a generator."""
    generator = np.random.default_rng(seed)
    x = Tensor(generator.standard_normal((2, 16, 32)))
    y = x
    for _ in range(n_layers):
        y = one_layer(y, connect, generator)
    return x, y, generator


def gradient_at_input(n_layers, connect, seed):
    x, y, generator = through_a_stack(n_layers, connect, seed)
    y.backward(generator.standard_normal(y.shape))
    return size_of(x.grad)


def x_plus_f(x, f):
    return x + f(x)


def norm_of_f(x, f):
    return norm_of(f(x))


def as_in_the_paper(x, f):
    return norm_of(x + f(x))


connections = {
    "x + f(x)": x_plus_f,
    "norm(f(x))": norm_of_f,
    "norm(x + f(x)), the paper": as_in_the_paper,
    "f(x)": lambda x, f: f(x),
}
depths = [1, 2, 4, 8, 16]


def medians_over(depths, measure, *arguments):
    """Return the median of measure(depth, ..., seed) over five seeds, for each."""
    medians = []
    for depth in depths:
        of_seeds = [measure(depth, *arguments, seed) for seed in range(5)]
        medians.append(float(np.median(of_seeds)))
    return medians


arriving = {}
for name, connect in connections.items():
    arriving[name] = medians_over(depths, gradient_at_input, connect)
draw(figures.residual, "04_residual.png", depths, arriving)

# %% [markdown]
# ![The gradient at the input, relative to the output, over 1 to 16 layers, on a logarithmic axis. For f(x) alone it vanishes, for x + f(x) without a norm it explodes. The two curves with a norm, of f(x) and of x + f(x), stay near a line at 1.](figures/04_residual.png)
#
# *What to see: with a norm the gradient keeps its size. Without one, 16 layers of
# $f(x)$ leave next to nothing of it, and 16 layers of $x + f(x)$ make it eight million
# times as large.*

# %%
lost = arriving["f(x)"][-1]
claim("16 layers of f(x): share that arrives", lost < 1e-3, f"{lost:.0e}")
exploded = arriving["x + f(x)"][-1]
claim("16 layers of x + f(x): it is multiplied by", exploded > 1e3, f"{exploded:.0e}")
arrived = arriving["norm(x + f(x)), the paper"][-1]
claim("16 layers of the paper: share that arrives", 0.1 < arrived < 3, f"{arrived:.1f}")


def size_at_output(n_layers, connect, seed):
    _, y, _ = through_a_stack(n_layers, connect, seed)
    return size_of(y.numpy())


(grown,) = medians_over([16], size_at_output, x_plus_f)
print(f"the vectors of x + f(x) have grown by a factor of {grown:,.0f}")
print(f"in the table: {0.5**32:.0e} and {2**16:,}; half, 16 times: {0.5**16:.0e}")

# %% [markdown]
# Both rows of our table go the right way, but are too simple: of $f(x)$ more is left,
# 3e-05 in place of 2e-10, and $x + f(x)$ makes more of it, eight million in place of
# 65,536. Attention does both ("Why is the table of gradients too simple?").
#
# **The norm keeps the size of the gradient**, even without $x$: see
# $\text{norm}(f(x))$. Its formula says why: $gx$ is divided by $s$. On its way back the
# gradient meets the norm first, then the sub-layer. The sub-layer changes the size of
# the gradient about as it changed that of the vectors: forward each number of $x W$ is
# a sum of 32 products with numbers of $W$, back each number of $gy \, W^T$ is one of
# as many. If $x$ and $f(x)$ have the size 1 and are unrelated, their sum has the size
# 1.4:
#
# | | $s$ | back: the norm | then the rest |
# |---|---|---|---|
# | $\text{norm}(f(x))$, $f$ halves vectors | 1/2 | times 2 | times 1/2 |
# | $\text{norm}(x + f(x))$, $f$ keeps the size | 1.4 | times 1/1.4 | times 1.4 |
#
# ### What is x for, then?
# The first figure of this lesson showed that attentions make all words alike. Neither
# the norm nor the network helps: both treat each word by itself, and give equal results
# for equal vectors. $x$ does help: what a word fetched is added to its own vector.


# %%
def words_apart(n_layers, connect, seed):
    _, y, _ = through_a_stack(n_layers, connect, seed)
    return how_far_apart(y.numpy())


(apart_alone,) = medians_over([6], words_apart, norm_of_f)
claim("norm(f(x)): the words are apart by", apart_alone < 1e-9, f"{apart_alone:.0e}")
apart_with_x, after_16 = medians_over([6, 16], words_apart, as_in_the_paper)
claim("norm(x + f(x)): they are apart by", apart_with_x > 0.1, f"{apart_with_x:.2f}")
print(f"norm(x + f(x)), 16 layers: the words are apart by {after_16:.2f}")

# %% [markdown]
# Six new layers leave 0.32 with $x$, and less than a billionth without it. The first
# figure, of one random stack, has 0.37. With $x$ it falls as well, because what each
# layer adds is more alike than the words are: after 16 layers it is 0.01. So in a new
# model $x$ only slows the fall, and training has to do the rest. It does: in a sentence
# of the course's trained model the words are apart by 0.87 when they come in, and by
# 0.91 after its two layers. Two new layers leave 0.63 (the last ★ below). Could
# training begin at 0.01? We have not tried.
#
# The same holds on the way back. Take two words that have become alike. Each then looks
# at both with the weights 1/2 and 1/2, so each output is half of the first value plus
# half of the second. Let the gradient be 3 at the first output and 1 at the second. The
# first value went into both by half, so it gets $1/2 \cdot 3 + 1/2 \cdot 1 = 2$, and so
# does the second. Without $x$ only the mean, 2, gets through: what the gradient said of
# *different* words is lost. With $x$ the two get 3 + 2 = 5 and 1 + 2 = 3: the
# difference survives.
#
# So we send back a gradient of which the mean over the words is 0, through six layers.


# %%
def own_gradient(n_layers, connect, seed):
    x, y, generator = through_a_stack(n_layers, connect, seed)
    gy = generator.standard_normal(y.shape)
    y.backward(gy - gy.mean(axis=1, keepdims=True))
    return size_of(x.grad)


(own_alone,) = medians_over([6], own_gradient, norm_of_f)
claim("norm(f(x)): of such a gradient arrives", own_alone < 1e-9, f"{own_alone:.0e}")
(own,) = medians_over([6], own_gradient, as_in_the_paper)
claim("norm(x + f(x)): of such a gradient arrives", own > 0.1, f"{own:.2f}")

# %% [markdown]
# With $x$, 0.61 of it arrives, and without it nothing but rounding. **The residual
# connection carries each word's own vector forward, and its own gradient back.**
#
# A second reason is older. He et al. 2015, who introduced the residual connection,
# trained deep networks for images, which have no words that could become alike, with
# and without $x$. All had norms, and gradients of a good size. Still they learned worse
# without $x$. Their explanation: without $x$ a sub-layer must first learn to hand on
# what it got, through its own matrices. **With $x$, handing on is free (but for the
# norm), and a sub-layer learns only the correction**, what is still missing: the
# *residual*, hence the name.

# %% [markdown]
# ## What did we learn?
# - Layer norm gives the features of one position the mean 0 and the deviation 1, then
#   a gain and a bias that are learned.
# - Its gradient is $(u - \text{mean}(u) - n \, \text{mean}(u n)) / s$: what cannot
#   matter is taken out.
# - The feed-forward network computes what sums cannot, with units that detect and
#   write; it holds two thirds of an encoder layer's parameters. Positions meet in
#   attention only.
# - Dropout sets features to 0 while the model learns, and divides the others by
#   $1 - \text{rate}$, which keeps the mean; after training it is off.
#
# | part | without it, as measured above |
# |---|---|
# | attention | no position learns anything of another |
# | network | no answer that is not a sum of parts: two words, are they different? |
# | dropout | one silent unit costs 8 facts of 64, and not 1 |
# | $x$ | six layers leave all words alike, and no word a gradient of its own |
# | norm | 16 layers multiply the gradient by eight million |

# %% [markdown]
# ## More on layers
# Nothing below is needed for the next lesson. Of the questions, the two with a ★ are
# worth everybody's click.
#
# ### Is the library's layer made of these parts?
# Here is its feed-forward network beside equation 2, position by position. Its
# matrices are filled with random numbers: a bias of 0, as when training begins, would
# hide mistakes.


# %%
def randomised(layer):
    """Fill all parameters of a layer with random numbers; return it in float64."""
    layer.astype(np.float64)
    # state(): a dict of the parameters' names and arrays; load_state() takes one.
    state = {name: rng.normal(0, 0.5, a.shape) for name, a in layer.state().items()}
    return layer.load_state(state)


def at_each_position(function, x):
    rows = x.reshape(-1, x.shape[-1])  # (positions of all sentences, D)
    results = np.array([function(row) for row in rows])
    return results.reshape(*x.shape[:-1], -1)


config = Config(vocabulary_size=10, d_model=8, d_ff=32, n_heads=2, dropout=0.25)
feed_forward = randomised(FeedForward(config, rng))
W_1, b_1, W_2, b_2 = feed_forward.state().values()


def equation_2(position):
    inner = [max(0.0, feature) for feature in position @ W_1 + b_1]
    return inner @ W_2 + b_2


FFN_X = at_each_position(equation_2, X)

same("FeedForward = equation 2", feed_forward(X), FFN_X)
grad_check(feed_forward, X, name="FeedForward")

# %% [markdown]
# And one layer of the encoder, from its parts:

# %%
post = randomised(Residual(config))
layer = randomised(EncoderLayer(config, rng))
causal = causal_mask(6)
with F.dropout_state(seed=2, step=1):
    by_residual = post(X, feed_forward)
    by_layer = layer(X, causal)

# The same with the parts. The same seed drops the same features.
with F.dropout_state(seed=2, step=1):
    post_by_hand = post.norm(X + F.dropout(feed_forward(X), rate))
    attended = layer.self_attention(X, X, causal)
    middle = layer.attention_residual.norm(X + F.dropout(attended, rate))
    computed = layer.feed_forward(middle)
    layer_by_hand = layer.feed_forward_residual.norm(middle + F.dropout(computed, rate))

same("Residual = LayerNorm(x + Dropout(Sublayer(x)))", by_residual, post_by_hand)
same("EncoderLayer = two of them, attention first", by_layer, layer_by_hand)

# %% [markdown]
# And the library's code; read the last lines of each, in `__call__`.

# %%
show(Residual)
show(EncoderLayer)
grad_check(lambda x: layer.eval()(x, causal), X, name="EncoderLayer")

# %% [markdown]
# ### Why is row mean plus column mean the best additive answer?
# The errors $r$ of that answer sum to 0 in each row and each column. Add any additive
# $c$ to the answer: one part of $c$ is the same all along a row, the other all along a
# column. So the products $r \, c$ sum to 0, and the squares of the new errors, $r - c$,
# sum to those of $r$ plus those of $c$: only more.
#
# ### Why is the table of gradients too simple?
# In the stack of $f(x)$, once the words are alike, their weights are equal, so each
# value gets the mean of the gradients: attention hands back nearly all that these have
# in common. Only the 16 networks hand back about half: $0.5^{16}$ is 2e-05.
#
# In the stack of $x + f(x)$ the vectors grow as well, by a factor of 1,044, and the
# scores by its square. What does that do to attention? Send a random gradient of the
# size 1 through each attention of the stack alone:


# %%
def in_the_stack(seed):
    """Return the rows of the table below for each of 16 layers of x + f(x)."""
    generator = np.random.default_rng(seed)
    y = generator.standard_normal((2, 16, 32))
    rows = []
    for _ in range(16):
        layer = EncoderLayer(small, generator).astype(np.float64)
        layer.self_attention.keep_weights = True
        x = Tensor(y)
        fetched = layer.self_attention(x, x)
        fetched.backward(np.random.default_rng(100 + seed).standard_normal(y.shape))
        largest = layer.self_attention.weights.max(axis=-1).mean()
        rows.append([size_of(y), largest, size_of(x.grad)])
        middle = y + fetched.numpy()
        y = middle + layer.feed_forward(middle).numpy()
    return rows


five_stacks = np.array([in_the_stack(seed) for seed in range(5)])
for i in (1, 4, 8, 16):
    of_layer = five_stacks[:, i - 1]
    of_five = "  ".join(f"{number:.2f}" for number in np.median(of_layer, axis=0))
    print(f"layer {i:2}: {of_five}", end=", the last from ")
    print(f"{of_layer[:, 2].min():.1f} to {of_layer[:, 2].max():.1f}")

# %% [markdown]
# | layer | 1 | 4 | 8 | 16 |
# |---|---|---|---|---|
# | size of the numbers that come in | 1.00 | 2.32 | 16.36 | 635.35 |
# | a query's largest weight, on average | 0.23 | 0.61 | 0.98 | 1.00 |
# | attention hands back | 0.64 | 1.59 | 7.85 | 1.07 |
#
# These are medians of five stacks. In the middle layers the weights are sharp but not
# yet settled: the numbers are so large that a small move of a word still moves its
# weights a lot. There attention hands back several times what it gets, in layer 8 from
# 3.9 to 24.8 times. Higher up the softmax is sure, its weights hardly move (lesson 02:
# it learns slowly), and attention hands back about what it gets, through the values.
#
# ### ★ What changes if the norm comes first?
# Post-norm, the paper's order, has the norm last. Many later models move it to the
# input of the sub-layer, which is *pre-norm*:
#
# $$x + \text{Dropout}(\text{Sublayer}(\text{LayerNorm}(x)))$$
#
# In pre-norm the $x$ that is passed on is never rescaled, only added to. A sub-layer
# that gives 0 leaves no trace. The vectors grow from layer to layer, so one more norm
# at the end of the stack brings them back to size. `Config(norm="pre")` chooses this
# order.

# %%
pre = randomised(Residual(config.replace(norm="pre")))
with F.dropout_state(seed=2, step=1):
    by_pre_residual = pre(X, feed_forward)
with F.dropout_state(seed=2, step=1):
    pre_by_hand = X + F.dropout(feed_forward(pre.norm(X)), rate)
same("pre-norm: x + Dropout(Sublayer(LayerNorm(x)))", by_pre_residual, pre_by_hand)

# %% [markdown]
# Which order is easier to train? Post-norm is hard to start: a small change of its
# matrices does more. Move every number in the matrices of a stack at random, by 2% of
# its matrix's deviation. That is the size, though not the direction, of an early step
# of training. How far does the output move? With the last norm of pre-norm, both
# outputs have the same size.


# %%
def stack_of(norm, n_layers, seed):
    generator = np.random.default_rng(seed)
    sizes_of_stack = Config(10, d_model=64, d_ff=256, n_heads=4, dropout=0.0, norm=norm)
    return [EncoderLayer(sizes_of_stack, generator) for _ in range(n_layers)]


def output_of(layers, x, norm):
    y = x
    for layer in layers:
        y = layer(y, None)
    return LayerNorm(64)(y) if norm == "pre" else y


def output_moves_by(n_layers, norm, seed):
    layers = stack_of(norm, n_layers, seed)
    generator = np.random.default_rng(100 + seed)
    x = Tensor(generator.standard_normal((2, 16, 64)).astype(np.float32))
    with no_grad():
        before = output_of(layers, x, norm).numpy()
        for layer in layers:
            state = layer.state()
            for name, array in state.items():
                if array.ndim == 2:  # a matrix
                    noise = generator.standard_normal(array.shape)
                    state[name] = array + 0.02 * array.std() * noise
            layer.load_state(state)
        after = output_of(layers, x, norm).numpy()
    return size_of(after - before)


stack_depths = [1, 2, 4, 6, 12, 24]
movement = {}
for order in ("post", "pre"):
    movement[f"{order}-norm"] = medians_over(stack_depths, output_moves_by, order)
more = movement["post-norm"][4] / movement["pre-norm"][4]
claim("12 layers: post-norm moves further, times", more > 1.4, f"{more:.1f}")
for order, moves in movement.items():
    print(f"{order} with 24 layers: {moves[-1]:.2f}")
draw(figures.order_of_norm, "04_norm_order.png", stack_depths, movement)

# %% [markdown]
# ![The change of the output over 1 to 24 layers when every matrix moves by 2 per cent. Both orders begin at 0.02 with one layer; with 24 layers post-norm has risen to 0.11, pre-norm to 0.06.](figures/04_norm_order.png)
#
# *What to see: the same small change of all matrices moves the output of a deep stack
# further in post-norm than in pre-norm, with 24 layers about twice as far.*
#
# The reason, in short (Liu et al. 2020): a post-norm brings each sum back to the size
# 1, so every sub-layer adds an equal share to the change, however deep the stack is. In
# pre-norm the sum grows, and late sub-layers add less and less to it. That is a reason
# for **small steps at the beginning in post-norm**, and for smaller ones the deeper the
# model is. Random moves are not updates: lesson 07 trains post-norm with and without
# its *warm-up*, and pre-norm without. Very deep models are mostly pre-norm.
#
# ### What does the library's layer norm look like?
# First the equation with loops, then its code.


# %%
def normalised(position):
    D = len(position)
    m = sum(position) / D
    variance = sum((feature - m) ** 2 for feature in position) / D
    return (position - m) / (variance + 1e-6) ** 0.5


same("layer norm = loops", norm(X), at_each_position(normalised, X))
tiny = X / 10_000  # a variance of about 4e-8, far below eps
of_tiny = at_each_position(normalised, tiny)
same("the norm where eps outweighs the variance", norm(tiny), of_tiny)
equal = np.full(8, 5.0)
same("eight equal features become the bias", F.layer_norm(equal, gain, bias), bias)

# %% [markdown]
# That the mean is subtracted at all is a habit: many models of today only divide. The
# last exercise builds that norm. In the code `layer_norm_arrays` checks the shapes, and
# `sum_rows` sums over all positions.

# %%
show(F.layer_norm)

# %% [markdown]
# ### ★ Do words stay apart in a trained model?
# Here are two sentences, on their way through the two layers of the encoder of the
# small model that comes with the course. (Lesson 05 shows what enters the first one.)
# For comparison we send the same vectors through two new layers of the same sizes, five
# times, and print the medians.


# %%
def apart_through(layers, x):
    y = x
    apart = [how_far_apart(y.numpy())]
    for layer in layers:
        y = layer(y, None)
        apart.append(how_far_apart(y.numpy()))
    return np.array(apart)


def apart_through_new(config, x, seed):
    generator = np.random.default_rng(seed)
    return apart_through([EncoderLayer(config, generator) for _ in range(2)], x)


translator = toy_model()
model = translator.model.eval()
for line in ("The old mother was not at home on Sunday.", "The dog bites the man."):
    ids = np.array(translator.subwords.encode([line]))
    root_of_64 = 8.0  # lesson 05 explains the factor
    entering = model.source_positions(model.embedding(ids) * root_of_64)
    trained = apart_through(model.encoder.layers, entering)
    five = [apart_through_new(model.config, entering, seed) for seed in range(5)]
    new = np.median(five, axis=0)
    print(f"{line}\n  trained {trained.round(2)}, new {new.round(2)}")
    ratio = trained[2] / new[2]
    claim("after two trained layers further apart, times", ratio > 1.2, f"{ratio:.1f}")

# %% [markdown]
# New layers bring the words of both sentences nearer to each other. The trained ones
# move those of the first sentence apart, and those of the second only a little nearer.
# Two sentences and two layers are a small sample.
#
# ### How are the coins of dropout tossed?
# A training run that is stopped and resumed should give the same model. So a mask is a
# function of four numbers: the seed of the run, the update (step), the number of the
# dropout within it (place), and the row. A generator, *Philox*, turns them into 16
# random bits for each feature. Read as a number below 65,536, they must reach rate
# times 65,536 for the feature to stay.

# %%
places_in_a_step = 65_536
values_of_16_bits = 65_536
key = [1, 5 * places_in_a_step + 0]  # seed 1, step 5, place 0
philox = np.random.Philox(key=key)
bits = philox.random_raw(X.size // 4).view(np.uint16)  # 4 features in 64 bits
stays = bits >= rate * values_of_16_bits
with F.dropout_state(seed=1, step=5):
    of_step_5 = Dropout(rate)(Tensor(X)).numpy()
drawn = of_step_5 != 0
same("dropout_mask = (bits >= rate * 65,536)", drawn.ravel(), stays)
same("Dropout = mask x / (1 - rate)", of_step_5, drawn * X / (1 - rate))

# %%
with F.dropout_state(seed=1, step=5):
    F.dropout(X, rate)
    second = F.dropout(X, rate).numpy()
of_1 = to_numpy(F.dropout_mask(1, 5, 1, 0, X.shape, rate))
same("the second in a dropout_state has place 1", second, of_1 * X / (1 - rate))
some_rows = F.dropout_mask(1, 5, 0, 2, (3, 6, 8), rate)
same("sentences 2 to 4 of the batch, drawn alone", some_rows, drawn[2:5])

# %%
grad_check(F.dropout, X, rate, 7)  # seed 7: the same mask in every call

# %% [markdown]
# The paper drops features in two places: in the output of each sub-layer before it is
# added, and in the sums of embeddings and positions (lesson 05). Two more places are
# switches of `Config`, off by default, as the paper does not describe them: with
# `attention_dropout` attention drops weights, with `feed_forward_dropout` the network
# drops units.

# %%
keys = rng.standard_normal((3, 6, 8))
# Seed 9 outside all updates: step 0.
kept_weights = to_numpy(F.dropout_mask(9, 0, 0, 0, (3, 6, 6), rate)) / (1 - rate)
weights_by_mask = F.attention_weights(keys, keys).numpy() * kept_weights
by_dropped = F.attention(keys, keys, X[:3], rate=rate, seed=9)
same("attention_dropout drops weights", by_dropped, weights_by_mask @ X[:3])

# %% [markdown]
# ### What came after ReLU?
# Many models since 2017 replace it with a function that has a soft bend in place of the
# kink. One is *swish*: $x$ times $1 / (1 + e^{-x})$, a soft switch from 0 to 1.
# `Config(activation="swish")` chooses it. Here are both.

# %%
same("relu = max(0, x)", F.relu(X - 3), np.maximum(0, X - 3))
# (No element of X - 3 is so near to 0 that the check would step across the kink.)
grad_check(F.relu, X - 3)

# %%
same("swish = x / (1 + e^-x)", F.swish(X - 3), (X - 3) / (1 + np.exp(3 - X)))
grad_check(F.swish, X - 3)
with_swish = FeedForward(config.replace(activation="swish"), rng).astype(np.float64)
with_swish.load_state(feed_forward.state())
swish_by_hand = F.swish(X @ W_1 + b_1).numpy() @ W_2 + b_2
same("a network with swish", with_swish(X), swish_by_hand)

finish("Attention fetches, the network computes; the rest lets many layers learn.")

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 04` writes this part to `my_04_layers.py`. Fill in the
# bodies, and run that file. It imports `np` and `F`.


# %%
def normalised_on_paper():
    """Return layer norm of (2, 2, 2, 10) as a list of four numbers, to two decimals.

    Gain 1, bias 0. Use a pencil.

    Hint: "What happens to a word inside a layer?" does it for (1, 3, 3, 9).
    """
    ...


def check_normalised_on_paper():
    checks.check_normalised_on_paper(normalised_on_paper)


# %%
def mended_dropout(x, mask, rate, training):
    """Find the two mistakes in `return x * mask`, and return what is right.

    x, mask: arrays of one shape. training: False if the model translates.

    Hint: "What does dropout do?" has the mean, and says when it is off.
    """
    ...


def check_mended_dropout():
    checks.check_mended_dropout(mended_dropout)


# %%
def tent():
    """Return (W_1, b_1, W_2, b_2) of a network with d_model 1 and at most 4 units.

    Its answer is 1 at x = 0, falls in straight lines to 0 at x = -1 and at x = 1, and
    is 0 beyond. Write the numbers by hand; W_1 is (1, units), W_2 is (units, 1).

    Hint: "What is the feed-forward network for?" has a network of two units. Each unit
    max(0, x - c) bends the line at c. How many bends has a tent?
    """
    ...


def check_tent():
    checks.check_tent(tent)


# %%
def sees_one_position(norm):
    """Return True if norm(x)[b, t] depends on x[b, t] alone, False if on more of x.

    norm: a function from an array x (B, T, D) to one of the same shape: B sentences of
    T words, each with D features. Choose x yourself, such as (3, 4, 5). A grad_check
    cannot tell: it passes for batch norm, too.

    Hint: "What does layer norm look at?" changes all positions of a sentence but one.
    x has other sentences as well.
    """
    ...


def check_sees_one_position():
    checks.check_sees_one_position(sees_one_position)


# %%
def rms_norm(x, gain):
    """Return (y, backward) for arrays: y = gain x / sqrt(mean(x^2, last axis) + 1e-6),
    backward(gy) = (gx, g_gain). x, gy: (B, T, D); gain: (D,).

    Most language models of today use this norm.

    Hint: "What is the gradient of layer norm?" has two steps of x that n does not
    notice. Without the mean m, which of them is left?
    """
    ...


def check_rms_norm():
    checks.check_rms_norm(rms_norm)


# %% [markdown]
# **Now yours: pieces 14 to 18** of `my_transformer.py`. Everything inside a layer,
# `layer_norm`, `relu`, `dropout` and `FeedForward`, and a layer of it all:
# `EncoderLayer`. (`python lessons/build.py` writes the file, if you have none.)

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("functions.layer_norm", "functions.relu", "functions.swish",
              "functions.dropout", "functions.dropout_state", "functions.dropout_mask",
              "nn.LayerNorm", "nn.Dropout", "transformer.Residual",
              "transformer.FeedForward", "transformer.EncoderLayer")  # fmt: skip
