# %% [markdown]
"""# Lesson 02. Gradients

One walk back through a program tells what each of its numbers does to the result
(section 5 of the paper).

You need lesson 01, and the derivatives of sums, products and powers. You will have
written, in some thirty lines, the walk that trains every model of this course; and you
will know why its order matters, what the gradient of attention is, and which check of
a gradient to trust.
"""

# %%
import gc
import operator

import numpy as np

from minitf import functions as F
from minitf.backend import to_numpy
from minitf.check import claim, grad_check, same, show
from minitf.course import figures
from minitf.course.architecture import figure_1
from minitf.course.lesson import begin, draw, finish
from minitf.tensor import Tensor, no_grad, record
from minitf.transformer import causal_mask

# Reads the options --figures and --backend, and starts to count the claims.
begin("02_gradients")
rng = np.random.default_rng(1)

# %% [markdown]
# ## Which way should a number move?
# A program that translates holds millions of numbers. At first they are random, and so
# are its translations. To *train* it is to change these numbers, a little at a time, so
# that one number falls: the *loss* L, which says how wrong the translations are.
# (Lesson 07 defines it. Here, L is any number that a program computes.)
#
# To move a number x the right way, one must know whether L rises or falls when x grows
# a little and all other numbers stay as they are. That is the derivative dL/dx, the
# *slope* of L. If it is positive, L rises with x, so x should become a little smaller;
# if it is negative, a little larger. The slopes for all numbers of an array form an
# array of the same shape: the *gradient* of L.
#
# Take a pencil. Here is a small program, with one number that is used twice:
#
# $$p = 3 \qquad q = 4 \qquad u = p + q = 7 \qquad L = u \cdot p = 21$$
#
# **What does q do to L?** Let q grow by 0.001. Then u grows by 0.001 too, and
# L = u p by p = 3 times as much, by 0.003. The slope is dL/dq = 3.
#
# **What does p do to L?** Let p grow by 0.001. Then u is 7.001, and L is
# 7.001 times 3.001, which is 21.010001: it grew by 0.01, ten times as much as p. The
# slope is dL/dp = 10. It has two parts. As a factor of L, p acts with the slope u = 7.
# And p also acts through u, with the slope 3, as q does. Together 7 + 3 = 10.


# %%
def program(p, q):
    u = p + q
    return u * p


more_by_q = program(3.0, 4.0 + 0.001) - program(3.0, 4.0)
more_by_p = program(3.0 + 0.001, 4.0) - program(3.0, 4.0)
print("L:", program(3.0, 4.0))
print("q grows by 0.001, and L by", round(more_by_q, 4))
print("p grows by 0.001, and u is then", round(3.001 + 4.0, 4))
print("L is then", round(21.0 + more_by_p, 6))
print("so it has grown by", round(more_by_p, 4))
draw(
    figures.graph,
    "02_graph.png",
    {
        "p": (0, 1, "p = 3\ngradient 7 + 3 = 10"),
        "q": (0, 0, "q = 4\ngradient 3"),
        "u": (1.4, 0, "u = p + q = 7\ngradient 3"),
        "L": (2.8, 0.8, "L = u p = 21\ngradient 1"),
    },
    [
        ("p", "L", "slope u = 7"),
        ("p", "u", "slope 1"),
        ("q", "u", "slope 1"),
        ("u", "L", "slope p = 3"),
    ],
    marked=["p"],
)

# %% [markdown]
# ![A graph of four boxes. Arrows lead from p and q to u, and from u and p to L. Two ways lead from p to L: the direct one has the slope 7, the one through u has the slope 1 times 3. The gradient of p is their sum, 10.](figures/02_graph.png)
#
# *What to see: two ways lead from p to L. Multiply the slopes along each way, then add
# the two products: 7 + 1 times 3 = 10.*
#
# **State.** A way along the arrows from x to L is called a *path*. Along a path the
# slopes are multiplied; over all paths the products are added. This is the *chain
# rule*. If x acts on L through u and through v, it reads
#
# $$\frac{dL}{dx} = \frac{dL}{du} \cdot \frac{du}{dx} +
# \frac{dL}{dv} \cdot \frac{dv}{dx}$$
#
# **Derive.** Slopes can also be measured, with no rule at all. Move x up and down by
# a small h, run the program twice, and divide the change of L by the distance:
#
# $$\frac{dL}{dx} \approx \frac{L(x + h) - L(x - h)}{2h}$$
#
# This quotient is called a *central difference*. It needs two runs for each number.


