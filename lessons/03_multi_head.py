# %% [markdown]
"""# Lesson 03. Multi-head attention

Several small attentions at the price of one large one (section 3.2.2 of the paper).

You need lessons 01 and 02. You will have built a layer that learns, the objects that
hold what it learned, and the attention of the Transformer; and you will have seen what
one head cannot do and several can.
"""

# %%
from collections import Counter

import numpy as np

from minitf import functions as F
from minitf import plot
from minitf.check import claim, grad_check, same, show
from minitf.config import Config
from minitf.course import figures
from minitf.course.lesson import begin, draw, finish, toy_model
from minitf.errors import UserError
from minitf.nn import Linear, Module, Parameter
from minitf.tensor import Tensor
from minitf.transformer import MultiHeadAttention, padding_mask

# Reads the options --figures and --backend, and starts to count the claims.
begin("03_multi_head")
rng = np.random.default_rng(1)

# %% [markdown]
# ## How does a layer make its queries, keys and values?
# In lesson 01 they were given. A *layer* makes them itself, out of what stands at each
# position, with numbers that it learns: a *linear map* from D numbers to F numbers, by
# a *weight* W of shape (D, F) and a *bias* b of shape (F,).
#
# **State.** y = x W + b, for each position x of any batch (section 3.3, eq. 2, has
# two such maps).
#
# **Derive.** At one position y_j = sum_i x_i W_ij + b_j. So the chain rule of
# lesson 02 gives gx_i = sum_j gy_j W_ij; and, as one W and one b serve all positions,
# gW_ij is the sum of x_i gy_j over the positions, gb_j that of gy_j. In matrices, with
# the positions as rows: gx = gy W^T, gW = x^T gy, gb = the sum of the rows of gy.

# %%
# 2 sentences, D=6, F=3
x, W, b, gy = (
    rng.standard_normal(shape) for shape in ((2, 5, 6), (6, 3), (3,), (2, 5, 3))
)
naive = {
    "y": np.zeros((2, 5, 3)) + b,
    "gx": np.zeros((2, 5, 6)),
    "gW": np.zeros((6, 3)),
    "gb": np.zeros(3),
}
for s, t, j in np.ndindex(2, 5, 3):
    for i in range(6):
        naive["y"][s, t, j] += x[s, t, i] * W[i, j]
        naive["gx"][s, t, i] += gy[s, t, j] * W[i, j]
        naive["gW"][i, j] += x[s, t, i] * gy[s, t, j]
    naive["gb"][j] += gy[s, t, j]
# Equate:
show(F.linear)
inputs = Tensor(x), Tensor(W), Tensor(b)
y = F.linear(*inputs)
y.backward(gy)
for name, ours in zip(naive, (y, *(one.grad for one in inputs)), strict=True):
    same(f"F.linear: {name} = number by number", ours, naive[name])
# Use: one matrix product does all of it, over the positions of all sentences, and the
# gradient is right:
grad_check(F.linear, x, W, b)

# %% [markdown]
# ## Where are the learned numbers kept, and how do they start?
# **State.** Training moves every learned number p a little against its gradient,
# p <- p - rate dL/dp: *gradient descent*. So it must find them all. A *Parameter* is
# a Tensor that training changes. A *Module* is an object that holds Parameters and
# other Modules as attributes; the path of attributes is a Parameter's name. `Linear` is
# a linear map as a Module.
#
# **Derive.** Names and gradients by hand, for x W V W in which the last map is the
# first one again:

# %%
model = Module()
model.first = Linear(6, 6, rng, bias=False)
model.others = [Linear(6, 6, rng, bias=False), model.first]
print(model.astype(np.float64))
names = [
    name
    for name, parameter in model.named_parameters()
    if isinstance(parameter, Parameter)
]
claim(
    "a Module finds each Parameter once, in order",
    names == ["first.weight", "others.0.weight"],
    ", ".join(names),
)
(W, V), x, gy = (
    (p.numpy().copy() for p in model.parameters()),
    x.reshape(10, 6),
    rng.standard_normal((10, 6)),
)
y = model.others[1](model.others[0](model.first(x)))
y.backward(gy)
# Equate:
same("Linear = x W, three times", y, x @ W @ V @ W)
same(
    "a shared Parameter gets two gradients",
    model.first.weight.grad,
    (x @ W @ V).T @ gy + x.T @ (gy @ W.T @ V.T),
)

