# %% [markdown]
"""# Lesson 02. Gradients

A query looks at "money", and should look at "river". Nobody tells it where to look. One
walk back through the program that computed its answer tells each of its numbers which
way to move, and fifty small moves later it looks at "river". So a model learns.

You need lesson 01, and the derivatives of sums, products, quotients and powers, of exp
and of ln. At the end you will have written, in some thirty lines, the walk that trains
every model of this course; and you will know why its order matters, what the gradient
of attention is, and which check of a gradient to trust.
"""

# %% [markdown]
# ## Who tells a query where to look?
# Here are three words with the vectors of lesson 01, how much water and how much money:
# river = (3, 0), by = (0, 0), money = (0, 3). Each is key and value. Our query, (0, 1),
# looks at "money". We want it to fetch "river".
#
# Let $L$ be the squared distance of its answer from the vector of "river". A number
# such as $L$, which says how wrong a program is, is called its *loss*. For each of the
# query's two numbers we ask: does $L$ rise or fall if this number grows a little? Then
# we move both a small step the other way, which is an *update*, and ask again. This is
# *gradient descent*. The small factor, here 0.02, is the *learning rate*; we found it
# by trying.

# %%
import numpy as np

from minitf import functions as F
from minitf.backend import to_numpy
from minitf.check import claim, grad_check, same
from minitf.course.architecture import figure_1
from minitf.course.checks import gradients as checks
from minitf.course.figures import gradients as figures
from minitf.course.lesson import begin, draw, finish, show
from minitf.tensor import Tensor, no_grad, record

# Reads the options --figures and --backend, and starts to count the claims.
begin("02_gradients")
rng = np.random.default_rng(1)

# %%
vectors = np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 3.0]])  # river, by, money
wanted = vectors[:1]  # the vector of "river", (1, 2) like the answer


def loss_of(query):
    miss = F.attention(query, vectors, vectors) - wanted
    return (miss * miss).sum()


def gradient_of(query):
    tensor = Tensor(query)  # an array that will remember what was done with it
    loss_of(tensor).backward()  # asks the question
    return to_numpy(tensor.grad)  # the answer; to_numpy fetches it, if it is on a GPU


queries = [np.array([[0.0, 1.0]])]
gradients = [gradient_of(queries[0])]
complete = gradients[0].shape == (1, 2)
claim("the answer is a slope for each number of the query", complete, gradients[0])
for _ in range(50):
    queries.append(queries[-1] - 0.02 * gradients[-1])
    gradients.append(gradient_of(queries[-1]))

# %%
print("updates  query          weights             loss  gradient")
for updates in (0, 2, 5, 50):
    query = queries[updates]
    seen = F.attention_weights(query, vectors).numpy()[0].round(2)
    row = f"{updates:7}  {query[0].round(2)!s:13}  {seen!s:16}"
    print(f"{row}  {loss_of(query).item():5.2f}  {gradients[updates][0].round(1)}")

path = np.concatenate(queries)
weight_of_river = F.attention_weights(path, vectors).numpy()[:, 0]
claim(
    "the query has learned to look at 'river'",
    weight_of_river[0] < 0.1 and weight_of_river[-1] > 0.9,
    f"its weight rises from {weight_of_river[0]:.2f} to {weight_of_river[-1]:.2f}",
)
draw(figures.learned, "02_learned.png", path, weight_of_river, vectors, wanted)

# %% [markdown]
# ![The plane of the query's two numbers, shaded by the loss, which is high at the upper left and low at the right. A path of black points leads from (0, 1) down to (1.41, -0.22); the weight of river is written at four of them: 0.10, 0.25, 0.64 and 0.92.](figures/02_learned.png)
#
# *What to see: the query walks downhill, straight across the white lines of equal loss.
# Each step is as long as the ground is steep: longest in the middle, tiny at the end,
# for a reason that "What moved the query?" finds. The numbers are the weight of
# "river".*
#
# The line that did it is `loss_of(tensor).backward()`. It found out what each number of
# the query does to $L$. The same line trains a model with millions of numbers, and this
# lesson builds it. In the model of the paper, it begins here:

# %%
draw(figure_1, "02_here.svg", here=["loss", "backward"])

# %% [markdown]
# ![Figure 1 of the paper, the Transformer, with the loss above the output probabilities marked: you are here. Every arrow of the model is turned round: from the loss down through the decoder, from there over to the encoder, and down to both embeddings.](figures/02_here.svg)
#
# *What to see: the loss is the last number to be computed, and the first to have a
# gradient. From there all others are found, against every arrow. Where an array was
# used several times, several gradients meet.*

# %% [markdown]
# ## Which way should a number move?
# To *train* a model is to change its numbers so that $L$ falls. So let a number $x$
# grow a little. The other *given* numbers stay; what is computed from $x$ changes with
# it. How much does $L$ rise? That is the derivative $dL/dx$, the *slope* of $L$. If it
# is positive, $L$ rises with $x$, so $x$ should become a little smaller; if it is
# negative, a little larger. The slopes of $L$ for all numbers of an array $x$ form an
# array of the same shape. It is the gradient of $L$ for $x$; we say *the gradient of
# $x$*, as $L$ is always the same.
#
# May all numbers move at once? While the moves are small, their effects add up: $L$
# changes by about the sum of each slope times its move. When each number moves against
# its slope, every term of this sum is negative: $L$ falls.
#
# Take a pencil. Here is a small program, with one number that is used twice:
#
# $$p = 3 \qquad q = 4$$
#
# $$u = p + q = 7 \qquad L = u \cdot p = 21$$
#
# **What does $q$ do to $L$?** Let $q$ grow by 0.001. Then $u$ grows by 0.001 too, and
# $L = u p$ by $p = 3$ times as much, by 0.003. The slope is $dL/dq = 3$.


# %%
def program(p, q):
    u = p + q
    return u * p


