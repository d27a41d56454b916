"""The best continuations of each sentence, found among the few that may be among the best.

Letters: B sentences, W texts of each.
"""

import numpy as np

from minitf import decode
from minitf.backend import to_device, to_numpy, xp

_BLOCK = 32  # scores in a block of continuations


def continuations(logits, totals, count, never=(), allowed=None):
    """Return what decode.continuations returns: its form for NumPy, and for CuPy with `allowed`."""
    totals = totals - decode.rule_out(logits, never, allowed).reshape(totals.shape)
    return ranked(logits, totals, count)


def ranked(scores, totals, count):
    """Return the `count` greatest sums of a score and the total of its text, in each sentence.

    The scores are cut into blocks, and the greatest of each block is found. At least `count`
    continuations are as good as the block that comes in the place `count`, so no worse one is
    needed; the others are sorted. Block i contains the tokens i, i + stride, i + 2 * stride ..., so
    that the greatest of all blocks are found along one axis. The last tokens may be in no block.
    """
    (n, beams), size = totals.shape, scores.shape[-1]
    count = min(count, beams * size)
    width = _BLOCK if beams * (size // _BLOCK) >= count else 1
    stride, on_device = size // width, to_device(totals)
    greatest = scores[:, : width * stride].reshape(n, beams, width, stride).max(axis=2)
    sums = (greatest + on_device[:, :, None]).reshape(n, -1)
    least = xp.partition(sums, sums.shape[1] - count, axis=-1)[:, -count, None]  # (B, 1)
    lower = least - 1e-12 * abs(least)  # as sum and difference were rounded
    with np.errstate(invalid="ignore"):  # of -inf - -inf
        limits = xp.where(least == -xp.inf, least, lower - on_device).astype(scores.dtype)
    candidates = xp.flatnonzero(scores >= xp.nextafter(limits, -xp.inf).reshape(-1, 1))

    values = to_numpy(scores.reshape(-1)[candidates]).astype(np.float64)
    candidates = to_numpy(candidates)
    values += totals.reshape(-1)[candidates // size]
    sentence = candidates // (beams * size)
    best_first = np.lexsort((-values, sentence))  # equals stay in the order of their index
    start = np.searchsorted(sentence, np.arange(n))
    best = best_first[start[:, None] + np.arange(count)]
    index = candidates[best] % (beams * size)
    return index % size, index // size, values[best]
