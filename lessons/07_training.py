# %% [markdown]
"""# Lesson 07. Training

A loss that is never quite satisfied, Adam, and a rate that warms up
(sections 5.3 and 5.4).

You need lessons 01 to 06. You will have derived the loss, taken Adam's steps by hand,
trained whole Transformers in seconds, and seen what label smoothing, the kind of
positions and the warm-up do to them.
"""

# %%
import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.check import claim, grad_check, same, show
from minitf.config import Config
from minitf.course import figures
from minitf.course.lesson import begin, draw, finish
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.nn import Parameter, flatten
from minitf.optim import Adam, adam_update, clip_gradient, gradient_norm, warmup_rate
from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.transformer import Transformer

# Reads the options --figures and --backend, and starts to count the claims.
begin("07_training")
rng = np.random.default_rng(1)

# %% [markdown]
# ## How wrong is a prediction?
# **State.** At each position the model gives V logits z (lesson 05); p = softmax(z)
# is its distribution over the next word. If y is the id of the true word, the loss
# of the position is the *cross-entropy* -ln p_y: 0 where p_y = 1, and without bound as
# p_y goes to 0. exp of its mean is the *perplexity* (section 6.1): V for an even choice
# among V words.
#
# **Derive.** ln p_y = z_y - ln sum_w exp(z_w). The slopes of the first term are q, the
# one-hot row of y; those of the second are exp(z_v) over the sum: p_v. So the gradient
# of -ln p_y with respect to z is p - q.

# %%
z, y = np.array([1.0, 3.0, 2.0, -1000.0]), 2
p, Z = np.exp(z) / np.exp(z).sum(), Parameter(z)
print(f"p = {p.round(3)}, -ln p_2 = {-np.log(p[y]):.3f}")
# Equate:
(-F.log_softmax(Z)[y]).backward()
same("the gradient of -ln p_y is p - q", Z.grad, p - np.eye(4)[y])
same("log_softmax = z - ln sum exp(z)", F.log_softmax(z), z - np.log(np.exp(z).sum()))
grad_check(F.log_softmax, rng.standard_normal((2, 3, 4)))
# Use: log_softmax never makes the softmax, which can be rounded to 0, whose logarithm
# would be no number.
claim(
    "softmax gives the last word 0, log_softmax",
    F.softmax(z).numpy()[3] == 0,
    float(F.log_softmax(z).numpy()[3]),
)

# %% [markdown]
# ## Why should a model not be too sure?
# **State.** -ln p_y falls as long as the true word's logit grows. *Label smoothing*
# (section 5.4) sets a goal that can be reached: q_v is 1 - eps for v = y, else
# eps / (V - 1) (so tensor2tensor; the paper has no formula). The loss is the mean
# of -sum_v q_v ln p_v over the n target words. Padding is no word: it adds nothing and
# is not counted.
#
# **Derive.** q sums to 1 - eps + (V - 1) eps / (V - 1) = 1. A term -q_w ln p_w has
# the gradient q_w (p - one-hot row of w), and over all w that is p - q again. It
# is 0 where p = q; there the loss is the entropy of q (lesson 01), not 0.


# %%
def loss_by_loops(logits, target, eps):
    losses, gradient = [], np.zeros_like(logits)
    for at in [at for at in np.ndindex(target.shape) if target[at] != 0]:
        p = np.exp(logits[at]) / np.exp(logits[at]).sum()
        q = [1 - eps if v == target[at] else eps / (len(p) - 1) for v in range(len(p))]
        losses.append(-sum(q_v * np.log(p_v) for q_v, p_v in zip(q, p, strict=True)))
        gradient[at] = p - q
    return sum(losses) / len(losses), gradient / len(losses)


# (B, T, D), (V, D)
hidden, E = rng.standard_normal((2, 4, 6)), rng.standard_normal((7, 6))
# (B, T, V), (B, T); 0 is padding
logits, target = Parameter(hidden @ E.T), np.array([[4, 2, 6, 3], [5, 3, 0, 0]])
# Equate:
(by_loops, p_less_q), (plain, _) = (
    loss_by_loops(logits.numpy(), target, eps) for eps in (0.1, 0.0)
)
loss = label_smoothed_cross_entropy(logits, target, 0.1, pad_id=0)
loss.backward()
same("label_smoothed_cross_entropy = loops", loss, by_loops)
same("its gradient is (p - q) / n, and 0 at padding", logits.grad, p_less_q)
# logits x E^T and loss chunk by chunk, and -ln p_y.
fused = projected_cross_entropy(hidden, E, target, 0.1, pad_id=0)
same(
    "projected_cross_entropy: smoothed, plain = loops",
    [float(result) for result in fused],
    [by_loops, plain],
)
grad_check(projected_cross_entropy, hidden, E, target)
# Use: the least loss. Let the true word's logit lead the 13 others by more and more.
leads, curves, q = (
    np.linspace(0, 12, 121),
    {},
    np.where(np.arange(14) == 4, 0.9, 0.1 / 13),
)
for eps in (0.0, 0.1):
    losses = [
        float(label_smoothed_cross_entropy(lead * np.eye(14)[4], np.array(4), eps))
        for lead in leads
    ]
    curves[f"eps = {eps}"] = leads, losses
