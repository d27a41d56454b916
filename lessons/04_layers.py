# %% [markdown]
"""# Lesson 04. Layers

What stands around attention, and lets many layers learn (section 3.1,
section 3.3, section 5.4).

You need lessons 01 to 03. You will have derived the gradient of layer norm, built the
feed-forward network, dropout and the residual connection, and measured what changes
when the norm stands before the sub-layer.
"""

# %%
import numpy as np

from minitf import functions as F
from minitf.backend import to_numpy
from minitf.check import claim, grad_check, same, show
from minitf.config import Config
from minitf.course import figures
from minitf.course.lesson import begin, draw, finish
from minitf.nn import Dropout, LayerNorm
from minitf.tensor import Tensor, record
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

# %% [markdown]
# ## What does layer norm look at?
# The D = d_model numbers in the vector of a position are its *features*. Their size
# would drift from layer to layer.
#
# **State.** *Layer norm* (section 3.1, after Ba et al., 2016) sets it right: m and s
# are the mean and the deviation of the features of ONE position; *gain* and *bias*,
# a number per feature, are learned; eps avoids a division by 0:
#
#     y_i = gain_i n_i + bias_i    n_i = (x_i - m) / s    m = 1/D sum_j x_j
#     s = sqrt(1/D sum_j (x_j - m)^2 + eps)

# %%
# Derive: position by position, number by number.
# 5 sentences of 6 positions with 8 features.
X, normal = rng.normal(3, 2, (5, 6, 8)), []
for position in X.reshape(-1, 8):
    m = sum(position) / 8
    s = (sum((feature - m) ** 2 for feature in position) / 8 + 1e-6) ** 0.5
    normal.append([(feature - m) / s for feature in position])
print(
    f"mean {m:.2f} and deviation {s:.2f} become {abs(np.mean(normal[-1])):.2f} "
    f"and {np.std(normal[-1]):.2f}"
)
normal, (gain, bias), ones, zeros = (
    np.reshape(normal, X.shape),
    rng.standard_normal((2, 8)),
    np.ones(8),
    np.zeros(8),
)
# Equate:
same("layer_norm = loops", F.layer_norm(X, gain, bias), gain * normal + bias)
same(
    "LayerNorm starts with gain 1 and bias 0",
    LayerNorm(8).astype(np.float64)(X),
    normal,
)
# Use: no position may see another here, or position 0 would see later words, which the
# causal mask forbids.
# All positions but 0.
changed = X + rng.standard_normal(X.shape) * (np.arange(6) > 0)[:, None]
same(
    "other positions do not matter",
    F.layer_norm(changed, ones, zeros).numpy()[:, 0],
    normal[:, 0],
)
# A widespread form divides by s' + eps, s'^2 = sum_j (x_j - m)^2 / (D - 1).
# The D - 1 tells, where D is small.
apart = abs(
    (X - X.mean(axis=-1, keepdims=True))
    / (X.std(axis=-1, keepdims=True, ddof=1) + 1e-6)
    / normal
    - 1
).max()
claim(
    "the widespread form gives other numbers",
    apart > 0.05,
    f"{apart:.1%} apart with 8 features",
)

# %% [markdown]
# ## What is its gradient?
# **Derive.** Let u_i = gy_i gain_i be the gradient of n_i. x_k reaches n_i in three
# ways: as itself, through m, and through s. [i = k] is 1 where i = k and else 0; the
# x_j - m sum to 0, so the 1/D in the second line has no effect:
#
#     dm / dx_k   = 1/D
#     ds / dx_k   = 1/(2s) 2/D sum_j (x_j - m) ([j = k] - 1/D)
#                 = (x_k - m) / (D s) = n_k / D
#     dn_i / dx_k = ([i = k] - 1/D) / s - (x_i - m)/s^2 n_k/D
#                 = ([i = k] - 1/D - n_i n_k / D) / s
#     gx_k        = sum_i u_i dn_i/dx_k
#                 = (u_k - mean(u) - n_k mean(u n)) / s
#
# All positions share gain and bias, so their gradients are sums over the positions, of
# gy_i n_i and of gy_i. From the forward pass this needs n and s, no longer x and m: n
# and s are what is kept.


