# %% [markdown]
"""# Lesson 02. Gradients

One walk back through a program tells what every number in it does to the
result (section 5).

You need lesson 01, and derivatives. You will have built the walk that trains every
model of this course, and know why its order matters, what the gradient of attention is,
and which check of a gradient to trust.
"""

# %%
import weakref
from collections import Counter
from contextlib import nullcontext

import numpy as np

from minitf import functions as F
from minitf.check import claim, grad_check, same, show
from minitf.course import figures
from minitf.course.lesson import begin, draw, finish
from minitf.tensor import Tensor, no_grad, record
from minitf.transformer import causal_mask

# Reads the options --figures and --backend, and starts to count the claims.
begin("02_gradients")
rng = np.random.default_rng(1)

# %% [markdown]
# ## What is the gradient of a program?
# To train a model is to change its numbers so that one number falls: the *loss* L,
# which says how wrong its answers are. For that one must know of each number x whether
# L rises or falls when x grows a little and the others stay: the derivative dL/dx.
# Those for all entries of an array make an array of its shape, the *gradient* of L.
#
# **State.** The paper trains like this (section 5) and leaves the gradients to its
# library. There are two ways to get them. One is to measure: move an entry x_j up and
# down by a small h and run the program twice; the quotient is a *central difference*.
# The other is the *chain rule*, here for an L that depends on u and v, and both of
# these on x: along each way from x to L, each *path*, the slopes are multiplied, and
# over all paths the products are added.
#
#     dL/dx_j  =  (L(x_j + h) - L(x_j - h)) / 2h, nearly
#     dL/dx  =  dL/du du/dx + dL/dv dv/dx


# %%
# Derive: measure. If the program has many outputs, L is their sum with weights c.
# (Tensor: an array, more below.)
def differences(program, x, c=1.0, h=1e-5):
    gradient = []
    for step in h * np.eye(len(x), dtype=x.dtype):  # h for one entry, 0 for the others
        change = program(Tensor(x + step)).numpy() - program(Tensor(x - step)).numpy()
        gradient.append((c * change).sum() / (2 * h))
    return np.array(gradient)


x, c = rng.standard_normal((2, 4))
measured = differences(F.softmax, x, c)
# Two runs per number; models have millions.
print("the gradient of sum c softmax(x), in 8 runs:", measured.round(4))
# Derive: the chain rule on L = (p + q) p at p = 3, q = 4. Two paths lead from p to L:
# through u = p + q, and direct.
# dL/dp = dL/du du/dp + (p + q); dL/dq = dL/du du/dq
by_hand = [3.0 * 1 + (3.0 + 4.0), 3.0 * 1]
same(
    "chain rule = measured",
    by_hand,
    differences(lambda m: (m[0] + m[1]) * m[0], np.array([3.0, 4.0])),
)

# Equate: a Tensor is an array that remembers how it was computed. backward() leaves the
# inputs' gradients in .grad.
X, m = Tensor(x), Tensor(np.array([3.0, 4.0]))
((m[0] + m[1]) * m[0]).backward()
same("Tensor.backward = the chain rule by hand", m.grad, by_hand)
# Use: one walk back for all inputs. It begins with dL/dy, here c (for a
# single number: 1).
F.softmax(X).backward(c)
same("the gradient of softmax = measured", X.grad, measured, rtol=1e-6)

# %% [markdown]
# ## Why a topological sort?
# **State.** A *node* is one result of a program, linked to the results it was made
# from; all of them are the *graph*. Let each node be the sum of two others, b = a + a,
# c = b + b, d = b + c. Then all slopes are 1, and the gradient of d with respect to a
# is the number of paths that lead from d back to a.


# %%
# Derive: the chain rule as it stands walks every path. Each visit to a node is one more
# path that arrives there.
def by_paths(program, node, gradient):
    gradient[node] += 1
    # How many visits it took.
    return 1 + sum(by_paths(program, term, gradient) for term in program[node])


