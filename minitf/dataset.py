"""From a corpus to what the trainer reads: subwords, pairs of ids, and batches that are a function of the epoch."""

import dataclasses
import hashlib
from itertools import chain

import numpy as np

from minitf import augment, corpora
from minitf.backend import UserError
from minitf.text import UNK, Subwords, Words, join_cuts, make_batch, plan_batches

__all__ = ["Dataset", "Rows", "prepare", "read_corpus"]

VALID_SENTENCES = 1000  # enough to see progress; translating more of them only delays the training
MOST_UNKNOWN = 0.5
DEFAULT_VOCABULARY = 8000
_BLOCK = 50_000  # lines that are cut into subwords at a time


class Rows:
    """Lists of ids in one flat array: two bytes an id, where Python's lists take 36. WMT has half a billion.

    >>> rows = Rows([np.array([5, 6, 7], np.uint16)], [2, 0, 1])
    >>> len(rows), [ids.tolist() for ids in rows], rows[2].tolist()
    (3, [[5, 6], [], [7]], [7])
    """

    def __init__(self, parts, lengths):
        self.ids = np.concatenate(parts) if parts else np.zeros(0, np.uint16)
        self.lengths = np.array(lengths, np.int64)
        self.ends = np.cumsum(self.lengths)

    @classmethod
    def encode(cls, subwords, lines):
        """Cut lines into subwords, some at a time."""
        dtype = np.uint16 if len(subwords) <= 1 << 16 else np.int32
        parts, lengths = [], []
        for start in range(0, len(lines), _BLOCK):
            rows = subwords.encode(lines[start : start + _BLOCK])
            lengths += [len(ids) for ids in rows]
            parts.append(np.fromiter(chain.from_iterable(rows), dtype))
        return cls(parts, lengths)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        end = self.ends[row]
        return self.ids[end - self.lengths[row] : end]

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))

    def keep(self, rows):
        """Give these of the rows, in this order."""
        return Rows([self[row] for row in rows], self.lengths[rows])


@dataclasses.dataclass
class Dataset:
    """The training pairs as ids, and the texts to validate and test on (`corpus.train` is empty: it is in the ids).

    valid: the sentences of corpus.valid that are used, at most a thousand.
    """

    corpus: corpora.Corpus
    subwords: Subwords | Words
    sources: Rows
    targets: Rows
    valid: corpora.Pairs

    @property
    def longest(self):
        """How many subwords a source may have to be a usual one: of a thousand training pairs, one has more."""
        return max(1, int(np.quantile(self.sources.lengths, 0.999, method="higher")))

    def plan(self, epoch, batch_tokens, seed):
        """Give the batches of an epoch as arrays of indices: the same for the same epoch, in any process."""
        lengths = self.sources.lengths + 1, self.targets.lengths + 1  # the end marks
        return plan_batches(*lengths, batch_tokens, np.random.default_rng([seed, epoch]))

    def batch(self, indices):
        """Pad the pairs with these indices to a batch."""
        sources, targets = ([side[i].tolist() for i in indices] for side in (self.sources, self.targets))
        return make_batch(sources, targets, len(self.subwords))

    def largest(self, plan):
        """Give the batches of a plan that may need the most memory.

        One has the most positions, and one the most pairs of positions that may attend to each other.
        """
        widths = np.array([[side.lengths[rows].max() + 1 for side in (self.sources, self.targets)] for rows in plan])
        n_rows = np.array([len(rows) for rows in plan])
        positions = n_rows * widths.sum(axis=1)
        pairs = n_rows * (widths**2).sum(axis=1) + n_rows * widths.prod(axis=1)
        return [plan[i] for i in sorted({int(positions.argmax()), int(pairs.argmax())})]

    def fingerprint(self):
        """Give a hash of all training pairs: a run can only be resumed exactly on the same ones."""
        digest = hashlib.sha256()
        for side in (self.sources, self.targets):
            digest.update(side.ids.astype("<i4").tobytes() + side.lengths.astype("<i8").tobytes())
        return digest.hexdigest()

    def references(self, lines):
        """Give translations to compare with: text that came cut is joined, as what is translated is."""
        return [join_cuts(line) for line in lines] if isinstance(self.subwords, Words) else lines