# %%
def by_hand(x, first=1, second=1):
    # With gain 1 and bias 0, so u is gy; a 0 leaves one of the two means out.
    features = {"axis": -1, "keepdims": True}
    n, s = F.layer_norm(x, ones, zeros).data, (x.data.var(**features) + 1e-6) ** 0.5
    return record(
        n,
        (x,),
        lambda u: (
            (u - first * u.mean(**features) - second * n * (u * n).mean(**features)) / s
        ),
    )


# The tape of lesson 02 finds it without a formula. gy is random, as if it came from
# the layers above.
gy, hand, (x, g, b) = (
    rng.standard_normal(X.shape),
    Tensor(X),
    map(Tensor, (X, gain, bias)),
)
centred = x - x.mean(axis=-1, keepdims=True)
(
    g * centred / ((centred * centred).mean(axis=-1, keepdims=True) + 1e-6) ** 0.5 + b
).backward(gy)
by_hand(hand).backward(gy * gain)
# Equate:
same("gradient of x: by hand = by the tape", hand.grad, x.grad)
same("gradient of gain: by hand = by the tape", (gy * normal).sum(axis=(0, 1)), g.grad)
same("gradient of bias: by hand = by the tape", gy.sum(axis=(0, 1)), b.grad)
grad_check(F.layer_norm, X, gain, bias)
show(F.layer_norm)
# Use: both means are needed. y does not change when all features of x are moved or
# stretched: the means take that out.
for name, terms in (("mean(u)", (0, 1)), ("n mean(u n)", (1, 0))):
    try:
        found = grad_check(
            lambda x, terms=terms: by_hand(x, *terms), X, name="by hand", verbose=False
        )
    except AssertionError as error:
        found = str(error)
    claim(f"without {name} the gradient check fails", isinstance(found, str), found)

# %% [markdown]
# ## Do positions mix in the feed-forward network?
# **State.** Equation 2 (section 3.3), with d_ff inner features:
# FFN(x) = max(0, x W_1 + b_1) W_2 + b_2. max(0, x) is called *ReLU*: its slope
# is 1 where x > 0 and else 0, so the gradient passes where the value passed.

# %%
config = Config(vocabulary_size=10, d_model=8, d_ff=32, n_heads=2, dropout=0.25)
feed_forward, attention = FeedForward(config, rng), MultiHeadAttention(config, rng)
# For later
post, pre, layer = (
    Residual(config),
    Residual(config.replace(norm="pre")),
    EncoderLayer(config, rng),
)
# random: a bias of 0 or a gain of 1 would hide mistakes.
for module in (feed_forward, attention, post, pre, layer):
    module.astype(np.float64).load_state(
        {k: rng.normal(0, 0.5, p.shape) for k, p in module.state().items()}
    )
# Derive: position by position, with the matrices of the library's layer.
W_1, b_1, W_2, b_2 = feed_forward.state().values()
inner = [
    [max(0.0, feature) for feature in position @ W_1 + b_1]
    for position in X.reshape(-1, 8)
]
# Equate:
same("relu = max(0, x)", F.relu(X.reshape(-1, 8) @ W_1 + b_1), inner)
# No element of X is so near to the kink at 0 that the check would step across it.
grad_check(F.relu, X)
# Many later models replace the ReLU with swish, x * sigmoid(x): almost the same far
# from 0, but without a kink. Config.activation chooses between the two.
same("swish = x / (1 + e^-x)", F.swish(X), X / (1 + np.exp(-X)))
grad_check(F.swish, X)
same(
    "FeedForward = equation 2",
    feed_forward(X),
    np.reshape([position @ W_2 + b_2 for position in inner], X.shape),
)
grad_check(feed_forward, X, name="FeedForward")
same(
    "feed_forward, the op of the same name = equation 2",
    F.feed_forward(X, W_1, b_1, W_2, b_2),
    feed_forward(X),
)
# Use: exchanged positions give exchanged outputs. That proves nothing, for in
# self-attention they do so too. Proof is which outputs t move when one position s
# changes: s alone. Attention is the only place where positions meet.
moved = {"feed-forward": np.zeros((6, 6)), "self-attention": np.zeros((6, 6))}
for name, sublayer in zip(
    moved, (feed_forward, lambda x: attention(x, x)), strict=True
):
    same(
        f"{name}: exchanged positions, exchanged outputs",
        sublayer(X[:, ::-1]),
        sublayer(X).numpy()[:, ::-1],
    )
    for s in range(6):
        changed = X + (np.arange(6) == s)[:, None] * normal
        moved[name][:, s] = abs(sublayer(changed).numpy() - sublayer(X).numpy()).max(
            axis=(0, 2)
        )