# %%
def slope(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / (2 * h)


slope_of_p = slope(lambda p: program(p, 4.0), 3.0)
slope_of_q = slope(lambda q: program(3.0, q), 4.0)
same("two paths lead from p to L: 7 + 3, as measured", slope_of_p, 7.0 + 3.0)
same("one path leads from q to L: 3, as measured", slope_of_q, 3.0)

# %% [markdown]
# **Equate.** The library has the same walk. A `Tensor` is an array that remembers how
# it was computed. The method `backward()` starts at the result, whose gradient is 1
# (the slope of L for L itself), and leaves the gradient of each input in its `.grad`.
# Our program runs on Tensors as it is, because Tensors can be added and multiplied:

# %%
tensor_p = Tensor(3.0)
tensor_q = Tensor(4.0)
program(tensor_p, tensor_q).backward()
same("Tensor.backward gives p the gradient 10", tensor_p.grad, 10.0)
same("Tensor.backward gives q the gradient 3", tensor_q.grad, 3.0)

# %% [markdown]
# **Use.** The walk back finds all slopes at once. Measuring takes two runs for each
# number, and models have millions. Here is the softmax of lesson 01, for four numbers.
# It has four results, and L must be one number: take their sum, each multiplied by a
# number of its own, $L = \sum_i c_i y_i$. Then $c_i$ is the slope of L for $y_i$, so
# the walk begins with c.


# %%
def differences(f, x, c=1.0, h=1e-5):
    """Measure the gradient of the sum of c * f(x), for one number of x at a time."""
    gradient = np.zeros(len(x))
    for j in range(len(x)):
        step = np.zeros_like(x)
        step[j] = h
        above = f(Tensor(x + step)).numpy()
        below = f(Tensor(x - step)).numpy()
        gradient[j] = (c * (above - below)).sum() / (2 * h)
    return gradient


x = rng.standard_normal(4)
c = rng.standard_normal(4)
tensor_x = Tensor(x)
F.softmax(tensor_x).backward(c)
in_eight_runs = differences(F.softmax, x, c)
same("one walk back = eight runs", tensor_x.grad, in_eight_runs, rtol=1e-6)

# %% [markdown]
# You are here, in the model that this course builds: lesson 01 made its attention, and
# this lesson makes the way back.

# %%
draw(figure_1, "02_here.png", here=["loss", "backward"])

# %% [markdown]
# ![Figure 1 of the paper, the Transformer, with the loss above the output probabilities and an arrow that leads from the loss back down through all layers; these two are marked: you are here.](figures/02_here.png)
#
# *What to see: the loss is the last number to be computed, and the first to have a
# gradient. From there the walk back passes through all layers, down to the inputs.*

# %% [markdown]
# ## How does a program remember what it did?
# **State.** Give names to the pieces of the picture. A box is a *node*: a number, or an
# array, of the program. Nodes and arrows together are the *graph*. A list of the nodes
# in the order in which they were computed is a *tape*. Each computed node knows
#
# - its *inputs*, the nodes from which its arrows come (also called its parents), and
# - its *backward*: a function that takes gy, *the gradient that has arrived* at the
#   node (in other texts: the upstream gradient, or cotangent), and returns what each
#   input gets of it: gy times the slope.
#
# A sum u = a + b has the slope 1 for both: they get gy and gy. A product u = a b has
# the slope b for a, and the slope a for b: they get gy b and gy a.
#
# **Derive.** Here is an engine for single numbers. Each number, as soon as it is
# computed, is appended to the tape. The walk back reads the tape from its end:

# %%
tape = []


class Number:
    """A number that remembers how it was computed."""

    def __init__(self, value, inputs=(), backward=None):
        self.value = value
        self.inputs = inputs
        self.backward = backward
        self.gradient = 0.0
        tape.append(self)

    def __add__(self, other):
        def backward(gy):
            return gy, gy

        return Number(self.value + other.value, (self, other), backward)

    def __mul__(self, other):
        def backward(gy):
            return gy * other.value, gy * self.value

        return Number(self.value * other.value, (self, other), backward)


def walk_back():
    tape[-1].gradient = 1.0
    for node in reversed(tape):
        if node.inputs:
            gradients = node.backward(node.gradient)
            for parent, gradient in zip(node.inputs, gradients, strict=True):
                parent.gradient += gradient


# %% [markdown]
# The last line is the sum over the paths: a node that is used twice is a parent twice,
# and what arrives is *added*. (p and q have no inputs, so nothing is handed on by
# them.) Our program runs on Numbers too:

# %%
p = Number(3.0)
q = Number(4.0)
program(p, q)
walk_back()
for node in tape:
    print(f"    value {node.value:4.0f}    gradient {node.gradient:4.0f}")
same("the tape gives p the gradient 10", p.gradient, 10.0)
same("the tape gives q the gradient 3", q.gradient, 3.0)


# %%
# Equate: a longer program, with many uses of each number, on Numbers and on Tensors.
def longer_program(p, q):
    u = program(p, q)
    v = program(q, u)
    w = u * v + p
    return w * w + v * q


tape.clear()
own_p = Number(0.3)
own_q = Number(-0.4)
longer_program(own_p, own_q)
walk_back()
long_p = Tensor(np.array(0.3))
long_q = Tensor(np.array(-0.4))
longer_program(long_p, long_q).backward()
same("a longer program: the gradient of p on the tape", long_p.grad, own_p.gradient)
same("a longer program: the gradient of q on the tape", long_q.grad, own_q.gradient)

# %% [markdown]
# ## Why a topological sort?
# A tape has one fault: it holds everything that was ever computed, even results that
# nobody needs any more. So the library keeps no tape: a Tensor knows its own inputs,
# and nothing else. The walk back has to find an order by itself, and not every order
# will do.
#
# **State.** Here is the smallest graph on which a naive walk goes wrong. It needs a
# node b that is used twice, a node c between b and the end, and a node a that waits for
# b's gradient:
#
# $$b = 2a \qquad c = 3b \qquad d = b + c$$
#
# On paper: the path from a through b to d has the slope 2; the path through b and c has
# the slope 2 times 3 = 6. So the gradient of a is 2 + 6 = 8.

# %%
draw(
    figures.graph,
    "02_order.png",
    {
        "a": (0, 0, "a\ngradient 2 x 4 = 8"),
        "b": (1.6, 0, "b = 2a\ngradient 1 + 3 = 4"),
        "c": (2.6, 1, "c = 3b\ngradient 1"),
        "d": (3.6, 0, "d = b + c\ngradient 1"),
    },
    [
        ("a", "b", "slope 2"),
        ("b", "c", "slope 3"),
        ("b", "d", "slope 1"),
        ("c", "d", "slope 1"),
    ],
    marked=["b"],
)

# %% [markdown]
# ![A graph of four boxes: a leads to b, b leads to c and directly to d, and c leads to d. The box b has the gradient 1 + 3 = 4, because it is used by d and by c; a has the gradient 8.](figures/02_order.png)
#
# *What to see: b is used twice, by d and by c. It must not pass its gradient on before
# both have arrived.*
#
# **Derive.** Write down each node's inputs with their slopes, and walk in several
# orders. A node that is visited passes on all that has arrived by then. An order is
# a word whose letters are the nodes: "dbca" visits d first and a last.

# %%
slopes = {
    "d": {"b": 1.0, "c": 1.0},
    "c": {"b": 3.0},
    "b": {"a": 2.0},
    "a": {},
}


def walk_in_order(order):
    gradient = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0}
    for node in order:
        for parent, slope_of_parent in slopes[node].items():
            gradient[parent] += gradient[node] * slope_of_parent
    return gradient["a"]


