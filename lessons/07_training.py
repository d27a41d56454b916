# %% [markdown]
"""# Lesson 07. Training

A new model reads "2 7 1 8 2 8", and is to write it backwards. After twenty small
changes of its numbers it writes nothing at all, after a hundred "2 8 8 2 8", and after
two hundred "8 2 8 1 7 2". Nobody tells it the rule. This lesson trains that model
first, in seconds, and then opens the steps one by one: the loss, Adam, and the learning
rate (section 5.3, section 5.4). At the end it watches what large first changes do to a
model: the models that began so learned how frequent each digit is, and no more.

You need lessons 01 to 06.
"""

# %% [markdown]
# ## What does a training look like?
# A task whose answers we know: read 3 to 8 random digits and write them backwards.

# %%
import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.check import claim, grad_check, same
from minitf.config import Config
from minitf.course.architecture import figure_1
from minitf.course.checks import training as checks
from minitf.course.experiments import smoothing, warmup
from minitf.course.figures import training as figures
from minitf.course.lesson import begin, draw, finish, kept, show
from minitf.course.trainings import (
    ReversedRows,
    halving,
    left_to_learn,
    parameters_of_the_trainer,
)
from minitf.loss import label_smoothed_cross_entropy, projected_cross_entropy
from minitf.nn import Parameter
from minitf.optim import (
    Adam,
    Flat,
    adam_update,
    clip_gradient,
    gradient_norm,
    warmup_rate,
)
from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.training import Settings
from minitf.transformer import Transformer

# Reads the options --figures and --backend, and starts to count the claims.
begin("07_training")
rng = np.random.default_rng(1)  # random numbers for the checks below

one_row = warmup.reversal(np.random.default_rng(0), 1)
print(*(one_row.source[0] - 4)[:-1], "-> ", *(one_row.target_out[0] - 4)[:-1])

# %% [markdown]
# It is a small translation. The first output needs the last input, the second the last
# but one: attention must learn where to look, and the digits themselves give no hint.
#
# A new Transformer of lesson 06 is to learn it. It has 2 layers in each tower, vectors
# of 32 numbers ($d_{model}$), 4 heads, networks with 64 units ($d_{ff}$), and no
# dropout. Its vocabulary has 14 tokens: 0 is padding, 2 the start mark, 3 the end mark,
# and 4 to 13 are the digits.
#
# The training is five lines, repeated: take a batch, delete the old gradients, compute
# the loss, compute the gradients, change the numbers. One pass is an *update*.


# %%
def rate_of(update):
    """Return the rate of an update; a section below explains it."""
    return warmup_rate(update, 32, warmup_steps=100, factor=0.2)


def train(model, optimizer, updates=400):
    """Make the updates; after each, yield its number and its loss."""
    rng = np.random.default_rng(7)
    for update in range(1, updates + 1):
        batch = warmup.reversal(rng, 64)  # 64 random rows, with their answers
        optimizer.zero_grad()
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        loss.backward()
        optimizer.step(rate_of(update))
        yield update, float(loss)


# %% [markdown]
# Around the loop we watch: after 20, 50, 100 and 200 updates the model writes its own
# answer for one row, token by token as in lesson 06 (`answer`). Let it run.


# %%
def new_learner(label_smoothing):
    """Return a new model for this task, and what will change its numbers."""
    config = Config(
        vocabulary_size=14,
        n_layers=2,
        d_model=32,
        d_ff=64,
        n_heads=4,
        dropout=0.0,
        label_smoothing=label_smoothing,
    )
    # float64: processors round differently, and in float32 that changes the training.
    model = Transformer(config, seed=1).astype(np.float64)
    return model, Adam(model.named_parameters())


model, optimizer = new_learner(label_smoothing=0.1)
losses = []
answers = {}
print("the right answer: 8 2 8 1 7 2 .")
with forms.on():  # a faster program of the same equations
    for update, loss in train(model, optimizer):
        losses.append(loss)
        if update in (20, 50, 100, 200):
            answers[update] = warmup.answer(model, "271828")
            print(f"after {update} updates: {answers[update]}")
        if update == 50:
            print(f"    and backwards, 3 6 5 is: {warmup.answer(model, '365')}")

# %% [markdown]
# Read the answers (the dot is the end mark).
#
# - After 20 updates, ".": it ends the row at once. The end mark is the most frequent
#   token, as each row has one.
# - After 50, "2 2 2 2 2 2 .": it repeats a digit of the row. It stops at the right
#   place, by luck: "3 6 5" gets six threes.
# - After 100, "2 8 8 2 8 .": it knows two digits of the row, but not the 1, the 7 or
#   the order, and stops one digit too early.
# - After 200, "8 2 8 1 7 2 .": all is right.
#
# Has it learned the rule, or only the rows that it has seen? Of three digits there are
# so few rows that it has met nearly all of them; of six there are a million. So give it
# 1,000 new rows of 6 to 8 digits, after all its 400 updates. A row counts only if every
# token is right.

# %%
new_rows = warmup.reversal(np.random.default_rng(2), 1000, shortest=6)
chosen = model(new_rows.source, new_rows.target_in).numpy().argmax(axis=-1)
right = (chosen == new_rows.target_out) | (new_rows.target_out == 0)
claim(
    "new random rows of 6 to 8 digits are reversed",
    right.all(axis=1).mean() > 0.9,
    f"{right.all(axis=1).mean():.1%}",
)

# %% [markdown]
# Of the new rows, 99.8% are right to the last token: it has learned the rule. We gave
# it the right digits so far and asked for the next. If all its answers are right, it
# would have written the same row alone.
#
# Each update asked three questions. This lesson answers the first and the last. Here
# $p$ is the probability that the model gave.
#
# | question | answered by |
# |---|---|
# | How wrong is the model? | `model.loss`: by $-\ln p$ of the right token, on average |
# | Which way should each number move? | `loss.backward` (lesson 02) |
# | How far? | `optimizer.step` |

# %%
draw(figure_1, "07_here.svg", here=["loss", "update"])

# %% [markdown]
# ![Figure 1 of the paper with the loss above the output probabilities marked, and, in a paler blue, all boxes that own numbers: embeddings, attentions, feed-forward networks, norms and the linear layer. Adam moves them](figures/07_here.svg)
#
# *What to see: the loss compares the output with the right words. Its gradient walks
# back through the whole model (lesson 02), and then the numbers in all pale blue
# boxes move.*

# %% [markdown]
# ## How wrong is a prediction?
# A gradient needs one number that says how wrong the model is, the *loss*. A tiny
# example: the vocabulary is *the, cat, sleeps, dog*, and the model has read "the". Its
# *logits* (lesson 05: one number for each word, large for a likely one) are
# $z = (0, 2, 1, 1)$. The softmax $p$ makes probabilities of them:
#
# | | the | cat | sleeps | dog | sum |
# |---|---|---|---|---|---|
# | $z$ | 0 | 2 | 1 | 1 | |
# | $\exp(z)$ | 1.00 | 7.39 | 2.72 | 2.72 | 13.83 |
# | $p$ | 0.072 | 0.534 | 0.197 | 0.197 | 1 |
#
# **State.** If the true word is $y$, the loss of this position is the *cross-entropy*
#
# $$\text{loss} = -\ln p_y$$
#
# It is 0 if the model was sure of the true word, and grows without bound as $p_y$ goes
# to 0. If the next word is "cat", the loss is $-\ln 0.534 = 0.63$. If it is "dog", it
# is $-\ln 0.197 = 1.63$.
#
# Why the logarithm? The probability of a sentence is the product of the probabilities
# of its words; $-\ln$ makes a sum of it, so each word has a loss of its own. And $-\ln$
# does not forgive a model that is sure and wrong: with $p_y = 0.001$ the loss is 6.9.

# %%
z = np.array([0.0, 2.0, 1.0, 1.0])
p = np.exp(z) / np.exp(z).sum()
print(f"exp(z) {np.exp(z).round(2)}, sum {np.exp(z).sum():.2f}, p {p.round(3)}")
print(f"loss if the true word is cat {-np.log(p[1]):.2f}, if dog {-np.log(p[3]):.2f}")
print(f"loss if the true word has 0.001: {-np.log(0.001):.1f}")

