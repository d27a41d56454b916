"""From a corpus to the input of the trainer: subwords, pairs of ids, and batches.

The batches of an epoch are a function of its number.
"""

import dataclasses
import functools
import re
from itertools import islice
from pathlib import Path

import numpy as np

from minitf.cli import amount
from minitf.data import corpora
from minitf.data.rows import EncodedPairs, encode_lines, encode_pairs, in_memory
from minitf.errors import UserError
from minitf.text import Subwords, Vocabulary, Words, plan_batches
from minitf.text.batches import batch_of
from minitf.text.vocabulary import join_bpe

VALID_SENTENCES = 1000  # enough to show progress; translating more only delays training
MAX_UNKNOWN = 0.5  # fraction of a text's ids that may be UNK
MIN_PAIRS = 10_000  # pairs; from fewer a new model learns little
_LINES_CHECKED = 1_000_000  # lines of each file that are searched for text that is not UTF-8
_CHECK = "check that the files belong together, or raise --max-length and --batch-tokens"


@dataclasses.dataclass
class Dataset:
    """The training pairs as ids, and the texts to validate and test on.

    corpus: without its training text, which is in pairs. valid: the sentences of corpus.valid that
    are used, at most a thousand.

    Measured with 36 million pairs on the disk, the size of en-fr, without the pages of the file,
    which the system takes back when it needs the memory: 0.6 GB between batches; at
    most 1.6 GB while an epoch is planned, 44 bytes a pair. Encoding a text takes 0.3 GB for any
    number of pairs; learning the subwords at most 2 GB, of which the process keeps 1.2 GB. The
    maximum is less than 3 GB.
    """

    corpus: corpora.Corpus
    subwords: Vocabulary
    pairs: EncodedPairs
    valid: corpora.Pairs

    @functools.cached_property
    def longest(self):
        """Return a length that only one in a thousand training sources exceeds, in subwords."""
        return max(1, int(np.quantile(self.pairs.sources.lengths, 0.999, method="higher")))

    def plan(self, epoch, batch_tokens, seed):
        """Return the batches of an epoch as arrays of indices, the same in every process."""
        lengths = self.pairs.sources.lengths + 1, self.pairs.targets.lengths + 1  # the end marks
        return plan_batches(*lengths, batch_tokens, np.random.default_rng([seed, epoch]))

    def batch(self, indices):
        """Pad the pairs with these indices to a batch."""
        return batch_of(*self.pairs.flat(indices), len(self.subwords))

    def largest(self, plan):
        """Return the batches of a plan that may need the most memory.

        One has the most positions, the other the most pairs of positions that attend to each
        other.
        """
        n_rows = np.array([len(rows) for rows in plan])
        order, starts = np.concatenate(plan), np.cumsum(n_rows) - n_rows
        longest = [
            np.maximum.reduceat(side.lengths[order], starts)
            for side in (self.pairs.sources, self.pairs.targets)
        ]
        widths = np.stack(longest, axis=1).astype(np.int64) + 1
        positions = n_rows * widths.sum(axis=1)
        pairs = n_rows * (widths**2).sum(axis=1) + n_rows * widths.prod(axis=1)
        return [plan[i] for i in sorted({int(positions.argmax()), int(pairs.argmax())})]

    def references(self, lines):
        """Return the reference translations, with words joined if the text came in subwords."""
        return [join_bpe(line) for line in lines] if isinstance(self.subwords, Words) else lines


@dataclasses.dataclass(frozen=True)
class UpdateBatches:
    """The batches of one update, and where they are in the training text.

    epoch, position: of the first batch; both count from 0.
    indices: for each batch an array of indices into the dataset.

    >>> str(UpdateBatches(0, 2, [np.arange(9)])), str(UpdateBatches(1, 2, [np.arange(9)] * 3))
    ('epoch 1, batch 3', 'epoch 2, batch 3 and the 2 after it')
    """

    epoch: int
    position: int
    indices: list[np.ndarray]

    def __str__(self):
        # Not "batches 3 to 5": the last ones may be the first of the next epoch.
        more = len(self.indices) - 1
        after = f" and the {more} after it" if more > 1 else " and the one after it" if more else ""
        return f"epoch {self.epoch + 1}, batch {self.position + 1}{after}"