# %% [markdown]
# Three walks:
#
# - **As found**: d, then its inputs b and c. When b passes on, it has the 1 from d; the
#   3 from c has not arrived.
# - **Again whenever something arrives**: d, b, c, and b once more. The second time, b
#   passes on its total, 1 + 3, although it has passed on the 1 before. (A recursive
#   walk does this: pass on, then do the same for each input.)
# - **Users first**: d, c, b. When b passes on, everything has arrived.

# %%
too_early = walk_in_order("dbca")
twice = walk_in_order("dbcba")
users_first = walk_in_order("dcba")
claim("as found, b passes on too early: a gets 2, not 8", too_early == 2, too_early)
claim("b passes its total on again: a gets 10, not 8", twice == 10, twice)
claim("users first: a gets 8", users_first == 8, users_first)

# %% [markdown]
# So the rule is: **a node passes on when all nodes that use it have passed on, and not
# before.** An order like this is called a *topological order*. To find one, turn the
# question round: list each node *after* its inputs, then read the list from its end.
# This function lists the inputs first, by calling itself for each of them:


# %%
def list_inputs_first(node, order):
    if node not in order:
        for parent in slopes[node]:
            list_inputs_first(parent, order)
        order.append(node)
    return order


inputs_first = list_inputs_first("d", [])
backwards = inputs_first[::-1]
claim("read from the end, users come first", backwards == list("dcba"), backwards)

# %% [markdown]
# **Equate.** Now the heart of the library, the method that trains every model in this
# course. `self.data` is the array in the Tensor, and `self._node` is its node in the
# graph: its inputs and its backward. (`xp` is NumPy, or CuPy on a GPU: read np.) The
# first half refuses what cannot be walked, and makes the first gradient. The walk is in
# the last nine lines:
#
# - `if self._node is None`: a Tensor that was made from data has no inputs, so it keeps
#   the gradient, and the walk is over.
# - `nodes = _inputs_first(self._node)` lists the nodes, each after its inputs. It is
#   our function, with a list of its own in place of the calls to itself, because Python
#   allows about a thousand calls inside each other, and a model has more nodes.
# - `node.gradient = None`: every node begins with nothing.
# - `self._node._receive(gradient)`: the result receives its own gradient, the 1.
# - `nodes.pop().walk_back()`: take the last node off the list, call its `backward`, and
#   let each input receive what it gets. Then forget the node, to free its memory.

# %%
show(Tensor.backward)
a = Tensor(np.array(1.0))
b = a * 2.0
d = b + b * 3.0
d.backward()
same("Tensor.backward walks users first: a gets 8", a.grad, users_first)

# %% [markdown]
# **Where are the uses of a parameter added up?** A *parameter* is a Tensor that
# training changes. If it is used in several places, each use sends it a gradient, and
# each time the method below is called. The line that adds them up is the last one,
# `self.grad += gradient`:

# %%
show(Tensor._receive)
w = Tensor(np.array(5.0))
# On paper, the slope of w + w w + w is 1 + 2w + 1, and w is 5.
(w + w * w + w).backward()
same("all uses of one parameter are added up", w.grad, 1.0 + 2 * 5.0 + 1.0)

# %% [markdown]
# This has two consequences. First, the gradients of *another graph* are added too. So
# a training forgets all gradients before each update. (The same graph cannot be walked
# twice, because the walk has freed it. That is an error; `assert_raises` below runs
# a block that must fail, and keeps the error.) Second, a sum hands *the same array* to
# both of its inputs. If one of them added its next gradient into that array, the other
# would receive it too. That is why the first gradient is copied.

# %%
left = Tensor(np.array([1.0, 2.0]))
right = Tensor(np.array([3.0, 4.0]))
total = left + right
total.backward(np.array([1.0, 1.0]))
(left * 7.0).backward(np.array([1.0, 1.0]))
same("gradients of a second graph are added: 1 + 7", left.grad, [8.0, 8.0])
same("and the other input of the sum keeps its own, 1", right.grad, [1.0, 1.0])
with np.testing.assert_raises(RuntimeError) as walked_twice:
    total.backward(np.array([1.0, 1.0]))
claim(
    "one graph is walked once; a second time is an error",
    "freed" in str(walked_twice.exception),
    walked_twice.exception,
)