# %% [markdown]
# **Derive.** How does the loss change with a logit $z_j$?
#
# 1. Write the softmax out: $-\ln p_y = \ln \sum_w \exp(z_w) - z_y$.
# 2. The slope of $\ln u$ is $1 / u$ times the slope of $u$. So the slope of the first
#    term is $\exp(z_j) / \sum_w \exp(z_w)$, which is $p_j$. The slope of $z_y$ is 1 for
#    the true word and 0 for the others. Call that row $q$: $q_j = 1$ for $j = y$, else
#    0.
#
# $$\frac{d\,\text{loss}}{d z} = p - q$$
#
# Read it: **each logit is pushed by the amount by which its probability is wrong**. For
# "dog", $p - q = (0.07, 0.53, 0.20, -0.80)$, and the four add up to 0. An update goes
# against the gradient, so the logit of "dog" rises, and "cat", which took most of the
# probability, falls most.
#
# Why not the loss $1 - p_y$? Its slope for the true word's logit is $-p_y (1 - p_y)$,
# the $w (1 - w)$ of lesson 01. A model that is sure and wrong, with $p_y = 0.001$, has
# the slope -0.001: it would learn next to nothing. The slope of $-\ln p_y$ has one more
# factor, $1 / p_y$. It cancels $p_y$, and $-(1 - p_y) = -0.999$ is left: nearly the
# largest push that there is.

# %%
row_of_logits = Parameter(z)
dog = 3
# log_softmax is the ln of the softmax, in one function.
(-F.log_softmax(row_of_logits)[dog]).backward()
q = np.array([0.0, 0.0, 0.0, 1.0])
print(f"p - q = {(p - q).round(2)}")
print(f"p_y = 0.001: slope of 1 - p {-0.001 * 0.999:.3f}, of -ln p {0.001 - 1:.3f}")
same("the gradient of -ln p_y is p - q", row_of_logits.grad, p - q)
grad_check(F.log_softmax, rng.standard_normal((2, 3, 4)))

# %% [markdown]
# ## When is a model sure enough?
# The loss $-\ln p_y$ has a goal that cannot be reached: it is 0 for $p_y = 1$, which
# takes an infinite logit. However sure the model is of the true word, raising its logit
# lowers the loss a bit more. So a model that knows its training
# sentences by heart makes its logits larger and larger. Why is that bad? With such
# logits it is as sure of a new sentence, also where it is wrong. *Label smoothing*
# (section 5.4) gives it a goal that can be reached. The paper finds that this "improves
# accuracy and BLEU", a score of translations.
#
# **State.** $q$ is no longer 1 and 0. The true word gets $1 - \epsilon$, and the others
# share $\epsilon$, the paper's $\epsilon_{ls} = 0.1$. With $V$ words in the vocabulary:
#
# $$q_j = 1 - \epsilon \;\text{ for } j = y, \qquad
# q_j = \frac{\epsilon}{V - 1} \;\text{ else}, \qquad
# \text{loss} = -\sum_j q_j \ln p_j$$
#
# In the tiny example, with "dog" as the true word:

# %%
of_dog = np.array([0.1 / 3, 0.1 / 3, 0.1 / 3, 0.9])
print(f"q = {of_dog.round(3)}, and the loss is {-(of_dog * np.log(p)).sum():.2f}")
print(f"smoothed by 0.05, the true word would get {1 - 0.05}")

# %% [markdown]
# The paper gives no formula; this one is from its program, tensor2tensor.
#
# **Derive.** The gradient, again in two steps.
#
# 1. The loss is a sum of terms $-q_w \ln p_w$. The term of the word $w$ is $q_w$ times
#    a cross-entropy whose true word is $w$. So its gradient is $q_w (p - 1_w)$, where
#    $1_w$ is the row with a single 1, at $w$.
# 2. Add up over $w$: $\sum_w q_w (p - 1_w) = p \sum_w q_w - \sum_w q_w 1_w$. The $q_w$
#    sum to 1, so the gradient is once more $p - q$.
#
# It is 0 where $p = q$: **that is the goal**. The model of lesson 06 was trained with
# $\epsilon = 0.05$, so most of its probabilities were about 0.95. At the goal the loss
# is $-\sum_j q_j \ln q_j$, which is called the *entropy* of $q$.
#
# No $p$ gives a smaller loss. The line $u - 1$ touches $\ln u$ at $u = 1$ as its
# tangent, and $\ln$ bends down. So $\ln u$ is at most $u - 1$. Put $u = p_j / q_j$:
#
# $$\text{loss} - \text{entropy} = -\sum_j q_j \ln \frac{p_j}{q_j}$$
#
# $$\ge -\sum_j q_j \left(\frac{p_j}{q_j} - 1\right) = \sum_j (q_j - p_j) = 1 - 1 = 0$$
#
# This difference, how far $p$ is from $q$, is called the *Kullback-Leibler divergence*.

# %%
logits_again = Parameter(z)
# Equate:
label_smoothed_cross_entropy(logits_again, np.array(dog), 0.1).backward()
same("with smoothing the gradient is p - q, too", logits_again.grad, p - of_dog)

# %% [markdown]
# **Use.** The goal as a picture. Take 14 tokens, the vocabulary of the digits. Let the
# logit of the true word lead the 13 others by more and more. The ratio of two
# probabilities depends on the lead alone: $p_y / p_j = \exp(z_y - z_j)$. At $p = q$ the
# ratio is $0.9 / (0.1 / 13) = 117$, so the lead is $\ln 117 = 4.76$.

# %%
leads = np.linspace(0, 12, 121)


def losses_by_lead(eps):
    """Return the loss for each lead of the true word, number 4 of 14."""
    losses = []
    for lead in leads:
        row = np.zeros(14)
        row[4] = lead
        losses.append(float(label_smoothed_cross_entropy(row, np.array(4), eps)))
    return losses


q_14 = np.full(14, 0.1 / 13)
q_14[4] = 0.9
entropy = -(q_14 * np.log(q_14)).sum()
# With the logits ln q, the softmax p is q itself.
at_the_goal = label_smoothed_cross_entropy(np.log(q_14), np.array(4), 0.1)
same("at p = q the loss is the entropy of q", at_the_goal, entropy)
best_lead = np.log(0.9 / (0.1 / 13))
print(f"the entropy of q is {entropy:.3f}")
print(f"at p = q the true word is {np.exp(best_lead):.0f} times as probable as others")
claim(
    "the least smoothed loss is at a lead of ln(0.9 / (0.1 / 13))",
    abs(leads[np.argmin(losses_by_lead(0.1))] - best_lead) < 0.1,
    f"{best_lead:.2f}",
)

# %%
curves_by_lead = [losses_by_lead(0.0), losses_by_lead(0.1)]
draw(figures.smoothing, "07_smoothing.png", leads, curves_by_lead, best_lead, entropy)

# %% [markdown]
# ![The loss against the lead of the true word's logit: without smoothing it falls towards 0 for ever; with a smoothing of 0.1 it is least, 0.58, at a lead of 4.8, and rises after that](figures/07_smoothing.png)
#
# *What to see: without smoothing, each further lead still lowers the loss. With it, the
# loss has a lowest point, and surer models are punished.*

# %% [markdown]
# ## How far can the loss fall?
# The model at the beginning learned with smoothing 0.1 and 14 words, so its goal is
# known: the entropy of $q$, 0.582. Did it get there? We compare it with a model that
# learns without smoothing.

# %%
with forms.on():
    unsmoothed_losses = [loss for _, loss in train(*new_learner(label_smoothing=0.0))]
means = np.reshape(losses, (-1, 10)).mean(axis=1)  # each the mean of ten updates
unsmoothed_means = np.reshape(unsmoothed_losses, (-1, 10)).mean(axis=1)
claim(
    "with smoothing, the loss ends just above the entropy of q",
    entropy < means[-1] < 1.03 * entropy,
    f"{means[-1]:.3f}, the entropy is {entropy:.3f}",
)
claim(
    "without smoothing, the loss ends near 0",
    unsmoothed_means[-1] < 0.03,
    f"{unsmoothed_means[-1]:.3f}",
)
of_paper = -0.9 * np.log(0.9) - 0.1 * np.log(0.1 / 36_999)
print(f"the entropy of q for 37,000 subwords: {of_paper:.2f}")
draw(figures.loss, "07_loss.png", unsmoothed_means, means, entropy, answers)

# %% [markdown]
# ![Two curves of the loss over 400 updates: without smoothing it falls to 0, with a smoothing of 0.1 it flattens at 0.6, a little above a level line, the entropy of q. Four notes at the latter curve say what the model wrote: after 20 updates only the end mark, after 200 the right row](figures/07_loss.png)
#
# *What to see: this is the training of the first section, with what the model wrote
# after 20, 50, 100 and 200 updates. The smoothed loss ends a little above the grey
# line, its goal, the other near 0. In the late bump of each curve a few updates spoil
# something that was learned, and the next ones repair it.*
#
# So a loss of 0.6 does not mean "not yet learned": **compare a smoothed loss with the
# entropy of $q$, not with 0**. This goal depends on the vocabulary: with the paper's
# 37,000 subwords it is 1.38.
#
# In real text the next word is often not certain. Then the loss stays higher: if "cat"
# and "dog" follow equally often, the best $p$ is the average of their two $q$, where
# the mean gradient is 0. In the small example the mean loss is 0.94 instead of 0.43.

