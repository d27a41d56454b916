"""Small Transformers, made-up models, and batches for them."""

import contextlib
import functools

import numpy as np
from sizes import B, D, F, H, S, T, V

from minitf.backend import to_device
from minitf.config import Config
from minitf.tensor import Tensor
from minitf.text import EOS, PAD, make_batch
from minitf.transformer import Transformer, padding_mask

PUBLIC = {  # the switches of public models
    "attention_bias": True,
    "activation": "swish",
    "output_bias": True,
    "n_decoder_layers": 1,
    "suppressed_ids": (0, 1, 2),
}

SWITCHES = {  # each of the paper's choices turned the other way, and all of them at once
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned", "max_length": 16},
    "untied": {"tie": False},
    "halves, t2t base": {"sinusoid_layout": "halves", "sinusoid_base": "t2t"},
    "attention bias": {"attention_bias": True},
    "swish": {"activation": "swish"},
    "output bias": {"output_bias": True},
    "a shorter decoder": {"n_decoder_layers": 1},
    "suppressed ids": {"suppressed_ids": (0, 1, 2)},
    "ssru": {"decoder": "ssru"},
    "public models": PUBLIC,
    "all": {"norm": "pre", "positions": "learned", "max_length": 16, "tie": False, "eps": 1e-3}
    | PUBLIC,
}


def each_switch(*quick, **more):
    """Run a test with `changes` of every switch, and more; by default with the quick ones alone."""
    import pytest  # programs that make models have no need of it

    rows = [
        pytest.param(changes, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, changes in (SWITCHES | more).items()
    ]
    return pytest.mark.parametrize("changes", rows)


def small_config(**changes):
    """A Config of pairwise different sizes: 2 layers, d_k 6, d_v 8, no dropout."""
    sizes = {
        "n_layers": 2,
        "d_model": D,
        "d_ff": F,
        "n_heads": H,
        "d_k": 6,
        "d_v": 8,
        "dropout": 0.0,
    }
    return Config(**{"vocabulary_size": V, **sizes, **changes})


def small_model(dtype="float64", seed=1, **changes):
    """A model with every weight drawn, the gains and biases too, which would be 1 and 0."""
    model = Transformer(small_config(**changes), seed)
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        if name.endswith(("gain", "bias")):
            parameter.data += to_device(rng.normal(0, 0.3, parameter.shape), np.float32)
    return model.astype(dtype)


def random_batch(rng, rows=B, source=S, target=T, vocabulary_size=V):
    """A Batch of rows of different lengths, the first row full: `source` and `target` ids with
    their end marks.
    """

    def lines(length):
        lengths = [length - 1, *rng.integers(0, length - 1, rows - 1)]
        return [rng.integers(4, vocabulary_size, n).tolist() for n in lengths]

    return make_batch(lines(source), lines(target), vocabulary_size)


class Table:
    """In place of a model: any beginning of a text has the next-word scores that
    `scores(sentence, ids)` says.

    The number of the sentence is the first id of its source.
    """

    def __init__(self, scores, vocabulary_size):
        self.scores, self.config, self.steps = (
            scores,
            small_config(vocabulary_size=vocabulary_size),
            0,
        )

    def evaluating(self):
        return contextlib.nullcontext()

    def encode(self, source):
        return Tensor(source[:, :1, None].astype(np.float64)), padding_mask(source)

    def decode(self, prefixes, memory, mask):
        self.steps += 1
        assert len(prefixes) == len(memory.data) == len(mask)
        rows = zip(memory.numpy()[:, 0, 0], prefixes[:, 1:], strict=True)
        return Tensor(
            np.array([[self.scores(int(number), tuple(map(int, ids)))] for number, ids in rows])
        )

    def logits(self, hidden):
        return hidden


def random_table(seed, vocabulary_size, end=0.0):
    """A Table of unit-variance scores, the end mark made likelier by `end`."""

    @functools.cache
    def scores(sentence, ids):
        drawn = np.random.default_rng([seed, sentence, *ids]).normal(size=vocabulary_size)
        drawn[EOS] += end
        return drawn

    return Table(scores, vocabulary_size)


def fixed_table(probabilities):
    """A Table of six ids whose probabilities are written down: {ids: {word: probability}}, the rest
    shared by all.
    """

    def scores(sentence, ids):
        given = probabilities.get(ids, {})
        rest = (1 - sum(given.values())) / (6 - len(given))
        return np.log([given.get(word, rest) for word in range(6)])

    return Table(scores, 6)


def sources(*lengths):
    """Source ids of sentences of these many words; the first word is the number of the
    sentence, from 4 on.
    """
    rows = np.full((len(lengths), max(lengths) + 1), PAD)
    for i, n in enumerate(lengths):
        rows[i, : n + 1] = [4 + i] * n + [EOS]
    return rows