# %% [markdown]
# Nodes in the middle of a graph need the same care. Here u and v receive the same array
# from their sum, and u receives two more gradients:

# %%
source_u = Tensor(np.array([1.0, 2.0]))
source_v = Tensor(np.array([3.0, 4.0]))
u = source_u * 1.0
v = source_v * 1.0
(u * 3.0 + u * 5.0 + (u + v)).backward(np.array([1.0, 1.0]))
same("a node with three uses gets 1 + 5 + 3", source_u.grad, [9.0, 9.0])
same("the node beside it gets 1", source_v.grad, [1.0, 1.0])

# %% [markdown]
# **Use.** Why care about order, if one could follow every path? Because there are too
# many paths. Add a number to itself, the result to itself, and so on: after n sums
# there are 2^n paths, but n + 1 nodes. And a program can be long. A chain of 5,000 sums
# is too deep for a function that calls itself; the library walks it without trouble.


# %%
def visits_along_paths(n_sums):
    if n_sums == 0:
        return 1
    return 1 + visits_along_paths(n_sums - 1) + visits_along_paths(n_sums - 1)


sums = np.arange(1, 15)
visits = [visits_along_paths(n) for n in sums]
claim(
    "14 sums, along every path: 2^15 - 1 visits", visits[-1] == 32767, f"{visits[-1]:,}"
)
long = Tensor(np.array(1.0))


def double_and_halve(end, times):
    for _ in range(times):
        end = (end + end) * 0.5
    return end


double_and_halve(long, 5000).backward()
same("5,000 sums, with 2^5000 paths, in one walk", long.grad, 1.0)
draw(
    figures.lines,
    "02_paths.png",
    {"along every path": (sums, visits), "users first": (sums, sums + 1)},
    x="sums of a number with itself, in a row",
    y="visits to nodes",
    log="y",
)

# %% [markdown]
# ![Visits to nodes for 1 to 14 sums in a row, on a logarithmic axis: along every path they grow in a straight line to 32,767; with users first they are 15.](figures/02_paths.png)
#
# *What to see: along every path the visits double with each sum, up to 32,767; users
# first there is one visit for each node, 15.*

# %% [markdown]
# ## What if no gradient is wanted?
# A model that only translates needs no walk back. Yet its graph would keep every node,
# and each node the arrays that its backward needs: memory for nothing. Inside the block
# `with no_grad():` nothing is recorded. To see it, compute twenty exponentials in a
# row, keep the last one, and count the nodes in Python's memory (`gc` can list
# everything that is there):


# %%
def count_nodes():
    return sum(type(thing).__name__ == "_Node" for thing in gc.get_objects())


def twenty_exponentials(end):
    for _ in range(20):
        end = F.exp(-end)
    return end


gc.collect()
nodes_before = count_nodes()
recorded = twenty_exponentials(tensor_x)
nodes_recorded = count_nodes() - nodes_before
with no_grad():
    unrecorded = twenty_exponentials(tensor_x)
nodes_unrecorded = count_nodes() - nodes_before - nodes_recorded
claim("recorded: 20 exps and 20 minus signs", nodes_recorded == 40, nodes_recorded)
claim("inside no_grad: no node at all", nodes_unrecorded == 0, nodes_unrecorded)
same("no_grad changes no result", unrecorded, recorded)

# %%
with np.testing.assert_raises(RuntimeError) as unrecorded_walk:
    unrecorded.backward(c)
claim(
    "what was computed inside no_grad cannot be walked back",
    "no_grad" in str(unrecorded_walk.exception),
    "an error says so",
)
again = twenty_exponentials(tensor_x)
nodes_again = count_nodes() - nodes_before - nodes_recorded
claim("after the block everything is recorded again", nodes_again == 40, nodes_again)

# %% [markdown]
# ## What does each operation hand back?
# **State.** A Tensor holds an array, and most operations act on each of its numbers. So
# their rules are those of school, number by number. `where(mask, a, b)` takes a where
# the mask is True, and b elsewhere. From the gradient gy of its result y, an operation
# hands back to its inputs a and b:
#
# | y | to a | to b | why |
# |---|---|---|---|
# | a + b | gy | gy | both slopes are 1 |
# | a - b | gy | -gy | y falls when b grows |
# | -a | -gy | | y falls when a grows |
# | a b | gy b | gy a | the slope of a product is the other factor |
# | a / b | gy / b | -gy a / b^2 | the slope of 1 / b is -1 / b^2 |
# | a^n | gy n a^(n-1) | | n is a fixed number |
# | exp(a) | gy y | | exp is its own slope |
# | ln a | gy / a | | |
# | where(mask, a, b) | gy if True, else 0 | gy if False, else 0 | y is one of them |
# | sum of a | gy, for each number | | all slopes are 1 |
# | mean of n numbers | gy / n, for each | | all slopes are 1/n |
# | a with its axes exchanged | gy, its axes put back | | each number has moved |
# | a in another shape | gy in a's shape | | as above |
# | some rows of a | gy in these rows, else 0 | | a row taken twice gets the sum |
#
# One rule is new, and holds for all operations. NumPy lets a row of three numbers be
# added to each row of a matrix: the row is *broadcast*. Each of its numbers is then
# used once in each row. Many uses, many paths: **its gradient is the sum over the
# copies.**
#
# **Derive.** First plus, minus, times and divided by, from the table. (`operator.add`
# is Python's name for the function behind the sign +; `sub`, `mul` and `truediv` are
# those behind -, * and /.)