# %%
average = (of_dog + of_dog[[0, 3, 2, 1]]) / 2  # the q of "cat": the same, exchanged
for name, each in (("dog", of_dog), ("cat or dog", average)):
    print(f"{name}: q {each.round(3)}, entropy {-(each * np.log(each)).sum():.2f}")

# %% [markdown]
# ## How far should each number move?
# Take a model with a single parameter, $x = 1$. On the first batch of sentences the
# gradient of its loss is 2: if $x$ grows by 0.01, the loss grows by about 0.02. So $x$
# should shrink. But how far?
#
# The simplest rule is *gradient descent*, $x - \text{rate} · \text{gradient}$, where
# the *learning rate* is a small number that we choose. It has a flaw:

# %%
for gradient in (2.0, 0.002):
    print(f"gradient {gradient}: at the rate 0.1 a move of {-0.1 * gradient:.4f}")

# %% [markdown]
# A small gradient does not mean that a number is nearly right: the row of a rare word
# has a small one because the word is rare.
#
# *Adam* (section 5.3) measures each gradient against its usual size. After one
# gradient, 2, the usual size is 2 as well. So with the rate 0.1 the first move is
#
# $$x = 1 - 0.1 \cdot \frac{2}{2} = 0.9$$
#
# Two more batches follow. Their gradients are 1, and then -1: the third batch would
# rather have a larger $x$. What is the usual size of three gradients?
#
# **State.** Adam keeps two running means, and divides one by the root of the other:
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1) g$$
# $$v \leftarrow \beta_2 v + (1 - \beta_2) g^2$$
# $$x \leftarrow x - \text{rate} \cdot \frac{\hat{m}}{\sqrt{\hat{v}} + \epsilon}$$
#
# - $m$ is a running mean of the gradients $g$. With $\beta_1 = 0.9$ it keeps nine
#   tenths of the old mean and takes one tenth of the new gradient.
# - $v$ is a running mean of their squares, and $\beta_2 = 0.98$. So $\sqrt{v}$ is the
#   usual size of a gradient, whatever its sign.
# - Another $\epsilon$, $10^{-9}$, prevents 0 / 0 for a parameter whose gradients were
#   all 0.
# - The hats are a correction.
#
# **Derive.** Both $m$ and $v$ begin at 0, so both are too small at first. Each update
# keeps nine tenths of the old $m$, so after $t$ updates the starting 0 still has the
# weight $0.9^t$. The real gradients together have the rest, $1 - 0.9^t$. Divided by it,
# $m$ is a true mean of them; likewise $v$, with $0.98^t$:
#
# $$\hat{m} = \frac{m}{1 - \beta_1^t} \qquad \hat{v} = \frac{v}{1 - \beta_2^t}$$

# %%
for t in (1, 2, 3):
    print(f"update {t}: m divided by {1 - 0.9**t:.3f}, v divided by {1 - 0.98**t:.4f}")

# %% [markdown]
# On paper:
#
# | update | $g$ | $m$ | $v$ | $\hat{m}$ | $\hat{v}$ | $x$ moves by | $x$ |
# |---|---|---|---|---|---|---|---|
# | 1 | 2 | 0.200 | 0.0800 | 2.00 | 4.00 | $-0.1 · 2.00 / 2.00 = -0.10$ | 0.90 |
# | 2 | 1 | 0.280 | 0.0984 | 1.47 | 2.48 | $-0.1 · 1.47 / 1.58 = -0.09$ | 0.81 |
# | 3 | -1 | 0.152 | 0.1164 | 0.56 | 1.98 | $-0.1 · 0.56 / 1.41 = -0.04$ | 0.77 |
#
# So the usual size of the three gradients is 1.41, the root of 1.98. As a program:


# %%
def adam_by_hand(x, gradients, rate):
    """Return m, v, both corrected, the root of v, and x after each update."""
    m = 0.0
    v = 0.0
    path = []
    for t, g in enumerate(gradients, 1):
        m = 0.9 * m + 0.1 * g
        v = 0.98 * v + 0.02 * g**2
        fair_m = m / (1 - 0.9**t)
        fair_v = v / (1 - 0.98**t)
        root = np.sqrt(fair_v)
        x = x - rate * fair_m / (root + 1e-9)
        path.append((m, v, fair_m, fair_v, root, x))
    return path


# %%
on_paper = adam_by_hand(1.0, [2, 1, -1], rate=0.1)
table = [
    [0.200, 0.0800, 2.00, 4.00, 2.00, 0.90],
    [0.280, 0.0984, 1.47, 2.48, 1.58, 0.81],
    [0.152, 0.1164, 0.56, 1.98, 1.41, 0.77],
]
same("the program gives the table", on_paper, table, rtol=0.01)


# %% [markdown]
# Look at the moves. The first one is -0.10, the rate itself: after one gradient,
# $\hat{m} = g$ and $\sqrt{\hat{v}} = |g|$, so the quotient is +1 or -1, *whatever the
# size of the gradient*. The third is small, because the gradients disagree: +2, +1 and
# -1 partly cancel in $m$, but their squares cannot cancel in $v$. And it still goes
# *down*, although its own gradient asks for up: $m$ remembers the two before. That is
# called *momentum*.
#
# So a move of Adam is **the rate times a measure of how much the gradients agree**,
# mostly between -1 and 1. Each number has a usual size of its gradient, and by that a
# step size of its own.
#
# Does it matter that small gradients get full moves? We compare two rules that differ
# in one thing: with and without the division by $\sqrt{v}$. Both have the momentum $m$.
#
# Let frequencies differ, as in a language. There are 16 words, each with one
# translation. Half of the text is the first word, a quarter the second, an eighth the
# third, and so on to the last two, one in 32,768 each. The model is a table: each word
# has a row, the 16 logits of its translations, at first all 0. It gets 100 updates,
# each from a batch of 25,000 words drawn at random.

# %%
words = halving(16)  # how frequent each one is
print(f"one in {1 / words[9]:,.0f} in the middle, in {1 / words[-1]:,.0f} at the end")
print(f"{words[0] / words[-1]:,.0f} times rarer than the first", end="; ")
print(f"batches of {25_000:,} words without it: {(1 - words[-1]) ** 25_000:.0%}")

# %% [markdown]
# The gradient of a row is $p - q$ times the share of its word in the batch. On average
# it is 16,384 times smaller for the rarest word than for the first. The middle words
# have a share near 1/1,000: with the rate 1 a row would move by less than a thousandth.
# Hence rates as large as 100 and 300.
#
# Untrained, each of the 16 translations has $p = 1/16$, a loss of $\ln 16 = 2.773$. The
# goal, the entropy of $q$, is 0.596. So each word begins 2.18 above its goal.

# %%
show(left_to_learn)
losses_of_rules = {
    "descent with momentum, rate 100": left_to_learn(words, 100, divide=False),
    "descent with momentum, rate 300": left_to_learn(words, 300, divide=False),
    "Adam, rate 0.1": left_to_learn(words, 0.1, divide=True),
}
untrained = left_to_learn(words, 0.0, divide=False)[0]
print("above its goal, after 100 updates    most frequent word   rarest word")
for name, left in losses_of_rules.items():
    print(f"{name:36s} {left[0]:18.2f} {left[-1]:13.2f}")
print(f"untrained: {np.log(16):.3f} - {np.log(16) - untrained:.3f} = {untrained:.2f}")
slower, faster, by_adam = losses_of_rules.values()
claim("Adam learns every word", by_adam.max() < 0.01, f"at most {by_adam.max():.3f}")
claim(
    "descent at 100: the rarest word is this far above its goal",
    slower[0] < 0.01 < 1 < slower[-1],
    f"{slower[-1]:.2f}",
)
claim(
    "descent at 300: the most frequent word is",
    min(faster[0], faster[-1]) > 1,
    f"{faster[0]:.2f}",
)

# %%
draw(figures.rare, "07_rare.png", losses_of_rules, untrained)

