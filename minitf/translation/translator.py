"""The Translator: lines of text in, one translation of each out, in the same order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from minitf import forms
from minitf.backend import on_gpu
from minitf.cpu.sums import slice_bounds
from minitf.cpu.threads import one_blas_thread
from minitf.cpu.workers import over_cores
from minitf.decode import Allowed, beam_search, greatest_lengths, greedy, token_scorer
from minitf.errors import UserError
from minitf.text import BOS, EOS, Vocabulary, Words
from minitf.text.batches import pad_rows
from minitf.text.frames import Span, split_markup
from minitf.text.kept import PLACEHOLDERS
from minitf.transformer import Transformer
from minitf.translation.loading import agreeing_forms, load_model
from minitf.translation.reading import (
    Line,
    Text,
    Translation,
    cut_texts,
    in_small_letters,
    protect_values,
    read_spans,
)
from minitf.translation.wellformed import Wellformed
from minitf.translation.writing import (
    AROUND,
    CUT,
    alike_quotes,
    as_one_sentence,
    joined,
    restored,
)

if TYPE_CHECKING:
    from minitf.page.explained import Explained

_MAX_SUBWORDS = 100  # subwords; for a model whose notes do not say
_ON_GPU = 8  # a GPU decodes this many times the tokens that a core decodes side by side
_SLICES = {32: 2, 256: 4}  # {rows of a batch (sentences times beams) or more: slices}


class Translator:
    """A model and its subwords, as a function from lines to translations.

    When it is made, the model's matrices are copied, and forms are compared with its own code:
    after a change of the weights or of the code, make another one.
    Raises UserError for a model that outputs NaN.

    max_subwords: the maximum number of subwords in one part. A longer sentence is cut at the end of
    a clause or a word. `load` takes it from the training text, where one sentence in a thousand is
    longer.
    max_unsplit: a line of more subwords is translated sentence by sentence, because a model that
    learned from single sentences tends to drop some of several (default: a sixth of max_subwords).
    `load` takes it from the notes that the import of a public model has written.
    reads_capitals: whether a line IN CAPITALS is read as it is. Else it is read in small letters,
    and its translation is written in capitals (see `in_small_letters`), except by `explain` and
    `attention`, which show what the model does. `load` takes it from the notes: a public model
    reads them, one of minitf's trainer does not.
    placeholders: words that the model copies, for what must not be translated (default: those of
    its subwords, which it has learned). `load` takes those of another model from the notes.
    as_text: whether lines are text as people write it. Else they are words that somebody has cut,
    and the model reads them as they are (default: whether the vocabulary cuts text).
    notes: what is known about the model, by the names of `NOTES` (minitf/files/models.py).
    """

    def __init__(
        self,
        model: Transformer,
        subwords: Vocabulary,
        max_subwords: int = _MAX_SUBWORDS,
        max_unsplit: int | None = None,
        reads_capitals: bool = True,
        placeholders: Sequence[str] | None = None,
        as_text: bool | None = None,
        notes: dict | None = None,
    ):
        self.model, self.subwords = model, subwords
        self.forms = agreeing_forms(model)
        with forms.on(self.forms):
            self.scorer_of = token_scorer(model)
        if model.config.positions == "learned":  # the end mark takes one of them
            max_subwords = max(1, min(max_subwords, model.config.max_length - 1))
        self.max_subwords = max_subwords
        self.max_unsplit = min(max_subwords, max_unsplit or max(1, max_subwords // 6))
        self.reads_capitals = reads_capitals
        is_cut = isinstance(subwords, Words)
        if placeholders is None:
            learned = set() if is_cut else set(subwords.names)
            placeholders = [each for each in PLACEHOLDERS if each in learned]
        self.placeholders = list(placeholders)
        self.as_text = not is_cut if as_text is None else as_text
        self.notes = notes or {}

    @classmethod
    def load(
        cls,
        directory: str | Path,
        max_unsplit: int = 0,
        model: Callable[..., Transformer] = Transformer,
    ) -> Self:
        """Read a model's folder. Raises UserError with one line that says what to do.

        max_unsplit: a line of up to this many subwords is one part, whatever the notes say.
        model: the class or function that makes the model, as for `load_model`.
        """
        model, subwords, notes = load_model(directory, model)
        max_unsplit = max(notes.get("max_unsplit", 0), max_unsplit)
        max_subwords = max(notes.get("max_subwords", _MAX_SUBWORDS), max_unsplit)
        capitals, placeholders = notes.get("reads_capitals", False), notes.get("marks")
        return cls(
            model.eval(), subwords, max_subwords, max_unsplit, capitals, placeholders, notes=notes
        )

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
        keep: Iterable[str] = (),
        wellformed: bool = True,
        spans: Sequence[list[Span]] | None = None,
    ) -> list[list[Translation]]:
        """Return the best translations of each line, up to n_best of them, in the lines' order.

        They differ: a text that was found twice, cut into subwords in two ways, is returned once.
        A line without any text gives one empty translation, and equal lines are translated once.
        batch_tokens: the number of source tokens, times beams, that a core decodes side by side; a
        GPU takes eight times as many.
        progress: called with the number of parts done and of all parts.
        allowed: called with some lines, it returns what may be written for them, row by row. A line
        that is translated in several parts occurs once for each.
        keep: regular expressions; what they match is not translated, as numbers, addresses, tags
        and the other kinds of `minitf.text.kept` are not.
        wellformed: whether the model may write text only (see Wellformed), unless `allowed` says
        what it may write. With False, a translation is what the model by itself prefers.
        spans: those of each line, from a MarkupSplitter that has seen the lines before them
        (default: those of `minitf.text.frames.split_markup`). Markup is copied.
        Raises UserError for an impossible beam or n_best, and for a model that outputs NaN.
        """
        if not 1 <= n_best <= beam:
            raise UserError(
                f"n_best must be at least 1 and at most the width of the beam, {beam}, "
                f"not {n_best}: widen the beam"
            )

        lines = _listed(lines)
        if spans is None:
            spans = split_markup(lines) if self.as_text else [((line, False),) for line in lines]
        keys = list(zip(lines, map(tuple, spans), strict=True))
        lines, spans = zip(*dict.fromkeys(keys), strict=True) if keys else ([], [])

        def decode_batch(source, parts):
            if allowed:
                rules = allowed([lines[part.place[0]] for part in parts])
            else:
                rules = self._wellformed.allowed(source) if wellformed else None
            # All of the beam, since some may be the same text, or lack what must be kept.
            asked = beam if n_best > 1 or any(part.values for part in parts) else 1
            return self._search(source, beam, alpha, max_extra, asked, rules)

        per_line = self._translate_lines(
            self._read(lines, keep, spans), decode_batch, beam, batch_tokens, wellformed, progress
        )
        found = dict(zip(zip(lines, spans, strict=True), per_line, strict=True))
        return [found[key][:n_best] for key in keys]

    def sample(
        self,
        lines: Iterable[str],
        alpha: float = 0.6,
        max_extra: int = 50,
        first: int = 0,
        batch_tokens: int = 3000,
        progress: Callable[[int, int], object] | None = None,
        keep: Iterable[str] = (),
        wellformed: bool = True,
        spans: Sequence[list[Span]] | None = None,
        **settings: float,
    ) -> list[list[Translation]]:
        """Draw one translation of each line, token by token; return the same types as `translate`.

        settings: temperature, top_k, top_p, seed (see sampling.sample). first: the number of the
        first line, where a text comes in several calls. A translation depends on the line, its
        number and the seed, and not on the other lines. keep, wellformed, spans: as for
        `translate`.
        """
        from minitf.beyond.sampling import sample  # lazily: most translations are searched for

        def decode_batch(source, parts):
            rows = [(first + line, *numbers) for line, *numbers in (part.place for part in parts)]
            rules = self._wellformed.allowed(source) if wellformed else None
            hypotheses = sample(
                self.model,
                source,
                max_extra=max_extra,
                alpha=alpha,
                rows=rows,
                allowed=rules,
                scorer_of=self.scorer_of,
                **settings,
            )
            return [[best] for best in hypotheses]

        lines = self._read(_listed(lines), keep, spans)
        return self._translate_lines(lines, decode_batch, 1, batch_tokens, wellformed, progress)

    def _read(self, lines, keep=(), spans=None):
        """Return each line as a Line: the parts that the model reads, and what is copied.

        A span of a line is copied or a Text, which is cut into what the model reads at once. One IN
        CAPITALS is written small.
        """
        if self.as_text:
            items = list(map(read_spans, split_markup(lines) if spans is None else spans))
        else:
            items = [[Text(line)] for line in lines]
        texts = [text for each in items for text in each if isinstance(text, Text)]
        if self.as_text and self.placeholders:
            protect_values(texts, self.subwords, tuple(keep))
        strings = [text.text for text in texts]
        small = strings if self.reads_capitals else in_small_letters(strings, self.subwords)
        for text, read in zip(texts, small, strict=True):
            text.in_capitals = read != text.text
            text.head, text.text = self.subwords.split_language(read.strip())
        most = max(1, self.max_subwords - max((len(text.head) for text in texts), default=0))
        cut = cut_texts([text.text for text in texts], self.subwords, most, self.max_unsplit)
        for text, parts in zip(texts, cut, strict=True):
            text.cut = parts
        return [Line.from_texts(number, each) for number, each in enumerate(items)]

    @functools.cached_property
    def _wellformed(self):
        return Wellformed(self.subwords)

    def _ids(self, parts):
        """Return what the model reads of each part: those with values have placeholders."""
        new = [part for part in parts if part.ids is None]
        encoded = (
            self.subwords.encode([part.read(self.placeholders) for part in new]) if new else []
        )
        for part, ids in zip(new, encoded, strict=True):
            part.ids = ids
        return [(part.head + part.ids)[: self.max_subwords] for part in parts]

    def _translate_lines(self, lines, decode_batch, beam, batch_tokens, wellformed, progress=None):
        """Return the best translations of each Line: those of its parts, as one text.

        A part in whose translations a placeholder is missing is translated as a Line of its own:
        the pieces between its values.
        decode_batch(source, parts): returns the hypotheses of each row of a batch. wellformed: as
        for `translate`.
        """
        settings = decode_batch, beam, batch_tokens, wellformed
        parts = [part for line in lines for part in line.parts]
        self._translate_parts(parts, *settings, progress)
        if lost := [part for part in parts if not part.translations]:
            around = self._translate_lines(
                [part.pieces_between_values() for part in lost], *settings
            )
            for part, translations in zip(lost, around, strict=True):
                part.translations = translations
        for line in lines:
            if len(line.parts) > 1:
                for parts in line.runs():
                    as_one_sentence(parts, self.subwords, AROUND if line.is_sentence else CUT)
        return [joined(line, beam) for line in lines]

    def _translate_parts(self, parts, decode_batch, beam, batch_tokens, wellformed, progress):
        """Translate parts on all cores, the longest first: each gets its translations."""
        for part in parts:
            part.translations = part.copied() if part.values else []
        read = [
            part
            for part in parts
            if not part.translations and len(part.values) <= len(self.placeholders)
        ]
        ids = self._ids(read)

        def translate_batch(rows):
            source = pad_rows([ids[i] for i in rows], len(self.subwords), last=EOS)
            found = decode_batch(source, [read[i] for i in rows])
            return [self._as_texts(best) for best in found]

        batches, done = _batches([len(part) for part in ids], beam, batch_tokens), 0
        with one_blas_thread(), forms.on(self.forms), self.model.evaluating():
            translated = over_cores(translate_batch, batches)
            for rows, translations in zip(batches, translated, strict=True):
                for i, best in zip(rows, translations, strict=True):
                    read[i].translations = restored(read[i], best, self.placeholders, wellformed)
                done += len(rows)
                if progress:
                    progress(done, len(read))

    def _search(self, source, beam, alpha, max_extra, n_best, allowed=None, record=None):
        """Return the hypotheses of `beam_search`, or of `greedy` decoding if the beam is 1."""
        options = {"allowed": allowed, "scorer_of": self.scorer_of}
        if beam == 1:
            found = greedy(self.model, source, max_extra, alpha=alpha, **options)
            return [[best] for best in found]
        return beam_search(
            self.model, source, beam, alpha, max_extra, n_best, record=record, **options
        )

    def _as_texts(self, hypotheses):
        """Return hypotheses as Translations, with their texts in place of ids."""
        texts = self.subwords.decode([hypothesis.ids for hypothesis in hypotheses])
        return [
            Translation(alike_quotes(text.strip()), each.log_probability, each.score)
            for text, each in zip(texts, hypotheses, strict=True)
        ]

    def parts(self, line: str) -> list[list[int]]:
        """Cut a line into lists of at most `max_subwords` ids; none if there is no text."""
        (read,) = self._read([line])
        return self._ids(read.parts)

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
        if kind not in ("source", "encoder", "decoder"):
            raise UserError(f"unknown attention {kind!r}: choose source, encoder or decoder")
        explained = self.explain(line, beam, alpha, max_extra)
        layers = explained.weights[kind]
        if layer is not None and not 1 <= layer <= len(layers):
            raise UserError(f"no layer {layer}: the model has layers 1 to {len(layers)}")
        return layers[-1 if layer is None else layer - 1], *explained.tokens(kind)

    def explain(
        self, line: str, beam: int = 4, alpha: float = 0.6, max_extra: int = 50
    ) -> Explained:
        """Return how a line is translated: all attention weights, next tokens, and the beam.

        It is what the model by itself writes, as `translate` does with wellformed=False. The
        arguments are those of `translate`. Of a line of several parts, the first is used.
        Raises UserError for a line without text, and for a model that outputs NaN.
        """
        from minitf.page.explained import Explained, likely_next, watched_pass  # few are explained

        (read,) = self._read([line])
        parts = self._ids(read.parts)
        if not parts:
            raise UserError("the line has no text: there is no attention to draw")
        first, record = read.parts[0], []
        source = pad_rows(parts[:1], len(self.subwords), last=EOS)
        with one_blas_thread(), forms.on(self.forms):
            best = self._search(source, beam, alpha, max_extra, 1, record=record)[0][0]
            ids = [*best.ids, EOS]
            c = self.model.config
            if c.positions == "learned":  # none is left for an end mark at the limit
                ids = ids[: c.max_length]
            beginning = pad_rows([ids[:-1]], len(self.subwords), first=BOS)
            weights, logits, vectors = watched_pass(self.model, source, beginning)
        written = self._as_texts([best])
        shown = first.copied() or restored(first, written, self.placeholders, False) or written
        beam_steps = record[0] if record else []
        seen = sorted({i for step in beam_steps for i in step.tokens})
        return Explained(
            line=first.read(first.values).strip(),
            translation=shown[0].text,
            log_probability=best.log_probability,
            score=best.score,
            source_ids=[*parts[0], EOS],
            target_ids=ids,
            source=[*self.subwords.pieces(parts[0]), "</s>"],
            target=[*self.subwords.pieces(best.ids), "</s>"][: len(ids)],
            weights=weights,
            vectors=vectors,
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
