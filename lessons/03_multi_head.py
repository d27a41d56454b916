# %% [markdown]
"""# Lesson 03. Multi-head attention

Who sees, and who is seen? One attention hands over one average, and an average does
not tell. The Transformer uses eight small attentions side by side, at the price of one
large one (section 3.2.2 of the paper).

You need lessons 01 and 02. At the end you will have built a layer that learns, the
objects that hold what it learned, and the attention of the Transformer; and you will
have seen what one head cannot do and several can.
"""

# %% [markdown]
# ## Why is one attention not enough?
# "Man sees dog", "dog sees man": the same three words, and the opposite meaning. In
# both sentences, "sees" needs to know who is before it and who is after it. What can
# attention (lesson 01) fetch? Let the values be man = (2, 0) and dog = (0, 2). If
# "sees" gives both neighbours the weight 1/2, it gets the average of the two, the same
# in both sentences:

# %%
import numpy as np

from minitf import functions as F
from minitf.check import claim, grad_check, same
from minitf.config import Config
from minitf.course.architecture import figure_1
from minitf.course.checks import multi_head as checks
from minitf.course.figures import multi_head as figures
from minitf.course.lesson import begin, draw, finish, show, toy_model
from minitf.errors import UserError
from minitf.nn import Linear, Module, Parameter
from minitf.plot import join_pieces
from minitf.tensor import Tensor
from minitf.transformer import MultiHeadAttention, padding_mask

# Reads the options --figures and --backend, and starts to count the claims.
begin("03_multi_head")
rng = np.random.default_rng(1)

# %%
man = np.array([2.0, 0.0])
dog = np.array([0.0, 2.0])
man_sees_dog = man / 2 + dog / 2
dog_sees_man = dog / 2 + man / 2
alike = (man_sees_dog == dog_sees_man).all()
claim("'sees' gets the same in both sentences", alike, man_sees_dog)

# %% [markdown]
# *Who* did it is lost. Do other weights help?
#
# - If "sees" gives all its weight to the word before, it gets (2, 0) or (0, 2). Now it
#   knows who sees, and nothing about who is seen.
# - Weights of 1/4 and 3/4 do tell these two sentences apart: (0.5, 1.5) and (1.5, 0.5).
#   But a language has more words than two. Let "cat" be (0.5, 1.5). In "cat sees cat",
#   "sees" gets 1/4 cat + 3/4 cat = 1 cat, which is (0.5, 1.5), and nobody can tell it
#   from "man sees dog". From *one* weighted sum of two unknown vectors, in general
#   neither can be got back.
#
# So let two attentions look at the same time. The first fetches the word before, the
# second the word after, and the two answers are written side by side. Both neighbours
# are there, whole and in order.
#
# Here we choose the weights. For a model to find the word *before*, the vectors must
# also say where each word stands (lesson 05).

# %%
for before, after in ((man, dog), (dog, man)):
    quarters = before / 4 + after * 3 / 4
    side_by_side = np.concatenate([before, after])
    print(f"1/4 and 3/4: {quarters}   two attentions: {side_by_side}")

# %% [markdown]
# Each of them is called a *head*, and both together are *multi-head attention*. The
# answer is now twice as long. To keep the length, the Transformer makes each head
# smaller: a head fetches fewer numbers of a word than the word has, and training
# chooses which. Here it is in figure 1:

# %%
draw(
    figure_1,
    "03_here.svg",
    here=["multi-head", "self-attention", "masked self-attention", "source attention"],
)

# %% [markdown]
# ![Figure 1 of the paper with its three multi-head attentions marked, one in the encoder and two in the decoder, and beside it the diagram of multi-head attention: linear maps of V, K and Q, several attentions, Concat, and one more linear map.](figures/03_here.svg)
#
# *What to see: all three attentions are multi-head attentions, and the diagram on the
# right shows the inside of one. Read it from below: three linear maps for each head,
# the attention of lesson 01 in each of $h$ heads, the answers side by side ("Concat"),
# and a last linear map that mixes them. The paper writes $Q$, $K$ and $V$ for what
# goes into the three maps; we call query, key and value what comes out. The thick line
# brings the encoder's output to the attention in the middle.*
#
# To build it we need two things first: a way for each head to ask its own question, and
# a place for what it learns.

# %% [markdown]
# ## How does a layer make its queries, keys and values?
# In lesson 01 a word was its own query, key and value. So it looked at words that
# resemble it. But a verb needs its nouns, which do not. Take a pencil. Let the vectors
# have two numbers: how much of a noun, and how much of a verb, the word is. So man =
# (1, 0), sees = (0, 1) and dog = (1, 0). As its own query, "sees" gives man, itself and
# dog the scores 0, 1 and 0: it looks at itself.
#
# Now let a matrix make the query, $q = x \, W^Q$ (the $Q$ is part of its name, for
# "query", and no power). Let its two rows be what a noun asks for, and what a verb asks
# for:
#
# $$W^Q = \begin{pmatrix} 0 & 0 \\ 4 & 0 \end{pmatrix}$$
#
# A verb asks for nouns, and strongly. The query of "sees" is the second row, (4, 0).
# Its scores are 4, 0 and 4; divided by $\sqrt{2}$ they are 2.83, 0 and 2.83; and the
# softmax makes the weights, rounded, 0.49, 0.03 and 0.49. "Sees" now looks at its
# nouns. In the same way a matrix $W^K$ makes the keys, so a word may be found by
# something else than what it is, and a matrix $W^V$ makes the values, so it may hand
# over a third thing.