# %%
numbers = rng.uniform(0.5, 2, (2, 3))
others = rng.uniform(0.5, 2, (2, 3))
gy = rng.standard_normal((2, 3))
rules = {
    operator.add: (gy, gy),
    operator.sub: (gy, -gy),
    operator.mul: (gy * others, gy * numbers),
    operator.truediv: (gy / others, -gy * numbers / others**2),
}
for rule, expected in rules.items():
    tensor_a = Tensor(numbers)
    tensor_b = Tensor(others)
    rule(tensor_a, tensor_b).backward(gy)
    same(f"{rule.__name__} hands a what the table says", tensor_a.grad, expected[0])
    same(f"{rule.__name__} hands b what the table says", tensor_b.grad, expected[1])

# %% [markdown]
# The other rules are compared with measurements. The library's `grad_check` measures
# the gradient of any function by central differences, compares it with that of
# backward, and prints the largest error. (How far to trust it is the last question of
# this lesson.)


# %%
def with_fixed_numbers(x):
    return 3.0 - x + 2.0 * x + 5.0 / x - x / 4.0 + x**3 + x**-1


def exponentials_and_logarithms(x):
    return F.exp(x) * F.log(x)


def chosen(x, y):
    return F.where(numbers > 1.2, x, y)


grad_check(with_fixed_numbers, numbers)
grad_check(exponentials_and_logarithms, numbers)
grad_check(chosen, numbers, others)


# %% [markdown]
# Rows: one that is taken twice gets both gradients; one that is not taken gets nothing.
# A mean over three rows hands each of them a third.


# %%
def some_rows(x):
    # Row 0 once, row 2 twice, row 1 not at all.
    return x[[0, 2, 2]]


def sums_and_means(x):
    return x.sum(axis=0) * x.mean(axis=0) + x.mean()


rows = Tensor(rng.standard_normal((3, 2)))
some_rows(rows).backward(np.ones((3, 2)))
same("a row taken twice gets 2, one not taken 0", rows.grad[:, 0], [1.0, 0.0, 2.0])
averaged = Tensor(rng.standard_normal((3, 2)))
averaged.mean(axis=0).backward([1.0, 6.0])
same("a mean of 3 rows hands each a third", averaged.grad[0], [1 / 3, 2.0])
grad_check(sums_and_means, rng.standard_normal((3, 2)))

# %% [markdown]
# Axes: `transpose(1, 2, 0)` puts axis 1 of an array first, then axis 2, then axis 0;
# its shape changes from (2, 3, 4) to (3, 4, 2). The gradient must come back by the
# opposite turn:


# %%
def turned(x):
    return x.transpose(1, 2, 0).reshape(3, 8)


grad_check(turned, rng.standard_normal((2, 3, 4)))

# %% [markdown]
# Broadcasting, on paper: let gy have the two rows (1, 2) and (3, 4). The row that was
# added to both gets their sum, (4, 6).

# %%
matrix = Tensor([[0.0, 0.0], [0.0, 0.0]])
row = Tensor([5.0, 6.0])
(matrix + row).backward([[1.0, 2.0], [3.0, 4.0]])
same("a row added to two rows gets the sum of both", row.grad, [4.0, 6.0])
# A row of shape (1, 3) times a column of shape (2, 1) is a matrix (2, 3).
grad_check(operator.mul, numbers[:1], others[:, :1], name="row times column")

# %% [markdown]
# How does an operation get into the graph? Through one function, `record(result,
# inputs, backward)`: it makes the node, and returns the result as a Tensor. Here is
# plus, complete. Find the rule gy, gy at its end. (`_operand` takes the array out of a
# Tensor.)

# %%
show(Tensor.__add__)


# %% [markdown]
# **Use.** So an operation of your own takes three steps: compute the result from
# `x.data`, the array in the Tensor; write its backward; record both. Here is the cube,
# with the slope 3 x^2:


# %%
def cube(x):
    def backward(gy):
        return gy * 3 * x.data**2

    return record(x.data**3, (x,), backward)


grad_check(cube, numbers)

# %% [markdown]
# ## What is the gradient of a matrix product?
# **State.** Attention is a softmax between two matrix products, so begin with these.
# For the product C = A B, let gC be the gradient that arrives, with one number for each
# number of C. What do A and B get?
#
# **Derive.** Write the product of two matrices of shape (2, 2) out:
#
# $$c_{11} = a_{11} b_{11} + a_{12} b_{21}$$
#
# $$c_{12} = a_{11} b_{12} + a_{12} b_{22}$$
#
# $$c_{21} = a_{21} b_{11} + a_{22} b_{21}$$
#
# $$c_{22} = a_{21} b_{12} + a_{22} b_{22}$$
#
# Where is $a_{11}$ used? Twice: in $c_{11}$ with the slope $b_{11}$, and in $c_{12}$
# with the slope $b_{12}$. Two paths, so it gets
#
# $$ga_{11} = gc_{11} b_{11} + gc_{12} b_{12}$$
#
# That is the dot product of row 1 of gC with row 1 of B. In the same way $ga_{12}$ is
# that of row 1 of gC with row 2 of B, and so on. A matrix product takes rows with
# *columns*; to take rows with rows, transpose the second matrix: gA is gC times B^T.
#
# And $b_{11}$? It is used in $c_{11}$ with the slope $a_{11}$, and in $c_{21}$ with the
# slope $a_{21}$. So it gets the dot product of column 1 of A with column 1 of gC. To
# take columns with columns, transpose the first matrix: gB is A^T times gC. Together:
#
# $$gA = gC \, B^T \qquad gB = A^T \, gC$$
#
# Check it with a pencil: let gC have a 1 at the upper left, a 2 at the lower right, and
# zeros elsewhere.