# %% [markdown]
# ![How far the loss of each of 16 words is above its goal, over the word, from frequent to rare: by descent with momentum and the rate 100 the first nine are at 0, and the curve then climbs to 2.04, nearly the 2.18 of no training; with rate 300 the most frequent word is at 1.31 and the rarest at 1.76; with Adam all are at 0](figures/07_rare.png)
#
# *What to see: neither of the two rates of descent suits all words. At 100 the rare
# ones have hardly learned. At 300 they are still not there, and the moves of the most
# frequent one are already too large: it ends far from its goal. Adam has learned them
# all.*
#
# **The division by $\sqrt{v}$ gives a rare word's row nearly the moves of a frequent
# one's.** The rarest word is missing in about half of the batches. If its gradient is
# $g$ in the others, its $m$ is about $g/2$, and its $v$ about $g^2/2$. So it moves by
# about $(1/2) / \sqrt{1/2} = 0.71$ of the rate, not by 1/16,384 of a frequent word's
# move: the size of $g$ has cancelled.

# %%
print(f"in every second batch: moves of {0.5 / 0.5**0.5:.2f} times the rate")

# %% [markdown]
# **Does Adam also help the queries of lesson 01 that have nearly no slope?** It has a
# step size for each *number*, and none for each query: all share the numbers of $W^Q$.
# Let each of 64 words fetch the vector of the next one, with $d_k = 64$. Only $W^Q$ and
# $W^K$ are trained. Answers of zeros have a mean squared error of 1.


# %%
def fetch_by_adam(divisor, rate, updates=400):
    """Return the error, and the share of words that look at the next one."""
    generator = np.random.default_rng(1)
    words = generator.standard_normal((64, 64))
    W_q = Parameter(generator.standard_normal((64, 64)) / 8)
    W_k = Parameter(generator.standard_normal((64, 64)) / 8)
    adam = Adam([("W_q", W_q), ("W_k", W_k)])
    next_words = np.roll(words, -1, axis=0)
    for _ in range(updates):
        adam.zero_grad()
        scores = F.linear(words, W_q) @ F.linear(words, W_k).transpose(1, 0) / divisor
        weights = F.softmax(scores)
        miss = weights @ Tensor(words) - next_words
        loss = (miss * miss).mean()
        loss.backward()
        adam.step(rate)
    return loss.item(), (np.roll(weights.numpy(), 1, axis=0).diagonal() > 0.5).mean()


def at_the_best_rate(divisor):
    return min(fetch_by_adam(divisor, rate) for rate in (0.0003, 0.001, 0.003, 0.01))


fetched_by_adam = {
    "undivided,    400": at_the_best_rate(1),
    "undivided,  2,000": fetch_by_adam(1, 0.001, updates=2000),
    "divided by 8, 400": at_the_best_rate(8),
}
print("scores, updates     error   look at the next word")
for name, ends in fetched_by_adam.items():
    print(f"{name} {ends[0]:7.2f} {ends[1]:23.0%}")
still_left = fetched_by_adam["undivided,  2,000"][0]
far_above = still_left > 10 * fetched_by_adam["divided by 8, 400"][0]
claim("undivided, the error after 2,000 updates is still", far_above, still_left)

# %% [markdown]
# With the best of four rates, 400 updates teach half of the undivided words where to
# look, and five times as many do not teach all. **Adam does not replace the division by
# the root.** It makes the gradient of a *number* larger, which is a sum over the
# queries, and a query without a slope is missing in that sum.

# %% [markdown]
# On the digits of the first section, which are all equally frequent, descent with
# momentum comes as far ("Is Adam better than descent on the digits, and how small do
# its moves become?").

# %% [markdown]
# ## How large is the learning rate?
# **State.** Equation 3. The rate of update $t$ (the paper says *step*) is
#
# $$\text{rate} = d_{model}^{-0.5} \cdot \min(t^{-0.5},\;
# t \cdot \text{warmup\_steps}^{-1.5})$$
#
# with warmup_steps = 4000.
#
# **Derive.** The two terms are equal at $t = 4000$: $t^{-0.5} = t \cdot 4000^{-1.5}$
# gives $t^{1.5} = 4000^{1.5}$. Before that, the second is smaller: the rate grows in
# proportion to $t$, the *warm-up*. After it, the first is smaller: the rate falls as
# $1 / \sqrt{t}$. For $d_{model} = 512$:
#
# | update | rate |
# |---|---|
# | 1 | 1.75e-07 |
# | 4,000, the peak | 6.99e-04 |
# | 100,000, the base model's last | 1.40e-04 |
#
# The paper does not say why $d_{model}^{-0.5}$ is there. Our reading: it is also the
# size of a number in a new embedding (lesson 05) or in a square matrix (lesson 03), and
# Adam first moves each number by the rate. So in a model of any width, the move at the
# peak is the same share of such a number, $4000^{-0.5} = 0.016$.
#
# Our first training had its peak, 0.0035, after 100 updates. In the library equation 3
# can be multiplied by a factor, which was 0.2 there.

# %%
three_rates = {count: warmup_rate(count, 512) for count in (1, 4000, 100_000)}
for count, rate in three_rates.items():
    print(f"update {count:7,d}: rate {rate:.2e}")
print(f"the digits, update 100: {rate_of(100):.4f}; 4000^-0.5 = {4000**-0.5:.3f}")
same("the peak is 1 / sqrt(512 * 4000)", three_rates[4000], (512 * 4000) ** -0.5)
counts_20k = np.arange(1, 20_001)


def rates_for(warmup_steps):
    """Return the library's rate for each of the first 20,000 updates."""
    return [warmup_rate(count, 512, warmup_steps) for count in counts_20k.tolist()]


by_formula = 512**-0.5 * np.minimum(counts_20k**-0.5, counts_20k * 4000**-1.5)
by_library = rates_for(4000)
same("warmup_rate = equation 3, updates 1 to 20,000", by_library, by_formula, atol=0)

# %%
rates = {steps: rates_for(steps) for steps in (4000, 1000)}
draw(figures.schedule, "07_schedule.png", counts_20k, rates)

# %% [markdown]
# ![Two curves of the learning rate over 20,000 updates: each rises in a straight line and then falls slowly; the paper's peak is 7e-4 at update 4,000, a shorter warm-up gives a higher peak](figures/07_schedule.png)
#
# *What to see: up in a straight line, down slowly. A shorter warm-up also means a
# higher peak; once warm, both follow the same curve.*

# %% [markdown]
# Why does the rate fall? Each batch's gradient is a noisy guess of the true one. A
# constant rate keeps the model shaking with that noise; in a long training a smaller
# one lets it settle (lesson 09, "Why average the last checkpoints?"). Why as
# $1 / \sqrt{t}$, and not as $1 / t$? The paper does not say. By update 100,000 the root
# leaves 0.20 of the peak; $1 / t$ would leave 0.04, and the last updates would move the
# model five times less far.

# %%
print(f"left of the peak: {(1 / 25) ** 0.5:.2f} by the root; by 1 / t {1 / 25:.2f}")

# %% [markdown]
# ## Does a warm-up win against a fixed rate?
# Equation 3 begins with a rate 4,000 times below its peak. Why waste those updates?
# Could we not begin with the peak, or take a lower rate from first to last? It took 72
# trainings of 600 updates to find out. They were run once, by a command that you can
# repeat: `python -m minitf.course.experiments.warmup`. The model has the paper's 6 + 6
# layers, but $d_{model}$ 32; the task is that of the digits. Three schedules, eight
# peak rates, three seeds each; a *seed* starts the random numbers, so another seed is
# another first model with other batches:
#
# - *warm-up*: up to the peak in 200 updates, then down as $1 / \sqrt{t}$ (equation 3);
# - *at once*: the peak rate for 200 updates, then down in the same way;
# - *fixed*: the peak rate from the first to the last update.

# %%
results = kept("warmup")  # from the file that the command wrote


def ends_of_seeds(schedule):
    """Return for each peak the losses of three seeds in the last 50 updates."""
    # curves[peak, seed, k]: the mean loss of the k-th 50 updates
    curves = np.array([results[schedule][str(peak)] for peak in warmup.PEAKS])
    return curves[:, :, -1]


def means_of_seeds(schedule):
    """Return for each peak the mean of the three seeds."""
    return ends_of_seeds(schedule).mean(axis=1)


print("trainings:", len(warmup.SCHEDULES) * len(warmup.PEAKS) * len(warmup.SEEDS))
print("peak rate" + "".join(f"{peak:8}" for peak in warmup.PEAKS))
for schedule in warmup.SCHEDULES:
    row_of_means = "".join(f"{mean:8.2f}" for mean in means_of_seeds(schedule))
    print(f"{schedule:9s}{row_of_means}")

# %%
# Does the file belong to this code? Repeat the beginning of one run.
again = warmup.curve("at once", 0.004, seed=1, updates=100)
claim(
    "updates 1-50 and 51-100: the kept losses come out again",
    # [0]: the first seed; [:2]: the first two means of 50 updates
    np.allclose(again, results["at once"]["0.004"][0][:2], rtol=0.05),
    np.round(again, 2),
)

