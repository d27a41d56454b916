"""The Translator: lines of text in, one translation of each out, in the same order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import numpy as np

from minitf.backend import on_gpu
from minitf.beyond.sampling import sample
from minitf.cpu.decoder import for_decoding
from minitf.cpu.sums import slice_bounds
from minitf.cpu.threads import one_blas_thread
from minitf.cpu.workers import over_cores
from minitf.decode import Allowed, beam_search, greatest_lengths, greedy
from minitf.errors import UserError
from minitf.page.explained import Explained, attention_and_logits, likely_next
from minitf.text import BOS, EOS, Vocabulary
from minitf.text.batches import pad_rows
from minitf.transformer import Transformer
from minitf.translation.loading import load_model
from minitf.translation.sentences import cut_lines, in_small_letters, join
from minitf.translation.wellformed import Wellformed

__all__ = ["Explained", "Translation", "Translator"]

_LONGEST = 100  # subwords; for a model whose notes do not name its longest sentence
_ON_GPU = 8  # a GPU decodes this many times the tokens that a core decodes side by side
# A batch of so many rows (sentences times beams) or more is cut into so many slices.
_SLICES = {32: 2, 256: 4}


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a line: its text, ln P of it, and the score that ranked it.

    Both figures are sums over the parts, where a line was translated in parts.
    """

    text: str
    log_probability: float
    score: float