# %%
A = np.array([[1.0, 2.0], [3.0, 4.0]])
B = np.array([[5.0, 6.0], [7.0, 8.0]])
gC = np.array([[1.0, 0.0], [0.0, 2.0]])
gA = gC @ B.T
gB = A.T @ gC
print("gA = gC B^T:", gA.tolist())
print("gB = A^T gC:", gB.tolist())
tensor_A = Tensor(A)
tensor_B = Tensor(B)
(tensor_A @ tensor_B).backward(gC)
same("A gets gC B^T", tensor_A.grad, gA)
same("B gets A^T gC", tensor_B.grad, gB)
grad_check(operator.matmul, rng.standard_normal((3, 4)), rng.standard_normal((4, 2)))

# %% [markdown]
# ## What is the gradient of attention?
# **State.** Lesson 01 computes attention in four steps. Give each result a name:
#
# $$S = Q K^T \qquad Z = S / \sqrt{d_k} \qquad P = \text{softmax}(Z) \qquad Y = P V$$
#
# Three of the four steps are known by now: two products and a division by a fixed
# number. The fourth, the softmax, turns a row of scores x into a row of weights y:
#
# $$y_i = e^{x_i} / s \qquad s = \sum_j e^{x_j}$$
#
# Each weight depends on each score, through the sum s. The table of all slopes
# $dy_i/dx_j$ is called the *Jacobian* of y.
#
# **Derive.** Take the quotient rule. The slope of s for $x_j$ is $e^{x_j}$. The slope
# of $e^{x_i}$ for $x_j$ is $e^{x_i}$ if i = j, and 0 if not. To write both cases in one
# formula, let $\delta_{ij}$ be 1 if i = j, and 0 if not: it is $\delta_{ij} e^{x_i}$.
# Then
#
# $$\frac{dy_i}{dx_j} = \frac{\delta_{ij} e^{x_i} s - e^{x_i} e^{x_j}}{s^2} =
# y_i (\delta_{ij} - y_j)$$
#
# In words: a weight rises with its own score, with the slope y (1 - y); it falls with
# every other score, because the weights share the sum 1.

# %%
y = F.softmax(x).numpy()
jacobian = np.diag(y) - np.outer(y, y)
measured_rows = [differences(F.softmax, x, c=unit) for unit in np.eye(4)]
same("softmax: y_i (delta_ij - y_j), as measured", jacobian, measured_rows, rtol=1e-6)
draw(
    figures.matrices,
    "02_jacobian.png",
    {f"slopes at the weights {', '.join(f'{weight:.2f}' for weight in y)}": jacobian},
    values=".2f",
    rows="weight",
    columns="score",
    row_labels=list("1234"),
    column_labels=list("1234"),
    signed=True,
)

# %% [markdown]
# ![A table of four rows (weights) and four columns (scores) with signed colours: the numbers on the diagonal are positive, all others negative, and each column sums to 0.](figures/02_jacobian.png)
#
# *What to see: positive on the diagonal, negative elsewhere. Each column sums to 0:
# what one weight gains, the others lose.*
#
# Now the gradient. $gy_i$ has arrived at weight i. Score j acts on all weights, so its
# gradient is a sum over all of them:
#
# $$gx_j = \sum_i gy_i \, y_i (\delta_{ij} - y_j) =
# y_j \left( gy_j - \sum_i gy_i y_i \right)$$
#
# This has a meaning. The last sum is an average of the gy, with the weights y. So the
# gradient of score j says whether more weight on key j would raise L *more than the
# average key does*; and it is as large as the weight itself. A key with the weight 0
# learns nothing. The library computes this line for each row of an array, without ever
# making the table; it is `backward`, near the end:

# %%
show(F.softmax)
same("y (gy - sum gy y) = gy times the Jacobian", y * (c - (c * y).sum()), c @ jacobian)
same("softmax hands back y (gy - sum gy y)", tensor_x.grad, c @ jacobian)
grad_check(F.softmax, rng.standard_normal((2, 3, 4)))

# %% [markdown]
# Now walk back through the four steps, from the last to the first. Each uses a rule
# that is derived above. In the last one, the right factor of the product is K^T; its
# gradient is Q^T gS, and that of K is the transpose of this, gS^T Q.
#
# | step | what it hands back |
# |---|---|
# | Y = P V | gP = gY V^T, and **gV = P^T gY** |
# | P = softmax(Z) | gZ = P (gP - the sum of gP P over each row), number by number |
# | Z = S / sqrt(d_k) | gS = gZ / sqrt(d_k) |
# | S = Q K^T | **gQ = gS K**, and **gK = gS^T Q** |
#
# In words: a value gets the gradients of the answers that it is part of, each times its
# weight there (P^T gY). A query gets a sum of keys, each times the gradient of their
# score (gS K), so training moves it towards keys that deserve more weight, and away
# from the others. A key gets a sum of queries in the same way (gS^T Q).


# %%
def attention_backward(Q, K, V, gY):
    root = K.shape[1] ** 0.5
    P = F.softmax(Q @ K.T / root).numpy()
    gV = P.T @ gY
    gP = gY @ V.T
    gZ = P * (gP - (gP * P).sum(axis=-1, keepdims=True))
    gS = gZ / root
    gQ = gS @ K
    gK = gS.T @ Q
    return gQ, gK, gV