# %% [markdown]
# There are two losses to compare with. The first is the goal, 0.582. The second is the
# loss of a model that ignores its input. At best it answers with each token as often as
# it occurs, with **the frequencies of the tokens**: 2.46, the entropy of these
# frequencies, smoothed.
#
# Look in the figure, for each schedule, for its best rate, and for where it turns bad.

# %%
many = warmup.reversal(np.random.default_rng(3), 20_000).target_out
shares = np.array([(many == token).sum() for token in range(14)]) / (many != 0).sum()
shares[0] = 0.0  # padding is not a target
# A token is the true one in this share of the cases, and another in all the others.
average_q = shares * 0.9 + (1 - shares) * 0.1 / 13
frequencies_only = -(average_q * np.log(average_q)).sum()
claim(
    "the highest fixed rate ends at the loss of frequencies only",
    abs(means_of_seeds("fixed")[-1] - frequencies_only) < 0.05,
    f"{means_of_seeds('fixed')[-1]:.2f}, expected {frequencies_only:.2f}",
)

# %%
best_warm = min(means_of_seeds("warm-up"))
best_cold = min(*means_of_seeds("at once"), *means_of_seeds("fixed"))
claim(
    "the best warm-up ends lower than all sixteen means without",
    best_warm < best_cold - 0.05,
    f"{best_warm:.2f} against {best_cold:.2f}",
)
of_seeds = {name: ends_of_seeds(name) for name in warmup.SCHEDULES}
levels = {
    f"knows frequencies only: {frequencies_only:.2f}": frequencies_only,
    f"the goal: {entropy:.2f}": entropy,
}
draw(figures.warmup, "07_warmup.png", warmup.PEAKS, of_seeds, levels)

# %% [markdown]
# ![The loss after 600 updates against the peak rate: without warm-up it is lowest at 0.002, 0.84 with a fixed rate, and rises to 2.46; with warm-up it falls to 0.64 at 0.006, and rises only at 0.016. Two level lines: the goal, 0.58, and frequencies only, 2.46](figures/07_warmup.png)
#
# *What to see: without a warm-up, rates above 0.002 (2 on the axis) get worse and
# worse. With it the best rate is three times as high, and leads to the lowest loss,
# near the goal. Look at the single seeds, too: from 0.004 on, none comes near the goal
# without a warm-up. With it all do, up to 0.008.*
#
# So **the warm-up wins because it makes higher rates usable**. At the three lowest
# rates it does not help. And this is one toy task, after 600 updates, with few rates
# and seeds: the best rate of each schedule is known only to a factor of about two.
#
# At the highest rate the models without it end at the upper line: they do no better
# than frequencies. What does so high a rate do first?

# %% [markdown]
# ## What does a high first rate do?
# It makes all positions nearly alike. Whether the training fails because of that, we do
# not know.
#
# Take the peak rate 0.008. With the warm-up all three seeds came near the goal; begun
# at once, none did. We look at the vectors that the encoder gives out, one for each
# token of 64 rows (a *position*; padding does not count). How far are they from the
# mean of them all, as a share of their length? It is 1 if the mean is 0, so that they
# share no part, and 0 if all are the same: then nothing of the rows can be read.


# %%
probe = warmup.reversal(np.random.default_rng(9), 64)


def distance_apart(model):
    """Return the distance of all positions from their mean, as a share of length."""
    memory, _ = model.encode(probe.source)
    vectors = memory.numpy()[probe.source != 0]
    from_mean = vectors - vectors.mean(axis=0)
    return float(np.sqrt((from_mean**2).sum() / (vectors**2).sum()))


def watch(schedule, updates):
    """Train; return the distance before the first update and after each one."""
    with forms.on():
        distances = [distance_apart(warmup.new_model(1, dtype=np.float64))]
        training = warmup.training(schedule, 0.008, 1, "post", updates, np.float64)
        for trained, _ in training:
            distances.append(distance_apart(trained))
    return distances


warm = watch("warm-up", 220)
cold = watch("at once", 60)
claim(
    "at once, they are alike after 2 updates, and after 60",
    cold[2] < 0.1 and cold[-1] < 0.05,
    f"{cold[2]:.2f} and {cold[-1]:.3f}",
)
claim(
    "with the warm-up they stay apart, past its peak as well",
    min(warm) > 0.3,
    f"never below {min(warm):.2f} in 220 updates",
)

# %%
draw(figures.collapse, "07_collapse.png", warm[:16], cold[:16])

# %% [markdown]
# ![The distance of the positions from their mean, over 15 updates: with the warm-up it stays near 0.6; begun at the full rate, it falls to 0.06 in two updates and stays near 0](figures/07_collapse.png)
#
# *What to see: without a warm-up, two updates make the positions nearly alike. With it
# they stay apart, also later, at the full rate: never below 0.55 in 220 updates. This
# is seed 1, in post-norm, as in the paper.*
#
# Is it because the moves are so large? A control: take the first update, and move each
# number as far as there, but up or down at random.


# %%
def mean_value(model, x):
    """Return the mean of the first layer's values over the positions."""
    values = model.encoder.layers[0].self_attention.value(x).numpy()
    return values[probe.source != 0].mean(axis=0)


def one_update(seed):
    """Return the distance before an update, after it, and after one of random signs;
    and how far the two updates shift all positions alike, in the first layer's values.
    """
    model = warmup.new_model(seed)
    x = model.source_positions(model.embedding(probe.source) * 32**0.5)
    means = [mean_value(model, x)]
    optimizer = Adam(model.named_parameters())
    start = optimizer.data.copy()  # all numbers of the model in one long array
    distances = [distance_apart(model)]
    batch = warmup.reversal(np.random.default_rng(seed), 64)
    loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
    loss.backward()
    optimizer.step(0.008)
    distances.append(distance_apart(model))
    means.append(mean_value(model, x))
    signs = np.random.default_rng(5).choice([-1.0, 1.0], len(start))
    optimizer.data[...] = start + (optimizer.data - start) * Tensor(signs).data
    distances.append(distance_apart(model))
    means.append(mean_value(model, x))
    shifts = [np.sqrt(((mean - means[0]) ** 2).mean()) for mean in means[1:]]
    return distances + shifts


with forms.on():
    first_updates = np.array([one_update(seed) for seed in (1, 2, 3)])
print(f"before: {first_updates[:, 0].round(2)}")
claim(
    "with each seed, one update makes the positions much more alike",
    (first_updates[:, 1] < 0.6 * first_updates[:, 0]).all(),
    first_updates[:, 1].round(2),
)
claim(
    "random signs hardly do, or not at all",
    (first_updates[:, 2] > 0.8 * first_updates[:, 0]).all(),
    first_updates[:, 2].round(2),
)

# %% [markdown]
# How far apart the positions are, with three seeds:
#
# | | before | one update | random signs |
# |---|---|---|---|
# | seed 1 | 0.55 | 0.26 | 0.50 |
# | seed 2 | 0.29 | 0.05 | 0.28 |
# | seed 3 | 0.38 | 0.07 | 0.42 |
#
# Moves of the same sizes with random signs hardly do it. So **it is not the size of the
# moves alone: they work together**.
#
# Why do the moves work together? Take the weight $W_{ij}$ from input $i$ to output
# $j$. Its gradient is $x_i g_j$, added up over the positions, where $g$ is the gradient
# of the output. Adam's first move is the full rate, 0.008, against the sign of the sum.
# If all positions agree, that is the sign of $x_i g_j$ at each. So output $j$ shifts by
#
# $$\sum_i x_i \cdot (-0.008 \, \text{sign}(x_i g_j))
# = -0.008 \, \text{sign}(g_j) \sum_i |x_i|$$
#
# **Each input meets a move of its own sign, so all terms have one sign, and none
# cancel.** With 32 inputs of size 1 the shift is up to $32 · 0.008 = 0.256$. Unrelated
# signs would give about $\sqrt{32} · 0.008 = 0.045$.
#
# Do the positions agree? In a new model the gradient is nearly the same at all
# positions of the decoder's output: more of the frequent tokens. Attention hands it on
# to the positions of the source. Not all of them agree: the values of the first layer
# shift by 0.14, 0.12 and 0.15 with the three seeds. With random signs it is 0.03 or
# 0.04.

# %%
print(f"32 inputs: up to {32 * 0.008:.3f} together,", end=" ")
print(f"about {np.sqrt(32) * 0.008:.3f} with unrelated signs")
print(f"shifts of the values {first_updates[:, 3].round(2)},", end=" ")
print(f"with random signs {first_updates[:, 4].round(2)}")