diamond, paths = {"a": "", "b": "aa", "c": "bb", "d": "bc"}, Counter()
print(
    "along all paths, in", by_paths(diamond, "d", paths), "visits: dd/da =", paths["a"]
)
# Cheaper: a node passes on all that it has got by then. Then the order of the
# visits matters. The first of these is what readers of karpathy/micrograd proposed
# (21, 64, 67): pass on, then do the same for each term in turn.
da = {}
for visits in ("cbaabaa", "dbac", "dcba"):
    gradient = Counter(visits[0])  # the result's own gradient is 1
    for node in visits:
        for term in diamond[node]:
            gradient[term] += gradient[node]
    da[visits] = gradient["a"]
claim(
    "recursion without order: b passes its total on twice",
    da["cbaabaa"] == 8,
    "dc/da = 8, but 2 x 2 paths make 4",
)
claim(
    "each node once, as found: b goes before c's share is in",
    da["dbac"] == 2,
    "dd/da = 2, but there are 6 paths",
)
# A node may pass on when every node that uses it has passed on, and not before: that
# is a *topological order*. To find one, count for each node the uses that are still
# to come. When none is left, it is next.
uses, order = Counter("".join(diamond.values())), ["d"]
for node in order:  # the list grows while it is read
    uses.subtract(diamond[node])
    order += sorted(term for term in set(diamond[node]) if uses[term] == 0)
claim(
    "in topological order 4 visits do",
    order == list("dcba") and da["dcba"] == paths["a"],
    f"{order}: {da['dcba']}",
)

# Equate: the engine sorts the nodes too (another way: depth first, with a stack), and
# then walks once.
start = Tensor(np.array(1.0))
b = start + start
end = b + (b + b)
for _ in range(5000):
    # Twice the paths, the same gradient; 10,000 steps are too deep for
    # Python's recursion.
    end = (end + end) * 0.5
end.backward()
same(
    "Tensor.backward = the sum over all paths, 6 x 2^5000 now",
    start.grad,
    float(paths["a"]),
)
# Use: n sums of a node with itself, one after the other, have 2^n paths,
# but n + 1 nodes.
sums = np.arange(1, 17)
visits = [
    by_paths({k: (k - 1, k - 1) if k else () for k in range(n + 1)}, n, Counter())
    for n in sums
]
claim(
    "16 sums: visits along all paths",
    visits[-1] == 2**17 - 1,
    f"{visits[-1]}, and 17 in order",
)
draw(
    figures.lines,
    "02_paths.png",
    {"along every path": (sums, visits), "in topological order": (sums, sums + 1)},
    x="sums of a node with itself, in a row",
    y="visits to nodes",
    log="y",
)

# %% [markdown]
# ## How does a program remember what it did?
# **State.** While the program runs, write down each step: its result, its inputs, and
# its *backward*, the function that turns the gradient of the result, gy, into those
# of the inputs. This list is a *tape*. A step uses only what stands before it, so read
# from its end the tape is in topological order already.
#
# **Derive.** L = sum x exp(x + bias), with x of shape (2, 3) and a bias of shape
# (3,) that NumPy adds to both rows: it is *broadcast*. An entry of the bias acts on L
# through both rows, two paths, so it gets the sum of two gradients.

# %%
data, bias, tape = rng.standard_normal((2, 3)), rng.standard_normal(3), []
shifted = data + bias
tape.append(("shifted", ("x", "bias"), lambda gy: (gy, gy.sum(axis=0))))
powers = np.exp(shifted)
tape.append(("powers", ("shifted",), lambda gy: (gy * powers,)))
# L = (data * powers).sum()
tape.append(("L", ("x", "powers"), lambda gy: (gy * powers, gy * data)))
gradients = Counter({"L": 1.0})
for result, inputs, backward in reversed(tape):
    for name, gradient in zip(inputs, backward(gradients[result]), strict=True):
        # What is not there yet counts as 0.
        gradients[name] = gradients[name] + gradient