Q = rng.standard_normal((3, 4))
K = rng.standard_normal((5, 4))
V = rng.standard_normal((5, 2))
gY = rng.standard_normal((3, 2))
gQ, gK, gV = attention_backward(Q, K, V, gY)

# Equate: the library's attention, walked back from the same gY.
tensor_Q = Tensor(Q)
tensor_K = Tensor(K)
tensor_V = Tensor(V)
F.attention(tensor_Q, tensor_K, tensor_V).backward(gY)
same("attention hands the queries gS K", tensor_Q.grad, gQ)
same("attention hands the keys gS^T Q", tensor_K.grad, gK)
same("attention hands the values P^T gY", tensor_V.grad, gV)

# %% [markdown]
# The mask of lesson 01 needs no rule of its own: a forbidden key has the weight 0, so
# its score gets the gradient 0.

# %%
may_attend = causal_mask(5)[0, 0]
square = rng.standard_normal((3, 5, 4))
grad_check(F.attention, *square, may_attend, name="attention with a causal mask")
grad_check(F.attention_weights, *square[:2], may_attend)

# %% [markdown]
# **Use.** Attention could also be put together from small operations, each with its own
# node. The library makes one operation of it, with the rules above as its backward: one
# node in place of six, and the same gradients.


# %%
def composed_attention(query, key, value):
    scores = query @ key.transpose() / 4**0.5
    allowed = F.where(may_attend, scores, -np.inf)
    return F.softmax(allowed) @ value


in_one = Tensor(square)
in_pieces = Tensor(square)
gradient_of_answers = rng.standard_normal((5, 4))
F.attention(in_one[0], in_one[1], in_one[2], may_attend).backward(gradient_of_answers)
composed = composed_attention(in_pieces[0], in_pieces[1], in_pieces[2])
composed.backward(gradient_of_answers)
same("attention's gradients = those of its pieces", in_one.grad, in_pieces.grad)

# %% [markdown]
# And is the gradient good for anything? Let one query learn. The answer that is wanted
# from it is the value of the last key; the loss L is the squared distance of its answer
# from that. Fifty times, subtract the gradient from the query. Nobody tells the query
# where to look, but it should find the last key:

# %%
wanted = V[-1:]
query = Q[:1]


def loss_of(query):
    distance = F.attention(query, K, V) - wanted
    return (distance * distance).sum()


def learn(query, updates):
    for _ in range(updates):
        tensor = Tensor(query)
        loss_of(tensor).backward()
        query = query - to_numpy(tensor.grad)
    return query


learned = learn(query, 50)
before = F.attention_weights(query, K).numpy()[0, -1]
afterwards = F.attention_weights(learned, K).numpy()[0, -1]
claim(
    "after 50 steps the query attends to the last key",
    afterwards > before + 0.3,
    f"its weight rises from {before:.2f} to {afterwards:.2f}",
)

# %% [markdown]
# ## How can a gradient check lie?
# **State.** A gradient check compares the result of backward with central differences
# of L. Since L must be one number, a program with many outputs needs a rule that makes
# one number of them. Many checks take the sum of the outputs.
#
# **Derive.** The outputs of a softmax have the sum 1, whatever x is. So their sum does
# not move when x moves: its gradient is 0. (Each column of the Jacobian sums to 0.) And
# a backward that returns nothing but zeros passes the check perfectly. Try the right
# softmax, and one that learns nothing:


# %%
def softmax_that_learns_nothing(x):
    def backward(gy):
        return 0 * gy

    return record(F.softmax(x).data, (x,), backward)


def gradient_of_sum(f):
    tensor = Tensor(x)
    f(tensor).sum().backward()
    return tensor.grad


measured_sum = differences(F.softmax, x)
same(
    "a check by the sum accepts the right softmax",
    gradient_of_sum(F.softmax),
    measured_sum,
    atol=1e-8,
)
same(
    "a check by the sum accepts the one that learns nothing",
    gradient_of_sum(softmax_that_learns_nothing),
    measured_sum,
    atol=1e-8,
)

# %% [markdown]
# **Equate.** `grad_check` weighs the outputs at random: L is the sum of $c_i y_i$ with
# random numbers c, so no mistake can hide in a sum that happens to be constant. (With
# large arrays it also moves all numbers of x at once, in random directions.) It refuses
# the zeros, and says what it thinks is wrong. And it is strict: a slope that is wrong
# in the fifth digit is refused too.


# %%
with np.testing.assert_raises(AssertionError) as zeros_found:
    grad_check(softmax_that_learns_nothing, x)
claim(
    "grad_check rejects the zeros",
    "zero everywhere" in str(zeros_found.exception),
    zeros_found.exception,
)


# %%
def cube_with_a_small_mistake(x):
    def backward(gy):
        return gy * 3.0001 * x.data**2

    return record(x.data**3, (x,), backward)


with np.testing.assert_raises(AssertionError) as mistake_found:
    grad_check(cube_with_a_small_mistake, numbers)
claim(
    "grad_check rejects a factor of 3.0001 in place of 3",
    "should be" in str(mistake_found.exception),
    mistake_found.exception,
)

# %% [markdown]
# What does a check cost? Two runs for each number, like our own `differences`, and
# three more: one to walk back, one to see that the program gives the same result twice,
# and one to learn how large its results are.

# %%
runs = []


def counted_softmax(x):
    runs.append(1)
    return F.softmax(x)