# %% [markdown]
# All positions get the same shift, so what they share grows. The next norm cannot take
# it away again: it subtracts the mean over the features of *one* position, and the
# shift is up in one feature and down in another. Then it divides by the size of the
# whole, and what differs becomes smaller. The encoder has twelve norms, with a shift
# before each. [The collapse at a high first rate](collapse.py) tests this reading.

# %%
later = kept("shared_gradient")  # one number for each 50 updates
print(f"update 600: loss {later['loss'][-1]:.2f}, apart {later['apart'][-1][-1]:.2f}")

# %% [markdown]
# Why does a warm-up help, then? At the first update Adam has seen one gradient of each
# number, and one gradient agrees with itself: all moves are as large as the rate. In
# the first training of this lesson a typical move had fallen to 0.15 of the rate by
# update 100, the end of its warm-up, as the gradients no longer agreed ("Is Adam better
# than descent on the digits, and how small do its moves become?"). So after a warm-up
# the full rate no longer means that all numbers move together. That is a reading, and
# of a smaller model. And whether it is the collapse that spoils a training without one,
# we cannot say: after 600 updates the positions of seed 1 are apart again, at 0.67, and
# still the loss is 2.42.

# %% [markdown]
# ## What did we learn?
# - How wrong is a prediction? $-\ln$ of the true word's probability; its gradient with
#   respect to the logits is $p - q$.
# - Why label smoothing? It gives the loss a goal that can be reached, $p = q$.
# - How far can a smoothed loss fall? Down to the entropy of $q$: compare it with that.
# - How far does Adam move a number? The rate times the agreement of its gradients; on
#   the first update the full rate, whatever their size.
# - How large is the rate? It grows for 4,000 updates to 7e-4, then falls as
#   $1 / \sqrt{t}$.
# - Why a warm-up? It makes higher rates usable.
# - What does a high first rate do? One update makes the positions of a post-norm model
#   much more alike, as its moves work together. It is not proved that such a training
#   fails because of that.

# %% [markdown]
# ## More on training
# Nothing below is needed for the next lesson; exercise 2 needs "Can an update be made
# in parts?". Of the questions, the two with a ★ are worth everybody's click.
#
# ### What does the library compute for a batch?
# First, why `log_softmax`, and not the logarithm of softmax? A word with a very low
# logit has a softmax of exactly 0 in floating point, and $\ln 0$ is minus infinity.
# `log_softmax` computes $z - \ln \sum_w \exp(z_w)$ and never makes the softmax.

# %%
low = np.array([1.0, 3.0, 2.0, -1000.0])
same(
    "log_softmax = z - ln of the sum of exp(z)",
    F.log_softmax(low),
    low - np.log(np.exp(low).sum()),
)
claim(
    "at a logit of -1000 softmax is 0, log_softmax is",
    F.softmax(low).numpy()[3] == 0,
    f"{F.log_softmax(low).numpy()[3]:.1f}",
)

# %% [markdown]
# The smoothed loss of a batch is a mean over its target words, without the padding.
# The logits of a model are products of vectors and the embedding table.


# %%
def loss_by_loops(logits, target, eps):
    """Return the mean loss of the n target words and its gradient; 0 is padding."""
    losses = []
    gradient = np.zeros_like(logits)
    for at in np.ndindex(target.shape):
        if target[at] == 0:
            continue
        p = np.exp(logits[at]) / np.exp(logits[at]).sum()
        q = np.full(len(p), eps / (len(p) - 1))
        q[target[at]] = 1 - eps
        losses.append(-(q * np.log(p)).sum())
        gradient[at] = p - q
    return np.mean(losses), gradient / len(losses)


hidden = rng.standard_normal((2, 4, 6))  # (B, T, D)
E = rng.standard_normal((7, 6))  # (V, D), the embedding table
target = np.array([[4, 2, 6, 3], [5, 3, 0, 0]])  # (B, T)
logits = Parameter(hidden @ E.T)  # (B, T, V)
smoothed, expected_gradient = loss_by_loops(logits.numpy(), target, 0.1)
plain, _ = loss_by_loops(logits.numpy(), target, 0.0)
loss = label_smoothed_cross_entropy(logits, target, 0.1, pad_id=0)
loss.backward()
same("label_smoothed_cross_entropy = loops", loss, smoothed)
same("its gradient is (p - q) / n, and 0 at padding", logits.grad, expected_gradient)

# %% [markdown]
# ### Is Adam better than descent on the digits, and how small do its moves become?
# All digits are equally frequent: no token is rare. Train the first model
# again, by gradient descent, with the same schedule times 100 (found by trying; rates
# half or twice as high are worse), and with momentum, times 100 and times 300.


# %%
class GradientDescent:
    """Moves each number by `factor` times the rate times its m, without any v."""

    def __init__(self, model, factor, beta_1):
        self.parameters = list(model.parameters())
        self.factor = factor
        self.beta_1 = beta_1  # 0: no momentum, so m is the gradient
        self.m = [0.0 * p.data for p in self.parameters]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self, rate):
        for p, m in zip(self.parameters, self.m, strict=True):
            m *= self.beta_1
            m += (1 - self.beta_1) * p.grad
            p.data -= self.factor * rate * m


def loss_of_descent(factor, beta_1):
    """Return the mean loss of the last ten updates."""
    learner, _ = new_learner(label_smoothing=0.1)
    descent = GradientDescent(learner, factor, beta_1)
    return np.mean([loss for _, loss in train(learner, descent)][-10:])


with forms.on():
    by_descent = loss_of_descent(100, beta_1=0.0)
    with_momentum = {factor: loss_of_descent(factor, 0.9) for factor in (100, 300)}
print(f"gradient descent, rates times 100: loss {by_descent:.2f}")
for factor, last_loss in with_momentum.items():
    print(f"with momentum, rates times {factor}: loss {last_loss:.2f}")
claim(
    "after 400 updates Adam has a lower loss than descent",
    means[-1] < by_descent - 0.1,
    f"{means[-1]:.2f} against {by_descent:.2f}",
)
claim(
    "with momentum and the best factor, descent comes as far as Adam",
    abs(with_momentum[300] - means[-1]) < 0.05,
    f"{with_momentum[300]:.2f}",
)

# %% [markdown]
# Plain descent is slower: after 400 updates it is at 0.93, Adam at 0.60, and the goal
# is 0.58. But with momentum it comes as far as Adam, to 0.59. So on this task **it is
# the momentum that wins**. What the division still gives is a rate that means
# something: how far a number moves, whatever the gradients. The 300 of descent means
# nothing, and must be found by trying; with 100 it ends at 0.67.
#
# Now the moves. A move is the rate times the agreement of the gradients. In the
# training at the beginning of the lesson a typical (median) move comes down to 0.18 of
# the rate by update 50, and to 0.15 by update 100. That is the median of pure noise:
# gradients with random signs would leave $\sqrt{0.1 / 1.9} = 0.23$ of their size in
# $\hat{m}$.


# %%
def typical_moves(updates):
    """Return how far the median number moves in each update, divided by the rate."""
    again, optimizer = new_learner(label_smoothing=0.1)
    moves = []
    before = optimizer.data.copy()
    for update, _ in train(again, optimizer, updates):
        moved = abs(Tensor(optimizer.data - before).numpy())
        moves.append(float(np.median(moved)) / rate_of(update))
        before = optimizer.data.copy()
    return moves


with forms.on():
    moves = typical_moves(100)
for count in (1, 5, 10, 20, 50, 100):
    print(f"update {count:3d}: a typical move is {moves[count - 1]:.2f} of the rate")
noise = np.sqrt(0.1 / 1.9)
print(f"noise: {noise:.2f}, its median {0.6745 * noise:.2f}")
claim(
    "moves of updates 1 and 50, as shares of the rate",
    moves[0] > 0.99 and moves[49] < 0.2,
    f"{moves[0]:.2f}, {moves[49]:.2f}",
)

