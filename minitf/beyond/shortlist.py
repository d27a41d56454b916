"""The lexical shortlist: of all subwords, those that a translation may need, given its source."""

import numpy as np

from minitf.backend import to_device, xp
from minitf.config import Config
from minitf.tensor import Tensor

__all__ = ["Shortlist", "ShortlistedOutput"]

_MULTIPLE = 8  # the columns of a product that Marian computes at a time, in int8


class Shortlist:
    """Says which ids may be written for a sentence: a few hundred of 32,000.

        ids = first + the candidates of every id of the source
            + the lowest other ids, up to a multiple of 8

    So most of the product with the output embedding is saved, which for a single sentence is most
    of the time. A translation that needs another subword becomes a different one, and ln P is
    normalised over these ids alone.

    The ids are found for each sentence by itself, and not for a whole batch as in Marian: so a
    sentence is translated alike, whatever stands beside it.

    first: ids that may occur in any translation. starts (V + 1,), candidates: id i of the source
    has the candidates starts[i] to starts[i + 1] - 1. They are arrays of integers.
    Raises ValueError if these do not fit each other or the model, or lack the end mark.
    Source: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine
    Translation", section 3.
    """

    def __init__(
        self, config: Config, first: np.ndarray, starts: np.ndarray, candidates: np.ndarray
    ):
        size, arrays = config.vocabulary_size, (first, starts, candidates)
        if not all(array.ndim == 1 and array.dtype.kind in "iu" for array in arrays):
            raise ValueError("a shortlist is made of lists of integers")
        self.first, self.starts, self.candidates = (array.astype(np.int64) for array in arrays)
        self.size, self.special = size, {config.pad_id, config.unk_id, config.bos_id, config.eos_id}
        self.pad_id = config.pad_id
        ends = self.starts[-1:].tolist()
        ids = np.concatenate([self.first, self.candidates])
        if (
            len(starts) != size + 1
            or self.starts[0] != 0
            or ends != [len(candidates)]
            or (np.diff(self.starts) < 0).any()
            or not ((ids >= 0) & (ids < size)).all()
        ):
            raise ValueError(f"its candidates are not those of {size:,} subwords")
        if config.eos_id not in self.first:
            raise ValueError("the end mark is not among its first subwords")
        if config.pad_id not in config.suppressed_ids:  # it fills the shorter of several lists
            raise ValueError("the model may write padding")

    def __call__(self, source: np.ndarray) -> np.ndarray:
        """Return the ids for each row of source ids (B, S), ascending, then padding: (B, n)."""
        lists = list(map(self._ids, source))
        ids = np.full((len(lists), max(map(len, lists), default=0)), self.pad_id)
        for row, likely in zip(ids, lists, strict=True):
            row[: len(likely)] = likely
        return ids

    def _ids(self, source):
        known = np.zeros(self.size, dtype=bool)
        known[self.first] = True
        for start, stop in zip(self.starts[source], self.starts[source + 1], strict=True):
            known[self.candidates[start:stop]] = True
        ids = np.flatnonzero(known)
        known[list(self.special)] = True
        lowest = np.flatnonzero(~known[: len(ids) + _MULTIPLE + len(self.special)])
        return np.sort(np.concatenate([ids, lowest[: -len(ids) % _MULTIPLE]]))


class ShortlistedOutput:
    """The logits of some ids (B, n) of each sentence, for the W texts of each.

        logits = x E[ids]^T + b[ids]

    weight: the output embedding E (V, D). bias: b (V,). There is one matrix E[ids] for each
    sentence, so none has to move when another sentence is done.
    """

    def __init__(self, weight: Tensor, bias: Tensor, ids: np.ndarray):
        ids = to_device(ids)
        self.weights, self.bias = [weight.data[each] for each in ids], bias.data[ids][:, None]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the logits of the texts of all sentences: (R, D) -> (R, n)."""
        x = x.reshape(len(self.weights), -1, x.shape[1])
        y = xp.empty((*x.shape[:2], self.bias.shape[2]), x.dtype)  # (B, W, n)
        for rows, weight, out in zip(x, self.weights, y, strict=True):
            xp.matmul(rows, weight.T, out=out)
        y += self.bias
        return y.reshape(-1, y.shape[2])

    def select(self, sentences: np.ndarray) -> None:
        """Continue with these sentences only."""
        self.weights = [self.weights[i] for i in sentences]
        self.bias = self.bias[to_device(sentences)]