class Cursor:
    """Goes through the batches of epoch after epoch.

    The batches of an epoch and their order depend on the seed and the epoch alone. So `epoch` and
    `position`, the number of its batches already taken, are all that a checkpoint has to store.
    plan: the batches of this epoch.
    """

    def __init__(self, dataset, batch_tokens, seed):
        self.dataset, self.batch_tokens, self.seed = dataset, batch_tokens, seed
        self.move(0, 0)

    def move(self, epoch, position):
        """Go to a position in an epoch."""
        self.epoch, self.position = epoch, position
        self.plan = self.dataset.plan(epoch, self.batch_tokens, self.seed)

    def next(self, n):
        """Return the next n batches, as UpdateBatches; they may reach into the next epoch."""
        start, batches = None, []
        for _ in range(n):
            # Beyond the last batch only if a resumed run has less text than before.
            if self.position >= len(self.plan):
                self.move(self.epoch + 1, 0)
            start = start or (self.epoch, self.position)
            batches.append(self.plan[self.position])
            self.position += 1
        return UpdateBatches(*start, batches)

    def epochs(self):
        """Return the number of epochs done, the current one as a fraction."""
        return self.epoch + self.position / len(self.plan)


def read_corpus(settings, notes=(), log=print):
    """Return the named corpus, or --train and --valid as one, with the pairs of --add.

    notes: of a model that is trained further, whose languages stay unless the endings name two.
    """
    if not settings.train:
        corpus = corpora.load(settings.corpus)
    elif not settings.valid:
        raise UserError(
            "--train needs --valid SOURCE TARGET: sentences that are kept out of training"
        )
    else:
        train, valid = corpora.open_pairs(*settings.train), corpora.read_pairs(*settings.valid)
        languages = [
            ending[1:] if re.fullmatch(r"\.[a-z]{2}", ending) else side
            for ending, side in zip(endings(settings.train), ("source", "target"), strict=True)
        ]
        if {"source_language", "target_language"} <= set(notes):
            learned = [notes["source_language"], notes["target_language"]]
            if any(len(name) != 2 for name in languages + learned):  # .src, or a model of trees
                languages = learned
            elif languages != learned:
                ours, model = " to ".join(languages), " to ".join(learned)
                log(f"notice   --train is {ours}, the model {model}: a model of {ours} fits better")
        tokenised = settings.subwords == "none"
        corpus = corpora.Corpus("own", *languages, train, valid, {}, tokenised)
    if not settings.add:
        return corpus
    streamed = isinstance(corpus.train.source, corpora.Lines)
    return dataclasses.replace(corpus, added=corpora.read_pairs(*settings.add, streamed))


def prepare(settings, corpus, log, subwords=None):
    """Split the training text into subwords and clean it; return the Dataset.

    subwords: those of a trained model; without them they are learned here, from the training text
    without added pairs. If the text does not fit into memory, its ids are written to files, once.
    Raises UserError if no pair is left to train or to validate on.
    """
    for text, pairs in (("training", corpus.train), ("validation", corpus.valid)):
        if not len(pairs.source):
            raise UserError(f"the {text} text is empty: give one sentence per line")
    _warn_about_files(settings, corpus, log)
    if subwords is None:
        subwords = _learn_subwords(corpus, settings, log)
    elif settings.train and isinstance(subwords, Words):  # of --start-from
        corpus = dataclasses.replace(corpus, tokenised=True)
    pairs = corpus.train
    if n_added := len(corpus.added.source):
        log(f"added    {amount(n_added, 'pair')} from {settings.add[0]}")
        pairs = corpora.Pairs(*(a + b for a, b in zip(pairs, corpus.added, strict=True)))
    longest = min(settings.max_length, settings.batch_tokens - 1)
    if isinstance(pairs.source, corpora.Lines):
        encoded = encode_pairs(corpus.name, pairs, subwords, longest, log)
    else:
        encoded = in_memory(pairs, subwords, longest)
    counts = encoded.counts
    log(f"pairs    {counts['kept']:,} to train on{_omissions(counts)}")
    if not counts["kept"]:
        raise UserError(f"no pair is left to train on{_omissions(counts)}: {_CHECK}")
    share = encoded.unknown / len(encoded.ids)
    if share > MAX_UNKNOWN:
        raise UserError(
            f"{share:.0%} of the tokens are not in the vocabulary: raise --vocabulary-size, or for "
            "a trained model split the text into tokens as its training text was"
        )
    if share:
        log(f"unknown  {share:.2%} of the tokens of the training text")
    valid = _validation(corpus.valid, subwords, longest, log)
    none = corpora.Pairs([], [])
    corpus = dataclasses.replace(corpus, train=none, added=none)
    return Dataset(corpus, subwords, encoded, valid)