class Translator:
    """A model and its subwords, as a function from lines to translations.

    The weights are copied when it is made: after a change of the model, make another one.

    longest: the maximum number of subwords in one part. A longer sentence is cut at the end of a
    clause or a word. `load` takes it from the training text: one sentence in a thousand is longer.
    usual: a line of more subwords is translated sentence by sentence, because a model that learned
    from single sentences tends to drop some of several (default: a sixth of the longest). `load`
    takes it from the notes that the import of a public model has written.
    reads_capitals: whether a line IN CAPITALS is read as it is. Else it is read in small letters,
    and its translation is written in capitals (see `in_small_letters`), except by `explain` and
    `attention`, which show what the model does. `load` takes it from the notes: a public model
    reads them, one of minitf's trainer does not.
    """

    def __init__(
        self,
        model: Transformer,
        subwords: Vocabulary,
        longest: int = _LONGEST,
        usual: int | None = None,
        reads_capitals: bool = True,
    ):
        self.model, self.fast, self.subwords = model, for_decoding(model), subwords
        if model.config.positions == "learned":  # the end mark takes one of them
            longest = max(1, min(longest, model.config.max_length - 1))
        self.longest, self.usual = longest, min(longest, usual or max(1, longest // 6))
        self.reads_capitals = reads_capitals

    @classmethod
    def load(
        cls, directory: str | Path, whole: int = 0, model: Callable[..., Transformer] = Transformer
    ) -> Self:
        """Read a model's folder. Raises UserError with one line that says what to do.

        whole: a line of up to this many subwords is one part, whatever the model's notes say.
        model: the class or function that makes the model, as for `load_model`.
        """
        model, subwords, notes = load_model(directory, model)
        longest, usual = (
            noted if isinstance(noted := notes.get(name), int) and noted > 0 else default
            for name, default in (("longest", _LONGEST), ("usual", 0))
        )
        capitals = notes.get("reads_capitals") is True
        return cls(model, subwords, max(longest, whole), max(usual, whole), capitals)

    def translate(
        self,
        lines: Iterable[str],
        beam: int = 4,
        alpha: float = 0.6,
        max_extra: int = 50,
        n_best: int = 1,
        batch_tokens: int = 3000,
        progress: Callable[[int, int], object] | None = None,
        allowed: Callable[[list[str]], Allowed] | None = None,
        wellformed: bool = True,
    ) -> list[list[Translation]]:
        """Return the best translations of each line, up to n_best of them, in the lines' order.

        They differ: a text that was found twice, cut into subwords in two ways, is returned once.
        A line without any text gives one empty translation. batch_tokens: the number of source
        tokens, times beams, that a core decodes side by side; a GPU takes eight times as many.
        progress: called with the number of parts done and of all parts.
        allowed: called with some lines, it returns what may be written for them, row by row. A line
        that is translated in several parts occurs once for each.
        wellformed: whether the model may write text only (see Wellformed), unless `allowed` says
        what it may write. With False, a translation is what the model by itself prefers.
        Raises UserError for an impossible beam or n_best, and for a model that outputs NaN.
        """
        if not 1 <= n_best <= beam:
            raise UserError(
                f"n_best must be at least 1 and at most the width of the beam, {beam}, "
                f"not {n_best}: widen the beam"
            )

        lines = _listed(lines)
        read = self._as_read(lines)

        def search(source, places):
            if allowed:
                rules = allowed([read[line] for line, _ in places])
            else:
                rules = self._wellformed.allowed(source) if wellformed else None
            # All of the beam, since some may be the same text.
            asked = beam if n_best > 1 else 1
            return self._search(source, beam, alpha, max_extra, asked, rules)

        found = self._over_lines(read, search, beam, batch_tokens, progress)
        return [translations[:n_best] for translations in _as_written(found, lines, read)]

    def sample(
        self,
        lines: Iterable[str],
        alpha: float = 0.6,
        max_extra: int = 50,
        first: int = 0,
        batch_tokens: int = 3000,
        progress: Callable[[int, int], object] | None = None,
        wellformed: bool = True,
        **settings: float,
    ) -> list[list[Translation]]:
        """Draw one translation of each line, token by token; return the same types as `translate`.

        settings: temperature, top_k, top_p, seed (see sampling.sample). first: the number of the
        first line, where a text comes in several calls. A translation depends on the line, its
        number and the seed, and not on the other lines. wellformed: as for `translate`.
        """

        lines = _listed(lines)
        read = self._as_read(lines)

        def search(source, places):
            rows = [(first + line, part) for line, part in places]
            rules = self._wellformed.allowed(source) if wellformed else None
            found = sample(
                self.fast,
                source,
                max_extra=max_extra,
                alpha=alpha,
                rows=rows,
                allowed=rules,
                **settings,
            )
            return [[best] for best in found]

        found = self._over_lines(read, search, 1, batch_tokens, progress)
        return _as_written(found, lines, read)

    @functools.cached_property
    def _wellformed(self):
        return Wellformed(self.subwords)

    def _as_read(self, lines):
        """Return the lines as the model reads them."""
        return lines if self.reads_capitals else in_small_letters(lines, self.subwords)

    def _over_lines(self, lines, search, beam, batch_tokens, progress):
        """Translate the parts of all lines on all cores, then join those of each line.

        search(source, places): returns the hypotheses of each row of a batch. places: for each
        row, the number of its line and of the part in that line.
        """
        parts_of_lines = cut_lines(lines, self.subwords, self.longest, self.usual)
        parts, places = [], []
        for i, parts_of_line in enumerate(parts_of_lines):
            parts += parts_of_line
            places += [(i, k) for k in range(len(parts_of_line))]

        def work(rows):
            source = self._padded([parts[i] for i in rows])
            return [self._ranked(best) for best in search(source, [places[i] for i in rows])]

        found = {}
        batches = _batches([len(part) for part in parts], beam, batch_tokens)
        with one_blas_thread():
            for rows, translations in zip(batches, over_cores(work, batches), strict=True):
                found.update(zip(rows, translations, strict=True))
                if progress:
                    progress(len(found), len(parts))

        by_line = [[] for _ in parts_of_lines]
        for number, (line, _) in enumerate(places):
            by_line[line].append(found[number])
        return [_joined(translations, beam) for translations in by_line]

    def _padded(self, parts):
        """Return the parts as one array of source ids (B, S)."""
        return pad_rows(parts, len(self.subwords), last=EOS)

    def _ranked(self, hypotheses):
        """Return hypotheses as Translations: of those with the same text, the first."""
        texts = self.subwords.decode([hypothesis.ids for hypothesis in hypotheses])
        distinct = {}
        for text, best in zip(texts, hypotheses, strict=True):
            found = Translation(text.strip(), best.log_probability, best.score)
            distinct.setdefault(found.text, found)
        return list(distinct.values())

    def _search(self, source, beam, alpha, max_extra, n_best, allowed=None, record=None):
        """Return the best hypotheses of each row of source ids (B, S); record: see beam_search."""
        if beam == 1:
            found = greedy(self.fast, source, max_extra, alpha=alpha, allowed=allowed)
            return [[best] for best in found]
        return beam_search(
            self.fast, source, beam, alpha, max_extra, n_best, allowed=allowed, record=record
        )

    def parts(self, line: str) -> list[list[int]]:
        """Cut a line into lists of at most `longest` subword ids; none if there is no text."""
        return cut_lines(self._as_read([line]), self.subwords, self.longest, self.usual)[0]

    def attention(
        self,
        line: str,
        kind: str = "source",
        layer: int | None = None,
        beam: int = 4,
        alpha: float = 0.6,
        max_extra: int = 50,
    ) -> tuple[np.ndarray, list[str], list[str]]:
        """Return who attends to whom in a translation: weights (H, T, S), row and column tokens.

        kind: "source" for decoder to source, "encoder" or "decoder" for self-attention. layer:
        counted from 1; the last one by default. Of a line of several parts, the first is used.
        """
        stacks = {
            "source": self.model.decoder,
            "encoder": self.model.encoder,
            "decoder": self.model.decoder,
        }
        if kind not in stacks:
            raise UserError(f"unknown attention {kind!r}: choose source, encoder or decoder")
        n_layers = len(stacks[kind].layers)
        layer = n_layers if layer is None else layer
        if not self.parts(line):
            raise UserError("the line has no text: there is no attention to draw")
        if not 1 <= layer <= n_layers:
            raise UserError(f"no layer {layer}: the model has layers 1 to {n_layers}")
        explained = self.explain(line, beam, alpha, max_extra)
        return explained.weights[kind][layer - 1], *explained.tokens(kind)

    def explain(
        self, line: str, beam: int = 4, alpha: float = 0.6, max_extra: int = 50
    ) -> Explained:
        """Return how a line is translated: all attention weights, next tokens, and the beam.

        It is what the model by itself writes, as `translate` does with wellformed=False. The
        arguments are those of `translate`. Of a line of several parts, the first is used.
        Raises UserError for a line without text, and for a model that outputs NaN.
        """
        parts = self.parts(line)
        if not parts:
            raise UserError("the line has no text: there is no attention to draw")
        source, record = self._padded(parts[:1]), []
        with one_blas_thread():
            best = self._search(source, beam, alpha, max_extra, 1, record=record)[0][0]
        ids = [*best.ids, EOS]
        if self.model.config.positions == "learned":  # none is left for an end mark at the limit
            ids = ids[: self.model.config.max_length]
        beginning = pad_rows([ids[:-1]], len(self.subwords), first=BOS)
        weights, logits = attention_and_logits(self.model, source, beginning)
        (text,) = self.subwords.decode(parts[:1], side="source")
        beam_steps = record[0] if record else []
        seen = sorted({i for step in beam_steps for i in step.tokens})
        return Explained(
            line=text.strip(),
            translation=self._ranked([best])[0].text,
            log_probability=best.log_probability,
            score=best.score,
            source_ids=[*parts[0], EOS],
            target_ids=ids,
            source=[*self.subwords.pieces(parts[0]), "</s>"],
            target=[*self.subwords.pieces(best.ids), "</s>"][: len(ids)],
            weights=weights,
            steps=likely_next(logits, self.model.config, self.subwords),
            beam=beam_steps,
            names=dict(zip(seen, self.subwords.pieces(seen), strict=True)),
            parts=len(parts),
            width=beam,
            alpha=alpha,
            max_extra=max_extra,
            limit=int(greatest_lengths(self.model, source, max_extra)[0]),
        )


def _listed(lines):
    if isinstance(lines, str):
        raise TypeError("translate() and sample() take a list of lines, not one string")
    return list(lines)


def _as_written(found, lines, read):
    """Return the translations of each line; those of a line that was made small, in capitals."""
    return [
        _in_capitals(translations) if line.isupper() and not as_read.isupper() else translations
        for translations, line, as_read in zip(found, lines, read, strict=True)
    ]


def _in_capitals(translations):
    """Return translations in capitals; of those that are the same then, the first."""
    distinct = {}
    for each in translations:
        loud = dataclasses.replace(each, text=each.text.upper())
        distinct.setdefault(loud.text, loud)
    return list(distinct.values())


def _batches(lengths, beam, batch_tokens):
    """Return lists of row numbers to be decoded together: rows of about equal length.

    The longest come first: memory runs out at once or never. A GPU takes large batches, uncut.
    """
    if on_gpu():
        batch_tokens *= _ON_GPU
    limit = max(1, batch_tokens // beam)
    order = np.argsort([-length for length in lengths], kind="stable").tolist()
    batches, start = [], 0
    while start < len(order):
        stop = start + max(1, limit // (lengths[order[start]] + 1))
        rows = order[start:stop]
        batches += [rows] if on_gpu() else slices(rows, beam)
        start = stop
    return batches


def slices(rows, beam):
    """Cut the rows of a batch into the slices that cores decode, each with one-thread products.

    The products of one step of decoding are too small to be shared by threads. The cut depends on
    the size of the batch alone, so that the result does not depend on the number of cores.
    """
    n = max((n for least, n in _SLICES.items() if len(rows) * beam >= least), default=1)
    return [rows[start:stop] for start, stop in slice_bounds(len(rows), n) if start < stop]


def _joined(parts, n):
    """Return the n best translations of a line, made of those of its parts."""
    if not parts:
        return [Translation("", 0.0, 0.0)]
    return functools.reduce(functools.partial(_together, n=n), parts)


def _together(first, second, n):
    """Return the n best translations of two parts together, the best first.

    Scores are added. A pair of the i-th best of one part and the j-th best of the other is behind
    i j - 1 other pairs, so only those with i j <= n can be among the n best.
    """
    pairs = [(a, b) for i, a in enumerate(first, 1) for j, b in enumerate(second, 1) if i * j <= n]
    best, *others = (
        Translation(
            join([t.text for t in pair if t.text]),
            sum(t.log_probability for t in pair),
            sum(t.score for t in pair),
        )
        for pair in pairs
    )
    by_text = {}
    for each in (best, *sorted(others, key=lambda t: -t.score)):
        by_text.setdefault(each.text, each)
    return list(by_text.values())[:n]
