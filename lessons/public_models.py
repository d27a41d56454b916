# %% [markdown]
"""# One model, three programs

    python lessons/public_models.py

After lesson 08. Thousands of translation models can be downloaded that are the paper's
Transformer, and yet not quite: those of OPUS-MT (Tiedemann and Thottingal 2020), for
example. Marian, a program in C++, trained them. Hugging Face's transformers, a library
for PyTorch, is what most people run them with. minitf runs them too
(`python -m minitf public`). This page turns every difference between the three into a
switch, and turns the switch on a model that is stored next to the lessons.

| | the paper | Marian | transformers |
|---|---|---|---|
| biases in attention and on the logits | not mentioned | yes | yes |
| inside the feed-forward network | ReLU | swish in the models of 2020 | as trained |
| added to the variance in layer norm | not mentioned | 1e-6 | 1e-5 |
| exponents of the sinusoid | 2i/d | i/(d/2 - 1) | 2i/d |
| order of its features | sin, cos, sin, cos | all sines first | all sines first |
| first input of the decoder | the start mark | a vector of zeros | the row of padding |
"""

# %%
from pathlib import Path

import numpy as np

from minitf import Transformer
from minitf import functions as F
from minitf.check import claim, same
from minitf.data import toy
from minitf.public.names import to_halves
from minitf.tensor import no_grad
from minitf.text import make_batch
from minitf.transformer import sinusoid
from minitf.translation import Translator

translator = Translator.load(Path(__file__).resolve().parent / "toy-model")
model, subwords = translator.model, translator.subwords
english, german = toy.pairs(200, seed=77)
batch = make_batch(
    subwords.encode(english[:50]), subwords.encode(german[:50]), len(subwords)
)
real = batch.target_out != 0  # not padding

# %% [markdown]
# The model has two layers of 64 features, was trained with the paper's switches, and
# translates the sentences of the built-in corpus. Three tools: the same weights in a
# model with other switches (a parameter that the stored model does not have is zero),
# its logits, and its translations.


# %%
def switched(state=None, **switches):
    """Return a model with these switches, and with the stored or the given weights."""
    stored = model.state() if state is None else state
    other = Transformer(model.config.replace(**switches), initialise=False).eval()
    for name, parameter in other.named_parameters():
        parameter.data = stored.get(name, np.zeros(parameter.shape, np.float32))
    return other


def logits(other):
    """Return the logits of the first 50 pairs."""
    with other.evaluating(), no_grad():
        return other(batch.source, batch.target_in).numpy()[real]


def translations(other):
    """Return the translation of each sentence, by greedy decoding."""
    found = Translator(other, subwords).translate(english, beam=1)
    return [best[0].text for best in found]


before, written = logits(model), translations(model)


def moved(other):
    """Return the largest change of a logit, and how many translations changed."""
    pairs = zip(translations(other), written, strict=True)
    return np.abs(logits(other) - before).max(), sum(a != b for a, b in pairs)


def told(change):
    return f"logits by {change[0]:.1e}, {change[1]} of {len(english)} translations"


# %% [markdown]
# ## Biases that nobody can see
# Marian gives each projection of attention a bias, as OPUS-MT's models have them. Does
# the *key's* matter? A score is q . (k + b) = q . k + q . b. The second term is the
# same for every position that the query looks at, and softmax ignores what is added to
# all its inputs. So a key bias can take any value, and the model computes the same:

# %%
rng = np.random.default_rng(0)
key_biases = switched(attention_bias=True)
for name, parameter in key_biases.named_parameters():
    if name.endswith("key.bias"):
        parameter.data = rng.normal(size=parameter.shape).astype(np.float32)
change = moved(key_biases)
claim("random key biases change nothing", change[0] < 1e-4, told(change))

# %% [markdown]
# The *value's* bias does matter, but a model does not need it: attention weights sum to
# 1, so sum_j a_j (v_j + b) = sum_j a_j v_j + b. Behind the output projection that is a
# constant, b W_O, which the output's bias could have contained.

# %%
value_biases = switched(attention_bias=True)
output_biases = switched(attention_bias=True)
values = dict(value_biases.named_parameters())
for name, parameter in output_biases.named_parameters():
    if name.endswith("attention.output.bias"):
        place = name.removesuffix("output.bias")
        bias = rng.normal(size=64).astype(np.float32)
        values[f"{place}value.bias"].data = bias
        parameter.data = bias @ values[f"{place}output.weight"].data
change = moved(value_biases)
claim("random value biases do change it", change[1] > 100, told(change))
same(
    "value biases b are output biases b W_O",
    logits(value_biases),
    logits(output_biases),
    rtol=1e-3,
    atol=1e-3,
)