# %% [markdown]
# The paper does not say with what W starts. If the x_i are independent with mean 0, y_j
# is a sum of n_in terms, with variance n_in Var(W) Var(x): it stays if Var(W) = 1/n_in.
# Backward, gx_i has n_out terms and asks for 1/n_out. Glorot and Bengio (2010, eq. 16)
# take 2 / (n_in + n_out); numbers drawn evenly from -a to a have variance a^2 / 3, so
# a = sqrt(6 / (n_in + n_out)).
#
# **Use.** Send random numbers through 10 maps, and random gradients back:

# %%
a, variances = (6 / (256 + 256)) ** 0.5, {}
drawn = np.random.default_rng(5).uniform(-a, a, (256, 256)).astype(np.float32)
same(
    "Linear starts as Glorot and Bengio (2010, eq. 16)",
    Linear(256, 256, np.random.default_rng(5)).weight,
    drawn,
)
for name, factor in (("Glorot's a", 1.0), ("a / 2", 0.5), ("2 a", 2.0)):
    values = [Tensor(rng.standard_normal((256, 256)))]
    for _ in range(10):
        values.append(F.linear(values[-1], factor * rng.uniform(-a, a, (256, 256))))
    values[-1].backward(rng.standard_normal((256, 256)))
    variances[name] = range(11), [value.numpy().var() for value in values]
    ends, about = (
        np.array([variances[name][1][-1], float(values[0].grad.var())]),
        factor**20,
    )
    text = f"{name}: 10 maps multiply the variance by about {about:.2g}"
    claim(
        text,
        (abs(np.log2(ends / about)) < 1).all(),
        "{:.2g}, and backward {:.2g}".format(*ends),
    )
draw(
    figures.lines,
    "03_glorot.png",
    variances,
    x="linear maps passed",
    y="variance",
    log="y",
)

# %% [markdown]
# ## How can one position look at several places at once?
# **State.** Let h attentions, the *heads*, look at the same time, each through linear
# maps of its own, and let one more linear map mix what they found (section 3.2.2).
# d_model is how many numbers stand at each position, x asks, and the *memory* answers;
# if x is its own memory, that is *self-attention*.
#
#     head_i = Attention(x W_i^Q, memory W_i^K, memory W_i^V)
#     W_i^Q, W_i^K: (d_model, d_k)   W_i^V: (d_model, d_v)
#     MultiHead(x, memory) = Concat(head_1, ..., head_h) W^O
#     W^O: (h d_v, d_model)
#
# The paper takes d_k = d_v = d_model / h: many heads are small heads. All sizes of a
# model stand in its *Config*. Do heads need separate matrices?
#
# **Derive.** h attentions of one sentence, each with its columns of the
# library's three:


# %%
def heads_one_by_one(x, memory, layer, mask=True):
    def times(a, b):
        count["products"] += a.shape[0] * a.shape[1] * b.shape[1]
        return a @ b

    *packed, W_o = layer.parameters()
    heads, h = [], layer.n_heads
    for i in range(h):
        W_q, W_k, W_v = (
            W[:, i * W.shape[1] // h : (i + 1) * W.shape[1] // h] for W in packed
        )
        scores = (
            times(times(x, W_q), times(memory, W_k).transpose()) / W_q.shape[1] ** 0.5
        )
        count["exponentials"] += scores.size
        heads.append(
            times(F.softmax(F.where(mask, scores, -np.inf)), times(memory, W_v))
        )
    return times(F.concatenate(heads), W_o)


# Equate: 2 sentences of 5 positions ask memories of 7 positions, one with padding; t
# sees nothing beyond t + 2.
show(MultiHeadAttention)
layer = MultiHeadAttention(
    Config(vocabulary_size=11, d_model=12, n_heads=3, d_v=5), rng
).astype(np.float64)
x, memory, gy = (rng.standard_normal((2, n, 12)) for n in (5, 7, 5))
mask = padding_mask([[9, 9, 9, 9, 9, 9, 9], [9, 9, 9, 9, 9, 0, 0]]) & np.tri(
    5, 7, 2, dtype=bool
)
y, count = layer(x, memory, mask), Counter()
naive = F.concatenate(
    [heads_one_by_one(x[i], memory[i], layer, mask[i, 0]) for i in range(2)], axis=0
)
same("MultiHeadAttention = h attentions one by one", y.numpy().reshape(10, 12), naive)
y.backward(gy)
ours = {name: parameter.grad for name, parameter in layer.named_parameters()}
layer.zero_grad()  # new gradients would be added to the old ones
naive.backward(gy.reshape(10, 12))
for name, parameter in layer.named_parameters():
    same(f"the gradient of {name} = that of h matrices", ours[name], parameter.grad)
same(
    "F.concatenate = write side by side",
    F.concatenate([x, 2 * x]),
    np.stack([x, 2 * x], axis=2).reshape(2, 5, 24),
)
grad_check(lambda *parts: F.concatenate(parts), x, memory[:, :5], name="F.concatenate")
# Use: a reshape and a transpose cut the heads apart. Nothing is copied: what changes
# in the one changes in the other. Write its position on each of the 12 numbers
# of 5 positions, (T, H K), and cut them into 3 heads of 4, (H, T, K):
numbered = Tensor(np.repeat(np.arange(5.0), 12).reshape(1, 5, 12))
split, straight = layer.split_heads(numbered), numbered.numpy().reshape(3, 5, 4).copy()
numbered.data *= 10
positions = np.tile(10.0 * np.arange(5)[:, None], (1, 3, 1, 4))
same("split_heads: a view, all positions in each head", split, positions)
claim(
    "reshaped straight to (H, T, K), head 1 has two positions",
    len(np.unique(straight[0])) == 2,
    straight[0, :, 0],
)
# Use: a Config refuses sizes that do not fit, and cannot be changed behind the back
# of a model built by it.
config, errors = Config(vocabulary_size=11, d_model=24, n_heads=8), []
for attempt in (
    lambda: config.replace(n_heads=7),
    lambda: setattr(config, "n_heads", 4),
):
    try:
        attempt()
    except (UserError, AttributeError) as error:
        errors.append(str(error))
claim(
    "Config: d_k = d_model / n_heads, and no misfit",
    len(errors) == 2 and config.d_k == 24 // 8,
    "; ".join(errors),
)

# %% [markdown]
# ## What do several heads buy, and at what price?
# **State.** Table 3 (A) of the paper compares numbers of heads at equal cost: 8 and 16
# are best, 1 is worst, 32 are too many. Does h change the number of parameters, or the
# work? They are counted below, for T = 12.
#
# **Derive.** What can one head not do? Take a task with three places: each
# position holds three blocks of random numbers, and shall give out the first block
# of the position before it, the second block of the one after it, and the third
# of the very first position. Let c_1 ... c_T be what stands in one slot of a block.
# If the weights depend on the positions alone, h heads bring a position h sums
# a_i1 c_1 + ... + a_iT c_T. The best linear guess of c from these is P c, where P
# projects on the span of the h rows a_i; for independent c of variance 1 the guess of
# c_s has the squared error 1 - P_ss. No P_ss is below 0, and their sum, the dimension
# of the span, is at most h: the mean over three places is 1 - h/3 or more.

# %%
print(
    "Table 3 (A), BLEU (a score of translations) by h:",
    {1: 24.9, 4: 25.5, 8: 25.8, 16: 25.8, 32: 25.4},
)
x = rng.standard_normal((12, 24)).astype(np.float32)
for h in (1, 2, 4, 8):  # Equate: what the loop counts, and the formulas
    layer, count = MultiHeadAttention(config.replace(n_heads=h), rng), Counter()
    heads_one_by_one(x, x, layer)
    n_parameters, products, exponentials = (
        sum(p.size for p in layer.parameters()),
        *count.values(),
    )
    claim(f"h = {h}: 4 d_model^2 parameters", n_parameters == 4 * 24**2, n_parameters)
    claim(
        f"h = {h}: 4 T d_model^2 + 2 T^2 d_model products",
        products == 4 * 12 * 24**2 + 2 * 12**2 * 24,
        products,
    )
    claim(
        f"h = {h}: h T^2 exponentials, which alone grow",
        exponentials == h * 12**2,
        exponentials,
    )
for h in (1, 2, 3):
    P = [
        np.linalg.pinv(A) @ A
        for A in F.softmax(10 * rng.standard_normal((5000, h, 12))).numpy()
    ]
    errors = 1 - np.diagonal(P, axis1=1, axis2=2)[:, :3].mean(axis=1)
    claim(
        f"h = {h}, 5000 random weights: error 1 - {h}/3 or more",
        errors.min() > 1 - h / 3 - 1e-9,
        errors.min(),
    )
# Use: learn it by gradient descent. 12 numbers at each position are its blocks,
# and 12 say which position it is.
curves, position = {}, np.tile(4 * np.eye(12, dtype=np.float32), (32, 1, 1))
for h in (1, 2, 4, 8):
    layer, losses = MultiHeadAttention(config.replace(n_heads=h), rng), []
    for _ in range(600):
        blocks = rng.standard_normal((32, 12, 3, 4)).astype(np.float32)
        x = np.concatenate([blocks.reshape(32, 12, 12), position], axis=-1)
        wanted = (
            blocks[:, 1:-2, 0],
            blocks[:, 3:, 1],
            np.repeat(blocks[:, :1, 2], 9, axis=1),
        )
        error = layer(x, x)[:, 2:-1, :12] - np.concatenate(wanted, axis=-1)
        loss = (error * error).mean()
        loss.backward()
        for parameter in layer.parameters():
            parameter.data -= 1.0 * parameter.grad  # the rate is 1
        layer.zero_grad()
        losses.append(float(loss))
    # Weights may depend on contents too: that gains little.
    left, bound = np.mean(losses[-20:]), max(0, 1 - h / 3)
    claim(
        f"trained with h = {h}: error about {bound:.2f}",
        abs(left - bound) < 0.1,
        f"{left:.4f}",
    )
    curves[f"h = {h}"] = range(10, 600, 20), np.reshape(losses, (-1, 20)).mean(axis=1)
draw(
    figures.lines,
    "03_heads.png",
    curves,
    x="steps of gradient descent",
    y="mean squared error",
    marks=False,
)

# %% [markdown]
# Nobody tells a head where to look. A German article (der, die or das) depends on its
# noun, so whoever translates "the old" has to look ahead. Measure where the heads of a
# small trained translator (lessons 04 to 07) look from "The":

# %%
translator, seen = toy_model(), []
for noun in ("man", "woman", "child", "girl", "dog", "cat", "house", "teacher"):
    maps, rows, columns = translator.attention(
        f"The old {noun} sees the new book.", "encoder"
    )
    seen.append(maps[:, 0, :3])
shares = np.mean(seen, axis=0)
print(
    'weight from "The" to "The", "old" and the noun, head by head:',
    *shares.round(2),
    sep="\n    ",
)
claim(
    "one head looks from the article to the noun",
    shares[:, 2].max() > 0.6,
    f"head {shares[:, 2].argmax() + 1}",
)
draw(plot.attention_maps, "03_translator.png", maps, rows, columns)
finish(
    "h small heads have the parameters and products of one large head, and look at h "
    "places at once."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 03` writes this part to `my_03_multi_head.py`. Fill in the
# bodies, and run that file.


# %%
def prune(W_q, W_k, W_v, W_o, n_heads, kept):
    """Remove heads, of which many do little (Michel et al. 2019): return the four
    smaller matrices of a layer with only the heads in the list `kept`.

    Hint: heads_one_by_one in "How can one position look at several places at once?"
    has the columns of a head. Which rows of W_o does a head meet?
    """
    ...


def multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    """Self-attention of a Tensor x (T, D) whose heads share one key map and one value
    map (fewer numbers to keep). W_q: (D, H*K). W_k, W_v: (D, K). W_o: (H*K, D).

    Hint: heads_one_by_one in "How can one position look at several places at once?",
    with W_k and W_v uncut.
    """
    ...


def check_prune():
    rng = np.random.default_rng(3)
    large, small = (
        MultiHeadAttention(
            Config(vocabulary_size=11, d_model=12, n_heads=n, d_k=4, d_v=5), rng
        ).astype(np.float64)
        for n in (3, 2)
    )
    matrices = prune(*large.state().values(), 3, [0, 2])
    small.load_state(dict(zip(small.state(), matrices, strict=True)))
    large.output.weight.data[5:10] = 0  # nothing of head 1 is used
    x = rng.standard_normal((2, 5, 12))
    same("prune", small(x, x), large(x, x))


def check_multi_query():
    layer = MultiHeadAttention(
        Config(vocabulary_size=11, d_model=12, n_heads=3), np.random.default_rng(4)
    )
    for shared in (layer.astype(np.float64).key.weight.data, layer.value.weight.data):
        shared[:, 4:8] = shared[:, 8:] = shared[:, :4]
    W_q, W_k, W_v, W_o = layer.state().values()
    arrays = (
        np.random.default_rng(5).standard_normal((5, 12)),
        W_q,
        W_k[:, :4],
        W_v[:, :4],
        W_o,
    )
    same(
        "multi_query",
        multi_query(*map(Tensor, arrays), 3),
        layer(arrays[0][None], arrays[0][None]).numpy()[0],
    )
    grad_check(multi_query, *arrays, 3)


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("functions.linear", "functions.concatenate", "nn.Parameter", "nn.Module",
              "nn.Linear", "config.Config",
              "transformer.MultiHeadAttention")  # fmt: skip