alone, together = (matrix[~np.eye(6, dtype=bool)] for matrix in moved.values())
claim(
    "feed-forward: no position moves another",
    alone.max() < 1e-12,
    f"largest change {alone.max():.2f}",
)
claim(
    "self-attention: each moves all",
    together.min() > 1e-6,
    f"smallest change {together.min():.2f}",
)
draw(
    figures.matrices,
    "04_mixing.png",
    moved,
    rows="output t",
    columns="changed position s",
    bar="largest change",
)

# %% [markdown]
# ## Does dropout change the expected output?
# **State.** *Dropout* (section 5.4) sets each feature to 0 with probability `rate`
# (the paper's P_drop, 0.1) while the model learns, so that it relies on none. Most
# programs then divide the others by 1 - rate: y = mask * x / (1 - rate).
#
# **Derive.** The mean of y is (1 - rate) x / (1 - rate) = x. The gradient is gy,
# through the same mask and division. The mask comes from *Philox*: its n-th 256 random
# bits are a function of a key and n. The key here is seed, step and place (which
# dropout of the pass). An element, by its index, has 16 of the bits; it is kept if they
# are >= rate 2^16.

# %%
kept, rate, drop = [], 0.25, Dropout(0.25)
for i in range(X.size):
    # 256 = 4 x 64
    words = np.random.Philox(
        key=np.array([1, 5 << 16 | 0], np.uint64), counter=i // 16
    ).random_raw(4)
    kept.append((int(words[i % 16 // 4]) >> 16 * (i % 4)) % 2**16 >= rate * 2**16)
mask = np.reshape(kept, X.shape)
with F.dropout_state(seed=1, step=5):
    first, second = drop(Tensor(X)), drop(Tensor(X))
# Equate:
same(
    "dropout_mask = 16 bits of Philox for each element",
    F.dropout_mask(1, 5, 0, 0, X.shape, rate),
    mask,
)
same("dropout_state and Dropout: mask x / (1 - rate)", first, mask * X / (1 - rate))
same(
    "the next has place 1",
    second,
    to_numpy(F.dropout_mask(1, 5, 1, 0, X.shape, rate)) * X / (1 - rate),
)
# seed 7: the same mask at every call, and in the gradient.
grad_check(F.dropout, X, rate, 7)
claim("eval() switches it off", drop.eval()(X) is X, "the very array")
# Use: a mask that depends on numbers only can be drawn in parts, on several machines,
# and again after a stop.
same(
    "rows 2 to 4 of the mask, drawn alone",
    F.dropout_mask(1, 5, 0, 2, (3, 6, 8), rate),
    mask[2:5],
)
whole, part = (np.random.default_rng(1).random((rows, 6, 8)) >= rate for rows in (5, 3))
claim(
    "a generator that draws in order cannot",
    (whole[2:] != part).any(),
    f"{(whole[2:] != part).mean():.0%} differ",
)
# A fixed seed: the same masks in every run.
many = F.dropout(np.tile(X[0, 0], (20000, 1)), rate, seed=5).numpy()
claim(
    "the mean of 20000 outputs is x",
    (off := abs(many.mean(axis=0) / X[0, 0] - 1).max()) < 0.02,
    f"off by {off:.1%}",
)
bent = float(F.relu(many.sum(axis=1) - X[0, 0].sum()).numpy().mean())
claim(
    "what follows may change: ReLU(sum y - sum x), of mean",
    bent > 0.1,
    f"{bent:.2f}, and not ReLU(0) = 0",
)

# %% [markdown]
# ## Which order of the norm is the paper's, and what does it change?
# **State.** The two *sub-layers* of an encoder layer are self-attention and
# feed-forward. Section 3.1 and section 5.4 put a *residual connection*, x + ..., around
# each, in the order *post-norm*; many later models have *pre-norm*:
#
#     post: LayerNorm(x + Dropout(Sublayer(x)))
#     pre: x + Dropout(Sublayer(LayerNorm(x)))
#
# **Derive.** x + f(x) hands its gradient to x as it is and adds what f makes of it;
# f alone multiplies, layer by layer. A norm divides it by the deviation s of what it
# gets: in post-norm a vector of variance 1 plus one sub-layer. Pre-norm needs a norm
# after the last layer; it gets x plus all sub-layers, so s grows with their number,
# and the last layer's gradient falls (Xiong et al., 2020). Post-norm's does not, so it
# begins with small steps: the warm-up of lesson 07.

# %%
with F.dropout_state(seed=2, step=1):
    early, late, encoded = (
        pre(X, feed_forward),
        post(X, feed_forward),
        layer(X, causal_mask(6)),
    )
show(F.add_norm)
# Equate: with the same masks on both sides.
with F.dropout_state(seed=2, step=1):
    same(
        "Residual, pre: x + Dropout(Sublayer(LayerNorm(x)))",
        early,
        X + F.dropout(feed_forward(pre.norm(X)), rate),
    )
    same(
        "Residual, post: LayerNorm(x + Dropout(Sublayer(x)))",
        late,
        post.norm(X + F.dropout(feed_forward(X), rate)),
    )
    a = layer.attention_residual.norm(
        X + F.dropout(layer.self_attention(X, X, causal_mask(6)), rate)
    )
    same(
        "EncoderLayer",
        encoded,
        layer.feed_forward_residual.norm(a + F.dropout(layer.feed_forward(a), rate)),
    )
summed = X + F.dropout(feed_forward(X), rate, seed=7)
by_op = F.add_norm(X, feed_forward(X), gain, bias, rate=rate, seed=7)
same(
    "add_norm = LayerNorm(x + Dropout(added))", by_op, F.layer_norm(summed, gain, bias)
)
grad_check(lambda x: layer.eval()(x, causal_mask(6)), X, name="EncoderLayer")
claim(
    "pre: a sub-layer that gives 0 returns x exactly",
    (pre(X, lambda x: x * 0.0).numpy() == X).all(),
    0.0,
)
# Use: five ways to stack layers, before any training; a random gradient starts at
# the output. Without norms it vanishes or explodes. With norms alone attention, which
# averages, makes all positions alike; x slows that, most in pre-norm.
plain = {
    "f(x)": lambda x, f: f(x),
    "x + f(x)": lambda x, f: x + f(x),
    "norm(f(x))": lambda x, f: LayerNorm(32)(f(x)),
}


def stack(order, n_layers, seed):
    draws, norm = np.random.default_rng(seed), "pre" if order == "pre-norm" else "post"
    config = Config(10, d_model=32, d_ff=128, n_heads=4, dropout=0.0, norm=norm)
    layers, last_norm = (
        [EncoderLayer(config, draws) for _ in range(n_layers)],
        LayerNorm(32),
    )
    x = y = Tensor(draws.standard_normal((2, 16, 32)).astype(np.float32))
    for layer in layers:
        if order in plain:
            layer.attention_residual = layer.feed_forward_residual = plain[order]
        y = layer(y, None)
    s = y.numpy().std(axis=-1).mean()
    # 0 where all positions of a sentence have the same vector.
    apart = y.numpy().std(axis=1).mean() / y.numpy().std()
    y = last_norm(y) if norm == "pre" else y
    y.backward(draws.standard_normal(y.shape))
    of_W_2 = [
        float((layer.feed_forward.outer.weight.grad**2).sum()) ** 0.5
        for layer in layers
    ]
    return float((x.grad**2).mean()) ** 0.5, of_W_2, s, apart


depths, orders = [1, 2, 4, 8, 16], [*plain, "post-norm", "pre-norm"]
runs = {
    (order, n): [stack(order, n, seed) for seed in range(8)]
    for order in orders
    for n in depths
}
at_x, of_W_2, s, apart = (
    {k: np.median([r[i] for r in eight], axis=0) for k, eight in runs.items()}
    for i in range(4)
)
f_x, x_f, _, post_x, pre_x = (float(at_x[order, 16]) for order in orders)
claim(
    "16 layers of f(x): the gradient is lost",
    f_x < 1e-3,
    f"{f_x:.0e} of it arrives at x",
)
claim("x + f(x): it explodes", x_f > 1e3, f"to {x_f:.0e} times its size")
claim(
    "with x and norm it arrives",
    0.1 < post_x < 3 and 0.1 < pre_x < 3,
    f"post {post_x:.1f}, pre {pre_x:.1f}",
)
collapsed, post_apart, pre_apart = (float(apart[order, 16]) for order in orders[2:])
claim(
    "norm(f(x)): all positions become alike",
    collapsed < 1e-3,
    f"they are {collapsed:.0e} apart",
)
claim(
    "in pre-norm they stay apart",
    pre_apart > 4 * post_apart,
    f"{pre_apart:.2f}; in post-norm {post_apart:.2f}",
)
stays, falls = (of_W_2[order, 16][-1] / of_W_2[order, 1][-1] for order in orders[3:])
claim(
    "post-norm: the last layer's gradient stays",
    0.6 < stays < 1.5,
    f"in 16 layers {stays:.2f} times that in 1",
)
claim("pre-norm: it falls", falls < 0.45, f"to {falls:.2f} times")
times_s = [of_W_2["pre-norm", n][-1] * s["pre-norm", n] for n in depths]
claim(
    "as the last norm divides by s",
    max(times_s) < 1.5 * min(times_s),
    f"times s {np.round(times_s)}",
)
at_x, apart = (
    {order: (depths, [values[order, n] for n in depths]) for order in orders}
    for values in (at_x, apart)
)
draw(
    figures.lines,
    "04_residual.png",
    at_x,
    x="layers",
    y="gradient at x / gradient at y",
    log="xy",
)
draw(
    figures.lines,
    "04_positions.png",
    apart,
    x="layers",
    y="deviation over positions / all",
    log="x",
    limits=(0, 1),
)
of_W_2 = {order: (range(1, 17), of_W_2[order, 16]) for order in orders[3:]}
draw(
    figures.lines,
    "04_norm_order.png",
    of_W_2,
    x="layer",
    y="norm of the gradient of W_2",
    limits=(0, 250),
)
finish(
    "Around each sub-layer: residual, dropout, norm, in the paper after the sum. "
    "Only attention mixes positions."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 04` writes this part to `my_04_layers.py`. Fill in the
# bodies, and run that file.


# %%
def rms_norm(x, gain):
    """Give (y, backward) for arrays: y = gain x / sqrt(mean(x^2, last axis) + 1e-6),
    backward(gy) = (gx, g_gain).

    Hint: follow the four lines of "What is its gradient?" without the mean m:
    which terms go?
    """
    ...


def sees_one_position(norm):
    """For arrays x (B, T, D): return whether norm(x)[b, t] depends on x[b, t] alone.

    No grad_check can tell.

    Hint: "What does layer norm look at?" changes all positions of a sentence but one.
    x has other sentences as well.
    """
    ...


def check_rms_norm():
    x, g = np.random.default_rng(4).standard_normal((2, 3, 8)), np.arange(1.0, 9.0)
    # Its mean is 0, so the deviation is the root of the mean square.
    mirrored = np.concatenate([x, -x], axis=-1)
    same(
        "rms_norm",
        rms_norm(x, g)[0],
        g * F.layer_norm(mirrored, np.ones(16), np.zeros(16)).numpy()[..., :8],
    )
    grad_check(
        lambda x, g: record(
            rms_norm(x.data, g.data)[0], (x, g), rms_norm(x.data, g.data)[1]
        ),
        x,
        g,
        name="rms",
    )


def check_sees_one_position():
    for name, axes in {
        "features": 2,
        "positions": 1,
        "sentences": 0,
        "positions and features": (1, 2),
    }.items():
        answer = sees_one_position(
            lambda x, axes=axes: (
                (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
            )
        )
        claim(
            f"a norm over {name}: sees_one_position gives {axes == 2}",
            answer == (axes == 2),
            answer,
        )


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("functions.layer_norm", "functions.relu", "functions.swish",
              "functions.dropout", "functions.dropout_state", "functions.dropout_mask",
              "functions.add_norm", "functions.feed_forward", "nn.LayerNorm",
              "nn.Dropout", "transformer.Residual", "transformer.FeedForward",
              "transformer.EncoderLayer")  # fmt: skip
