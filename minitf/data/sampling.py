"""Subword regularisation: the training text is cut in other ways in each epoch."""

import threading

import numpy as np

from minitf.data.rows import Rows

__all__ = ["Sampler"]

_BLOCK = 50_000  # lines that are cut with one seed


class Sampler:
    """Cuts a text again for each epoch, by BPE-dropout: each merge is left out at random.

    So the model sees a rare word in several segmentations, and learns what its parts mean. The rows
    of an epoch are a function of the seed, the epoch, and the text. SentencePiece repeats itself
    only if it is seeded and runs on one thread, so all sampling happens on one thread; while an
    epoch is trained on, that thread cuts the text for the next one.

    subwords: Subwords. pairs: the lines of both sides. rows: the same lines as Rows, cut in the
    usual way; they replace a row that sampling makes longer than `longest` ids. probability: of
    leaving out a merge. seed: of the run.
    Source: Provilkov et al. 2020; Kudo 2018 for the idea.
    """

    def __init__(self, subwords, pairs, rows, probability, seed, longest):
        self.subwords, self.pairs, self.rows = subwords, pairs, rows
        self.probability, self.seed, self.longest = probability, seed, longest
        self._ahead = None

    def epoch(self, number):
        """Return the rows of both sides for an epoch, and begin to cut those of the next one."""
        if self._ahead is None or self._ahead.number != number:
            if self._ahead is not None:
                self._ahead.wait()  # two threads that sample at once would not repeat themselves
            self._ahead = _Cutting(self, number)
        sides = self._ahead.wait()
        self._ahead = _Cutting(self, number + 1)
        return sides

    def cut(self, number):
        """Return the rows of both sides for an epoch. Only one thread at a time may do this."""
        return tuple(
            self._side(lines, fixed, [self.seed, number, side])
            for side, (lines, fixed) in enumerate(zip(self.pairs, self.rows, strict=True))
        )

    def _side(self, lines, fixed, seed):
        found = []
        for block, start in enumerate(range(0, len(lines), _BLOCK)):
            (state,) = np.random.SeedSequence([*seed, block]).generate_state(1)
            block_lines = lines[start : start + _BLOCK]
            sampled = self.subwords.sample(block_lines, self.probability, int(state))
            for row, ids in enumerate(sampled, start):
                found.append(ids if len(ids) <= self.longest else fixed[row])
        return Rows.of(found, fixed.ids.dtype)

    def __getstate__(self):
        """Leave out the thread: each rank of a run has its own."""
        return vars(self) | {"_ahead": None}


class _Cutting:
    """The rows of an epoch, being cut on a thread of their own."""

    def __init__(self, sampler, number):
        self.number = number
        self._sampler, self._sides, self._error = sampler, None, None
        # A daemon: a program that ends does not wait for rows that it no longer needs.
        self._thread = threading.Thread(target=self._cut, name="subword sampling", daemon=True)
        self._thread.start()

    def _cut(self):
        try:
            self._sides = self._sampler.cut(self.number)
        except BaseException as error:  # raised where the rows are needed
            self._error = error

    def wait(self):
        """Return the rows of both sides when they are cut."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._sides
