"""The ids of all lines of a text, in one flat array."""

from itertools import chain

import numpy as np

from minitf.cli import Progress
from minitf.text.batches import id_type

__all__ = ["Rows", "encode_lines"]

_BLOCK = 50_000  # lines that are cut into subwords at a time


def encode_lines(subwords, lines, side, threads=0):
    """Return the ids of each line; a line of spaces has none, though SentencePiece has subwords."""
    lines = [line if line.strip() else "" for line in lines]
    return subwords.encode(lines, threads=threads, side=side)


class Rows:
    """Rows of ids in one flat array: two bytes an id, where Python's lists take 36.

    WMT has half a billion ids.

    >>> rows = Rows([np.array([5, 6, 7], np.uint16)], [2, 0, 1])
    >>> len(rows), [ids.tolist() for ids in rows], rows[2].tolist()
    (3, [[5, 6], [], [7]], [7])
    """

    def __init__(self, parts, lengths):
        self.ids = np.concatenate(parts) if parts else np.zeros(0, np.uint16)
        self.lengths = np.array(lengths, np.int64)
        self.ends = np.cumsum(self.lengths)

    @classmethod
    def encode(cls, subwords, lines, say=None, side="source"):
        """Cut the lines of a side into subwords, a block at a time. say: see Progress."""
        dtype = id_type(len(subwords))
        parts, lengths = [], []
        with Progress("lines cut into subwords", len(lines), say=say) as progress:
            for start in range(0, len(lines), _BLOCK):
                rows = encode_lines(subwords, lines[start : start + _BLOCK], side)
                lengths += [len(ids) for ids in rows]
                parts.append(np.fromiter(chain.from_iterable(rows), dtype))
                progress.update_to(len(lengths))
        return cls(parts, lengths)

    @classmethod
    def from_lists(cls, rows, dtype):
        """Return rows of ids, each a list or an array, as Rows of this type."""
        return cls([np.fromiter(chain.from_iterable(rows), dtype)], [len(ids) for ids in rows])

    @classmethod
    def mapped(cls, ids, lengths, ends):
        """Return rows of any array of ids, such as a mapped file."""
        rows = cls([], [])
        rows.ids, rows.lengths, rows.ends = ids, lengths, ends
        return rows

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        end = self.ends[row]
        return self.ids[end - self.lengths[row] : end]

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))

    def flat(self, rows):
        """Return the ids of these rows in one array, and the length of each row."""
        lengths = self.lengths[rows].astype(np.int64)
        # from the index of an id in the result to its index in self.ids
        shifts = self.ends[rows] - np.cumsum(lengths)
        return self.ids[np.arange(lengths.sum()) + np.repeat(shifts, lengths)], lengths

    def keep(self, rows):
        """Return these rows, in this order."""
        return Rows([self[row] for row in rows], self.lengths[rows])