entropy = -(q * np.log(q)).sum()
same(
    "at p = q the loss is the entropy",
    label_smoothed_cross_entropy(np.log(q), np.array(4), 0.1),
    entropy,
)
claim(
    "q sums to 1, and no loss is less",
    abs(q.sum() - 1) < 1e-12 and entropy <= min(losses),
    f"{entropy:.3f}",
)
draw(
    figures.lines,
    "07_smoothing.png",
    curves,
    x="lead of the true word's logit",
    y="loss (14 words)",
    marks=False,
)

# %% [markdown]
# ## How does Adam take a step, and how large is it?
# **State.** Training goes against the gradient. *Adam* (section 5.3: beta_1 = 0.9,
# beta_2 = 0.98, eps = 1e-9) keeps for each number x of the model running means, m of
# its gradient g and v of g^2. Step t, at the *learning rate* rate, is
#
#     m = beta_1 m + (1 - beta_1) g    v = beta_2 v + (1 - beta_2) g^2
#     x = x - rate (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + eps)
#     rate = d_model^-0.5 min(t^-0.5, t warmup_steps^-1.5)
#     (equation 3, warmup_steps = 4000)
#
# **Derive.** m and v begin at 0, and t equal gradients make them (1 - beta_1^t) g and
# (1 - beta_2^t) g^2. The divisions correct that. So the first step is rate g / |g|: as
# large as the rate, however large or small the gradient is. The terms of equation 3 are
# equal at t = warmup_steps. Up to this peak, (d_model warmup_steps)^-0.5, the second
# is less and grows in proportion to t, the *warm-up*; from then on the first falls
# as 1 / sqrt(t).

# %%
x, gradients, by_hand = (
    rng.standard_normal(9),
    rng.standard_normal((3, 9)) * 10.0 ** np.arange(-3, 6),
    np.zeros((3, 9)),
)
# Number by number; the gradients of the first are near 0.001, of the last near 100000.
for i in range(9):
    m, v, now = 0.0, 0.0, x[i]
    for t, g in enumerate(gradients[:, i], 1):
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        now -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9)
        by_hand[t - 1, i] = now
# Equate:
show(adam_update)


def library_steps():
    moved, m, v = (Tensor(array).data for array in (x.copy(), np.zeros(9), np.zeros(9)))
    for t, g in enumerate(gradients, 1):
        adam_update(moved, Tensor(g).data, m, v, t, rate=0.1)  # in place
        yield Tensor(moved).numpy().copy()


same("adam_update, three steps = by hand", list(library_steps()), by_hand)
# The library moves all parameters into one flat array, their gradients into another:
# one update is of the whole model.
weight, bias = Parameter(x[:6].reshape(2, 3)), Parameter(x[6:])
data, gradient = flatten([weight, bias])
bias.backward(x[6:])  # gives it this gradient, as if a loss had
same(
    "flatten: all parameters, and all gradients",
    F.concatenate([data, gradient]),
    [*x, *[0.0] * 6, *x[6:]],
)
adam = Adam([("weight", weight), ("bias", bias)])
for t, g in enumerate(gradients, 1):
    adam.zero_grad()
    weight.backward(g[:6].reshape(2, 3))
    bias.backward(g[6:])
    adam.step(0.1)
    # Views of the flat array.
    same(
        f"Adam, step {t} = by hand",
        [*weight.numpy().flat, *bias.numpy()],
        by_hand[t - 1],
    )
# Use: the corrections, and three warm-ups.
first = abs(by_hand[0] - x).round(4)
claim("the first step is the rate, 0.1, for all nine", (first == 0.1).all(), first)
s, peak = np.arange(1, 20_001), (512 * 4000) ** -0.5
wrong = (1 - 0.9**s) / (1 - 0.98**s) ** 0.5  # m / sqrt(v) after s equal gradients
claim(
    "without corrections it is not",
    wrong[0] < 0.8 < 1.5 < max(wrong),
    f"{wrong[0]:.2f}, later {max(wrong):.2f}",
)
rates = {
    f"warmup_steps = {w}": (s, [warmup_rate(t, 512, w) for t in s.tolist()])
    for w in (1000, 4000, 8000)
}
same(
    "warmup_rate",
    rates["warmup_steps = 4000"][1],
    peak * np.where(s < 4000, s / 4000, (4000 / s) ** 0.5),
)
claim("the base model's peak", f"{peak:.2e}" == "6.99e-04", f"{peak:.2e} at step 4000")
draw(
    figures.lines,
    "07_schedule.png",
    rates,
    x="step",
    y="learning rate, d_model 512",
    marks=False,
)