# %% [markdown]
# ## Swish for ReLU
# swish(x) = x / (1 + exp(-x)) is a ReLU with a round corner: equal far from 0, lower by
# at most 0.28 near it. Weights belong to the function that they were trained with:

# %%
x = np.linspace(-8, 8, 1601)
gap = np.maximum(x, 0) - F.swish(x).numpy()
claim("the corner is at most 0.28 deep", 0.27 < gap.max() < 0.28, float(gap.max()))
change = moved(switched(activation="swish"))
claim("trained with ReLU, run with swish", 0 < change[1] < 40, told(change))

# %% [markdown]
# Wrong in a few sentences of a hundred, and no error anywhere. That is why a model's
# file has to name its activation, why a program should refuse a name that it does not
# know, and why minitf keeps some computed numbers with each model.

# %% [markdown]
# ## Ten times the epsilon
# Marian adds 1e-6 to the variance, transformers 1e-5 (its layer norm has no setting for
# it). A residual's variance is about 1, so the result changes by a relative 5e-6.

# %%
change = moved(switched(eps=1e-5))
claim(
    "eps 1e-5 for 1e-6 is invisible", change[0] < 1e-3 and not change[1], told(change)
)

# %% [markdown]
# ## Other sinusoids than those it was trained with
# The wavelengths of the paper's sinusoid have the exponents 2i/d: they stop short of
# 10000. Marian's have i/(d/2 - 1), as tensor2tensor's, and reach it. transformers
# computes the paper's for models that Marian trained. So do other programs. The first
# positions hardly differ; then the waves drift apart:

# %%
print("position      ", *(f"{position:>6}" for position in (1, 10, 30, 100, 500)))
for d in (64, 512):
    drift = np.abs(sinusoid(501, d) - sinusoid(501, d, base="t2t")).max(axis=1)
    row = (f"{drift[position]:6.3f}" for position in (1, 10, 30, 100, 500))
    print(f"d_model = {d:>3}  ", *row)

change = moved(switched(sinusoid_base="t2t"))
claim("the other exponents move logits", 0.01 < change[0] < 2, told(change))
claim("but not one short translation", change[1] == 0, f"{change[1]} changed")

# %% [markdown]
# With 512 features and short sentences it is harmless, which is why it went unnoticed
# for years. `python -m minitf public` computes what the model was trained with;
# `--like transformers` computes what transformers does, to compare the two.

# %% [markdown]
# ## Sines first
# The order of the features is a matter of taste, if everybody agrees. If a program puts
# all sines first, and the model was trained with sin, cos, sin, cos ...:

# %%
change = moved(switched(sinusoid_layout="halves"))
claim("the other order ruins the model", change[1] > 150, told(change))

# %% [markdown]
# But the features have no order of their own: layer norm, the residual sums, and the
# matrices treat them all alike. So renumber them everywhere: the columns of the table,
# the rows of each matrix that reads them, the columns of each that writes them, and the
# gains and biases of the norms. That is how `--export hf` takes a model of minitf to
# transformers, without changing a single number:

# %%
halves = switched(to_halves(model.config, model.state()), sinusoid_layout="halves")
change = moved(halves)
claim("renumbered, it is the same model", change[0] < 1e-4, told(change))

# %% [markdown]
# ## The row that begins a translation
# The paper's decoder starts with a start mark, a token with a row of its own in the
# table. Marian starts with a vector of zeros, so its first input is a position alone.
# transformers has no switch for "no token": it lets the decoder start with *padding*,
# whose row is zeros. A model that learned one of them does not know the other:

# %%
state = dict(model.state())
table = state["embedding.weight"].copy()
table[model.config.bos_id] = 0
state["embedding.weight"] = table
change = moved(switched(state))
claim("started with zeros, it is lost", change[1] > 150, told(change))

# %% [markdown]
# minitf needs no switch for it. A public model's rows are given new numbers when it is
# imported: row 2, the start mark's, becomes the row of zeros. The table also makes the
# logits, so that row could be written: it is among the `suppressed_ids`, whose
# probability is 0.
#
# One difference is not in the numbers at all. OPUS-MT's text had its punctuation made
# plain before it was cut into subwords: curly quotes became straight ones, for example.
# No setting in the model's files says so. minitf does the same for models whose name or
# card says that they are OPUS-MT's; the others read the text as it is.
#
# In which of these differences would a test of translations be enough to find a
# mistake, and which only a comparison of logits? (Biases of keys: neither. Epsilon and
# exponents: logits only. Punctuation: translations only. The others: either. This is
# why `tests/public` compares logits with those of transformers, and log-probabilities
# with CTranslate2's.)