# %%
three_words = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])  # man sees dog
W_q_of_verbs = np.array([[0.0, 0.0], [4.0, 0.0]])
to_itself = F.attention_weights(three_words, three_words).numpy()[1]
to_nouns = F.attention_weights(three_words @ W_q_of_verbs, three_words).numpy()[1]
print("its own query:   ", to_itself.round(2))
print("a query by W^Q:  ", to_nouns.round(2))
print("the scaled score:", round(4 / 2**0.5, 2))
claim("through W^Q, 'sees' looks at the nouns", to_nouns[1] < 0.1, to_nouns[1])

# %% [markdown]
# Such a matrix is a *linear map*, from $d_{in}$ numbers to $d_{out}$ numbers. Its
# matrix $W$, of shape $(d_{in}, d_{out})$, is called the *weight* (which is not an
# attention weight: where this lesson says "weights", the softmax has made them). In
# general a vector $b$ of $d_{out}$ numbers is added, the *bias*. Nobody writes these
# numbers with a pencil: training finds them, and for that they need gradients.
#
# **State.** For the vector $x$ of one position, $y = x W + b$. In numbers:
#
# $$y_j = \sum_i x_i W_{ij} + b_j$$
#
# **Derive.** The gradients follow from that of a matrix product (lesson 02):
# $gx = gy \, W^T$ and $gW = x^T \, gy$, a column times a row: all products
# $x_i \, gy_j$ (`np.outer`). The vector $b$ is added as it is, so its gradient is $gy$.
# The same $W$ and $b$ serve all positions of all sentences, so their gradients are
# *sums* over the positions. Here are 2 sentences of 5 positions, with $d_{in} = 6$ and
# $d_{out} = 3$.

# %%
x = rng.standard_normal((2, 5, 6))
W = rng.standard_normal((6, 3))
b = rng.standard_normal(3)
gy = rng.standard_normal((2, 5, 3))  # the gradient that arrives at y
gW_by_position = sum(np.outer(x[s, t], gy[s, t]) for s, t in np.ndindex(2, 5))

# Equate: the library's linear map.
x_tensor = Tensor(x)
W_tensor = Tensor(W)
b_tensor = Tensor(b)
y = F.linear(x_tensor, W_tensor, b_tensor)
y.backward(gy)
same("F.linear = x W + b", y, x @ W + b)
same("F.linear: the gradient of x", x_tensor.grad, gy @ W.T)

# %%
same("F.linear: the gradient of W, a sum over positions", W_tensor.grad, gW_by_position)
same("F.linear: the gradient of b, another", b_tensor.grad, gy.sum(axis=(0, 1)))

# %% [markdown]
# ## Where are the learned numbers kept?
# Training moves every learned number a small step against its gradient, again and again
# (*gradient descent*), so a program needs a list of them all. In the library a
# `Parameter` is a Tensor that training changes. A `Module` is an object that finds all
# Parameters inside it, and inside the Modules that it holds, and gives each a name.
# `Linear` is a linear map as a Module. Each of its numbers is called a parameter, too:
# a matrix of shape (6, 3) is one `Parameter` and 18 parameters.
#
# Here is a Module with the four maps that we shall need: for the queries, the keys and
# the values of one head, and one more, which puts its answer into the vector again.

# %%
one_head = Module()
one_head.query = Linear(6, 3, rng, bias=False)
one_head.key = Linear(6, 3, rng, bias=False)
one_head.value = Linear(6, 3, rng, bias=False)
one_head.output = Linear(3, 6, rng, bias=False)
print(one_head)
kinds = [type(parameter) for name, parameter in one_head.named_parameters()]
claim("a Module finds the Parameters inside it", kinds == 4 * [Parameter], len(kinds))

# %% [markdown]
# A map that is used at two places has two names, and is found once. So will be the
# table that a model uses three times (lesson 05).

# %%
one_head.query_again = one_head.query
n_found = len(one_head.parameters())
claim("a map under two names is found once", n_found == 4, n_found)