print("L:", program(3.0, 4.0))
more_by_q = program(3.0, 4.0 + 0.001) - program(3.0, 4.0)
print("q grows by 0.001, and L by", round(more_by_q, 6))

# %% [markdown]
# **What does $p$ do to $L$?** Let $p$ grow by 0.001. Then $u$ is 7.001, and $L$ is
# 7.001 times 3.001, which is 21.010001. It grew by 0.01, ten times as much as $p$, and
# by a trifle: 0.001 times 0.001, which no longer counts when the step is tiny. The
# slope is $dL/dp = 10$. It has two parts. As a factor of $L$, $p$ acts with the slope
# $u = 7$. And $p$ also acts through $u$, with the slope 3, as $q$ does. Together
# $7 + 3 = 10$.

# %%
more_by_p = program(3.0 + 0.001, 4.0) - program(3.0, 4.0)
print(f"p grows by 0.001: u is {3.001 + 4.0:.3f}, L is {program(3.001, 4.0):.6f}")
print("so L grows by", round(more_by_p, 6))
draw(figures.two_paths, "02_graph.png")

# %% [markdown]
# ![A graph of four boxes. Arrows lead from p and q to u, and from u and p to L. Two ways lead from p to L, in two colours: the direct one has the slope 7, the dashed one through u has the slope 1 times 3. The gradient of p is their sum, 10.](figures/02_graph.png)
#
# *What to see: two ways lead from $p$ to $L$. Multiply the slopes along each way, then
# add the two products: 7 + 1 · 3 = 10.*
#
# **State.** A way along the arrows from $x$ to $L$ is called a *path*. Along a path the
# slopes are multiplied; over all paths the products are added. This is the *chain
# rule*.
#
# Two kinds of slopes are in it. The slope *on an arrow* says what the input does to the
# box if the other inputs of that box stay as they are. It is a *partial derivative*,
# written with $\partial$. The gradient, with $d$, says what a number does in all ways:
#
# - $\partial L / \partial p = 7$: only the arrow from $p$ to $L$; $u$ stays 7.
# - $dL / dp = 10$: all ways from $p$ to $L$; $u$ moves, too.
#
# A gradient has a term for each arrow that leaves the number: the gradient of the box
# at its end, times the slope on the arrow. That of $L$ itself is $dL/dL = 1$:
#
# $$\frac{dL}{dp} = \frac{dL}{du} \cdot \frac{\partial u}{\partial p} +
# 1 \cdot \frac{\partial L}{\partial p} = 3 \cdot 1 + 1 \cdot 7 = 10$$
#
# And for an $x$ that acts on $L$ through $u$ and through $v$:
#
# $$\frac{dL}{dx} = \frac{dL}{du} \cdot \frac{\partial u}{\partial x} +
# \frac{dL}{dv} \cdot \frac{\partial v}{\partial x}$$
#
# **Derive.** Must one follow the paths one by one? Add a number to itself, then the
# result to itself, and so on: each sum has two arrows, and doubles the paths.

# %%
print(f"thirty sums: {2 * 30} arrows, {2**30:,} paths")

# %% [markdown]
# So read the picture from right to left, and let each box keep its own gradient:
#
# 1. $L$ begins with 1: if $L$ grows by 0.001, $L$ grows by 0.001.
# 2. $L$ hands to each of its inputs its own gradient, times the slope on the arrow. So
#    $u$ gets 1 · 3 = 3, and $p$ gets 1 · 7 = 7.
# 3. $u$ does the same with its 3. So $q$ gets 3 · 1 = 3, and $p$ gets another 3.
# 4. $p$ adds what has arrived: $7 + 3 = 10$.
#
# Each arrow was used once, and every box has its gradient. This is *the walk back*
# (elsewhere: *backpropagation*, or reverse-mode automatic differentiation).
#
# Why back? One could walk forward as well: let $p$ grow, and carry along how much each
# box grows. A walk forward finds the slopes of all results for one input; a walk back
# finds those of one result for all inputs. A model has one loss, and millions of
# inputs. **One walk from the result to the inputs finds all gradients.** In Python:

# %%
gradient_of_L = 1.0
gradient_of_u = gradient_of_L * 3.0
gradient_of_p = gradient_of_L * 7.0 + gradient_of_u * 1.0
gradient_of_q = gradient_of_u * 1.0
print("walking back, p gets the gradient", gradient_of_p)
print("walking back, q gets the gradient", gradient_of_q)

# %% [markdown]
# ## How does a program remember what it did?
# A program can record the picture, with boxes, arrows and slopes, while it computes.
#
# **State.** A box is a *node*: a number, or an array, of the program. Nodes and arrows
# together are the *graph*. Each computed node knows
#
# - its *inputs*, the nodes from which its arrows come (also called its parents), and
# - its *backward*: a function that takes $gy$, the gradient of its result $y$, and
#   returns what each input gets of it: $gy$ times the slope. Read $gy$ as one name.
#
# A sum $u = a + b$ has the slope 1 for both: they get $gy$ and $gy$. A product
# $u = a b$ has the slope $b$ for $a$, and the slope $a$ for $b$: they get $gy \, b$ and
# $gy \, a$. So the node of a product must keep $a$ and $b$ until the walk back. In
# training nearly every array of a model must be kept until the walk back reaches it.
#
# **Derive.** Here is an engine for single numbers. Each number, as soon as it is
# computed, is appended to a list, the *tape*. A last line asks a product, 3 times 4,
# what it hands back if 1 arrives:

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


print("to 3 and to 4:", (Number(3.0) * Number(4.0)).backward(1.0))
tape.clear()

# %% [markdown]
# Walking back takes two functions. In the first, one node hands its gradient on, and
# each input *adds* what it gets. The second calls the first for each node of the tape,
# beginning at its end. Why there? A node is on the tape before all nodes that use it.
# So, read from the end, every node is reached after all its users.