# %% [markdown]
# ### ★ Does label smoothing raise BLEU, and why?
# The exp of the mean of $-\ln p_y$ is the *perplexity*. A perplexity of 4 means: as
# unsure as an even choice among 4 words. The paper finds that label smoothing "hurts
# perplexity", but improves BLEU (section 5.4).
#
# How can a model have a worse perplexity, and yet a better BLEU? On paper: two models
# predict three words. These are the probabilities of the three true words:
#
# | | word 1 | word 2 | word 3 |
# |---|---|---|---|
# | model A | 0.99 | 0.99 | 0.45, another word has 0.55 |
# | model B | 0.80 | 0.80 | 0.50, no other word has as much |
#
# A has the better perplexity, 1.31 against 1.46. But A gets the third word wrong, and B
# has all three right. **Perplexity asks how probable the true word is. A translation
# only asks which word comes first.**
#
# Does it happen to real models? Our experiment translates English to German, from the
# built-in toy corpus. A model of 2 + 2 layers, with $d_{model}$ 64 and no dropout, sees
# 8,000 pairs for 600 updates, with four seeds. It is judged on new sentences (the
# command: `python -m minitf.course.experiments.smoothing`). *BLEU* (lesson 08) counts
# how many words, and runs of two to four words, a translation shares with a reference;
# 100 is a perfect match.

# %%
model_a = np.array([0.99, 0.99, 0.45])
model_b = np.array([0.80, 0.80, 0.50])
for name, true_words in (("A", model_a), ("B", model_b)):
    print(f"model {name}: perplexity {np.exp(-np.log(true_words).mean()):.2f}")
judged = kept("smoothing")
(after_100,) = smoothing.judged(smoothing.Task(), 8000, 0.1, seed=1, last=100)
kept_run = judged["8000 pairs, 0.1"][0]
claim(
    "the kept perplexity after 100 updates comes out again",
    abs(after_100["perplexity"] / kept_run[0]["perplexity"] - 1) < 0.1,
    f"{after_100['perplexity']:.1f} and {kept_run[0]['perplexity']:.1f}",
)


# %%
def at_the_end(run, name):
    """Return one score per seed, after the last update."""
    return np.array([seed[-1][name] for seed in judged[run]])


unsmoothed = "8000 pairs, 0.0"
smooth = "8000 pairs, 0.1"
gains = at_the_end(smooth, "bleu") - at_the_end(unsmoothed, "bleu")
claim(
    "smoothed, the perplexity is worse with each seed",
    at_the_end(smooth, "perplexity").min() > at_the_end(unsmoothed, "perplexity").max(),
    f"{at_the_end(smooth, 'perplexity').mean():.2f} "
    f"against {at_the_end(unsmoothed, 'perplexity').mean():.2f}",
)
claim(
    "its BLEU is better with each of the four seeds",
    gains.min() > 1,
    f"by {gains.mean():.1f} ({gains.min():.1f} to {gains.max():.1f})",
)

# %%
judged_after = np.arange(200, 601, 100)


def mean_curve(run, name):
    """Return the mean of the seeds after each 100 updates, from 200 on."""
    values = []
    for seed in judged[run]:
        values.append([then[name] for then in seed[1:]])
    return np.mean(values, axis=0)


perplexities = [mean_curve(run, "perplexity") for run in (unsmoothed, smooth)]
bleus = [mean_curve(run, "bleu") for run in (unsmoothed, smooth)]
print(f"BLEU after 600 updates: {bleus[1][-1]:.1f} against {bleus[0][-1]:.1f}")
draw(figures.bleu, "07_bleu.png", judged_after, perplexities, bleus)

# %% [markdown]
# ![Two panels over 600 updates: the perplexity with eps = 0.1 ends higher, 1.32 against 1.21, while its BLEU ends higher too, 89.2 against 84.8](figures/07_bleu.png)
#
# *What to see: the smoothed model loses on the left, where less is better, and wins on
# the right. The means meet shortly before the end.*
#
# So the paper's sentence (section 5.4) holds here too, on a small scale. Single runs
# spread widely, and the gain depends on where one stops: read its sign, not its size.
#
# *Why perplexity gets worse* is certain for a model that is nearly always right:
# smoothing gives probability away. A model that learned its goal perfectly gives each
# true word 0.9. Even if it is right everywhere, its perplexity is 1 / 0.9 = 1.11 and
# not 1.
#
# *Why more of the true words come first* is not settled. Müller et al. 2019 write that
# "not much is known" about it. Two reasons are proposed:
#
# - Smoothing keeps the model from growing ever surer of training sentences that it
#   knows by heart (Gao et al. 2020: it punishes over-confident outputs).
# - Probabilities that are less extreme help a *beam* search, which compares the
#   probabilities of several translations (Müller et al. 2019; lesson 08).
#
# Our translations are *greedy*: at each position the most probable word is taken,
# without a beam. So **the second reason cannot play a part here**. What about the
# first? *Accuracy* is the share of tokens whose most probable word is right, given the
# right words before it, *confidence* the mean probability of that word. A larger
# confidence than accuracy means too sure. The experiment was made with 2,000 pairs as
# well, which a model soon knows by heart.

# %%
print(f"perplexity of a perfect smoothed model: {1 / 0.9:.2f}")
print("pairs   eps  perplexity  accuracy  confidence  BLEU (of four seeds)")
for pairs, eps in smoothing.RUNS:
    run = f"{pairs} pairs, {eps}"
    bleu = at_the_end(run, "bleu")
    print(
        f"{pairs:,}   {eps}  {at_the_end(run, 'perplexity').mean():10.2f}"
        f"  {at_the_end(run, 'accuracy').mean():8.1%}"
        f"  {at_the_end(run, 'confidence').mean():10.1%}"
        f"  {bleu.mean():.1f} ({bleu.min():.1f} to {bleu.max():.1f})"
    )
accuracy = at_the_end(smooth, "accuracy").mean()
plain_accuracy = at_the_end(unsmoothed, "accuracy").mean()
claim(
    "8,000 pairs: smoothed, fewer tokens are wrong, on average over the seeds",
    accuracy > plain_accuracy + 0.005,
    f"{1 - accuracy:.1%} against {1 - plain_accuracy:.1%}",
)
print(f"ten tokens right: {plain_accuracy**10:.0%} without, {accuracy**10:.0%} with")

# %% [markdown]
# **What the experiment shows.** The gain is in the ranking itself: with 8,000 pairs,
# about a quarter fewer tokens are wrong. Errors add up over a sentence. If they were
# independent, ten tokens in a row would be right in 70% of the cases instead of 62%.
#
# **What it does not show** is why. With 2,000 pairs the first reason fits: the
# unsmoothed model is 94.3% sure and 91.6% right, too sure, and smoothing helps most
# there. Even the perplexity is a little better with it, 1.51 against 1.55: what
# smoothing gives away on right words is less than what it saves on wrong ones of which
# the model was sure. With 8,000 pairs it is 94.9% sure and 95.4% right, not too sure at
# all, and smoothing still helps. Over-confidence is not the only reason, and we do not
# know the other.

# %% [markdown]
# ### ★ Can an update be made in parts?
# The loss is $\frac{1}{n} \sum_t \text{loss}_t$ over the $n$ target tokens
# of the update.
#
# The gradient of a sum is the sum of the gradients. So an update that is too large for
# the memory can be cut into parts: walk back from each part, let the gradients add up
# (lesson 02), then make one update. This is called gradient *accumulation*. Each part
# must be divided by the $n$ of the *complete* update. If each is divided by its own
# count, a word counts more in a short part than in a long one.
#
# A batch of two sentences, with 5 and 3 target tokens, end marks included. Padding
# in the target hides a position from the loss, so we can ask for any part.