# %% [markdown]
# The maps begin as random numbers. If all four maps of two heads began alike, the heads
# would compute the same, get the same gradients, and stay alike for ever.
#
# ## What is multi-head attention, exactly?
# **State.** Let $h$ heads look at the same time, each through linear maps of its own,
# and let one more linear map put together what they found. Its matrix is called $W^O$,
# with an $O$ for "output". Let $X$ be a matrix with a row for each position that asks,
# and the *memory* $M$ a matrix with a row for each position that answers. In
# *self-attention*, $X$ is its own memory.
#
# $$\text{head}_i = \text{Attention}(X W_i^Q, \; M W_i^K, \; M W_i^V)$$
#
# $$\text{MultiHead}(X, M)$$
#
# $$= \text{Concat}(\text{head}_1, \ldots, \text{head}_h) \, W^O$$
#
# *Concat* writes the answers of the heads side by side. Cut $W^O$ into a block of rows
# for each head. For two heads the last product is
#
# $$(\text{head}_1 \;\; \text{head}_2) \begin{pmatrix} B_1 \\ B_2 \end{pmatrix}
# = \text{head}_1 \, B_1 + \text{head}_2 \, B_2$$
#
# So each head writes into the whole vector, in its own way. Without $W^O$ it could
# write into its own few numbers only.
#
# Take the pencil again, with man = (2, 0) and dog = (0, 2) as in the beginning, and two
# heads for "sees". Head 1 looks at the word before, head 2 at the word after. Each
# hands over one number only. $W^V$ is the column (1/2, 0) for both, so that man becomes
# 1, and dog 0. Let the rows of $W^O$ be (1, 1/2) and (-1, 1/2), so that each head
# writes into both numbers of the answer:
#
# | sentence | heads 1 and 2 find | answer | so man |
# |---|---|---|---|
# | man sees dog | 1 and 0 | $1 · (1, 1/2) + 0 · (-1, 1/2) = (1, 1/2)$ | sees |
# | dog sees man | 0 and 1 | $0 · (1, 1/2) + 1 · (-1, 1/2) = (-1, 1/2)$ | is seen |
#
# The first number says in which role man is, the second that he is there at all. So two
# heads of one number tell who from whom, in no more numbers than one word has. What do
# they give up? The second number of each word. Let a bird be (0, 1): that, too, becomes
# 0, and these heads take it for a dog.

# %%
half_of_first = np.array([[1 / 2], [0.0]])  # W^V, of both heads
rows_of_heads = np.array([[1.0, 1 / 2], [-1.0, 1 / 2]])  # W^O
found_1 = np.concatenate([man @ half_of_first, dog @ half_of_first])
found_2 = np.concatenate([dog @ half_of_first, man @ half_of_first])
print("man sees dog:", found_1 @ rows_of_heads)
print("dog sees man:", found_2 @ rows_of_heads)

# %% [markdown]
# The shapes: $W^Q$ and $W^K$ of one head are $(d_{model}, d_k)$, $W^V$ is
# $(d_{model}, d_v)$, and $W^O$ is $(h d_v, d_{model})$, so that what comes out has
# $d_{model}$ numbers again, the length of the vector of a position. The paper's formula
# has no bias, so these maps have none. The paper takes $d_k = d_v = d_{model} / h$: in
# its *base model*, the smaller of the two that it trains, $512 / 8 = 64$. More heads
# are smaller heads.
#
# **Derive.** One head after another, for one sentence. The library keeps the matrices
# of all heads side by side in one matrix, so the matrices of head $i$ are a *slice of
# its columns*.


# %%
def columns_of_head(matrix, i, n_heads):
    width = matrix.shape[1] // n_heads
    return matrix[:, i * width : (i + 1) * width]


def heads_one_by_one(x, memory, layer, mask=None):
    answers = []
    for i in range(layer.n_heads):
        W_q = columns_of_head(layer.query.weight, i, layer.n_heads)
        W_k = columns_of_head(layer.key.weight, i, layer.n_heads)
        W_v = columns_of_head(layer.value.weight, i, layer.n_heads)
        answers.append(F.attention(x @ W_q, memory @ W_k, memory @ W_v, mask))
    return F.concatenate(answers) @ layer.output.weight


# %% [markdown]
# **Equate.** Two sentences of 5 positions ask two memories of 7 positions. The second
# memory ends with two positions of padding. `Config` holds all sizes of a model. Three
# heads for vectors of 12 numbers have $d_k = 4$.

# %%
# d_v is not d_k, so that no mix-up can pass; attention needs no vocabulary.
sizes = Config(vocabulary_size=11, d_model=12, n_heads=3, d_v=6)
# With 64 bits in place of 32, rounding hides no mistake.
layer = MultiHeadAttention(sizes, rng).astype(np.float64)
asking = rng.standard_normal((2, 5, 12))
memory = rng.standard_normal((2, 7, 12))
padded = padding_mask([[9, 9, 9, 9, 9, 9, 9], [9, 9, 9, 9, 9, 0, 0]])  # id 0: padding
by_layer = layer(asking, memory, padded)
for s in range(2):
    own_mask = padded[s, 0]
    head_by_head = heads_one_by_one(asking[s], memory[s], layer, own_mask)
    same(f"sentence {s}: the layer = head by head", by_layer.numpy()[s], head_by_head)

# %% [markdown]
# ## How are the heads cut apart?
# The library has no loop over the heads. One product $X W^Q$ makes the queries of all
# heads, $(T, h \cdot d_k)$, for the $T$ positions. They are cut into heads,
# $(h, T, d_k)$, and one call of `attention` serves all of them, as if they were a batch
# (lesson 01).
#
# The cut is a famous trap. The numbers of a position are its heads side by side: for
# $h = 3$ and $d_k = 4$, the 12 numbers aaaa bbbb cccc, where each letter is a head.
# First *reshape* $(T, 12)$ to $(T, 3, 4)$: that splits the last axis, position by
# position. Then exchange the first two axes. A reshape straight to $(3, T, 4)$ has the
# same shape and looks right, but it deals the numbers out in the order in which the
# computer stores them, row after row. With $T = 5$ a head has $5 · 4 = 20$ numbers:
#
#     position 0    aaaa bbbb cccc      right: head 1 is the column of a's
#     position 1    aaaa bbbb cccc      wrong: head 1 is the first 20 letters,
#     position 2    aaaa bbbb cccc             aaaabbbbccccaaaabbbb
#     ...
#
# Let us write on each number the position that it belongs to:

# %%
position_numbers = np.repeat(np.arange(5.0), 12).reshape(5, 12)  # row t is full of t
# [None] makes a batch of one sentence, [0] takes it out again.
split = layer.split_heads(Tensor(position_numbers[None])).numpy()[0]  # (3, 5, 4)
straight = position_numbers.reshape(3, 5, 4)
print("head 1, cut as it should be, positions of its five rows:", split[0, :, 0])
print("head 1, reshaped straight to (3, 5, 4):                 ", straight[0, :, 0])
each_position = np.arange(5.0)[:, None] * np.ones((3, 1, 4))
same("split_heads: every head has all five positions", split, each_position)
in_head_1 = len(set(straight[0].ravel()))
claim("reshaped straight, the positions in head 1 are only", in_head_1 == 2, in_head_1)
again = layer.merge_heads(Tensor(split[None])).numpy()[0]
same("merge_heads puts them back", again, position_numbers)

# %% [markdown]
# ## What do several heads cost?
# Exactly as many parameters as one, and as many multiplications. Here is the bill of
# the matrix products, for $T$ positions:
#
# | part | parameters | multiplications |
# |---|---|---|
# | queries, keys, values | $3 d_{model}^2$ | $3 T d_{model}^2$ |
# | scores: $h$ times $T^2 d_k$ | none | $T^2 d_{model}$ |
# | averages: $h$ times $T^2 d_v$ | none | $T^2 d_{model}$ |
# | $W^O$ | $d_{model}^2$ | $T d_{model}^2$ |
#
# The $h$ cancels everywhere, because $h d_k = h d_v = d_{model}$. Let us count what the
# loops above do. A product of $(a, b)$ with $(b, c)$ takes $a · b · c$ multiplications.


# %%
def multiplications(T, layer):
    total = 0
    d_model = layer.query.weight.shape[0]
    for i in range(layer.n_heads):
        d_k = columns_of_head(layer.key.weight, i, layer.n_heads).shape[1]
        d_v = columns_of_head(layer.value.weight, i, layer.n_heads).shape[1]
        total += T * d_model * d_k  # queries
        total += T * d_model * d_k  # keys
        total += T * d_model * d_v  # values
        total += T * d_k * T  # scores
        total += T * T * d_v  # averages
    from_heads = layer.output.weight.shape[0]
    return total + T * from_heads * d_model


config = Config(vocabulary_size=11, d_model=24, n_heads=8)
expected_products = 4 * 12 * 24**2 + 2 * 12**2 * 24  # the table, T = 12, d_model = 24
bills = []
for h in (1, 2, 4, 8):
    layer_of_h = MultiHeadAttention(config.replace(n_heads=h), rng)
    n_parameters = sum(parameter.size for parameter in layer_of_h.parameters())
    n_products = multiplications(12, layer_of_h)
    bills.append((n_parameters, n_products))
    print(f"h = {h}: {n_parameters} parameters, {n_products:,} multiplications")
same_parameters = {parameters for parameters, products in bills}
same_products = {products for parameters, products in bills}
right = same_parameters == {4 * 24**2} and same_products == {expected_products}
claim("1, 2, 4 and 8 heads cost the same", right, f"4 · 24² = {4 * 24**2} parameters")

# %% [markdown]
# Lesson 01 counted only the scores and averages of attention, $2 T^2 d_{model}$, as
# Table 1 of the paper does. The four matrices add $4 T d_{model}^2$. With them,
# attention still multiplies less often than the recurrent layers of the translators
# before it, as long as a text has fewer than $2 d_{model}$ words ("Is attention cheaper
# than the layers that it replaced?").

# %% [markdown]
# ## What can several heads do that one cannot?
# Look at several places, as the first section said. How much is that worth?
#
# **Use.** Watch a training. Each of 12 positions has three blocks, A, B and C, of 4
# random numbers with mean 0 and variance 1; twelve more say which position it is. So
# $d_{model}$ is 12 + 12 = 24, as in the `config` of the last section. Each position
# must collect block A of its left neighbour, block B of its right neighbour, and block
# C of position 0. Here is what position 5 wants:
#
#     position        0              4          5          6
#     it has       A0 B0 C0   ...  A4 B4 C4   A5 B5 C5   A6 B6 C6   ...
#     wanted at 5  A4 B6 C0
#
# A layer that always answers 0 has the mean squared error 1.


# %%
# For each of 12 positions a 4 in a place of its own, the same in each of 32 sentences:
# with a 4, a score depends on the position more than on the random numbers.
where = np.tile(4 * np.eye(12, dtype=np.float32), (32, 1, 1))
t = np.arange(2, 11)  # there the one before, the one after and the first are different