# %%
def hand_on(node):
    if node.inputs:
        gradients = node.backward(node.gradient)
        for parent, gradient in zip(node.inputs, gradients, strict=True):
            parent.gradient += gradient


def walk_the_tape():
    tape[-1].gradient = 1.0
    for node in reversed(tape):
        hand_on(node)


# %% [markdown]
# Our program runs on Numbers as it is, because Numbers can be added and multiplied. On
# the tape are then $p$, $q$, $u$ and $L$, in the order in which they were made:

# %%
number_p = Number(3.0)
number_q = Number(4.0)
program(number_p, number_q)
walk_the_tape()
names_on_tape = ["p", "q", "u", "L"]
for name, node in zip(names_on_tape, tape, strict=True):
    print(f"    {name}    value {node.value:4.0f}    gradient {node.gradient:4.0f}")
same("the tape gives p the gradient 10", number_p.gradient, 10.0)

# %% [markdown]
# **Equate.** The library does this walk for arrays. A `Tensor` is an array that
# remembers how it was computed. Its method `backward()` starts at the result, with the
# gradient 1, and leaves the gradient of each input in its `.grad`. Mind the name: a
# Tensor's `backward()` is the whole walk, a node's `backward(gy)` one step of it.

# %%
tensor_p = Tensor(3.0)
tensor_q = Tensor(4.0)
program(tensor_p, tensor_q).backward()
same("Tensor.backward gives p the gradient 10", tensor_p.grad, 10.0)
same("Tensor.backward gives q the gradient 3", tensor_q.grad, 3.0)

# %% [markdown]
# ## Why does the order matter?
# A tape holds everything that was ever computed, even results that nobody needs any
# more. So the library keeps none. Each Tensor knows only its own inputs and its
# backward, and the walk has to find an order by itself. Not every order works.
#
# Here is the smallest graph on which a careless walk goes wrong. A node $b$ is used
# twice, and $a$ waits for the gradient of $b$:
#
# $$b = 2a \qquad c = 3b \qquad d = b + c$$
#
# On paper: the path from $a$ through $b$ to $d$ has the slope 2; the path through $b$
# and $c$ has the slope 2 · 3 = 6. So the gradient of $a$ is $2 + 6 = 8$.

# %%
draw(figures.order, "02_order.png")

# %% [markdown]
# ![A graph of four boxes with the arrows of the way back, from d to b directly and, dashed, from d over c to b, and from b to a. 1 times 1 and 3 times 1 arrive at b, whose gradient is 4; 2 times 4 arrives at a.](figures/02_order.png)
#
# *What to see: the arrows lead back, and each carries a slope times the gradient that
# is handed on. $b$ is used twice, by $d$ and by $c$. It must not hand its gradient on
# before both have arrived.*
#
# Let us walk in three orders:
#
# | order | $b$ hands on | $a$ gets |
# |---|---|---|
# | $d$, $b$, $c$, $a$ | 1 | 1 · 2 = 2 |
# | $d$, $b$, $c$, $b$, $a$ | 1, then 1 + 3 = 4 | 1 · 2 + 4 · 2 = 10 |
# | $d$, $c$, $b$, $a$ | 1 + 3 = 4 | 4 · 2 = 8 |
#
# In the first, $b$ comes too early: the 3 from $c$ has not arrived. The second visits
# $b$ again, and $b$ hands on its total, with the 1 that it has handed on before. Only
# the third, which takes users first, is right. In the code, an order is a string:
# "dcba" means $d$ first, then $c$, $b$ and $a$.


# %%
def walk_in_order(order):
    a = Number(1.0)
    b = a * Number(2.0)
    c = b * Number(3.0)
    d = b + c
    nodes = {"a": a, "b": b, "c": c, "d": d}
    d.gradient = 1.0
    for letter in order:
        hand_on(nodes[letter])
    return a.gradient


too_early = walk_in_order("dbca")
twice = walk_in_order("dbcba")
users_first = walk_in_order("dcba")
claim("b hands on too early: a gets 2, not 8", too_early == 2, too_early)
claim("b hands its total on again: a gets 10, not 8", twice == 10, twice)
claim("users first: a gets 8", users_first == 8, users_first)

# %% [markdown]
# So the rule is: **a node hands on when all nodes that use it have handed on, and not
# before.** Such an order is called a *topological order*. A tape read from its end is
# one. To find one without a tape, list each node *after* its inputs. So a user stands
# behind what it uses, and is read first if the list is read from its end. The function
# lists the inputs first, by calling itself for each of them.


# %%
def list_inputs_first(node, order):
    if node not in order:
        for parent in node.inputs:
            list_inputs_first(parent, order)
        order.append(node)


def walk_without_tape(result):
    order = []
    list_inputs_first(result, order)
    result.gradient = 1.0
    for node in reversed(order):
        hand_on(node)


number_a = Number(1.0)
number_b = number_a * Number(2.0)
walk_without_tape(number_b + number_b * Number(3.0))
same("without a tape, inputs listed first: a gets 8", number_a.gradient, 8.0)

# %% [markdown]
# **Equate.** The library keeps no tape either: its `backward` lists the inputs first,
# as we do. It looks for a node in a set, which takes less time than in a list.

# %%
a = Tensor(1.0)
b = a * 2.0
(b + b * 3.0).backward()
same("Tensor.backward walks users first: a gets 8", a.grad, users_first)