def _warn_about_files(settings, corpus, log):
    """Log likely mistakes in the files that the user named.

    They are not UTF-8, or not in the order of --train.
    """
    before = endings(settings.train or ())
    for option, files, pairs in (
        ("--train", settings.train, corpus.train),
        ("--add", settings.add, corpus.added),
        ("--valid", settings.valid, corpus.valid),
    ):
        if files:
            for path, lines in zip(files, pairs, strict=True):
                if mistake := corpora.decoding_warning(path, islice(lines, _LINES_CHECKED)):
                    log(f"notice   {mistake}")
            if before != (here := endings(files)) == before[::-1]:
                log(
                    f"notice   --train has {' and '.join(before)} files, {option} has "
                    f"{' and '.join(here)}: give both in the same order"
                )
    if settings.train and settings.valid:
        _warn_about_pairs(settings, corpus, log)


def _warn_about_pairs(settings, corpus, log):
    """Log that the training text is small, or has what the model is validated on."""
    count = len(corpus.train.source)
    if count < MIN_PAIRS and not settings.start_from and not settings.resume:
        log(
            f"notice   only {amount(count, 'pair')}: better adapt a trained model of these "
            "languages, with --start-from FOLDER"
        )
    valid = set(zip(*corpus.valid, strict=True))
    unseen = valid.difference(zip(*corpus.train, strict=True))
    if 2 * len(unseen) < len(valid):
        share = "all" if not unseen else f"{len(valid) - len(unseen):,} of {len(valid):,}"
        log(
            f"notice   {share} pairs of --valid are in --train: scores will be too good, keep "
            "them apart"
        )


def endings(files):
    """Return the endings of the names of two files, such as (".en", ".de")."""
    return tuple(Path(file).suffix for file in files)


def _omissions(counts):
    names = {"ratio": "with sides of very different length"}
    reasons = [
        f"{n:,} {names.get(rule, rule)}" for rule, n in counts.items() if n and rule != "kept"
    ]
    return f"; left out: {', '.join(reasons)}" if reasons else ""


def _learn_subwords(corpus, settings, log):
    lines = corpus.train.source + corpus.train.target
    log("subwords are learned from the training text")
    if settings.subwords == "none":
        return Words.train(lines, settings.vocabulary_size or None)
    size = settings.vocabulary_size or vocabulary_size(len(corpus.train.source))
    return Subwords.train(lines, size, log=log, symbols=corpus.symbols)


def vocabulary_size(n_pairs):
    """Return how many subwords suit a text: in a small one, more would be too rare to be learned.

        15 sqrt(n), to the nearest 500, at least 1,000 and at most 32,000

    It gives 2,500 for Multi30k, 6,000 for 170,000 short pairs, and 32,000 for WMT 2014; the paper
    has 37,000 there. Source for fewer subwords in a smaller text: Sennrich and Zhang 2019.

    >>> [vocabulary_size(n) for n in (500, 29_000, 170_000, 4_500_000)]
    [1000, 2500, 6000, 32000]
    """
    return min(max(500 * round(15 * n_pairs**0.5 / 500), 1000), 32_000)


def _validation(pairs, subwords, longest, log):
    """Return the first pairs of the validation text, without those that are too long."""
    first = corpora.Pairs(*(side[:VALID_SENTENCES] for side in pairs))
    ids = [encode_lines(subwords, lines, side) for side, lines in first._asdict().items()]
    lengths = np.array([list(map(len, side)) for side in ids])
    # A ratio that no pair exceeds: unusual pairs belong to a test.
    kept, counts = corpora.select(*lengths, longest, max_ratio=longest)
    if not len(kept):
        raise UserError(f"no pair is left to validate on{_omissions(counts)}: {_CHECK}")
    total = len(pairs.source)
    chosen = f" (of the first {VALID_SENTENCES:,} of {total:,})" if total > VALID_SENTENCES else ""
    log(f"valid    {amount(len(kept), 'pair')}{chosen}{_omissions(counts)}")
    return corpora.Pairs(*([side[i] for i in kept] for side in first))