def errors_while_learning(h):
    """Return the mean squared error of each of 600 steps of gradient descent."""
    layer = MultiHeadAttention(config.replace(n_heads=h), rng)  # d_model is 24
    errors = []
    for _ in range(600):
        blocks = rng.standard_normal((32, 12, 3, 4)).astype(np.float32)
        before = blocks[:, t - 1, 0]
        after = blocks[:, t + 1, 1]
        first = np.repeat(blocks[:, :1, 2], 9, axis=1)
        wanted = np.concatenate([before, after, first], axis=-1)
        x = np.concatenate([blocks.reshape(32, 12, 12), where], axis=-1)
        error = layer(x, x)[:, t, :12] - wanted
        loss = (error * error).mean()
        loss.backward()
        for parameter in layer.parameters():
            parameter.data -= 1.0 * parameter.grad  # the rate is 1
        layer.zero_grad()
        errors.append(float(loss))
    return errors


learning = {}
for h in (1, 2, 3):
    errors = errors_while_learning(h)
    learning[h] = np.reshape(errors, (-1, 20)).mean(axis=1)  # of each 20 steps
    limit = max(0, 1 - h / 3)
    near = abs(learning[h][-1] - limit) < 0.1
    claim(f"trained with h = {h}: error near {limit:.2f}", near, learning[h][-1])
draw(figures.learning, "03_heads.png", learning, 20)

# %% [markdown]
# ![The mean squared error over 600 steps of gradient descent. With one head it stops at the dashed line 2/3, with two heads at 1/3, with three heads it goes to 0.](figures/03_heads.png)
#
# *What to see: training runs into a floor for one head, 2/3, and into another for two,
# 1/3. Three places need three heads.*
#
# **State.** Where does 2/3 come from? One head has one set of weights. Let $a_1$, $a_2$
# and $a_3$ be those on the left neighbour, the right neighbour and position 0; weight
# on other positions would only add noise. Number $j$ of a vector is $c$ at the left
# neighbour, $c'$ at the right one, and $c''$ at position 0. If $j$ is in block A, $c$
# is wanted, in block B it is $c'$, and in C $c''$. But the head hands over one number,
#
# $$s = a_1 c + a_2 c' + a_3 c''$$
#
# and $W^V$ and $W^O$ cannot take it apart: all numbers of a vector are averaged with
# the same three weights, and the sums of the others say nothing about $c$. How far off
# is the best guess of what is wanted? With all weight on the left neighbour, $s = c$:
# block A is right, and nothing is known of B and C. With weights of 1/3, the guess $s$
# is wrong by $(2c - c' - c'') / 3$. Products of two different numbers have the mean 0,
# so the mean square of this is $(4 + 1 + 1) / 9 = 2/3$, for each block:
#
# | weights | error of A | of B | of C | sum |
# |---|---|---|---|---|
# | 1, 0, 0 | 0 | 1 | 1 | 2 |
# | 1/3, 1/3, 1/3 | 2/3 | 2/3 | 2/3 | 2 |
# | 0.8, 0.15, 0.05 | 0.04 | 0.97 | nearly 1 | 2 |
#
# **Derive.** Why is the sum always 2? Draw $c$, $c'$ and $c''$ as three arrows of
# length 1 at right angles. Then dot products are means of products: 1 for a number with
# itself, 0 for two different ones. And $s$ is one arrow among them, $(a_1, a_2, a_3)$.
# What follows the head may make it longer or shorter. So the best guess of $c$ is the
# shadow of $c$ on the line of $s$, and its length is the cosine of the angle between
# the two,
#
# $$\frac{a_1}{\sqrt{r}} \qquad r = a_1^2 + a_2^2 + a_3^2$$
#
# By Pythagoras the square of what the shadow misses is $1 - a_1^2 / r$. In the last row
# of the table, $r$ is 0.665, and block A is left with $1 - 0.64 / 0.665 = 0.04$.
# Likewise $1 - a_2^2 / r$ is left of block B, and $1 - a_3^2 / r$ of C. **The squared
# cosines of one arrow with three axes sum to 1**, so the three errors sum to
#
# $$3 - \frac{a_1^2 + a_2^2 + a_3^2}{r} = 3 - 1 = 2$$
#
# *whatever the weights are*, as long as they are fixed: an $a_1$ that changed with $c$
# would make no such arrow. Here they hardly change: with the 4 in each position's
# place, the scores depend almost only on the positions. The program tries three sets of
# weights:

# %%
# (times, places, blocks): of each block one number j, at the three places
at_places = np.random.default_rng(3).standard_normal((100_000, 3, 3))
wanted_numbers = at_places.diagonal(axis1=1, axis2=2)  # A of place 1, B of place 2, ...
for a in ([1 / 3, 1 / 3, 1 / 3], [0.8, 0.15, 0.05], [0.5, 0.3, 0.2]):
    s = a @ at_places  # (100000, 3): what the head hands over
    f = (s * wanted_numbers).sum(axis=0) / (s * s).sum(axis=0)  # the best of each block
    of_three = ((wanted_numbers - f * s) ** 2).mean(axis=0)
    squares = np.square(a)
    of_formula = 1 - squares / squares.sum()
    print(f"{np.round(a, 2)}: squares {squares.round(4)}, r = {squares.sum():.3f}")
    print(f"    by the formula {of_formula.round(2)}, measured {of_three.round(2)}")
    claim("    they sum to", abs(of_three.sum() - 2) < 0.02, round(of_three.sum(), 2))