# %% [markdown]
# ## What does each operation hand back?
# **State.** The walk is the same for all programs. Only the backward differs from
# operation to operation. Most act on each number of an array, so their rules are those
# of calculus:
#
# | $y$ | to $a$ | to $b$ | why |
# |---|---|---|---|
# | $a + b$ | $gy$ | $gy$ | both slopes are 1 |
# | $a - b$ | $gy$ | $-gy$ | $y$ falls when $b$ grows |
# | $-a$ | $-gy$ | | $y$ falls when $a$ grows |
# | $a b$ | $gy \, b$ | $gy \, a$ | the slope of a product is the other factor |
# | $a / b$ | $gy / b$ | $-gy \, a / b^2$ | the slope of $1 / b$ is $-1 / b^2$ |
# | $a^n$ | $gy \, n \, a^{n-1}$ | | $n$ is a fixed number |
# | $\exp(a)$ | $gy \, y$ | | $\exp$ is its own slope |
# | $\ln a$ | $gy / a$ | | |
#
# Are these rules right? Then they agree with slopes that are measured. Move $x$ up and
# down by a small $h$ (with both, the bend of the curve cancels), run the program twice,
# and divide the change of $L$ by the distance:
#
# $$\frac{dL}{dx} \approx \frac{L(x + h) - L(x - h)}{2h}$$
#
# This is called a *central difference*. It needs no rule at all, but two runs of the
# program for each number; the walk finds all slopes at once. The library's `grad_check`
# compares any function's gradient with central differences. Here it checks two formulas
# that together use every rule of the table:

# %%
numbers = rng.uniform(0.5, 2, (2, 3))
others = rng.uniform(0.5, 2, (2, 3))


def arithmetic(x, y):
    return 3.0 - x + 2.0 * x + 5.0 / x - x / 4.0 + x**3 + x * y - y / x


def exp_and_ln(x):
    return F.exp(x) * F.log(x)


grad_check(arithmetic, numbers, others)
grad_check(exp_and_ln, numbers)

# %% [markdown]
# **What if numbers are only moved, added or copied?** Then each gradient goes back to
# where its number came from.
#
# | $y$ | what it hands back |
# |---|---|
# | $a$ with its axes exchanged | $gy$, its axes put back |
# | $a$ in another shape | $gy$ in the shape of $a$ |
# | `where(mask, a, b)`, $a$ if True | to $a$: $gy$ if True, else 0; to $b$: if False |
# | some rows of $a$ | $gy$ in these rows, else 0; a row taken twice gets the sum |
# | sum of $a$ | $gy$, for each number |
# | mean of $n$ numbers | $gy / n$, for each number |
#
# **Adding and copying are each other's reverse.** Numbers that were added get a copy of
# $gy$ each. A number that was copied is used many times, on many paths, so it gets the
# sum over its copies.
#
# NumPy copies without being told: it lets a row of three numbers be added to each row
# of a matrix. The row is *broadcast*, and **its gradient is the sum over the rows.** On
# paper: let $gy$ have the two rows (1, 2) and (3, 4). The row that was added to both
# gets their sum, (4, 6).

# %%
matrix = Tensor([[0.0, 0.0], [0.0, 0.0]])
row_vector = Tensor([5.0, 6.0])
(matrix + row_vector).backward([[1.0, 2.0], [3.0, 4.0]])  # begin with this gy, not a 1
same("a row added to two rows gets the sum of both", row_vector.grad, [4.0, 6.0])

# %% [markdown]
# **Use.** How does an operation of your own get into the graph? Through one function,
# `record(result, inputs, backward)`: it makes the node, and returns the result as a
# Tensor. Compute the result from `x.data`, the array in the Tensor; write its backward;
# record both. A backward returns a tuple, with a gradient for each input; for a single
# input the gradient alone will do. Here is the cube, with the slope $3 x^2$:


# %%
def cube(x):
    def backward(gy):
        return gy * 3 * x.data**2

    return record(x.data**3, (x,), backward)


grad_check(cube, numbers)

# %% [markdown]
# ## What does a matrix product hand back?
# **State.** Attention is a softmax between two matrix products, so begin with these.
# For the product $C = A B$, let $gC$ be the gradient that arrives, with one number for
# each number of $C$. What do $A$ and $B$ get?
#
# Take a pencil. Let $A$ have the rows (1, 2) and (3, 4), and $B$ the rows (5, 6) and
# (7, 8). Let $gC$ have a 1 at the upper left, a 2 at the lower right, and zeros
# elsewhere. Where is $a_{11}$, the 1, used? Twice:
#
# $$c_{11} = a_{11} b_{11} + a_{12} b_{21} = 1 \cdot 5 + 2 \cdot 7 = 19$$
#
# $$c_{12} = a_{11} b_{12} + a_{12} b_{22} = 1 \cdot 6 + 2 \cdot 8 = 22$$
#
# In $c_{11}$ its slope is $b_{11}$, in $c_{12}$ it is $b_{12}$. Two paths, so it gets
#
# $$ga_{11} = gc_{11} b_{11} + gc_{12} b_{12}$$
#
# $$= 1 \cdot 5 + 0 \cdot 6 = 5$$

# %%
A = np.array([[1.0, 2.0], [3.0, 4.0]])
B = np.array([[5.0, 6.0], [7.0, 8.0]])
gC = np.array([[1.0, 0.0], [0.0, 2.0]])
tensor_A = Tensor(A)
tensor_B = Tensor(B)
(tensor_A @ tensor_B).backward(gC)
print("C = A B:", (A @ B).tolist())
print("gradient of A:", to_numpy(tensor_A.grad).tolist())

# %% [markdown]
# **Derive.** That 5 is the dot product of row 1 of $gC$ with row 1 of $B$. In the same
# way $ga_{12}$ is that of row 1 of $gC$ with row 2 of $B$, and so on. A matrix product
# takes rows with *columns*; to take rows with rows, transpose the second matrix: $gA$
# is $gC$ times $B^T$.
#
# And $b_{11}$? It is used in $c_{11}$ with the slope $a_{11}$, and in $c_{21}$ with the
# slope $a_{21}$. So it gets the dot product of column 1 of $A$ with column 1 of $gC$:
# $1 · 1 + 3 · 0 = 1$. To take columns with columns, transpose the first matrix: $gB$ is
# $A^T$ times $gC$. Together:
#
# $$gA = gC \, B^T \qquad gB = A^T \, gC$$
#
# To remember them, think of the shapes. If $A$ is $(n, k)$ and $B$ is $(k, m)$, then
# $gC$ is $(n, m)$. The only product of $gC$ and $B$ that is $(n, k)$ again, like $A$,
# is $gC \, B^T$: $(n, m)$ times $(m, k)$.
#
# And see the price. For one product on the way forward (the *forward pass*) there are
# two on the way back (the *backward pass*). So **the walk back costs about twice as
# much as the way forward.**

