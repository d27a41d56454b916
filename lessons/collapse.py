# %% [markdown]
"""# The collapse at a high first rate

After lesson 07. There, one update at the full rate makes the positions of a post-norm
model much more alike, and moves of the same sizes with random signs hardly do. What
works together in such an update? And does a warm-up help because it waits, or because
it moves? The trainings are those of lesson 07: 6 + 6 layers, the peak rate 0.008, rows
of digits to be reversed. They take about a minute; nothing here is from the paper.

    python lessons/collapse.py

Let the *wish* of a position be the way that its vector at the encoder's output should
move: minus the gradient of the loss there. The mean of the wishes of all positions is
their *common wish*; what is left of each is its *private wish*. Take a weight whose
input is 1 at 100 positions. Its gradient is the sum of what the positions ask for. If
all ask for 1, the common wish adds 100. What each asks for itself, 1 or -1 at random,
mostly cancels: it adds about the root of 100, which is 10. So the common wish decides
the sign, and Adam moves the weight by the full rate.
"""

# %%
import numpy as np

from minitf import forms
from minitf.check import claim
from minitf.course.experiments import shared_gradient, warmup
from minitf.course.figures import training as figures
from minitf.course.lesson import begin, draw, finish

# Reads the options --figures and --backend, and starts to count the claims.
begin("collapse")
probe = warmup.reversal(np.random.default_rng(9), 64)


def distance_apart(model):
    """Return the distance of all positions from their mean, as a share of length."""
    memory, _ = model.encode(probe.source)
    vectors = memory.numpy()[probe.source != 0]
    from_mean = vectors - vectors.mean(axis=0)
    return float(np.sqrt((from_mean**2).sum() / (vectors**2).sum()))


before = np.array([distance_apart(warmup.new_model(seed)) for seed in (1, 2, 3)])
print(f"apart before the first update, seeds 1, 2 and 3: {before.round(2)}")

# %% [markdown]
# ## What is an update without the common wish?
# How much of the wishes is common? In a new model much of each is. With seeds 1 to 3
# the common wish is 0.61 to 0.72 times as long as a wish is on average; were their
# directions random, it would be 0.05. Our reading: they all ask for the frequencies,
# the first thing to learn.
#
# Is it the common wish that makes the positions alike? A control: an update
# without it. On the way back, take the gradients of all positions at the encoder's
# output, and again at the input of each layer; subtract their mean, and go on. Then
# update (`shared_gradient.training`).

# %%
with forms.on():
    controls = [
        shared_gradient.training("at once", 0.008, 1, seed, without=(1,))
        for seed in (1, 2, 3)
    ]
without_common = np.array([notes["apart"][0, -1] for notes in controls])
common_shares = [notes["common"][0] / notes["wishes"][0] for notes in controls]
print(f"common wish / length of a wish: {np.round(common_shares, 2)}", end="; ")
print(f"random: {(probe.source != 0).sum() ** -0.5:.2f}")
claim(
    "the first update without the common wish: no seed falls",
    (without_common > 0.95 * before).all(),
    without_common.round(2),
)

# %% [markdown]
# How far apart the positions are:
#
# | | before | one update | without the common wish |
# |---|---|---|---|
# | seed 1 | 0.55 | 0.26 | 0.95 |
# | seed 2 | 0.29 | 0.05 | 0.59 |
# | seed 3 | 0.38 | 0.07 | 0.38 |
#
# Without the common wish no seed falls. That it is the common wish that makes the
# positions alike fits both controls, but this one does not prove it, for it changes one
# more thing. Adam moves a number by the full rate whatever is left of its gradient, so
# the private wishes now move what the common one moved before. That may be why two of
# the distances rise.

# %% [markdown]
# ## What do small first moves change?
# A warm-up begins with small moves. Within 20 updates two things shrink. One is the
# length of the common wish; we print shares of it, so it does not matter that the
# program sums the wishes and does not average them. The other is the *typical move*:
# how far the median number moves, as a share of the rate.
#
# Why do they shrink? Either with *time*, as more batches come in: then waiting would
# help. Or because of *the moves*: once the model has done what all positions and
# batches ask, they ask for it no longer. To tell, train a third time, at a fixed rate
# of 0.00001. It is so small that in 20 updates the loss falls only from 3.34 to 3.12.

# %%
STARTS = {
    "warm-up": ("warm-up", 0.008),
    "no warm-up": ("at once", 0.008),
    "tiny fixed rate": ("fixed", 0.00001),
}
LENGTHS = {"warm-up": 200, "no warm-up": 60, "tiny fixed rate": 60}
with forms.on():
    watched = {
        name: shared_gradient.training(*start, LENGTHS[name])
        for name, start in STARTS.items()
    }