grad_check(counted_softmax, x)
claim("grad_check of 4 numbers: 2 x 4 runs and 3 more", len(runs) == 11, len(runs))

# %% [markdown]
# **Use.** How small should the step h be? A central difference measures the slope of
# a chord, a straight line between two points of a curve. The chord's error falls with
# h^2, so a small h is better. But a computer keeps about 16 digits of a number (7 in
# float32). When two numbers that agree in their first digits are subtracted, these
# digits cancel; the rounding errors of the last ones remain, and are divided by 2h. So
# a *very* small h is worse.


# %%
def errors_by_step(dtype):
    errors = []
    for step in steps:
        measured = differences(F.softmax, x.astype(dtype), c, step)
        errors.append(abs(measured - c @ jacobian).max())
    return errors


steps = [10.0**-k for k in range(1, 13)]
in_float64 = errors_by_step(np.float64)
in_float32 = errors_by_step(np.float32)
claim(
    "in float64, h = 1e-5 gives nine digits",
    in_float64[4] < 1e-9,
    f"error {in_float64[4]:.0e}",
)
claim(
    "in float32 no step does",
    min(in_float32) > 1e-6,
    f"error {min(in_float32):.0e} at best",
)
draw(
    figures.lines,
    "02_step.png",
    {
        "float64": (np.log10(steps), in_float64),
        "float32": (np.log10(steps), in_float32),
    },
    x="step h, as a power of ten",
    y="error of the measured gradient",
    log="y",
)

# %% [markdown]
# ![Error of the measured gradient against the step h on logarithmic axes: both curves are valleys. In float64 the bottom is near h = 1e-5 with an error below 1e-9; in float32 it is near h = 1e-2 and far higher.](figures/02_step.png)
#
# *What to see: two valleys. To the right of the bottom, the error is that of the chord;
# to the left, that of rounding. This is why gradients are checked in float64.*
#
# One more way to lie is a kink. The function max(0, x) has the slope 0 to the left of
# 0, and the slope 1 to its right. A difference across the kink mixes the two, so no
# check is valid there:


# %%
def positive_part(x):
    return F.where(x.data > 0, x, 0.0)


across_the_kink = differences(positive_part, np.zeros(1))
same("slopes 0 and 1 are measured as 0.5", across_the_kink, [0.5])
finish(
    "A node passes on its gradient when all of it has arrived; a check of it weighs "
    "the outputs at random."
)

# %% [markdown]
# ## What did we learn?
# - The gradient says for each number how fast the loss rises when the number grows.
# - Along a path slopes are multiplied; over all paths the products are added.
# - A node passes on its gradient once, when all nodes that use it have passed on.
# - All uses of a parameter are added up in one line: `self.grad += gradient`.
# - For C = A B: gA = gC B^T, and gB = A^T gC. A broadcast row gets the sum.
# - Attention: gV = P^T gY; gQ = gS K and gK = gS^T Q, through the softmax and the root.
# - A gradient check must weigh the outputs at random; their sum can hide a mistake.

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 02` writes this part to `my_02_gradients.py`; fill in the
# bodies and run it. An operation is made by record(result, inputs, backward); the array
# in a Tensor x is x.data.


# %%
def predicted():
    """Predict, then run: u = a b, v = u + a, L = u v at a = 2, b = 3. Return the
    list [dL/da, dL/db], found with a pencil.

    Hint: "Which way should a number move?" Draw the graph. Three paths lead from a
    to L, and two from b.
    """
    ...


def log_sum_exp(x):
    """Return ln sum_j exp(x_j) over the last axis, through record, without overflow
    at x = 1000. gy lacks that axis.

    Hint: "What is the gradient of attention?" has the slopes of s = sum_j exp(x_j).
    Those of ln s are one step further.
    """
    ...


def centred(x):
    """Find the mistake: return record(x.data - x.data.mean(axis=-1, keepdims=True),
    (x,), lambda gy: gy), with the right backward.

    Hint: "What does each operation hand back?" Each x_j is used twice: as itself, and
    in the mean, which is subtracted from every number of its row.
    """
    ...


def fools_the_sum(x):
    """Return x**2 by record, with a wrong backward that a check by the sum of the
    outputs accepts (the gradient of the sum is 2x), and grad_check does not.

    Hint: "How can a gradient check lie?" The check by the sum calls backward with one
    gy only: all ones. What differs from gy, and is 1 where gy is 1?
    """
    ...


def check_predicted():
    a = Tensor(2.0)
    b = Tensor(3.0)
    u = a * b
    (u * (u + a)).backward()
    same("dL/da", predicted()[0], a.grad)
    same("dL/db", predicted()[1], b.grad)


def check_log_sum_exp():
    x = np.random.default_rng(0).standard_normal((2, 3))
    total = log_sum_exp(Tensor(x + 1000)).numpy()
    same(
        "exp(x - log_sum_exp(x)) is the softmax",
        np.exp(x + 1000 - total[:, None]),
        F.softmax(x),
    )
    grad_check(log_sum_exp, x)


def check_centred():
    x = np.random.default_rng(0).standard_normal((2, 3))
    centre = x.mean(axis=-1, keepdims=True)
    same("each row less its mean", centred(Tensor(x)), x - centre)
    grad_check(centred, x)


def check_fools_the_sum():
    x = Tensor(np.random.default_rng(0).standard_normal(5))
    y = fools_the_sum(x)
    same("the result is x**2", y, x.numpy() ** 2)
    y.sum().backward()
    same("the gradient of the sum is 2x", x.grad, 2 * x.numpy())
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