# %%
gA = gC @ B.T
gB = A.T @ gC
print("gA = gC B^T:", gA.tolist())
print("gB = A^T gC:", gB.tolist())
same("A gets gC B^T", tensor_A.grad, gA)
same("B gets A^T gC", tensor_B.grad, gB)

# %% [markdown]
# ## What does attention hand back?
# **State.** Attention's four steps, with a name for each result:
#
# $$S = Q K^T \qquad Z = S / \sqrt{d_k}$$
#
# $$P = \text{softmax}(Z) \qquad Y = P V$$
#
# $P$ holds the weights; lesson 03 needs the letter $W$. The two products and the
# division are known by now. The softmax turns a row of scores into a row of weights.
# Let $z$ be a row of $Z$, and $p$ the same row of $P$:
#
# $$p_i = e^{z_i} / s \qquad s = \sum_j e^{z_j}$$
#
# ### First, the softmax
# Each weight depends on each score, through the sum $s$. The table of all slopes
# $\partial p_i / \partial z_j$ is called the *Jacobian* of $p$.
#
# **Derive.** Take the quotient rule. The slope of $s$ for $z_j$ is $e^{z_j}$. The slope
# of $e^{z_i}$ for $z_j$ is $e^{z_i}$ if $i = j$, and 0 if not. With $\delta_{ij}$,
# which is 1 if $i = j$ and 0 if not, it is $\delta_{ij} e^{z_i}$. Then
#
# $$\frac{\partial p_i}{\partial z_j} =
# \frac{\delta_{ij} e^{z_i} s - e^{z_i} e^{z_j}}{s^2}$$
#
# Divide each product by $s \cdot s$, and each $e^{z_i} / s$ becomes a weight:
#
# $$\frac{\partial p_i}{\partial z_j} =
# \delta_{ij} \frac{e^{z_i}}{s} - \frac{e^{z_i}}{s} \frac{e^{z_j}}{s} =
# \delta_{ij} \, p_i - p_i p_j = p_i (\delta_{ij} - p_j)$$
#
# A weight rises with its own score, with the slope $p_i (1 - p_i)$: the $w (1 - w)$ of
# lesson 01. It falls with every other score, with the slope $-p_i p_j$, because the
# weights share the sum 1. For the scores 0, 1 and 2:

# %%
z = np.array([0.0, 1.0, 2.0])
p = F.softmax(z).numpy()
jacobian = np.zeros((3, 3))
for i in range(3):
    for j in range(3):
        delta = 1.0 if i == j else 0.0
        jacobian[i, j] = p[i] * (delta - p[j])
print("the weights:", p.round(3).tolist())
draw(figures.jacobian, "02_jacobian.png", jacobian, z, p)

# %% [markdown]
# ![A table of three rows, the weights 0.09, 0.24 and 0.67, and three columns, the scores 0, 1 and 2, with signed colours: the numbers on the diagonal are positive, all others negative, and each column sums to 0.](figures/02_jacobian.png)
#
# *What to see: positive on the diagonal, negative elsewhere. Each column sums to 0:
# what one weight gains, the others lose. Each row sums to 0, too: its sum is the slope
# of a weight when all scores rise alike. That multiplies all powers of $e$ by the same
# number, so no weight changes.*
#
# Now the gradient. $gp_i$ has arrived at weight $i$. Score $j$ acts on all weights, so
# its gradient is a sum over all of them:
#
# $$gz_j = \sum_i gp_i \, p_i (\delta_{ij} - p_j)$$
#
# Multiply out. Of the products with $\delta_{ij}$ only the one with $i = j$ stays,
# $gp_j \, p_j$. The other products all contain $p_j$, so it may stand before their sum:
#
# $$gz_j = gp_j \, p_j - p_j \sum_i gp_i p_i$$
#
# $$= p_j \left( gp_j - \sum_i gp_i p_i \right)$$
#
# Call $gp_j$ the *price* of key $j$: a little weight there adds $gp_j$ times as much to
# $L$. Then the bracket is **the price of key $j$ minus the average price**.
#
# Let $gp = (1, -2, 3)$ arrive at our three weights. The average price is 1.596. Key 1
# has the price 1, which is less. So the gradient of its score is *negative*, -0.054,
# although its $gp$ is positive: $L$ falls when this key takes weight from the others.
# Key 2 is the cheapest: its score gets -0.880, so training raises it. Key 3 costs more
# than the average, and has a large weight: its score gets 0.665 · (3 - 1.596) = 0.934,
# and falls.

# %%
gp = np.array([1.0, -2.0, 3.0])
average = (gp * p).sum()
gz = p * (gp - average)
print("average price:", average.round(3))
print("gradients of the scores:", gz.round(3).tolist())
tensor_z = Tensor(z)
F.softmax(tensor_z).backward(gp)
same("softmax hands back p (gp - sum gp p)", tensor_z.grad, gz)
same("which is gp times the Jacobian", tensor_z.grad, gp @ jacobian)

