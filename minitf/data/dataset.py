"""From a corpus to what the trainer reads: subwords, pairs of ids, and batches that are a
function of the epoch.
"""

import dataclasses
import functools
import hashlib
import os
from itertools import chain, combinations, islice

import numpy as np

from minitf.data import augment, corpora
from minitf.data.tokenized import Encoded, encode_pairs
from minitf.errors import UserError
from minitf.terminal import Progress
from minitf.text import UNK, Subwords, Words, make_batch, plan_batches
from minitf.text.batches import id_type
from minitf.text.words import join_cuts

__all__ = ["Dataset", "Rows", "prepare", "read_corpus"]

VALID_SENTENCES = 1000  # enough to see progress; translating more of them only delays the training
MOST_UNKNOWN = 0.5
DEFAULT_VOCABULARY = 8000
_BLOCK = 50_000  # lines that are cut into subwords at a time
# pairs after which the pages of a file are given back: each brings up to 2 MB of its
# neighbourhood along.
_READ = 64
_LOOKED_AT = 1_000_000  # lines of each file whose encoding is looked at
_IN_FILE = ("sources", "targets")
_SAMPLE = 500_000  # pairs of a text that is not held, from which more are made by --join and --copy
# The most pairs that they make for each pair of the text: a damaged number would fill the memory.
_MADE = 10


class Rows:
    """Lists of ids in one flat array: two bytes an id, where Python's lists take 36.

    WMT has half a billion.

    >>> rows = Rows([np.array([5, 6, 7], np.uint16)], [2, 0, 1])
    >>> len(rows), [ids.tolist() for ids in rows], rows[2].tolist()
    (3, [[5, 6], [], [7]], [7])
    """

    def __init__(self, parts, lengths):
        self.ids = np.concatenate(parts) if parts else np.zeros(0, np.uint16)
        self.lengths = np.array(lengths, np.int64)
        self.ends = np.cumsum(self.lengths)

    @classmethod
    def encode(cls, subwords, lines, say=None):
        """Cut lines into subwords, some at a time. say: as Progress has it."""
        dtype = id_type(len(subwords))
        parts, lengths = [], []
        with Progress("lines cut into subwords", len(lines), say=say) as progress:
            for start in range(0, len(lines), _BLOCK):
                rows = subwords.encode(lines[start : start + _BLOCK])
                lengths += [len(ids) for ids in rows]
                parts.append(np.fromiter(chain.from_iterable(rows), dtype))
                progress.to(len(lengths))
        return cls(parts, lengths)

    @classmethod
    def mapped(cls, ids, lengths, ends):
        """Rows at any places of an array of ids, which may be a file."""
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

    def keep(self, rows):
        """Return these of the rows, in this order."""
        return Rows([self[row] for row in rows], self.lengths[rows])