print("update                    1     10     20     60")
for name, notes in watched.items():
    wish = notes["common"] / notes["common"][0]
    print(f"{name}")
    for what, values in (("common wish", wish), ("typical move", notes["typical"])):
        print(f"    {what:14s}" + "".join(f"{values[i]:7.2f}" for i in (0, 9, 19, 59)))
    print(f"    {'loss':14s}" + "".join(f"{notes['loss'][i]:7.2f}" for i in (0, 9, 19)))
warm_notes = watched["warm-up"]
print("warm-up, update 200:", end=" ")
print(f"common wish {warm_notes['common'][-1] / warm_notes['common'][0]:.2f},", end=" ")
print(f"typical move {warm_notes['typical'][-1]:.2f}")

# %%
print("update 20, seeds 1, 2 and 3:")
in_update_20 = {}
for name, start in STARTS.items():
    of_three = [watched[name]]
    for seed in (2, 3):
        with forms.on():
            of_three.append(shared_gradient.training(*start, 20, seed))
    wishes = [notes["common"][19] / notes["common"][0] for notes in of_three]
    in_update_20[name] = wishes
    distances = [notes["apart"][19, -1] for notes in of_three]
    print(f"    {name:15s} wish ", end="")
    print("".join(f"{length:6.2f}" for length in wishes), end="    apart ")
    print("".join(f"{distance:6.2f}" for distance in distances))
claim(
    "small moves answer the common wish; waiting does not",
    max(in_update_20["warm-up"]) < 0.3 < 0.6 < min(in_update_20["tiny fixed rate"]),
    f"at most {max(in_update_20['warm-up']):.2f} of it is left",
)
first_30 = {}
for name, notes in watched.items():
    first_30[name] = {what: notes[what][:30] for what in ("common", "typical")}
draw(figures.wishes, "collapse_wishes.png", first_30)

# %% [markdown]
# ![Two panels over 30 updates. Left, the length of the common wish, as a share of the first update's: at the tiny rate it stays near 1; with the warm-up it falls to 0.19 by update 20; without a warm-up it falls to 0.03 by update 10. Right, the move of a typical number as a share of the rate: at the tiny rate it falls slowly from 1; with the warm-up to 0.24 by update 20; without, to 0.08](figures/collapse_wishes.png)
#
# *What to see: at the tiny rate both curves stay high. With the warm-up both fall
# within 20 updates, although its rates are still small. Without one they fall fastest,
# but by then the positions are alike.*
#
# After 20 updates, with the seeds 1, 2 and 3 (the move: with seed 1):
#
# | | share of the common wish | typical move | distance apart |
# |---|---|---|---|
# | warm-up | 0.19, 0.22, 0.10 | 0.24 | 0.57, 0.16, 0.30 |
# | no warm-up | 0.03, 0.03, 0.01 | 0.08 | 0.05, 0.00, 0.00 |
# | tiny rate | 0.93, 0.92, 0.66 | 0.88 | 0.58, 0.28, 0.39 |
#
# So **small moves suffice to answer the common wish, and waiting does not**. By update
# 10 the loss is 2.51 with the warm-up and 2.47 without, near the 2.46 of frequencies
# only. That fits our reading of what the positions ask together.
#
# The typical moves shrink for two reasons. The gradients of the batches disagree and
# cancel in $m$; and they are shorter than those of the first updates, which $v$ still
# holds. Disagreement alone would leave 0.15, as random signs do in the long run (lesson
# 07). In update 60 a typical move is 0.11 of the rate with the warm-up and 0.00
# without, so the second reason counts, too. At the rate's peak, in update 200, a move
# is 0.09 of the rate, and the common wish of a batch is long again, 0.56.
#
# Do small moves do less harm? The positions are more apart than without a warm-up, with
# each seed. But seed 2 has lost nearly half of its 0.29, and seed 3 a part of its 0.38.

# %% [markdown]
# ## Why only in post-norm?
# Train a pre-norm model (lesson 04) in the same way, at once at the full rate.

# %%
with forms.on():
    training = warmup.training("at once", 0.008, 1, "pre", 60, np.float64)
    pre_norm = [distance_apart(model) for model, _ in training]
claim(
    "in pre-norm they come apart again",
    pre_norm[-1] > 0.3,
    f"{min(pre_norm):.2f} at least, {pre_norm[-1]:.2f} after 60 updates",
)

# %% [markdown]
# Its positions come near each other, too, to 0.14, but part again, to 0.94. For the
# reason we have only a guess. Post-norm divides the sum $x + \text{Sublayer}(x)$ by its
# size (lesson 07). In pre-norm the road of $x$ has one division only, at its end.
#
# Two papers explain it in other ways. Xiong et al. 2020 prove that a new post-norm
# model has large gradients near its output, and train pre-norm without a warm-up. Liu
# et al. 2020 find that post-norm amplifies every small change of the parameters (lesson
# 04 measures that). All three may be at work.
#
# Noci et al. 2022 prove for the queries and keys of a new model that the gradient
# vanishes if all positions are alike.

# %%
finish("What all positions ask for moves them together, and twelve norms keep it so.")