# %% [markdown]
# Why minus the average? Follow one score:
#
# 1. Raise $z_j$ by 0.01. Its power $e^{z_j}$ grows by 1%.
# 2. The weight of key $j$ would grow by $0.01 \, p_j$, which adds
#    $0.01 \, p_j \, gp_j$ to $L$.
# 3. Now the weights sum to $1 + 0.01 \, p_j$, and the softmax divides *all* of them by
#    that. While the change is small, each weight $p_i$ loses $0.01 \, p_j$ of itself,
#    at the price $gp_i$. Together, $L$ loses $0.01 \, p_j$ times $\sum_i gp_i p_i$,
#    which is the average price.
# 4. Divide by the 0.01: $p_j$ times the bracket. So the score of a key with a small
#    weight learns slowly, and with the weight 0 not at all.
#
# ### Then all four steps
# Walk back from the last step to the first. Each uses a rule that is derived above:

# %%
draw(figures.attention, "02_attention.png")

# %% [markdown]
# ![A graph of the four steps of attention with the arrows of the way back: from Y to P and to V, from P through Z to S, from S to Q and to K. At each arrow stands what is handed back; Q, K and V are marked, with their gradients.](figures/02_attention.png)
#
# *What to see: one gradient arrives, at $Y$, and three leave, at $Q$, $K$ and $V$. Each
# product hands one back along each of its two arrows.*
#
# | step | what it hands back |
# |---|---|
# | $Y = P V$ | $gP = gY \, V^T$, and **$gV = P^T \, gY$** |
# | $P = \text{softmax}(Z)$ | $gZ = P \odot (gP - \sum (gP \odot P))$ |
# | $Z = S / \sqrt{d_k}$ | $gS = gZ / \sqrt{d_k}$ |
# | $S = Q K^T$ | **$gQ = gS \, K$**, and **$gK = gS^T \, Q$** |
#
# Here $\odot$ multiplies number by number, as `*` does, and the sum is over each row.
# In $S = Q K^T$ the right factor is $K^T$. It gets $Q^T \, gS$, and so $K$ gets the
# transpose of this, $gS^T \, Q$.
#
# In words: a value gets the gradients of the answers that it is part of, each times its
# weight there ($P^T \, gY$). A query gets a sum of keys, each times the gradient of its
# score ($gS \, K$). A key gets a sum of queries in the same way ($gS^T \, Q$).


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
# A mask needs no rule of its own: a forbidden key has the weight 0, and the weight
# stands in front of the bracket. So its score gets the gradient 0.
#
# ### What moved the query?
# Now we can read the first row that this lesson printed. The gradient of the query was
# (-5.4, 7.5), and by $gQ = gS \, K$ it is a sum of keys: some of "river", (3, 0), and
# some of "money", (0, 3). How much of each?
#
# First the prices. $L$ is the squared distance of the answer from (3, 0), so its slope
# is twice the difference. At first the answer is (0.29, 2.42):
#
# $$gY = 2 \cdot \left( (0.29, 2.42) - (3, 0) \right) = (-5.42, 4.84)$$
#
# The price of a key is the dot product of its value with this, by $gP = gY \, V^T$. For
# "river", (3, 0), it is $3 · (-5.42) = -16.26$, for "money", (0, 3),
# $3 · 4.84 = 14.52$. All the rest, at first and after two updates:

# %%
for updates in (0, 2):
    asked = queries[updates]
    g_answer = 2 * (F.attention(asked, vectors, vectors).numpy() - wanted)
    by_steps = attention_backward(asked, vectors, vectors, g_answer)[0]
    same(f"update {updates}: gQ by our four steps", by_steps, gradients[updates])
    p_of_keys = F.attention_weights(asked, vectors).numpy()[0]
    prices = (g_answer @ vectors.T)[0]
    print("answer", (wanted + g_answer / 2)[0].round(2), " gY", g_answer[0].round(2))
    bracket = prices - prices @ p_of_keys
    print(f"{updates} updates  weight   price  minus average  product  / sqrt(2)")
    for i, key in enumerate(("river", "by", "money")):
        g_score = p_of_keys[i] * bracket[i]
        print(f"{key:9s}  {p_of_keys[i]:.4f}  {prices[i]:6.2f}", end=" ")
        print(f"{bracket[i]:14.2f} {g_score:8.2f} {g_score / 2**0.5:10.2f}")

# %% [markdown]
# The last column has the answer. At first it is -1.80 times "river" and 2.50 times
# "money": 3 · (-1.80) = -5.4, and 3 · 2.50 = 7.5. The multiple of "river" is negative,
# so $L$ falls if the query becomes more like it. That of "money" is positive. Training
# subtracts both: **the query moves towards keys that deserve more weight, and away from
# the others.**
#
# Why does the gradient *grow* at first, to (-8.8, 9.8) after two updates, although the
# loss has fallen? Compare the products of a weight and its bracket:
#
# | key | at first | after two updates |
# |---|---|---|
# | river | 0.0967 · (-26.40) = -2.55 | 0.2499 · (-16.69) = -4.17 |
# | money | 0.8066 · 4.38 = 3.53 | 0.6039 · 7.68 = 4.64 |
#
# "River" has a large bracket at first, and hardly any weight in front of it. Then the
# bracket shrinks by more than a third, but the weight more than doubles.
#
# "Money" has nearly all the weight at first, so the average is mostly its own price,
# and its bracket is small. Then it loses a quarter of its weight, and its bracket grows
# by three quarters.
#
# **A softmax that is too sure learns slowly, be it sure of the right key or of a wrong
# one.** This is why lesson 01 divides by $\sqrt{d_k}$: it keeps the weights away from 0
# and 1.
#
# ## How can a gradient check lie?
# **State.** A gradient check compares the result of backward with central differences
# of $L$. $L$ must be one number. If a program has many outputs, a simple check adds
# them up and calls the sum $L$: in Python, `.sum().backward()`. A sum hands a 1 back to
# each of its terms, so the $gy$ that arrives at the outputs is all ones.
#
# **Derive.** The outputs of a softmax have the sum 1, whatever $x$ is. So their sum
# does not move when $x$ moves: its gradient is 0, as each column of the Jacobian
# sums to 0. And a backward that returns nothing but zeros passes the check perfectly.
# Try the right softmax, and one that learns nothing:


# %%
def softmax_that_learns_nothing(x):
    def backward(gy):
        return 0 * gy

    return record(F.softmax(x).data, (x,), backward)


def gradient_of_sum(f, x):
    tensor = Tensor(x)
    f(tensor).sum().backward()
    return tensor.grad


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


# z: the three scores 0, 1 and 2 of the last section
measured = differences(F.softmax, z)
of_right = gradient_of_sum(F.softmax, z)
of_zeros = gradient_of_sum(softmax_that_learns_nothing, z)
same("the sum accepts the right softmax", of_right, measured, atol=1e-8)
same("the sum accepts one that learns nothing", of_zeros, measured, atol=1e-8)

# %% [markdown]
# **Equate.** `grad_check` weighs the outputs at random. Its $L$ is the sum of $c_i y_i$
# with random numbers $c$, so no mistake can hide in a sum that happens to be constant.
# It refuses the zeros, and says what it thinks is wrong. The code inside
# `assert_raises` is expected to fail, and its message is kept.

# %%
with np.testing.assert_raises(AssertionError) as zeros_found:
    grad_check(softmax_that_learns_nothing, z)
zeros_said = str(zeros_found.exception)
claim("grad_check rejects the zeros", "zero everywhere" in zeros_said, zeros_said)


# %% [markdown]
# ## What did we learn?
# - The gradient says for each number how fast the loss rises when the number grows.
# - Along a path slopes are multiplied; over all paths the products are added.
# - One walk from the result to the inputs finds all gradients, and costs about twice as
#   much as the way forward.
# - A node hands on its gradient once, when all nodes that use it have handed on.
# - All uses of a number are added up.
# - For $C = A B$: $gA = gC \, B^T$, and $gB = A^T \, gC$. A broadcast row gets the sum.
# - Attention: $gV = P^T \, gY$; $gQ = gS \, K$ and $gK = gS^T \, Q$, through the
#   softmax and the root.
# - A gradient check must weigh the outputs at random; their sum can hide a mistake.

# %% [markdown]
# ## More on gradients
# Nothing below is needed for the next lesson. Of the questions, the two with a ★ are
# worth everybody's click.
#
# ### ★ How small should the step be, and what deceives every check?
# A central difference measures the slope of a straight line between two points of a
# curve. Its error falls with $h^2$ (the bend is the same on both sides and cancels), so
# a small $h$ is better. But a computer keeps about sixteen digits of a number, seven in
# float32. If two results agree in almost all of them, their difference is mostly
# rounding error, and is then divided by $2 h$. So a *very* small $h$ is worse.


# %%
steps = [10.0**-k for k in range(1, 11)]


def errors_by_step(dtype):
    errors = []
    for h in steps:
        found = differences(F.softmax, z.astype(dtype), gp, h)
        errors.append(abs(found - gp @ jacobian).max())
    return errors


in_float64 = errors_by_step(np.float64)
in_float32 = errors_by_step(np.float32)
claim("in float64, the error with h = 1e-5 is", in_float64[4] < 1e-9, in_float64[4])
both_precisions = {"float64": in_float64, "float32": in_float32}
draw(figures.steps, "02_step.png", steps, both_precisions)

# %% [markdown]
# ![Error of the measured gradient against the step h on logarithmic axes: in float64 a valley with its bottom, at an arrow, near h = 1e-5 and an error below 1e-9; in float32 one near h = 1e-2, far higher.](figures/02_step.png)
#
# *What to see: each curve has a lowest point. To the right of it, the error is that of
# the straight line; to the left, that of rounding. So gradients are checked in float64.
# On the far left float32 is flat: $h$ is rounded away, and nothing is measured at all.*
#
# What deceives every check is a *kink*. The function $\max(0, x)$ of lesson 04 has the
# slope 0 left of 0, and 1 right of it. A difference across the kink measures something
# between the two: 0.5 exactly at the kink.
#
# ### What if no gradient is wanted?
# A model that only translates needs no walk back. Yet every node would keep the arrays
# that its backward needs, for nothing. Inside the block `with no_grad():` nothing is
# recorded: the results are the same, but they have no node. And of one result,
# `.detach()` gives the same array without its past: the walk back stops there, as at
# data. An engine has it for a number that one wants to use without teaching what made
# it, such as a loss that is only printed, or a target that a model computes for itself.

# %%
recorded = F.exp(tensor_z)
with no_grad():
    unrecorded = F.exp(tensor_z)
after_the_block = F.exp(tensor_z)
same("no_grad changes no result", unrecorded, recorded)
nodes = [result._node is not None for result in (recorded, unrecorded, after_the_block)]
claim("inside no_grad nothing gets a node", nodes == [True, False, True], nodes)
detached = Tensor([3.0])
(detached * detached.detach()).backward([1.0])
same("x times a detached x of 3 has the slope 3, not 6", detached.grad, [3.0])

# %% [markdown]
# ### Are the other rules of the table right?


# %%
def chosen(x, y):
    return F.where(numbers > 1.2, x, y)


def turned(x):
    # Axis 1 first, then axis 2, then axis 0: the shape (2, 3, 4) becomes (3, 4, 2).
    return x.transpose(1, 2, 0).reshape(3, 8)


grad_check(chosen, numbers, others)
grad_check(turned, rng.standard_normal((2, 3, 4)))

# %%
# A row of shape (1, 3) times a column of shape (2, 1) is a matrix (2, 3).
grad_check(lambda x, y: x * y, numbers[:1], others[:, :1], name="row times column")
wide = rng.standard_normal((2, 3))
wider = rng.standard_normal((3, 4))
grad_check(lambda x, y: x @ y, wide, wider, name="(2, 3) @ (3, 4)")

# %% [markdown]
# For sums, means and rows, take a matrix of three rows and see what each row gets.

