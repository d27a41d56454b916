"""A probe: a few numbers that a model computes when it is saved, and again when it is loaded.

Weights alone do not show how they were used. If a layer without parameters was changed in the code,
such as the ReLU to a GELU, the weights fit the original layer as well, and it would translate badly
without an error. The probe would differ.
"""

import contextlib
import math
import reprlib

import numpy as np

from minitf import forms
from minitf.backend import to_device, to_numpy
from minitf.cpu.threads import one_blas_thread
from minitf.decode import continuations, logsumexp
from minitf.errors import UserError
from minitf.tensor import no_grad

__all__ = ["agreeing_forms", "check_probe", "probe"]

_LENGTH = 8  # positions of the input, with one number for each
# Relative difference that is accepted. Weights rounded to float16 change the numbers by 0.001; a
# GELU in place of the ReLU changes those of an untrained model by 0.07, of a trained one by 0.4.
_TOLERANCE = 0.02


def probe(model, arrays=None):
    """Return some logits of a model for a fixed input, or None if one of them is not finite.

    The result has one logit per position: see `some_logits`.
    arrays: weights by name, used in place of the model's own.
    """
    with (
        _weights(model, arrays),
        forms.off(),  # bfloat16 would change the numbers of a deep model by 0.02
        one_blas_thread(),
        np.errstate(all="ignore"),
    ):
        ids, logits = some_logits(model)
    positions = np.arange(len(ids))
    chosen = logits[positions % 2, positions, ids].astype(np.float64)
    return [float(f"{x:.6g}") for x in chosen] if np.isfinite(chosen).all() else None


def some_logits(model):
    """Return the ids of a fixed input, and a model's logits (2, length, V) for it.

    The input is two sentences, the second with padding. It must never change, because some of the
    logits are saved with models.
    """
    c = model.config
    length = min(_LENGTH, c.max_length)
    ids = np.linspace(1, c.vocabulary_size - 1, length).astype(np.int64)
    ids[np.isin(ids, (c.pad_id, *c.suppressed_ids))] = c.eos_id  # no finite logit for the latter
    source, target = np.stack([ids, ids[::-1]]), np.stack([ids[::-1], ids])  # (2, length)
    source[1, length // 2 :] = c.pad_id
    target[:, 0] = c.bos_id
    with model.evaluating(), no_grad():
        return ids, to_numpy(model(source, target).data)


def agreeing_forms(model):
    """Return the ops whose forms may translate with a model: see `forms.agreeing`."""

    def numbers():
        with one_blas_thread(), np.errstate(all="ignore"):
            _, logits = some_logits(model)
            last = to_device(logits[:, -1])  # of two texts
            *_, totals = continuations(last, np.zeros((1, 2)), 4)
            return [logits, logsumexp(last), totals]

    return forms.agreeing(numbers)


def check_probe(model, expected):
    """Raise UserError unless the model computes the numbers expected (None: anything)."""
    if expected is None:
        return
    numbers = isinstance(expected, list) and 0 < len(expected) <= _LENGTH
    if not numbers or not all(type(x) in (int, float) and abs(x) < 1e30 for x in expected):
        raise UserError(f'damaged (entry "probe": {reprlib.repr(expected)}): copy the model again')
    found = probe(model)
    if (
        found is None
        or len(found) != len(expected)
        or math.dist(found, expected) > _TOLERANCE * math.hypot(*expected)
    ):
        raise UserError(
            "the model computes other numbers than when it was saved: was a layer changed in the "
            "code? Give the code that it was trained with, as in Translator.load(folder, "
            "model=MyTransformer) or train(settings, model=MyTransformer)"
        )


@contextlib.contextmanager
def _weights(model, arrays):
    """Replace the model's weights inside a `with` block."""
    before = [(parameter, parameter.data) for parameter in model.parameters()]
    try:
        for name, parameter in model.named_parameters() if arrays else ():
            parameter.data = to_device(arrays[name], parameter.dtype)
        yield
    finally:
        for parameter, data in before:
            parameter.data = data
