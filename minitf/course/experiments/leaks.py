"""Train a Transformer with each of nine mistakes by which it can see the words to come.

    python -m minitf.course.experiments.leaks

The text is random: each word is one of 16, drawn without regard to the source and to the words
before it. So no honest model can have a loss below ln 16 = 2.77. A model that gets below it sees
the word that it must predict, or something computed from that word.
"""

import itertools
from types import SimpleNamespace

import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.config import Config
from minitf.course import experiments
from minitf.nn import LayerNorm
from minitf.transformer import MultiHeadAttention, Transformer

MISTAKES = (
    "none",
    "no causal mask",
    "mask shifted by one",
    "mask transposed",
    "mask in layer 1 only",
    "mask after the softmax",
    "softmax over the queries",
    "norm over time",
    "target not shifted",
    "target in the source",
)
START = 2  # id of the start mark
WORDS = range(4, 20)  # ids of the 16 words
LENGTH = 6  # words of a source, and of a target
SIZES = {"n_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 2}
UPDATES, ROWS, RATE = 400, 64, 0.003


class LeakyAttention(MultiHeadAttention):
    """The decoder's self-attention, which receives the causal mask and uses it wrongly."""

    mistake = ""

    def attend(self, queries, keys, values, mask, positions):
        """Attend in all heads, as `MultiHeadAttention.attend` does, but with a mistake."""
        if self.mistake == "no causal mask":
            mask = None
        if self.mistake == "mask shifted by one":
            mask = np.tri(queries.shape[2], keys.shape[2], 1, dtype=bool)
        if self.mistake == "mask transposed":
            mask = mask.transpose(0, 1, 3, 2)
        if self.mistake == "mask after the softmax":
            weights = F.attention_weights(queries, keys)
            return (weights * mask) @ values
        if self.mistake == "softmax over the queries":
            root = queries.shape[-1] ** 0.5
            scores = queries @ keys.transpose(0, 1, 3, 2) / root
            return F.softmax(F.where(mask, scores, -1e9), axis=2) @ values
        return F.attention(queries, keys, values, mask)


class NormOverTime(LayerNorm):
    """A norm whose mean and variance are those of one feature at all positions."""

    def __call__(self, x):
        """Normalise x (B, T, D) along T, where `LayerNorm` does so along D."""
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        return centred / (variance + self.eps) ** 0.5 * self.gain + self.bias


def leaky_model(mistake, seed=0):
    """Return a new Transformer whose decoder has this mistake."""
    config = Config(WORDS.stop, **SIZES, dropout=0.0, label_smoothing=0.0)
    model = Transformer(config, seed)
    rng = np.random.default_rng(seed)
    for number, layer in enumerate(model.decoder.layers, 1):
        layer.self_attention = LeakyAttention(config, rng)
        layer.self_attention.mistake = mistake
        if mistake == "mask in layer 1 only" and number > 1:
            layer.self_attention.mistake = "no causal mask"
        if mistake == "norm over time":
            layer.self_residual.norm = NormOverTime(config.d_model)
    return model


def random_text(rng, rows):
    """Return the ids of random sources and targets, which have nothing to do with each other."""
    sources = rng.choice(WORDS, (rows, LENGTH))
    targets = rng.choice(WORDS, (rows, LENGTH))
    return sources, targets


def pair_of(sources, targets, mistake):
    """Return what the encoder reads and what the decoder reads, (B, S) and (B, T)."""
    start = np.full((len(targets), 1), START)
    target_in = np.concatenate([start, targets[:, :-1]], axis=1)
    if mistake == "target not shifted":
        target_in = targets
    if mistake == "target in the source":
        sources = np.concatenate([sources, targets], axis=1)
    return sources, target_in


def train(mistake, updates=UPDATES):
    """Train a model with this mistake on random text; return it, and the loss of each update."""
    rng, model, batches = np.random.default_rng(1), leaky_model(mistake), []
    for _ in range(updates):
        sources, targets = random_text(rng, ROWS)
        source, target_in = pair_of(sources, targets, mistake)
        batches.append(SimpleNamespace(source=source, target_in=target_in, target_out=targets))
    with forms.on():
        return model, list(experiments.updates(model, batches, itertools.repeat(RATE)))


def translating_loss(model):
    """Return the loss where each word is asked for as in translation: the rest is not there yet.

    The decoder reads the start mark and the words before, the encoder the source; nothing else
    exists.
    """
    sources, targets = random_text(np.random.default_rng(2), ROWS)
    source, target_in = pair_of(sources, targets, "none")
    losses = []
    for t in range(LENGTH):
        logits = model(source, target_in[:, : t + 1])[:, -1]
        logarithms = F.log_softmax(logits).numpy()
        losses.append(-logarithms[np.arange(ROWS), targets[:, t]].mean())
    return float(np.mean(losses))


def run(updates=UPDATES, mistakes=MISTAKES):
    """Return {mistake: the loss of each tenth update, and the loss in translation}."""
    results = {}
    for mistake in mistakes:
        model, losses = train(mistake, updates)
        tenths = np.reshape(losses, (-1, 10)).mean(axis=1)
        results[mistake] = {
            "training": [round(float(loss), 4) for loss in tenths],
            "translating": round(translating_loss(model), 4),
        }
    return results


if __name__ == "__main__":
    experiments.write("leaks", run())