# %%
rows = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
rows[[0, 2, 2]].backward(np.ones((3, 2)))
same("a row taken twice gets 2, one not taken 0", rows.grad[:, 0], [1.0, 0.0, 2.0])
averaged = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
averaged.mean(axis=0).backward([3.0, 6.0])
same("a mean of 3 rows hands each a third", averaged.grad, [[1.0, 2.0]] * 3)
summed = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
summed.sum(axis=0).backward([3.0, 6.0])
same("a sum of 3 rows hands each all of it", summed.grad, [[3.0, 6.0]] * 3)

# %% [markdown]
# ### How strict is a gradient check?
# A slope that is wrong in the fifth digit is refused too.


# %%
def cube_with_a_small_mistake(x):
    def backward(gy):
        return gy * 3.0001 * x.data**2

    return record(x.data**3, (x,), backward)


with np.testing.assert_raises(AssertionError) as mistake_found:
    grad_check(cube_with_a_small_mistake, numbers)
mistake_said = str(mistake_found.exception)
rejected = "should be" in mistake_said
claim("grad_check rejects a factor of 3.0001 in place of 3", rejected, mistake_said)

# %% [markdown]
# ### ★ What does the library's walk look like?
# `Tensor.backward` is our `walk_without_tape`. Its first lines make the 1, and treat a
# Tensor that was made from data, like $p$ and $q$: such a *leaf* has nobody to hand its
# gradient to, so it keeps it. `_inputs_first` is our `list_inputs_first`. It does not
# call itself, because Python allows about a thousand calls inside each other, and a
# long program needs more. Then the last node is taken off the list, again and again,
# and its `walk_back` is our `hand_on`.

# %%
show(Tensor.backward)

# %% [markdown]
# And this is plus, complete, with its rule, $gy$ and $gy$, at the end; `operand` takes
# the array out of a Tensor. Where an array was broadcast, the walk sums its gradient.
# So no backward of the library needs to know of broadcasting. Your own engine, which
# has no such walk, sums in `__add__` itself (piece 6).

# %%
show(Tensor.__add__)

# %% [markdown]
# ### Where are the uses of a parameter added up?
# A *parameter* is a leaf that training changes. Each of its uses in the program sends
# it a gradient, and it adds them up in `.grad`.

# %%
w = Tensor(5.0)
# On paper, the slope of w + w w + w is 1 + 2w + 1, and w is 5.
(w + w * w + w).backward()
same("all uses of one parameter are added up", w.grad, 1.0 + 2 * 5.0 + 1.0)

# %% [markdown]
# - **Gradients of another graph are added too.** So training sets all gradients back to
#   nothing before each update.
# - **A graph is walked once.** The walk frees it, and a second walk is an error.
# - **The first gradient that arrives is never changed.** A sum hands *the same array*
#   to both its inputs. If one of them added its next gradient into that array, the
#   other would get it too. So a parameter makes a copy at once, and a node makes a new
#   array when it adds the second.

# %%
left = Tensor([1.0, 2.0])
right = Tensor([3.0, 4.0])
total = left + right
total.backward([1.0, 1.0])
(left * 7.0).backward([1.0, 1.0])
same("gradients of a second graph are added: 1 + 7", left.grad, [8.0, 8.0])
same("and the other input of the sum keeps its own, 1", right.grad, [1.0, 1.0])
with np.testing.assert_raises(RuntimeError) as walked_twice:
    total.backward([1.0, 1.0])
twice_said = str(walked_twice.exception)
claim("a second walk of one graph is an error", "freed" in twice_said, twice_said)

# %%
# The same with two nodes: u and v get one array, (2, 2), from their sum, and then more.
start = Tensor([[1.0, 2.0], [3.0, 4.0]])
u = start[0]
v = start[1]
(u * 3.0 + v * 5.0 + v * 4.0 + 2.0 * (u + v)).backward([1.0, 1.0])
same("u gets 2 + 3, v gets 2 + 4 + 5", start.grad, [[5.0, 5.0], [11.0, 11.0]])
finish(
    "A node hands on its gradient when all of it has arrived; a check of it weighs "
    "the outputs at random."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 02` writes this part to `my_02_gradients.py`; fill in the
# bodies and run it. It imports `np`, `F`, `Tensor`, `record` and `grad_check`. An
# operation is made by `record(result, inputs, backward)`; the array in a Tensor `x` is
# `x.data`.


# %%
def predicted():
    """Predict, then run: u = a b, v = u + a, L = u v at a = 2, b = 3. Return the
    list [dL/da, dL/db], found with a pencil.

    Hint: "Which way should a number move?" Draw the graph. Three paths lead from a
    to L, and two from b.
    """
    ...


def logsumexp(x):
    """Return ln sum_j exp(x_j) over the last axis, through record, without overflow
    at x = 1000. x: a Tensor (..., n). The result has one axis less, and so has gy.

    Hint: "What does attention hand back?" has the slopes of such a sum, s.
    Those of ln s are one step further.
    """
    ...


def centred(x):
    """Find the mistake, and return the result with the right backward.

        record(x.data - x.data.mean(axis=-1, keepdims=True), (x,), lambda gy: gy)

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
    checks.check_predicted(predicted)


def check_logsumexp():
    checks.check_logsumexp(logsumexp)


def check_centred():
    checks.check_centred(centred)


def check_fools_the_sum():
    checks.check_fools_the_sum(fools_the_sum)


# %% [markdown]
# **Now yours: pieces 5 to 10** of `my_transformer.py`. The walk is yours now:
# `Tensor.backward`, `Tensor.__add__`, `Tensor.__matmul__`, `Tensor.transpose`,
# `topological_order` and `attention`. If you have no such file, `python
# lessons/build.py` writes it.

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("tensor.Tensor", "tensor.record", "tensor.no_grad", "functions.exp",
              "functions.log", "functions.where")  # fmt: skip
