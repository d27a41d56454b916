"""The best continuations of each sentence, found among the few that may be among the best.

Letters: B sentences, W texts of each.
"""

import numpy as np

from minitf import decode
from minitf.backend import to_device, to_numpy, xp

_BLOCKS = 8  # blocks of a text's scores, at least


def continuations(logits, totals, count, never=(), allowed=None):
    """Return what decode.continuations returns: its form for NumPy, and for CuPy with `allowed`."""
    totals = totals - decode.rule_out(logits, never).reshape(totals.shape)
    return ranked(logits, totals, count, allowed)


def ranked(scores, totals, count, allowed=None):
    """Return the `count` greatest sums of a score and the total of its text, in each sentence.

    The scores are cut into blocks, and the greatest of each block is found. At least `count`
    continuations are as good as the block that comes in the place `count`, so worse ones are left
    out and the others sorted. The last tokens may be in no block.
    allowed: as for `rule_out`. Nearly all of the few that are sorted are allowed: so the scores,
    which may be changed, are masked only where too few remain.
    """
    (n, width), size = totals.shape, scores.shape[-1]
    count = min(count, width * size)
    blocks = min(size, max(_BLOCKS, -(-count // width)))
    in_blocks = scores[:, : size // blocks * blocks].reshape(n, width, blocks, -1)
    on_device = to_device(totals)[:, :, None]
    sums = (in_blocks.max(axis=3) + on_device).reshape(n, -1)
    least = xp.partition(sums, sums.shape[1] - count, axis=-1)[:, -count, None, None]
    with np.errstate(invalid="ignore"):  # inf - inf
        limits = xp.where(least == -xp.inf, least, least - on_device)
        limits -= 1e-6 * (1 + abs(limits))  # as sums, differences and scores were rounded
    found = xp.flatnonzero(scores >= limits.astype(scores.dtype).reshape(-1, 1))
    rows, tokens = found // size, found % size
    if allowed is not None:
        may_follow = to_device(allowed)[rows, tokens]
        rows, tokens = rows[may_follow], tokens[may_follow]
    values = to_numpy(scores[rows, tokens]).astype(np.float64)
    rows, tokens = to_numpy(rows), to_numpy(tokens)
    bounds = np.searchsorted(rows, np.arange(n + 1) * width)  # where each sentence begins
    if (np.diff(bounds) < count).any():
        xp.copyto(scores, -np.inf, where=~to_device(allowed))
        return ranked(scores, totals, count)
    values += totals.ravel()[rows]
    best_first = np.lexsort((-values, rows // width))  # equal ones stay in their order
    best = best_first[bounds[:-1, None] + np.arange(count)]
    return tokens[best], rows[best] % width, values[best]