# %%
config = Config(14, n_layers=1, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
small = Transformer(config).astype(np.float64)
batch = make_batch([[4, 9, 5, 7], [8, 6]], [[7, 5, 9, 4], [6, 8]], 14)


def gradient_of(parts, n_tokens):
    """Walk back from the loss of each part; return the sum of the gradients."""
    small.zero_grad()
    for part in parts:
        # The second result is the plain -ln p_y, for the perplexity.
        loss, _ = small.loss(batch.source, batch.target_in, part, n_tokens)
        loss.backward()
    gradients = [Tensor(p.grad).numpy().ravel() for p in small.parameters()]
    return np.concatenate(gradients)


def only(where):
    """Return the target with padding everywhere else."""
    return np.where(where, batch.target_out, 0)


rows = np.arange(2)[:, None]  # the number of each row
sentences = [only(rows == 0), only(rows == 1)]
complete = gradient_of([batch.target_out], n_tokens=8)
# Equate:
same(
    "two parts, each divided by 8 = the complete batch",
    gradient_of(sentences, 8),
    complete,
)

# %%
# Use: what goes wrong if each part is divided by its own count.
# None: divide by the part's own count. / 2: the mean of the two means.
own_counts = gradient_of(sentences, n_tokens=None) / 2
on_device = Tensor(complete).data  # the array on the device that computes
error = Tensor(own_counts - complete).data
difference = gradient_norm(error) / gradient_norm(on_device)
claim(
    "parts divided by their own counts give another gradient",
    float(difference) > 0.05,
    f"{float(difference):.0%} off",
)

# %% [markdown]
# ### How does the library do the same?
# Four notes for readers of the library.
#
# *The class `Adam`* makes the update for all parameters of a model at once, and counts
# $t$. It first copies them into one long array (`Flat`), its `data`: each parameter
# becomes a view of its slice, and one `adam_update` serves the model. In it, `m[...] =`
# writes into the array `m`.

# %%
show(adam_update)

# %% [markdown]
# **Equate.** Nine numbers, whose gradients differ in size by a factor of a hundred
# million. First by hand: each first moves by 0.1, and gradients 1,000 times as large
# give the same path.


# %%
def path_by_hand(x, gradients):
    """Return x after each update."""
    return [columns[-1] for columns in adam_by_hand(x, gradients, rate=0.1)]


x = rng.standard_normal(9)
# The gradients of the first number are near 0.001, those of the last near 100000.
gradients = rng.standard_normal((3, 9)) * 10.0 ** np.arange(-3, 6)
by_hand = path_by_hand(x, gradients)
first_moves = abs(by_hand[0] - x)
claim(
    "tiny gradient or huge, each number first moves by the rate",
    np.allclose(first_moves, 0.1, rtol=1e-4),
    first_moves.round(4),
)
larger = path_by_hand(x, 1000 * gradients)
same("gradients times 1000: the same path", larger, by_hand, rtol=1e-4)


# %%
def library_path():
    """Return x after each `adam_update`."""
    moving = Tensor(x.copy()).data
    m = Tensor(np.zeros(9)).data
    v = Tensor(np.zeros(9)).data
    path = []
    for t, g in enumerate(gradients, 1):
        adam_update(moving, Tensor(g).data, m, v, t, rate=0.1)
        path.append(Tensor(moving).numpy().copy())
    return path


same("adam_update = by hand, three updates", library_path(), by_hand)

# %% [markdown]
# And by the class. Here the model is a matrix of 2 rows and 3 columns, and a row of 3:
# the same nine numbers.

# %%
matrix = Parameter(x[:6].reshape(2, 3))
row = Parameter(x[6:])
adam = Adam([("matrix", matrix), ("row", row)])


def path_of_adam():
    """Return the nine numbers after each update."""
    path = []
    for g in gradients:
        adam.zero_grad()  # else the new gradients would be added to the old ones
        # The backward of a parameter itself puts g into its gradient.
        matrix.backward(g[:6].reshape(2, 3))
        row.backward(g[6:])
        adam.step(0.1)
        path.append(np.concatenate([matrix.numpy().ravel(), row.numpy()]))
    return path


same("Adam = by hand, three updates", path_of_adam(), by_hand)

# %%
flat_matrix = Parameter(x[:6].reshape(2, 3))
flat_row = Parameter(x[6:])
flat = Flat([("matrix", flat_matrix), ("row", flat_row)])
same("Flat: the parameters one after the other", Tensor(flat.data), x)
flat.data[0] = 9.0  # in the long array
same("a parameter is a view of its slice", flat_matrix.numpy()[0, 0], 9.0)
some_gradient = np.array([1.0, 2.0, 3.0])
flat_row.backward(some_gradient)
same(
    "their gradients arrive in the second array",
    Tensor(flat.gradients),
    np.concatenate([np.zeros(6), some_gradient]),
)

# %% [markdown]
# *Memory.* The paper's updates have about 25,000 target tokens (section 5.1), and its
# vocabulary 37,000. All logits of one update, four bytes each, would fill 3.7 GB, and
# their gradients as much again. So the trainer calls `projected_cross_entropy`. It
# takes the decoder's last vectors and the table $E$, and computes the logits itself, in
# the faster form a few positions at a time. Beside the loss it returns the plain
# $-\ln p_y$, for the perplexity.

# %%
print(f"{25_000:,} tokens x {37_000:,} logits: {25_000 * 37_000 * 4 / 1e9:.1f} GB")
fused, fused_plain = projected_cross_entropy(hidden, E, target, 0.1, pad_id=0)
same("projected_cross_entropy: the smoothed loss = loops", fused, smoothed)
same("and the plain one", fused_plain, plain)
grad_check(projected_cross_entropy, hidden, E, target)

# %% [markdown]
# *Clipping.* Many programs shorten a gradient whose length, `gradient_norm`, exceeds
# some limit. `clip_gradient` can do it; the paper does not, and neither do we.

# %%
# complete: the gradient of all parameters, of "Can an update be made in parts?";
# on_device is the same array, on the device that computes.
squares = [g**2 for g in complete]
same(
    "gradient_norm = the root of the sum of squares",
    gradient_norm(on_device),
    sum(squares) ** 0.5,
)
shortened = Tensor(complete.copy()).data
length = clip_gradient(shortened, 0.1)
same(
    "clip_gradient: returns the old length; the new one is 0.1",
    [float(length), float(gradient_norm(shortened))],
    [float(gradient_norm(on_device)), 0.1],
)
untouched = Tensor(complete.copy()).data
clip_gradient(untouched, 100.0)
same("clip_gradient: a short gradient stays as it is", Tensor(untouched), complete)

# %% [markdown]
# *The trainer* of lesson 09 makes the update of this lesson. Let it make three updates
# of two batches each, with four rows in a batch, and repeat them by hand.

# %%
digit_rows = [rng.integers(4, 14, n).tolist() for n in rng.integers(3, 9, 24)]


def by_this_lesson():
    """Return all parameters after each of three updates, from the equations."""
    data = ReversedRows(digit_rows, 14)
    model = Transformer(config, seed=Settings().seed)
    optimizer = Adam(model.named_parameters())
    path = []
    for step in (1, 2, 3):
        first = data.batch(np.arange(8 * step - 8, 8 * step - 4))
        second = data.batch(np.arange(8 * step - 4, 8 * step))
        n = first.n_tokens + second.n_tokens
        optimizer.zero_grad()
        for batch in (first, second):
            loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n)
            loss.backward()
        # equation 3 with d_model 8, warmup_steps 2 and the factor 0.5
        optimizer.step(0.5 * 8**-0.5 * min(step**-0.5, step * 2**-1.5))
        path.append(Tensor(optimizer.data).numpy().copy())
    return path


same(
    "Trainer = this lesson, three updates",
    parameters_of_the_trainer(config, digit_rows, 3),
    by_this_lesson(),
    atol=1e-4,
)

# %%
finish(
    "The loss has a goal at p = q, Adam first moves each number by the rate, "
    "a high rate must be reached slowly."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 07` writes this part to `my_07_training.py`; fill in the
# bodies and run it. It imports `np`.


# %%
def first_move(gradient, rate):
    """Predict, then run: how far, and which way, does Adam's first step move a number?

    gradient: an array of gradients of the first update, of any shape; some of them may
    be 0. Return an array: what the step with this rate adds to each number.

    Hint: "How far should each number move?" computes the first row of a table.
    What is the corrected m, and what the root of the corrected v?
    """
    ...


def check_first_move():
    checks.check_first_move(first_move)


# %%
def update_in_parts(model, optimizer, batches, rate) -> None:
    """Find the mistakes: make one update from several batches. This one has two:

        for batch in batches:
            optimizer.zero_grad()
            loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
            loss.backward()
        optimizer.step(rate)

    batches: a list, of two or more. An earlier batch may have left its gradient in the
    model.

    Hint: "Can an update be made in parts?" says by what each part
    is divided. And what does zero_grad erase, each time it is called? A batch counts
    its n_tokens.
    """
    ...


def check_update_in_parts():
    checks.check_update_in_parts(update_in_parts)


# %%
def pytorch_eps(eps, V):
    """Return the number e for which label_smoothed_cross_entropy(logits, target, e) has
    PyTorch's q: 1 - eps on the true word, plus eps / V on each of the V words.

    Hint: in "When is a model sure enough?" the formula gives each wrong word
    e / (V - 1). Which e makes that PyTorch's eps / V? Is the true word right, too?
    """
    ...


def check_pytorch_eps():
    checks.check_pytorch_eps(pytorch_eps)


# %% [markdown]
# **Now yours: pieces 26 to 28** of `my_transformer.py`. With these three it can learn:
# `cross_entropy`, `learning_rate` and `Adam.update`. (`python lessons/build.py` writes
# the file, if you have none.)

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("functions.log_softmax", "loss.label_smoothed_cross_entropy",
              "loss.projected_cross_entropy", "optim.Adam", "optim.Flat",
              "optim.adam_update", "optim.warmup_rate", "optim.gradient_norm",
              "optim.clip_gradient")  # fmt: skip
