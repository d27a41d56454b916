"""Subword regularisation: the training text is cut in other ways in each epoch."""

import random

import numpy as np

from minitf.data.rows import Rows
from minitf.text.merges import words_of
from minitf.text.normalise import normalise

__all__ = ["Sampler"]

MOST_CUTS = 32  # of a word in an epoch; its occurrences share them


class Sampler:
    """Cuts a text again for each epoch, by BPE-dropout: each merge is left out at random.

    So the model sees a rare word in several segmentations, and learns the meanings of its subwords.
    In each epoch, each different word is cut again, once for each occurrence, but at most 32 times;
    each occurrence gets one of these cuts. The rows of an epoch are a function of the seed, the
    epoch, and the text. (SentencePiece can sample, too, and faster, but never repeats itself in
    another process: it mixes random bytes of the system into the seed.)

    subwords: Subwords. pairs: the lines of both sides. rows: the same lines as Rows, cut without
    sampling; they replace a row that sampling makes longer than `longest` ids. probability: of
    leaving out a merge. seed: of the run.
    Source: Provilkov et al. 2020; Kudo 2018 for the idea.
    """

    def __init__(self, subwords, pairs, rows, probability, seed, longest):
        self.rows, self.probability, self.seed, self.longest = rows, probability, seed, longest
        self._merges = subwords.merges()
        known = {}  # the number of each different word
        self._sides = [_numbered(lines, known) for lines in pairs]
        self._words = list(known)
        occurrences = np.concatenate([words for words, _ in self._sides])
        self._copies = np.bincount(occurrences, minlength=len(known)).clip(max=MOST_CUTS)
        self._regular = self._may_be_sampled()

    def epoch(self, number):
        """Return the rows of both sides for an epoch."""
        state = np.random.SeedSequence([self.seed, number]).generate_state(4)
        draw = random.Random(int.from_bytes(state.tobytes(), "little")).random
        cuts = (
            self._merges.cut(word, self.probability, draw)
            for word, copies in zip(self._words, self._copies, strict=True)
            for _ in range(copies)
        )
        table = Rows.from_lists(list(cuts), self.rows[0].ids.dtype)
        first = np.cumsum(self._copies) - self._copies  # of each word, in the table
        sides = []
        for side, (words, counts) in enumerate(self._sides):
            rng = np.random.default_rng([self.seed, number, side])
            chosen = first[words] + rng.integers(self._copies[words])
            sampled = _joined(table, chosen, counts)
            usable = self._regular[side] & (sampled.lengths <= self.longest)
            sides.append(_either(sampled, self.rows[side], usable))
        return tuple(sides)

    def _may_be_sampled(self):
        """Return for each row of both sides whether its words, cut without sampling, make that row.

        SentencePiece cuts lines, not words. The two differ only for odd lines, such as those that
        contain its sign for a space: these are never sampled.
        """
        table = Rows.from_lists(
            [self._merges.cut(word) for word in self._words], self.rows[0].ids.dtype
        )
        regular = []
        for (words, counts), unsampled in zip(self._sides, self.rows, strict=True):
            joined = _joined(table, words, counts)
            same = joined.lengths == unsampled.lengths
            pairs = zip(joined, unsampled, same, strict=True)
            regular.append(np.array([ok and np.array_equal(a, b) for a, b, ok in pairs], bool))
        return regular


def _numbered(lines, known):
    """Return the number of each word of all lines in one array, and how many words a line has.

    known: {word: number}, to which new words are added.
    """
    numbers, counts = [], []
    for line in lines:
        words = words_of(normalise(line))
        numbers += [known.setdefault(word, len(known)) for word in words]
        counts.append(len(words))
    return np.array(numbers, np.int64), np.array(counts, np.int64)


def _joined(table, chosen, counts):
    """Return rows of ids: row i joins counts[i] rows of the table, in the order of `chosen`."""
    ids, lengths = table.flat(chosen)
    ends = np.cumsum(lengths)[np.cumsum(counts) - 1]  # a line has one word at least, a space
    return Rows.mapped(ids, np.diff(ends, prepend=0), ends)


def _either(sampled, unsampled, usable):
    """Return the sampled rows where they are usable, and the unsampled ones elsewhere."""
    both = Rows([sampled.ids, unsampled.ids], np.concatenate([sampled.lengths, unsampled.lengths]))
    n = len(usable)
    ids, lengths = both.flat(np.where(usable, np.arange(n), n + np.arange(n)))
    return Rows.mapped(ids, lengths, np.cumsum(lengths))