@dataclasses.dataclass
class Dataset:
    """The training pairs as ids, and the texts to validate and test on (`corpus.train` is empty:
    it is in the ids).

    valid: the sentences of corpus.valid that are used, at most a thousand. encoded: the file that
    sources and targets lie in, for a text too long to be held.

    Measured with 36 million pairs in a file, as many as en-fr has
    (tests/support/measure_memory.py): 0.6 GB between batches, 1.6 GB at most while an epoch is
    planned, which is 44 bytes a pair. Cutting a text takes 0.3 GB for any number of pairs, learning
    the subwords 2 GB at most, of which the process keeps 1.2 GB: together less than 3 GB.
    """

    corpus: corpora.Corpus
    subwords: Subwords | Words
    sources: Rows
    targets: Rows
    valid: corpora.Pairs
    encoded: Encoded | None = None

    def __getstate__(self):
        """Leave out the content of the file, for the ranks that share a run."""
        return {
            name: value
            for name, value in vars(self).items()
            if not self.encoded or name not in _IN_FILE
        }

    def __setstate__(self, state):
        vars(self).update(state)
        if self.encoded:
            self.sources, self.targets = _mapped(self.encoded)

    @functools.cached_property
    def longest(self):
        """Return the subwords of the longest usual source: of a thousand training
        pairs, one has more.
        """
        return max(1, int(np.quantile(self.sources.lengths, 0.999, method="higher")))

    def plan(self, epoch, batch_tokens, seed):
        """Return the batches of an epoch as arrays of indices: the same for the same epoch,
        in any process.
        """
        lengths = self.sources.lengths + 1, self.targets.lengths + 1  # the end marks
        return plan_batches(*lengths, batch_tokens, np.random.default_rng([seed, epoch]))

    def batch(self, indices):
        """Pad the pairs with these indices to a batch."""
        sources, targets = [], []
        for i, row in enumerate(indices):
            if self.encoded and i % _READ == 0:
                self.encoded.release()
            sources.append(self.sources[row].tolist())
            targets.append(self.targets[row].tolist())
        return make_batch(sources, targets, len(self.subwords))

    def largest(self, plan):
        """Return the batches of a plan that may need the most memory.

        One has the most positions, and one the most pairs of positions that may attend
        to each other.
        """
        n_rows = np.array([len(rows) for rows in plan])
        order, starts = np.concatenate(plan), np.cumsum(n_rows) - n_rows
        longest = [
            np.maximum.reduceat(side.lengths[order], starts)
            for side in (self.sources, self.targets)
        ]
        widths = np.stack(longest, axis=1).astype(np.int64) + 1
        positions = n_rows * widths.sum(axis=1)
        pairs = n_rows * (widths**2).sum(axis=1) + n_rows * widths.prod(axis=1)
        return [plan[i] for i in sorted({int(positions.argmax()), int(pairs.argmax())})]

    def fingerprint(self):
        """Return a hash of all training pairs: a run can only be resumed exactly on
        the same ones.
        """
        if self.encoded:
            return self.encoded.digest
        digest = hashlib.sha256()
        for side in (self.sources, self.targets):
            digest.update(side.ids.astype("<i4").tobytes() + side.lengths.astype("<i8").tobytes())
        return digest.hexdigest()

    def references(self, lines):
        """Return the translations to compare with: a text that is cut is joined, as its
        translation is.
        """
        return [join_cuts(line) for line in lines] if isinstance(self.subwords, Words) else lines


def read_corpus(settings):
    """Read the named corpus, or the files of --train and --valid."""
    if not settings.train:
        return corpora.load(settings.corpus)
    if not settings.valid:
        raise UserError(
            "--train needs --valid SOURCE TARGET: sentences that are kept out of the training"
        )
    train, valid = corpora.open_pairs(*settings.train), corpora.read_pairs(*settings.valid)
    cut = settings.subwords == "none"
    return corpora.Corpus("own", "source", "target", train, valid, {}, cut=cut, tokenized=cut)


def prepare(settings, corpus, log, subwords=None):
    """Augment, cut and clean the training text; learn the subwords if none are given.

    A text that is held gives Rows that are held; one that is too long for that is cut
    into a file, once.
    Raises UserError if nothing is left to train or to validate on.
    """
    if not len(corpus.train.source):
        raise UserError("the training text is empty: give one sentence per line")
    _say_odd(settings, corpus, log)
    if subwords is None:
        subwords = _learn_subwords(corpus, settings, log)
    longest = min(settings.max_length, settings.batch_tokens - 1)
    added = _added(corpus.train, settings, log)
    encoded = None
    if isinstance(corpus.train.source, corpora.Lines):
        encoded = encode_pairs(corpus.name, corpus.train, added, subwords, longest, log)
        sources, targets = _mapped(encoded)
        counts, unknown, n_ids = encoded.counts, encoded.unknown, len(encoded.ids)
    else:
        sides = zip(corpus.train, added, strict=True)
        sources, targets = (Rows.encode(subwords, [*side, *more], log) for side, more in sides)
        kept, counts = corpora.clean(sources, targets, longest)
        sources, targets = sources.keep(kept), targets.keep(kept)
        unknown = sum(int(np.count_nonzero(side.ids == UNK)) for side in (sources, targets))
        n_ids = len(sources.ids) + len(targets.ids)
    log(f"pairs    {counts['kept']:,} to train on{_left_out(counts)}")
    if not counts["kept"]:
        raise UserError(f"no pair is left to train on{_left_out(counts)}")
    _say_unknown(unknown / n_ids, log)
    valid = _validation(corpus.valid, subwords, longest, log)
    corpus = dataclasses.replace(corpus, train=corpora.Pairs([], []))
    return Dataset(corpus, subwords, sources, targets, valid, encoded)


