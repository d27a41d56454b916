"""The best continuations of each sentence, found among the few that may be among the best.

Letters: B sentences, W texts of each.
"""

import numpy as np

from minitf import decode
from minitf.backend import to_device, to_numpy, xp

_BLOCK = 512  # scores in a block of continuations, at least


def continuations(logits, totals, count, never=(), allowed=None):
    """Return what decode.continuations returns: its form for NumPy, and for CuPy with `allowed`."""
    totals = totals - decode.rule_out(logits, never).reshape(totals.shape)
    return ranked(logits, totals, count, allowed)


def ranked(scores, totals, count, allowed=None):
    """Return the `count` greatest sums of a score and the total of its text, in each sentence.

    The scores are cut into blocks, and the greatest of each block is found. At least `count`
    continuations are as good as the block that comes in the place `count`, so no worse one is
    needed, nor a block without a better one; what is left is sorted. The last tokens may be in no
    block. allowed: as for `rule_out`. Of the few that are left, hardly one is not allowed: so the
    scores, which may be changed, are masked only where too few remain.
    """
    (n, beams), size = totals.shape, scores.shape[-1]
    count, blocks = min(count, beams * size), size // _BLOCK
    blocks = blocks if beams * blocks >= count else size
    width, on_device = size // blocks, to_device(totals)
    in_blocks = scores[:, : blocks * width].reshape(n * beams, blocks, width)
    greatest = in_blocks.max(axis=2)  # (R, blocks)
    sums = (greatest.reshape(n, beams, blocks) + on_device[:, :, None]).reshape(n, -1)
    least = xp.partition(sums, sums.shape[1] - count, axis=-1)[:, -count, None]  # (B, 1)
    lower = least - 1e-12 * abs(least)  # as sum and difference were rounded
    with np.errstate(invalid="ignore"):  # of -inf - -inf
        limits = xp.where(least == -xp.inf, least, lower - on_device).astype(scores.dtype)
    limits = xp.nextafter(limits, -xp.inf).reshape(-1, 1)
    rows, block = (greatest >= limits).nonzero()
    found = xp.flatnonzero(in_blocks[rows, block] >= limits[rows])
    found, place = found // width, found % width
    others, last = (scores[:, blocks * width :] >= limits).nonzero()
    rows = xp.concatenate([rows[found], others])
    tokens = xp.concatenate([block[found] * width + place, last + blocks * width])
    if allowed is not None:
        kept = to_device(allowed)[rows, tokens].nonzero()
        rows, tokens = rows[kept], tokens[kept]
    values = to_numpy(scores[rows, tokens]).astype(np.float64)
    rows, tokens = to_numpy(rows), to_numpy(tokens)
    ends = np.bincount(rows // beams, minlength=n).cumsum()
    starts = np.append(0, ends[:-1])
    if (ends - starts < count).any():
        xp.copyto(scores, -np.inf, where=~to_device(allowed))
        return ranked(scores, totals, count)
    values += totals.reshape(-1)[rows]
    best_first = np.lexsort((tokens, rows, -values, rows // beams))
    best = best_first[starts[:, None] + np.arange(count)]
    return tokens[best], rows[best] % beams, values[best]