# %% [markdown]
# So one head takes 1 from the sum, which is 3 without any head. Can a second head take
# more than 1? No. It is a second arrow. Mix the two sums, as $W^O$ may, until the
# arrows are perpendicular. Then neither says anything about the other, and each takes
# its own 1, by the same calculation. So $h$ heads take at most $h$, and at least
# $3 - h$ is left, on average $1 - h/3$ for each block.
#
# The one head was wide enough for all three blocks. What it lacked is not room but a
# second set of weights, and that is a second head.
#
# Is more always better? The paper tried: Table 3 (A) has the translation score of the
# base model ([BLEU](WORDS.md#words), more is better) with different numbers of heads,
# at equal cost.

# %%
print("heads:  1     4     8     16    32")
print("BLEU:   24.9  25.5  25.8  25.8  25.4")

# %% [markdown]
# One head is worst, 0.9 below the best. Why so little, when our one head missed two
# thirds of everything? The paper gives no reason; here is our reading. The model has
# six layers on each side, which look one after another. The weights of a real head
# depend on what the words say, and the sum of 2 holds for fixed ones. And a word seldom
# needs three whole vectors at once.
#
# With 32 heads the score falls again. A likely reason: a query then has $512 / 32 = 16$
# numbers. Whatever a word contains, the head asks with 16 sums of it: about 16
# independent things and no more. So each doubling gains places to look at, and loses
# precision of the question.

# %% [markdown]
# ## What do heads look at in a sentence?
# Nobody tells a head where to look; training finds it. Here are three heads of the toy
# model (a small Transformer with 4 heads, trained on English and German), in its last
# encoder layer, on "The old teacher sees the new book." To translate "The" into German,
# the model must know its noun, because German articles depend on the noun's gender:
# "Lehrer" takes "der", "Buch" takes "das".

# %%
translator = toy_model()


def heads_for(noun):
    """Return the weights of all heads, (H, 9, 9), and the nine words."""
    sentence = f"The old {noun} sees the new book."
    weights, asking, asked = translator.attention(sentence, "encoder")
    # join_pieces joins the pieces that a word was cut into.
    of_words, words, _ = join_pieces(weights, asking, asked, words=True)
    return of_words, words


weights_of_heads, words = heads_for("teacher")
draw(figures.heads_of_a_sentence, "03_translator.png", weights_of_heads, words)

# %% [markdown]
# ![The attention weights of three heads on the sentence "The old teacher sees the new book." Head 1 looks at the word before: "old" at "The", "the" at "sees", "new" at "the", "book" at "new". Head 2: "The" and "old" look at "teacher", "the" and "new" at "book". Head 3: the full stop and the end mark look at "sees".](figures/03_translator.png)
#
# *What to see: the framed cells. Head 1 looks at the word before in four rows of nine,
# "old", "the", "new" and "book"; the other five do something else. In the four,
# training has found a head like the one that we made with a pencil. Head 2 leads from
# article and adjective to their noun, head 3 from the end of the sentence to its verb.*
#
# [All heads of the toy model, on the stage](toy-page.html#encoder-1&heads)
#
# *What to see: each square is a head of the encoder. Choose one, and the stage draws
# its lines; then look for heads with the same habits as those above.*
#
# One sentence could be chance. So here are the same cells, chosen in the picture above,
# with seven other nouns. Each claim is a mean over the framed cells of one head, and
# says nothing of its other rows.

# %%
nouns = ["man", "woman", "child", "girl", "dog", "cat", "house"]
mean_weights = np.mean([heads_for(noun)[0] for noun in nouns], axis=0)  # (H, 9, 9)
to_word_before = np.mean([mean_weights[0, t, t - 1] for t in (1, 4, 5, 6)])
to_noun = np.mean([mean_weights[1, t, s] for t, s in ((0, 2), (1, 2), (4, 6), (5, 6))])
to_verb = np.mean([mean_weights[2, t, 3] for t in (7, 8)])
claim("head 1 looks at the word before", to_word_before > 0.5, f"{to_word_before:.2f}")
claim("head 2 from article and adjective to the noun", to_noun > 0.6, f"{to_noun:.2f}")
claim("head 3 from the end to the verb", to_verb > 0.6, f"{to_verb:.2f}")

# %% [markdown]
# ## What did we learn?
# - One attention gives an average; two heads give two averages, side by side.
# - Linear maps make queries, keys and values, so a word may look for what it is not. A
#   map's $W$ gets the sum of the gradients of all positions.
# - A Module finds every Parameter inside it, once, and gives it a name.
# - MultiHead is $\text{Concat}(\text{head}_1, \ldots, \text{head}_h) \, W^O$, with
#   $d_k = d_v = d_{model} / h$. Heads are cut by reshape, then transpose.
# - $h$ heads cost as much as one: $4 d_{model}^2$ parameters.
# - One head fetches one of three things: its error stays at 2/3 or more, with $h$ heads
#   at $1 - h/3$.