def _say_odd(settings, corpus, log):
    """Say so if the files of --train and --valid are hardly the intended ones: not UTF-8, or
    one file twice.
    """
    paths = [*(settings.train or ()), *(settings.valid or ())]
    for path, lines in zip(paths, chain(corpus.train, corpus.valid) if paths else (), strict=True):
        if found := corpora.undecoded(path, islice(lines, _LOOKED_AT)):
            log(f"notice   {found}")
    for first, second in combinations(paths, 2):
        if os.path.samefile(first, second):
            log(f"notice   {second} is also {first}: is that meant so?")


def _mapped(encoded):
    return map(Rows.mapped, (encoded.ids, encoded.ids), encoded.lengths, encoded.ends)


def _left_out(counts):
    reasons = [f"{n:,} {reason}" for reason, n in counts.items() if n and reason != "kept"]
    return f"; left out: {', '.join(reasons)}" if reasons else ""


def _learn_subwords(corpus, settings, log):
    lines = corpus.train.source + corpus.train.target
    log("subwords are learned from the training text")
    if corpus.cut or settings.subwords == "none":
        return Words.train(lines, settings.vocabulary_size or None, log=log)
    return Subwords.train(lines, settings.vocabulary_size or DEFAULT_VOCABULARY, log=log)


def _added(pairs, settings, log):
    """Make the pairs of --join and --copy, drawn from the seed."""
    made = corpora.Pairs([], [])
    if not (settings.join or settings.copy):
        return made
    rng, total = np.random.default_rng([settings.seed, 1 << 20]), len(pairs.source)
    stride = (total - 1) // _SAMPLE + 1 if isinstance(pairs.source, corpora.Lines) else 1
    # A half-empty pair, joined to another, would be a long sentence that is half translated.
    some = islice(zip(*pairs, strict=True), 0, None, stride)
    full = [pair for pair in some if all(line.strip() for line in pair)]
    pairs = corpora.Pairs(*map(list, zip(*full, strict=True))) if full else made
    for name, make, what in (
        ("join", augment.join, "joined"),
        ("copy", augment.copy_through, "copy-through"),
    ):
        n = getattr(settings, name)
        if n > _MADE * total:
            raise UserError(
                f"--{name} {n} is more than {_MADE} for each of the {total:,} pairs of the "
                "text: lower it"
            )
        if n and full:
            for side, more in zip(made, make(pairs, n, rng), strict=True):
                side.extend(more)
            log(f"added    {n:,} {what} pairs")
    return made


def _say_unknown(share, log):
    """Say how much of the text the vocabulary does not have, and refuse where it is most of it."""
    if share > MOST_UNKNOWN:
        raise UserError(
            f"{share:.0%} of the text is unknown to the vocabulary: is it cut as the "
            "model's text was?"
        )
    if share:
        log(f"unknown  {share:.2%} of the training text")


def _validation(pairs, subwords, longest, log):
    """Choose the sentences to validate on: the first ones, without those that no training pair
    is as long as.
    """
    first = corpora.Pairs(*(side[:VALID_SENTENCES] for side in pairs))
    ids = [subwords.encode(side) for side in first]
    # No ratio: a test is not to be tidied up.
    kept, counts = corpora.clean(*ids, longest, max_ratio=longest)
    if not len(kept):
        raise UserError(f"no pair is left to validate on{_left_out(counts)}")
    some = f" (the first of {len(pairs.source):,})" if len(pairs.source) > VALID_SENTENCES else ""
    log(f"valid    {len(kept):,} pairs{some}{_left_out(counts)}")
    return corpora.Pairs(*([side[i] for i in kept] for side in first))