# Equate: each Tensor carries its piece of the tape, its parents and its backward.
# The function record notes them.
X, B = Tensor(data), Tensor(bias)
loss = (X * F.exp(X + B)).sum()
loss.backward()
same("Tensor.backward = the tape: an x that is used twice", X.grad, gradients["x"])
same(
    "Tensor.backward = the tape: a bias for 2 rows gets the sum",
    B.grad,
    gradients["bias"],
)
show(record)
# Use: record makes an operation of any computation whose gradient you can write.
grad_check(
    lambda x: record(x.data**3, (x,), lambda gy: gy * 3 * x.data**2),
    data,
    name="x^3, made by record: its",
)
# A graph is for one walk, which frees it, and a second one is an error. Gradients of
# several graphs add up.
np.testing.assert_raises(RuntimeError, loss.backward)
F.exp(X).sum().backward()
same(
    "a second backward() added nothing; that of another loss adds up",
    X.grad,
    gradients["x"] + np.exp(data),
)
for mode, kept in ((nullcontext(), 20), (no_grad(), 1)):
    # no_grad: record keeps no backward; a result that nothing else holds is freed.
    # nullcontext: no effect.
    with mode:
        # Such a dictionary keeps nothing alive.
        end, results = X, weakref.WeakValueDictionary()
        for i in range(20):
            # The backward of exp needs its result.
            results[i] = (end := F.exp(-end)).data
    claim(
        f"recording keeps 20 of 20 results, no_grad the last: {kept}",
        len(results) == kept,
        len(results),
    )

# %% [markdown]
# ## What is the gradient of attention?
# **State.** Attention is a softmax between two matrix products (lesson 03 derives their
# gradients): y_i = exp(x_i) / s, with s = sum_j exp(x_j). The table of all dy_i/dx_j is
# the *Jacobian* of y.
#
# **Derive.** The slope of exp(x_i) with respect to x_j is delta_ij exp(x_i), where
# delta_ij is 1 if i = j and else 0; the slope of s is exp(x_j). The quotient rule gives
# the Jacobian, and the chain rule gy times it, without making it:
#
#     dy_i/dx_j  =  (delta_ij exp(x_i) s - exp(x_i) exp(x_j)) / s^2
#                =  y_i (delta_ij - y_j)
#     gx_j       =  sum_i gy_i y_i (delta_ij - y_j)
#                =  y_j (gy_j - sum_i gy_i y_i)

# %%
y = F.softmax(x).numpy()
jacobian, gx = np.diag(y) - np.outer(y, y), y * (c - (c * y).sum())
# Each for one output y_i.
measured = [differences(F.softmax, x, c=unit) for unit in np.eye(4)]
same(
    "the Jacobian of softmax: y_i (delta_ij - y_j) = measured",
    jacobian,
    measured,
    rtol=1e-6,
)
same("y (gy - sum gy y) = gy times the Jacobian", gx, c @ jacobian)
draw(
    figures.matrices,
    "02_jacobian.png",
    {f"slopes dy_i/dx_j at y = {y.round(2)}": jacobian},
    values=".2f",
    rows="weight y_i",
    columns="score x_j",
    row_labels=range(1, 5),
    column_labels=list("1234"),
)
# Equate: F.softmax has this backward, right under its forward.
show(F.softmax)
grad_check(F.softmax, rng.standard_normal((2, 3, 4)))
# Use: the engine can compose attention of pieces, with exp (whose slope is its result),
# log (1/x) and where(mask, x, value), which is x where the mask is True and value
# elsewhere. F.attention fuses them into one operation.
numbers, mask = rng.uniform(0.5, 2, (3, 4)), rng.random((3, 4)) < 0.5
grad_check(F.exp, numbers)
grad_check(F.log, numbers)
grad_check(F.where, mask, numbers, 0.0)
matrices, may_attend = rng.standard_normal((3, 5, 4)), causal_mask(5)[0, 0]
grad_check(F.attention, *matrices)
grad_check(
    F.attention_weights, *matrices[:2], may_attend, name="attention_weights with a mask"
)
fused, composed = Tensor(matrices), Tensor(matrices)
F.attention(*fused, may_attend).backward(np.eye(5, 4))
query, key, value = composed
(
    F.softmax(F.where(may_attend, query @ key.transpose() / 4**0.5, -np.inf)) @ value
).backward(np.eye(5, 4))
same("attention's gradients = those of the composition", fused.grad, composed.grad)