def read_corpus(settings):
    """Read the named corpus, or the files of --train and --valid."""
    if not settings.train:
        return corpora.load(settings.corpus)
    if not settings.valid:
        raise UserError("--train needs --valid SOURCE TARGET: sentences that are kept out of the training")
    train, valid = corpora.read_pairs(*settings.train), corpora.read_pairs(*settings.valid)
    cut = settings.subwords == "none"
    return corpora.Corpus("own", "source", "target", train, valid, {}, cut=cut, tokenized=cut)


def prepare(settings, corpus, log, subwords=None):
    """Augment, cut and clean the training text; learn the subwords if none are given.

    Raises UserError if nothing is left to train or to validate on.
    """
    if not corpus.train.source:
        raise UserError("the training text is empty: give one sentence per line")
    if subwords is None:
        subwords = _learn_subwords(corpus, settings, log)
    pairs = _augmented(corpus.train, settings, log)
    sources, targets = (Rows.encode(subwords, side) for side in pairs)
    longest = min(settings.max_length, settings.batch_tokens - 1)
    kept, counts = corpora.clean(sources, targets, longest)
    log(f"pairs    {len(kept):,} to train on{_left_out(counts)}")
    if not len(kept):
        raise UserError(f"no pair is left to train on{_left_out(counts)}")
    sources, targets = sources.keep(kept), targets.keep(kept)
    _count_unknown(sources, targets, log)
    valid = _validation(corpus.valid, subwords, longest, log)
    corpus = dataclasses.replace(corpus, train=corpora.Pairs([], []))
    return Dataset(corpus, subwords, sources, targets, valid)


def _left_out(counts):
    reasons = [f"{n:,} {reason}" for reason, n in counts.items() if n and reason != "kept"]
    return f"; left out: {', '.join(reasons)}" if reasons else ""


def _learn_subwords(corpus, settings, log):
    lines = [*corpus.train.source, *corpus.train.target]
    if corpus.cut or settings.subwords == "none":
        return Words.train(lines, settings.vocabulary_size or None, log=log)
    return Subwords.train(lines, settings.vocabulary_size or DEFAULT_VOCABULARY, log=log)


def _augmented(pairs, settings, log):
    """Add the pairs of --join and --copy, drawn from the seed."""
    rng = np.random.default_rng([settings.seed, 1 << 20])
    sources, targets = list(pairs.source), list(pairs.target)
    # A half-empty pair, joined to another, would be a long sentence that is half translated.
    rows = [i for i, pair in enumerate(zip(sources, targets, strict=True)) if all(line.strip() for line in pair)]
    pairs = corpora.Pairs([sources[i] for i in rows], [targets[i] for i in rows])
    for make, n, what in (
        (augment.join, settings.join, "joined"),
        (augment.copy_through, settings.copy, "copy-through"),
    ):
        if n and rows:
            more_sources, more_targets = make(pairs, n, rng)
            sources += more_sources
            targets += more_targets
            log(f"added    {n:,} {what} pairs")
    return corpora.Pairs(sources, targets)


def _count_unknown(sources, targets, log):
    """Say how much of the text the vocabulary does not have, and refuse where it is most of it."""
    unknown = sum(int(np.count_nonzero(side.ids == UNK)) for side in (sources, targets))
    share = unknown / (len(sources.ids) + len(targets.ids))
    if share > MOST_UNKNOWN:
        raise UserError(f"{share:.0%} of the text is unknown to the vocabulary: is it cut as the model's text was?")
    if unknown:
        log(f"unknown  {share:.2%} of the training text")


def _validation(pairs, subwords, longest, log):
    """Choose the sentences to validate on: the first ones, without those that no training pair is as long as."""
    first = corpora.Pairs(*(side[:VALID_SENTENCES] for side in pairs))
    ids = [subwords.encode(side) for side in first]
    kept, counts = corpora.clean(*ids, longest, max_ratio=longest)  # no ratio: a test is not to be tidied up
    if not len(kept):
        raise UserError(f"no pair is left to validate on{_left_out(counts)}")
    some = f" (the first of {len(pairs.source):,})" if len(pairs.source) > VALID_SENTENCES else ""
    log(f"valid    {len(kept):,} pairs{some}{_left_out(counts)}")
    return corpora.Pairs(*([side[i] for i in kept] for side in first))
