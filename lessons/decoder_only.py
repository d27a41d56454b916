# %% [markdown]
"""# Only a decoder

After lesson 08. GPT, and the models behind chat programs, are one tower: no source, no
attention to a source. This page leaves half of the Transformer out, trains what remains
on English sentences, letter by letter, and lets it write.

    python lessons/decoder_only.py
"""

# %% [markdown]
# ## What is left of figure 1?
#
# | | a translator | a language model |
# |---|---|---|
# | what it predicts | the next token of a translation, given the source | the next token of a text |
# | encoder, source attention | yes | no: there is no source |
# | self-attention with a causal mask | in the decoder | the only attention |
# | feed-forward network, residuals, norms | yes | yes; since GPT-2 the norm comes first |
# | the one table | used three times | used twice, at both ends |
# | loss, Adam, warm-up, cache | yes | the same |
#
# A decoder layer without its source attention is an encoder layer with a causal mask.
# So the library's `Encoder` is all that is needed, and the model is ten lines:

# %%
import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.beyond.sampling import generate
from minitf.check import claim
from minitf.config import Config
from minitf.course.lesson import begin, finish
from minitf.data import toy
from minitf.loss import label_smoothed_cross_entropy
from minitf.nn import Embedding, Module
from minitf.optim import Adam
from minitf.transformer import Encoder, Positions, causal_mask

begin("decoder_only")
text = "\n".join(toy.splits(n_train=2000, n_valid=0, n_test=0)["train"][0])
letters = sorted(set(text))
ids_of_text = np.searchsorted(letters, list(text))
print(f"{len(text):,} letters, {len(letters)} different ones; it begins: {text[:32]!r}")


class LanguageModel(Module):
    def __init__(self, config, rng):
        self.embedding = Embedding(config.vocabulary_size, config.d_model, rng)
        self.positions = Positions(config, rng)
        self.encoder = Encoder(config, rng)

    def __call__(self, ids):  # (B, T) -> logits (B, T, V)
        x = self.positions(self.embedding(ids) * 8.0)  # sqrt(64)
        x = self.encoder(x, causal_mask(ids.shape[1]))
        return F.linear(x, self.embedding.weight.transpose())


rng = np.random.default_rng(0)
sizes = Config(
    len(letters), n_layers=2, d_model=64, d_ff=256, n_heads=4, norm="pre", dropout=0.0
)
model = LanguageModel(sizes, rng)
row = ids_of_text[None, :20]
other_end = np.where(np.arange(20) < 12, row, 0)
moved = abs(model(row).numpy() - model(other_end).numpy())[0, :12].max()
claim("later letters change the first 12 logits by", moved == 0, float(moved))

# %% [markdown]
# So one run predicts each letter from those before it, as in lesson 06, and no start
# mark is needed: the model reads letters 0 to 47 of a slice, and is to say letters 1 to
# 48.

# %%
adam = Adam(model.named_parameters())
for update in range(1, 401):
    starts = rng.integers(0, len(ids_of_text) - 48, 32)
    slices = ids_of_text[starts[:, None] + np.arange(49)]
    adam.zero_grad()
    with forms.on():
        logits = model(slices[:, :-1])
        loss = label_smoothed_cross_entropy(logits, slices[:, 1:], smoothing=0.0)
        loss.backward()
        adam.step(8e-3 * min(update / 50, 1.02 - update / 400))  # up, then down
    if update in (1, 50, 100, 200, 400):
        print(f"update {update:3d}: loss {float(loss):.2f}")
shares = np.bincount(ids_of_text) / len(ids_of_text)
frequencies_only = -(shares * np.log(shares)).sum()
print(f"who knows how frequent the letters are, and no more: {frequencies_only:.2f}")
print(f"a new translator would begin at {np.log(len(letters)) + 0.5:.2f}")
claim("the model knows much more", float(loss) < frequencies_only / 2, float(loss))

# %% [markdown]
# It began higher than a translator does (lesson 05): with the norm first, the letter's
# own row reaches the top, where the same table scores it, so a new model expects the
# letter that it has just read.
#
# ## How does it write?
# A translator searches for the best text (lesson 08). A language model that does so
# gives the same 48 letters always the same next letter: once a stretch of text has come
# twice, it comes for ever. So it throws dice. *Sampling* draws the next token with its
# probability, and the *temperature* $T$ divides the logits first:
#
# $$p_i = e^{z_i / T} / \sum_j e^{z_j / T}$$
#
# Below 1 it makes likely tokens likelier, above 1 it makes all more alike. For the
# logits 2, 1 and 0:

# %%
z = np.array([2.0, 1.0, 0.0])
for temperature in (0.1, 0.5, 1.0, 2.0):
    print(f"T = {temperature}: {F.softmax(z / temperature).numpy().round(2)}")

# %% [markdown]
# At 0.1 it is nearly greedy decoding. Now the model, with the beginning "The " and four
# temperatures, and how many of its words are words of the text:


# %%
def next_logits(ids):  # (R, t) -> (R, V): of the letter after each text
    with forms.on():
        return model(ids[:, -48:])[:, -1]


words_of_text = set(text.replace("\n", " ").split())
beginnings = np.tile(np.searchsorted(letters, list("The ")), (8, 1))
model.eval()
real = {}
for temperature in (0.1, 0.6, 1.0, 2.0):
    written = generate(next_logits, beginnings, 60, temperature, seed=1)
    texts = ["".join(letters[i] for i in each.ids) for each in written]
    words = " ".join("The " + each for each in texts).replace("\n", " ").split()
    real[temperature] = np.mean([word in words_of_text for word in words])
    different = len({each[:20] for each in texts})
    shown = repr("The " + texts[0][:44])
    print(f"T = {temperature}: {shown}")
    print(f"    {real[temperature]:.0%} are words, {different} of 8 begin differently")
claim("at 0.1 more are words than at 2", real[0.1] > real[2.0] + 0.2, real[0.1])

# %% [markdown]
# The lower the temperature, the more correct, and the more alike. Chat programs use
# about 0.7 to 1, and leave out the tokens that nobody wants: only the $k$ most probable
# ones (*top-k*), or the fewest that have together a share $p$ (*top-p*); `generate` has
# both.
#
# ## Where did the source go?
# Nowhere: it became text. "Translate into German: The dog sleeps." is a beginning, and
# the translation its continuation. One attention then looks at the task, the source and
# what is written, all in one row. What a translator had as two towers is left to the
# training: enough text, in which such continuations occur, and models of thousands of
# millions of parameters, where this one has a hundred thousand.
# `python examples/language_model.py` trains this one for longer.

# %%
finish("One tower, a causal mask, and dice: the rest is lessons 01 to 07.")