# %% [markdown]
# ## How can a gradient check lie?
# **State.** A gradient check compares a backward with central differences of some
# number L. Many take the sum of the outputs for L. grad_check takes L = sum_i c_i y_i
# with random weights c; besides single entries of x it moves all of them
# at once, in a random *direction* v: (L(x + h v) - L(x - h v)) / 2h must be
# sum_j v_j dL/dx_j, nearly.
#
# **Derive.** The outputs of a softmax have the sum 1, whatever x is. So the gradient of
# their sum is 0 (each column of the Jacobian sums to 0), and a check by the sum cannot
# tell the right backward from one that returns zeros.

# %%
softmaxes = {
    "right": F.softmax,
    "zero-backward": lambda x: record(F.softmax(x).data, (x,), lambda gy: gy * 0),
}
for name, softmax in softmaxes.items():  # Equate: the check that many use, on both
    X = Tensor(x)
    softmax(X).sum().backward()
    same(
        f"a check by the sum accepts the {name} softmax",
        X.grad,
        differences(softmax, x),
        atol=1e-8,
    )
with np.testing.assert_raises(AssertionError) as found:
    grad_check(softmaxes["zero-backward"], x, name="zero-backward softmax")
claim(
    "grad_check rejects the zeros",
    "zero everywhere" in str(found.exception),
    found.exception,
)
# Use: how small a step h? A central difference leaves out the third derivative's part,
# which falls with h^2. But it subtracts numbers that are nearly equal, and their
# rounding error, divided by 2h, grows as h shrinks.
steps, kinds = [10.0**-k for k in range(1, 13)], ("float64", "float32")
errors = {
    kind: [abs(differences(F.softmax, x.astype(kind), c, h) - gx).max() for h in steps]
    for kind in kinds
}
nine_digits = errors["float64"][4] < 1e-9 < min(errors["float32"])
claim(
    "in float64 h = 1e-5 gives nine digits; float32 never does",
    nine_digits,
    f"{min(errors['float32']):.0e} at best",
)
draw(
    figures.lines,
    "02_step.png",
    {kind: (np.log10(steps), error) for kind, error in errors.items()},
    x="step h, as a power of ten",
    y="error of the measured gradient",
    log="y",
)
# At a kink, as of max(0, x) at 0, a difference mixes the slopes of both sides: there no
# check is valid.
kink = differences(lambda x: F.where(x.data > 0, x, 0.0), np.zeros(1))
same("max(0, x) at 0 has the slopes 0 and 1, and is measured as 0.5", kink, [0.5])
finish(
    "A node passes on its gradient when all of it has arrived; a check of it weighs "
    "the outputs at random."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 02` writes this part to `my_02_gradients.py`; fill in the
# bodies and run it. An operation is made by record(result, inputs, backward); the array
# in a Tensor x is x.data.


# %%
def log_sum_exp(x):
    """Return ln sum_j exp(x_j) over the last axis, through record, without overflow
    at x = 1000. gy lacks that axis.

    Hint: "What is the gradient of attention?" has the slopes of s = sum_j exp(x_j).
    Those of ln s are one step further.
    """
    ...


def check_log_sum_exp():
    x = np.random.default_rng(0).standard_normal((2, 3))
    total = log_sum_exp(Tensor(x + 1000)).numpy()
    same(
        "exp(x - log_sum_exp(x)) is the softmax",
        np.exp(x + 1000 - total[:, None]),
        F.softmax(x),
    )
    grad_check(log_sum_exp, x)


def fools_the_sum(x):
    """Return x minus its mean, through record, with a wrong backward that still gives
    the sum its right gradient, 0.

    Hint: "How can a gradient check lie?" The check by the sum calls backward with one
    gy only: all ones.
    """
    ...


def check_fools_the_sum():
    x = Tensor(np.random.default_rng(0).standard_normal(5))
    y = fools_the_sum(x).numpy()
    same("each entry and the next differ as in x", np.diff(y), np.diff(x.numpy()))
    same("the sum", y.sum(), 0.0)
    fools_the_sum(x).backward(np.ones(5))
    same("the gradient of the sum", x.grad, np.zeros(5))
    np.testing.assert_raises_regex(
        AssertionError, "gradient of", grad_check, fools_the_sum, x
    )


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = (
    "tensor.Tensor",
    "tensor.record",
    "tensor.no_grad",
    "functions.exp",
    "functions.log",
    "functions.where",
)