# %% [markdown]
# ## Is a parameter changed the moment an output is wrong?
# **State.** No. An *update* changes all parameters once, by the mean loss over all
# words of a batch (section 5.1).
#
# **Derive.** That mean is sum_t loss_t / n: its gradient is a sum over words. So
# a batch too large for memory may be cut into *micro-batches*, whose gradients add up
# (lesson 02), if each is divided by n_tokens, the n of the whole update. In a mean of
# their own means, a word counts more where there are fewer.

# %%
model = Transformer(
    Config(14, n_layers=1, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
).astype(np.float64)
# With the end marks 5 + 3 target words.
batch = make_batch([[4, 9, 5, 7], [8, 6]], [[7, 5, 9, 4], [6, 8]], 14)
adam, first = Adam(model.named_parameters()), np.array([[True], [False]])
before = adam.data.copy()


def gradient_of(parts, n_tokens=8):  # parts: which target words count in each walk back
    adam.zero_grad()
    for part in parts:
        model.loss(
            batch.source, batch.target_in, np.where(part, batch.target_out, 0), n_tokens
        )[0].backward()
    return adam.collect().copy()


whole, words = (
    gradient_of([True]),
    [np.arange(10).reshape(2, 5) == i for i in np.flatnonzero(batch.target_out)],
)
means = gradient_of([first, ~first], n_tokens=None) / 2
# Equate:
same("one gradient = the sum over its 8 words", gradient_of(words), whole)
same(
    "two micro-batches, divided by n_tokens = the whole",
    gradient_of([first, ~first]),
    whole,
)
same("after all this no parameter has changed", adam.data, before)
same(
    "gradient_norm = sqrt(sum g^2)",
    gradient_norm(whole),
    np.sqrt(sum(float(g) ** 2 for g in whole)),
)
# The paper does not cut long gradients.
cut, length = means.copy(), float(gradient_norm(means))
same(
    "clip_gradient: length before, after",
    [float(clip_gradient(cut, 0.5)), float(gradient_norm(cut))],
    [length, 0.5],
)
apart = float(gradient_norm(means - whole) / gradient_norm(whole))
# Use:
claim(
    "parts divided by their own counts: another gradient",
    apart > 0.05,
    f"{apart:.0%} off",
)
adam.step(0.01)
claim(
    "one step changes all that have a gradient",
    (adam.data != before)[whole != 0].all(),
    int((whole != 0).sum()),
)

# %% [markdown]
# ## What do these choices do to a training?
# **State.** All pieces together, on a task whose answers are known: write 3 to 8 random
# digits backwards.
#
# **Derive.** Draw a batch, walk back, take a step; in the end take the mean of the
# parameters over the last 100 steps (section 6.1 averages too). A text is right if each
# word is the most probable one after the right words before it.


# %%
def reverse_task(n, shortest=3, longest=8):
    rows = [
        rng.integers(4, 14, k).tolist() for k in rng.integers(shortest, longest + 1, n)
    ]
    return make_batch(rows, [row[::-1] for row in rows], 14)


def train(steps=400, begin_at=1, warmup_steps=40, factor=0.2, n_layers=2, **changes):
    model = Transformer(
        Config(14, n_layers, d_model=32, d_ff=64, n_heads=4, dropout=0.0, **changes),
        seed=1,
    )
    adam, losses, mean = Adam(model.named_parameters()), [], 0.0
    for step in range(1, steps + 1):
        batch = reverse_task(64)
        adam.zero_grad()
        # A training: the faster programs of the same equations (lesson 01).
        with forms.on():
            loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
            loss.backward()
            adam.step(warmup_rate(max(step, begin_at), 32, warmup_steps, factor))
        losses.append(float(loss))
        mean += adam.data * (0.01 if step > steps - 100 else 0.0)
    adam.data[...] = mean
    # Each loss is the mean of ten steps.
    return model, (
        np.arange(10, steps + 1, 10),
        np.reshape(losses, (-1, 10)).mean(axis=1),
    )


# Use: label smoothing (section 5.4: worse perplexity, better accuracy) and positions,
# measured for each length.
lengths, runs = np.arange(2, 15), []
for changes in (
    {},
    {"label_smoothing": 0.0},
    {"positions": "learned", "max_length": 15},
):
    (model, losses), found = train(**changes), []
    for n in lengths:
        batch = reverse_task(200, n, n)
        logits = model(batch.source, batch.target_in).numpy()
        right = (logits.argmax(axis=-1) == batch.target_out).all(axis=1)
        found.append(
            (
                right.mean(),
                float(label_smoothed_cross_entropy(logits, batch.target_out, 0.0)),
            )
        )
    share, nll = np.transpose(found)
    # The last two over 3 to 8 digits.
    runs.append((losses, share, share[1:7].mean(), np.exp(nll[1:7].mean())))
(loss, sinusoids, right, unsure), (loss_0, _, right_0, sure), (_, learned, _, _) = runs
claim(
    "unseen digits are reversed",
    right >= 0.99 and right_0 > 0.97,
    f"{right:.1%}, without smoothing {right_0:.1%}",
)
claim(
    "smoothing: perplexity near 1 / 0.9, not 1",
    sure < 1.05 < 1.08 < unsure,
    f"{unsure:.3f}, without {sure:.3f}",
)
curves = {
    "eps = 0.1": loss,
    "eps = 0": loss_0,
    "entropy of q, eps = 0.1": ((0, 400), (entropy, entropy)),
}
draw(figures.lines, "07_loss.png", curves, x="step", y="loss", marks=False)
claim(
    "2 digits: sinusoids can, learned hardly",
    sinusoids[0] > 0.6 > learned[0],
    f"{sinusoids[0]}, {learned[0]}",
)
claim(
    "10 digits and more: neither can",
    max([*sinusoids[8:], *learned[8:]]) < 0.1,
    learned[8:],
)
curves = {"sinusoids": (lengths, sinusoids), "learned positions": (lengths, learned)}
draw(
    figures.lines,
    "07_lengths.png",
    curves,
    x="digits (in training 3 to 8)",
    y="share of sentences reversed",
)
# Use: the warm-up, or the rate of step 100 at once (then only the words' frequencies
# are learned), or a fifth of it.
(_, warm), (_, cold), (_, low) = (
    train(300, t, 100, f, n_layers=4) for t, f in ((1, 1.0), (100, 1.0), (100, 0.2))
)
claim(
    "a high rate needs it",
    max(min(warm[1]), min(low[1])) < 1.5 < 2.2 < min(cold[1]),
    f"{min(cold[1]):.2f} without",
)
draw(
    figures.lines,
    "07_warmup.png",
    {"warm-up": warm, "at once": cold, "a fifth": low},
    x="step",
    y="loss",
    marks=False,
)
finish(
    "The loss has a goal at p = q, Adam's first step is as long as the rate, "
    "a high rate must be reached slowly."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 07` writes this part to `my_07_training.py`; fill in the
# bodies and run it.


# %%
def momentum_step(data, gradient, velocity, rate):
    """Descend with momentum, in place: velocity becomes 0.9 velocity + gradient, and
    data moves by -rate velocity.

    Hint: Adam's loop in "How does Adam take a step, and how large is it?" makes new
    numbers. In place, x *= 2 changes the array that was given; x = 2 * x does not.
    """
    ...


def check_momentum_step():
    x, velocity, g = (
        np.ones(4),
        np.zeros(4),
        np.random.default_rng(5).standard_normal(4),
    )
    for t, rates in enumerate((1, 1 + 1.9, 1 + 1.9 + 2.71), 1):
        momentum_step(x, g, velocity, 0.1)
        same(f"after step {t}", x, 1 - 0.1 * rates * g)


def pytorch_loss(logits, target, eps):
    """Call label_smoothed_cross_entropy so that q is PyTorch's: 1 - eps on the true
    word, plus eps / V on each.

    Hint: "Why should a model not be too sure?" gives each wrong word eps / (V - 1).
    Which eps makes that eps / V?
    """
    ...


def check_pytorch_loss():
    logits, target = (
        np.random.default_rng(5).standard_normal((3, 5)),
        np.array([4, 1, 2]),
    )
    unsmoothed, by_all = (
        label_smoothed_cross_entropy(logits, target, 0.0),
        -F.log_softmax(logits).numpy().mean(),
    )
    same("the loss", pytorch_loss(logits, target, 0.3), 0.7 * unsmoothed + 0.3 * by_all)


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("functions.log_softmax", "loss.label_smoothed_cross_entropy",
              "loss.projected_cross_entropy", "nn.flatten", "optim.Adam",
              "optim.adam_update", "optim.warmup_rate", "optim.gradient_norm",
              "optim.clip_gradient")  # fmt: skip