# %% [markdown]
# ## More on heads
# Nothing below is needed for the next lesson. Of the questions, the one with a ★ is
# worth everybody's click.
#
# ### ★ How large should the first random numbers be?
# The paper does not say. If they are too large, the vectors grow from layer to layer,
# and if they are too small, they fade. There is a size at which the vectors do neither.
#
# Let a map have $n_{in}$ numbers in and $n_{out}$ numbers out. A number $y_j$ is a sum
# of $n_{in}$ products $x_i W_{ij}$. If all are independent with mean 0, the variance of
# a product is $\text{Var}(x) · \text{Var}(W)$, and the variances of the terms add up:
# $\text{Var}(y) = n_{in} · \text{Var}(W) · \text{Var}(x)$. It stays that of $x$ if
# $\text{Var}(W) = 1 / n_{in}$. On the way back, a number of $gx$ is a sum of $n_{out}$
# products, and by the same argument it stays if $\text{Var}(W) = 1 / n_{out}$.
#
# Both cannot hold unless $n_{in} = n_{out}$. Glorot and Bengio (2010) take the middle,
# one over the mean of both, $\text{Var}(W) = 2 / (n_{in} + n_{out})$. Numbers drawn
# evenly between $-a$ and $a$ have the variance $a^2 / 3$, the mean of $w^2$. So
# $a^2 = 6 / (n_{in} + n_{out})$.
#
# Send random vectors of 256 numbers through ten such maps, and random gradients back;
# then do it with $a / 2$ and with $2 a$. Each map should then multiply the variance by
# 1/4 or by 4, and ten maps by 4 ten times over, about a million.

# %%
a = (6 / (256 + 256)) ** 0.5
drawn = np.random.default_rng(5).uniform(-a, a, (256, 256)).astype(np.float32)
of_library = Linear(256, 256, np.random.default_rng(5)).weight
same("Linear begins as Glorot and Bengio (2010, eq. 16)", of_library, drawn)
oblong = Linear(100, 500, rng).weight.numpy()
largest = abs(oblong).max() / (6 / 600) ** 0.5
claim("a map from 100 to 500: largest number / a", 0.99 < largest <= 1, largest)


def variances_through_ten_maps(factor):
    """Return the variances of the vectors after 0 to 10 maps, and of the gradient."""
    start = Tensor(rng.standard_normal((256, 256)))
    vectors = start
    variances = [vectors.numpy().var()]
    for _ in range(10):
        matrix = factor * rng.uniform(-a, a, (256, 256))
        vectors = F.linear(vectors, matrix)
        variances.append(vectors.numpy().var())
    vectors.backward(rng.standard_normal((256, 256)))
    return variances, start.grad.var()


curves = {}
for name, factor in (("2 a", 2.0), ("a (Glorot)", 1.0), ("a / 2", 0.5)):
    curves[name], at_start = variances_through_ten_maps(factor)
    expected = factor**20  # ten maps, each factor^2
    at_end = curves[name][10]
    right_size = 0.5 < at_end / expected < 2 and 0.5 < at_start / expected < 2
    found_sizes = f"{at_end:.2g}, and of the gradient {at_start:.2g}"
    claim(f"{name}: the variance after ten maps", right_size, found_sizes)
draw(figures.variances, "03_glorot.png", curves)

# %% [markdown]
# ![The variance over ten linear maps on a logarithmic axis: with Glorot's a it stays at 1, with 2 a it rises to a million, with a / 2 it falls to a millionth.](figures/03_glorot.png)
#
# *What to see: only the middle line is level. Twice the size is a million times the
# variance after ten maps.*

# %% [markdown]
# ### Are the gradients of the heads right, too?
# All sizes below are different, because then a mix-up cannot pass. As a further test of
# the mask, position $t$ is forbidden to see beyond $t + 2$.

# %%
not_far_ahead = np.tri(5, 7, 2, dtype=bool)  # True where s <= t + 2
mask = padded & not_far_ahead  # (sentences 2, all heads 1, asking 5, answering 7)
all_at_once = layer(asking, memory, mask)
by_head = []
for s in range(2):
    by_head.append(heads_one_by_one(asking[s], memory[s], layer, mask[s, 0]))
both = F.concatenate(by_head, axis=0)  # (10, 12)
same("MultiHeadAttention = head by head", all_at_once.numpy().reshape(10, 12), both)

g_answers = rng.standard_normal((2, 5, 12))
all_at_once.backward(g_answers)
by_library = {name: p.grad for name, p in layer.named_parameters()}
layer.zero_grad()  # otherwise new gradients would be added to these
both.backward(g_answers.reshape(10, 12))
for name, parameter in layer.named_parameters():
    same(f"gradient of {name}: at once = one by one", by_library[name], parameter.grad)


# %%
def joined(first, second):
    return F.concatenate([first, second])


grad_check(F.linear, x, W, b)
both_halves = joined(asking, memory[:, :5]).numpy()
same("F.concatenate: the first half", both_halves[..., :12], asking)
same("F.concatenate: the second half", both_halves[..., 12:], memory[:, :5])

# %%
grad_check(joined, asking, memory[:, :5], name="F.concatenate")

# %% [markdown]
# ### What does the library's class look like?
# What matters is above: the four matrices in `__init__`, and split_heads and
# merge_heads. Without a cache, `__call__` does what you know: it makes queries, keys
# and values (its name for a linear map is *projection*), lets `attend` call the
# attention of lesson 01 for all heads at once, merges the heads, and mixes them with
# $W^O$. The rest is for later lessons: `cache` and `positions` for lesson 08, `rate`
# (dropout) for lesson 04; `keep_weights` keeps the attention weights for a picture.

# %%
show(MultiHeadAttention)

# %% [markdown]
# A `Config` refuses sizes that do not fit, before any array is made, and it cannot be
# changed behind the back of a model that was built by it.


# %%
def refusal(attempt):
    try:
        attempt()
    except (UserError, AttributeError) as error:
        return str(error)
    return ""


claim("Config: d_k = d_v = d_model / h", config.d_k == config.d_v == 3, config.d_k)
misfit = refusal(lambda: config.replace(n_heads=7))
claim("7 heads of 24 numbers are refused:", "multiple" in misfit, misfit)
change = refusal(lambda: setattr(config, "n_heads", 4))
claim("a Config cannot be changed:", "n_heads" in change, change)

# %% [markdown]
# ### Is attention cheaper than the layers that it replaced?
# The plain recurrent layer of lesson 01 has two matrices, one for the word and one for
# the state, and takes $2 T d_{model}^2$; Table 1 leaves out the factor 2. Attention
# takes more. But translators used a larger layer. GNMT, the paper's rival in Table 2,
# has the *LSTM*, which computes four vectors for a word: a proposal for the new state,
# and three *gates*, which say how much to forget, to take in and to show. So it takes
# $8 T d_{model}^2$. Attention takes less if
#
# $$4 T d_{model}^2 + 2 T^2 d_{model} < 8 T d_{model}^2$$
#
# Divided by $2 T d_{model}$, that is $2 d_{model} + T < 4 d_{model}$. **Attention
# multiplies less often than an LSTM while $T < 2 d_{model}$**, in the base model below
# 1,024 words. And no position waits, and the path is short.

# %%
lengths = np.array([1, 12, 24, 48])
with_matrices = np.array([multiplications(T, layer_of_h) for T in lengths])
ratio = with_matrices / (8 * lengths * 24**2)
same("attention / LSTM = 1/2 + T / (4 d_model)", ratio, 1 / 2 + lengths / (4 * 24))
print(f"with d_model 512 they are even at T = {2 * 512:,}")

# %%
finish("h small heads cost what one large head costs, and look at h places at once.")

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 03` writes this part to `my_03_multi_head.py`. Fill in the
# bodies, and run that file. It imports `np`, `F`, `Tensor` and `grad_check`.


# %%
def predicted_sizes():
    """Predict four numbers of a layer with d_model 512 and 16 heads, as a list.

    The length of one query, the number of parameters of W^Q of all heads together, of
    W^O, and the number of attention weights for one sentence of 10 words. Then run.

    Hint: "What do several heads cost?" has the bill; "What is multi-head attention,
    exactly?" has d_k.
    """
    ...


def check_predicted_sizes():
    checks.check_predicted_sizes(predicted_sizes)


# %%
def mended_merge(heads):
    """Find the mistake in `heads.reshape(T, H * K)`, and return what is right.

    heads: an array (H, T, K). The result is (T, H*K), the heads of each position side
    by side.

    Hint: "How are the heads cut apart?" goes the other way, in two steps.
    """
    ...


def check_mended_merge():
    checks.check_mended_merge(mended_merge)


# %%
def prune(W_q, W_k, W_v, W_o, n_heads, kept):
    """Remove heads: return the four smaller matrices, with the heads in `kept` only.

    Many heads of a trained model do little, and can go (Michel et al. 2019). kept: a
    list such as [0, 2], the first and the third of three. d_v, the length of a value,
    may differ from d_k.

    Hint: "What is multi-head attention, exactly?" has the columns of a
    head. Which rows of W_o does a head meet?
    """
    ...


def check_prune():
    checks.check_prune(prune)


# %%
def multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    """Return self-attention of a Tensor x (T, D) whose heads share keys and values.

    Language models do that because they have to keep the keys and values of a long text
    (Shazeer 2019). W_q is (D, H*K), cut as usual; W_k
    and W_v are (D, K), one for all heads; W_o is (H*K, D). All of them are Tensors, and
    get their gradients.

    Hint: heads_one_by_one in "What is multi-head attention, exactly?" calls
    F.attention for each head. Do the same with W_k and W_v uncut.
    """
    ...


def check_multi_query():
    checks.check_multi_query(multi_query)


# %% [markdown]
# **Now yours: pieces 11 to 13** of `my_transformer.py`. Cut, join, and let the heads
# look: `split_heads`, `merge_heads` and `MultiHeadAttention`. The last ends with
# `dropout`, as every sub-layer does; lesson 04 explains it, and the course lends it
# until then. (`python lessons/build.py` writes the file, if you have none.)

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("functions.linear", "functions.concatenate", "nn.Parameter", "nn.Module",
              "nn.Linear", "config.Config",
              "transformer.MultiHeadAttention")  # fmt: skip
