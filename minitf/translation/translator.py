"""The Translator: lines of text in, one translation of each out, in the same order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from minitf import forms
from minitf.backend import on_gpu
from minitf.beyond.shortlist import Shortlist
from minitf.cpu.processes import over_cores
from minitf.cpu.sums import slice_bounds
from minitf.cpu.threads import one_blas_thread
from minitf.decode import Allowed, beam_search, greatest_lengths, greedy
from minitf.errors import UserError
from minitf.functions import log_softmax
from minitf.tensor import no_grad
from minitf.text import BOS, EOS, PAD, Vocabulary, Words
from minitf.text.batches import pad_rows
from minitf.text.normalise import normalise
from minitf.text.protected import FIRST_WORD, PLACEHOLDERS
from minitf.transformer import Transformer
from minitf.translation.loading import load_and_probe, load_shortlist, verified_decoding
from minitf.translation.reading import Line, Text, Translation, cut_texts, read_text, truecase
from minitf.translation.wellformed import Wellformed
from minitf.translation.writing import as_one_sentence, join_parts, restore, with_uniform_quotes

if TYPE_CHECKING:
    from minitf.page.explained import Explained

_MAX_SUBWORDS = 100  # subwords; for a model whose notes do not say
_GPU_FACTOR = 8  # a GPU decodes this many times the tokens that a core decodes side by side
_SCORED_AT_ONCE = 32  # gaps that are scored in one batch
_SLICES = {32: 2, 256: 4}  # {rows of a batch (sentences times beams) or more: slices}


@dataclasses.dataclass(frozen=True)
class Search:
    """The options of a search for translations: of `beam_search`, and of the Translator.

    A beam of 1 is greedy decoding. alpha: the length penalty's. max_extra: the most tokens of a
    translation beyond those of its source. n_best: the most translations of a line. like: "paper",
    or "marian", the search of the program that trained a public model (see beam_search).
    batch_tokens: the number of source tokens, times beams, that a core decodes side by side; a GPU
    takes eight times as many.
    wellformed: whether the model may write text only (see Wellformed). With False, a translation is
    what the model by itself prefers.
    Raises UserError for an impossible beam or n_best.
    """

    beam: int = 4
    alpha: float = 0.6
    max_extra: int = 50
    n_best: int = 1
    batch_tokens: int = 3000
    wellformed: bool = True
    like: str = "paper"

    def __post_init__(self):
        if not 1 <= self.n_best <= self.beam:
            raise UserError(
                f"n_best must be at least 1 and at most the width of the beam, {self.beam}, "
                f"not {self.n_best}: widen the beam"
            )


class Translator:
    """A model and its subwords, as a function from lines to translations.

    When it is made, the model's matrices are copied, and forms are compared with its own code:
    after a change of the weights or of the code, make another one.
    Raises UserError for a model that outputs NaN.

    max_subwords: the most subwords of a part. A longer sentence is cut at the end of a clause or a
    word. `load` takes it from the training text, where one sentence in a thousand is longer.
    max_unsplit: a line of more subwords is translated sentence by sentence, because a model that
    learned from single sentences tends to drop some of several (default: a sixth of max_subwords).
    `load` takes it from the notes that the import of a public model has written.
    reads_capitals: whether a line IN CAPITALS is read as it is. If not, it is read in lower case,
    and its translation is written in capitals (see `truecase`), except by `explain` and
    `attention`, which show what the model does. `load` takes it from the notes: a public model
    reads them, one of minitf's trainer does not.
    placeholders: words that the model copies, for what must not be translated (default: those that
    are among its subwords, because it has learned them). `load` takes others from the notes.
    as_text: whether lines are text as people write it. If not, they are words that somebody has
    cut, and the model reads them as they are (default: whether the vocabulary cuts text).
    notes: what is known about the model, by the names of `NOTES` (minitf/files/models.py).
    shortlist: the few ids that may be written for a sentence, which makes it faster to translate.
    `load` takes it from the folder of a model of Firefox.
    logits: what the model's equations compute, for `verified_decoding` (default: compute them).
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
        shortlist: Shortlist | None = None,
        logits: np.ndarray | None = None,
    ):
        self.model, self.subwords = model, subwords
        self.forms, self.decoding = verified_decoding(model, shortlist, logits)
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
        folder: str | Path,
        max_unsplit: int = 0,
        model: Callable[..., Transformer] = Transformer,
        shortlist: bool = False,
    ) -> Self:
        """Read a model's folder. Raises UserError with one line that says what to do.

        max_unsplit: a line of up to this many subwords is one part, whatever the notes say.
        model: the class or function that makes the model, as for `load_model`.
        shortlist: whether to use the model's shortlist. It is faster, and now and then it changes a
        translation, which then lacks a word that it would have without it.
        """
        model, subwords, notes, logits = load_and_probe(folder, model)
        short = load_shortlist(folder, model.config) if shortlist else None
        max_unsplit = max(notes.get("max_unsplit", 0), max_unsplit)
        max_subwords = max(notes.get("max_subwords", _MAX_SUBWORDS), max_unsplit)
        capitals, placeholders = notes.get("reads_capitals", False), notes.get("placeholders")
        reading = max_subwords, max_unsplit, capitals, placeholders
        return cls(model.eval(), subwords, *reading, notes=notes, shortlist=short, logits=logits)

    def translate(
        self,
        lines: Iterable[str],
        search: Search | None = None,
        *,
        keep: Iterable[str] = (),
        progress: Callable[[int, int], object] | None = None,
        allowed: Callable[[list[str]], Allowed] | None = None,
        **changes: Any,
    ) -> list[list[Translation]]:
        """Return the best translations of each line, up to n_best of them, in the lines' order.

        They differ: a text that was found twice, cut into subwords in two ways, is returned once.
        A line without any text gives one empty translation; equal lines are translated once.
        changes: fields of a Search, as in translate(lines, beam=1, n_best=1).
        keep: regular expressions; what they match is not translated. Numbers, addresses, tags and
        the other kinds of `minitf.text.protected` never are. Characters of the two planes for
        private use stand for words (from U+F0000) and markup (from U+100000): each comes out once.
        progress: called with the number of parts done and of all parts.
        allowed: called with some lines, returns what may be written for them, row by row. A line
        that is translated in several parts occurs once for each.
        Raises UserError as Search does, ValueError as `beam_search` does, UserError for NaN.
        """
        search = dataclasses.replace(search or Search(), **changes)
        lines = _as_list(lines)
        distinct = list(dict.fromkeys(lines))

        def decode_batch(source, parts, rules):
            if allowed:
                rules = allowed([distinct[part.place[0]] for part in parts])
            # The whole beam: some may be the same text, or lack what must be kept.
            has_choice = search.n_best > 1 or any(part.has_choice for part in parts)
            n_best = search.beam if has_choice else 1
            return self._search(source, dataclasses.replace(search, n_best=n_best), rules)

        per_line = self._translate_lines(self._read(distinct, keep), decode_batch, search, progress)
        translations = dict(zip(distinct, per_line, strict=True))
        return [translations[line][: search.n_best] for line in lines]

    def sample(
        self,
        lines: Iterable[str],
        search: Search | None = None,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        first: int = 0,
        keep: Iterable[str] = (),
        progress: Callable[[int, int], object] | None = None,
        **changes: Any,
    ) -> list[list[Translation]]:
        """Draw one translation of each line, token by token; return the same types as `translate`.

        temperature, top_k, top_p, seed: see sampling.sample. first: the number of the first line,
        where a text comes in several calls. A translation depends on the line, its number and the
        seed, and not on the other lines. changes: fields of a Search; beam and n_best do not
        matter. keep, progress: as for `translate`.
        """
        from minitf.beyond.sampling import sample  # lazily: most translations are searched for

        search = dataclasses.replace(search or Search(), **changes | {"beam": 1, "n_best": 1})

        def decode_batch(source, parts, rules):
            rows = [(first + line, *numbers) for line, *numbers in (part.place for part in parts)]
            draws = temperature, top_k, top_p, seed, search.max_extra, search.alpha, rows, rules
            return [[best] for best in sample(self.decoding, source, *draws)]

        read = self._read(_as_list(lines), keep)
        return self._translate_lines(read, decode_batch, search, progress)

    def _read(self, lines, keep=()):
        """Return each line as a Line, cut into the parts that the model reads."""
        texts = [self._text(line, keep) for line in lines]
        limit = max(1, self.max_subwords - max((len(text.prefix) for text in texts), default=0))
        strings = [text.text for text in texts]
        cut = cut_texts(strings, self.subwords, limit, self.max_unsplit)
        return [Line.from_text(i, *read) for i, read in enumerate(zip(texts, cut, strict=True))]

    def _text(self, line, keep):
        """Return a line as a Text; one IN CAPITALS is put in lower case."""
        text, spans = line, ()
        if self.as_text and (self.placeholders or max(line, default="") >= chr(FIRST_WORD)):
            language = self.notes.get("source_language", "")
            text, spans = read_text(line, self.subwords, keep, language)
        elif self.as_text:
            text = normalise(line)
        small = text if self.reads_capitals else truecase(text, self.subwords)
        prefix, rest = self.subwords.split_language(small.strip())
        return Text(rest, tuple(spans), prefix, small != text)

    def _ids(self, parts):
        """Return what the model reads of each part: those with spans have placeholders."""
        new = [part.input(self.placeholders) for part in parts if part.ids is None]
        encoded = iter(self.subwords.encode(new) if new else [])
        return [
            [*part.prefix, *(next(encoded) if part.ids is None else part.ids)][: self.max_subwords]
            for part in parts
        ]

    @functools.cached_property
    def _wellformed(self):
        return Wellformed(self.subwords)

    def _translate_lines(self, lines, decode_batch, search, progress=None):
        """Return the best translations of each Line: those of its parts, as one text.

        A part in whose translations a span, a number or a dash is missing is read in another way
        (see `Part.fallback`).
        decode_batch(source, parts, rules) returns the hypotheses of each row of a batch. rules:
        what may be written for it, None for anything.
        """
        parts = [part for line in lines for part in line.parts]
        per_part = self._translate_parts(parts, decode_batch, search, progress)
        if lost := [number for number, best in enumerate(per_part) if not best]:
            again = [parts[number].fallback() for number in lost]
            pieces = self._translate_lines(again, decode_batch, search)
            for number, best in zip(lost, pieces, strict=True):
                per_part[number] = best
        left, translated = iter(per_part), []
        for line in lines:
            of_parts = list(islice(left, len(line.parts)))
            if len(line.parts) > 1:
                of_parts = as_one_sentence(line, of_parts, self.subwords)
            translated.append(join_parts(of_parts, search.beam, line.around))
        return translated

    def _translate_parts(self, parts, decode_batch, search, progress):
        """Translate parts on all cores, the longest first; return the translations of each.

        A part has none if each has lost something, or if it has more spans than placeholders.
        """
        translations = [part.as_translation() for part in parts]
        read = [
            number
            for number, part in enumerate(parts)
            if not translations[number] and len(part.spans) <= len(self.placeholders)
        ]
        ids = dict(zip(read, self._ids([parts[number] for number in read]), strict=True))

        def translate_batch(numbers):
            source = pad_rows([ids[number] for number in numbers], len(self.subwords), last=EOS)
            batch = [parts[number] for number in numbers]
            rules = self._wellformed.allowed(source) if search.wellformed else None
            texts = []
            for part, best in zip(batch, decode_batch(source, batch, rules), strict=True):
                has_choice = part.has_choice or search.n_best > 1
                best = self._as_texts(best if has_choice else best[:1])
                ln_p = functools.partial(self._log_probabilities, part.prefix)
                texts.append(restore(part, best, self.placeholders, search.wellformed, ln_p))
            return texts

        batches, done = _batches(ids, search.beam, search.batch_tokens), 0
        with one_blas_thread(), forms.on(self.forms), self.model.evaluating():
            results = over_cores(translate_batch, batches)
            for numbers, per_part in zip(batches, results, strict=True):
                for number, best in zip(numbers, per_part, strict=True):
                    translations[number] = best
                done += len(numbers)
                if progress:
                    progress(done, len(read))
        return translations

    def _search(self, source, search, allowed=None, trace=None):
        """Return the hypotheses of `beam_search`, or of `greedy` decoding if the beam is 1."""
        options = {"allowed": allowed, "max_extra": search.max_extra, "alpha": search.alpha}
        if search.beam == 1 and search.like == "paper":
            return [[best] for best in greedy(self.decoding, source, **options)]
        options |= {"n_best": search.n_best, "trace": trace, "like": search.like}
        return beam_search(self.decoding, source, search.beam, **options)

    def _as_texts(self, hypotheses):
        """Return hypotheses as Translations, with their texts in place of ids."""
        texts = self.subwords.decode([hypothesis.ids for hypothesis in hypotheses])
        return [
            Translation(with_uniform_quotes(text.strip()), each.log_probability, each.score)
            for text, each in zip(texts, hypotheses, strict=True)
        ]

    def _log_probabilities(self, prefix, pairs):
        """Return ln P of each target, (n,), given its source. prefix: the first ids of each."""
        size, config, totals = len(self.subwords), self.model.config, []
        limit = config.max_length - 1 if config.positions == "learned" else None
        for start in range(0, len(pairs), _SCORED_AT_ONCE):
            sources, targets = zip(*pairs[start : start + _SCORED_AT_ONCE], strict=True)
            read = [[*prefix, *ids][:limit] for ids in self.subwords.encode(sources)]
            ids = [each[:limit] for each in self.subwords.encode(targets, side="target")]
            written = pad_rows(ids, size, last=EOS)
            with no_grad():
                logits = self.model(pad_rows(read, size, last=EOS), pad_rows(ids, size, first=BOS))
                log_p = log_softmax(logits).numpy()
            log_p = np.take_along_axis(log_p, written[..., None], axis=-1)[..., 0]
            totals.append(np.where(written == PAD, 0, log_p).sum(axis=-1))
        return np.concatenate(totals)

    def parts(self, line: str) -> list[list[int]]:
        """Cut a line into lists of at most `max_subwords` ids; none if there is no text."""
        (read,) = self._read([line])
        return self._ids(read.parts)

    def attention(
        self,
        line: str,
        kind: str = "source",
        layer: int | None = None,
        search: Search | None = None,
        **changes: Any,
    ) -> tuple[np.ndarray, list[str], list[str]]:
        """Return who attends to whom in a translation: weights (H, T, S), row and column tokens.

        kind: "source" for decoder to source, "encoder" or "decoder" for self-attention. layer:
        counted from 1; the last one by default. search, changes: as for `explain`.
        """
        if kind not in ("source", "encoder", "decoder"):
            raise UserError(f"unknown attention {kind!r}: choose source, encoder or decoder")
        explained = self.explain(line, search, **changes)
        layers = explained.weights[kind]
        if layer is not None and not 1 <= layer <= len(layers):
            raise UserError(f"no layer {layer}: the model has layers 1 to {len(layers)}")
        return layers[-1 if layer is None else layer - 1], *explained.tokens(kind)

    def explain(self, line: str, search: Search | None = None, **changes: Any) -> Explained:
        """Return how a line is translated: all attention weights, next tokens, and the beam.

        It is what the model by itself writes, as `translate` does with wellformed=False. search,
        changes: as for `translate`. If the line has several parts, the first is explained.
        Raises UserError for a line without text, and for a model that outputs NaN.
        """
        from minitf.page.explained import Explained, likely_next, recorded_pass  # few are explained

        search = dataclasses.replace(search or Search(), n_best=1, **changes)
        (read,) = self._read([line])
        if not read.parts:
            raise UserError("the line has no text: there is no attention to draw")
        first, trace, c = read.parts[0], [], self.model.config
        source = pad_rows(self._ids([first]), len(self.subwords), last=EOS)
        with one_blas_thread(), forms.on(self.forms):
            best = self._search(source, search, trace=trace)[0][0]
            # No learned position is left for an end mark at the limit.
            ids = [*best.ids, EOS][: c.max_length if c.positions == "learned" else None]
            beginning = pad_rows([ids[:-1]], len(self.subwords), first=BOS)
            weights, logits, vectors = recorded_pass(self.model, source, beginning)
            written = self._as_texts([best])
            ln_p = functools.partial(self._log_probabilities, first.prefix)
            whole = restore(first, written, self.placeholders, False, ln_p)
            shown = first.as_translation() or whole or written
        beam_steps = trace[0] if trace else []
        seen = sorted({i for step in beam_steps for i in step.tokens})
        return Explained(
            line=first.source.strip(),
            translation=shown[0].text,
            log_probability=best.log_probability,
            score=best.score,
            source_ids=source[0].tolist(),
            target_ids=ids,
            source=self.subwords.pieces(source[0]),
            target=self.subwords.pieces(ids),
            weights=weights,
            vectors=vectors,
            next_tokens=likely_next(logits, c, self.subwords),
            beam=beam_steps,
            names=dict(zip(seen, self.subwords.pieces(seen), strict=True)),
            parts=len(read.parts),
            width=search.beam,
            alpha=search.alpha,
            max_extra=search.max_extra,
            limit=int(greatest_lengths(self.model, source, search.max_extra)[0]),
            decoder=c.decoder,
        )


def _as_list(lines):
    if isinstance(lines, str):
        raise TypeError("translate() and sample() take a list of lines, not one string")
    return list(lines)


def _batches(ids, beam, batch_tokens):
    """Group parts of about equal length, to be decoded together; return the numbers of each group.

    ids: {number of a part: its ids}. The longest come first: memory runs out at once or never. A
    GPU takes large batches, uncut.
    """
    if on_gpu():
        batch_tokens *= _GPU_FACTOR
    limit = max(1, batch_tokens // beam)
    order = sorted(ids, key=lambda number: -len(ids[number]))
    batches, start = [], 0
    while start < len(order):
        stop = start + max(1, limit // (len(ids[order[start]]) + 1))
        rows = order[start:stop]
        batches += [rows] if on_gpu() else slices(rows, beam)
        start = stop
    return batches


def slices(rows, beam):
    """Cut the rows of a batch into the slices that cores decode, each with one-thread products.

    The products of a decoding step are too small to be shared by threads. The cut depends on
    the size of the batch alone, so that the result does not depend on the number of cores.
    """
    n = max((n for least, n in _SLICES.items() if len(rows) * beam >= least), default=1)
    return [rows[start:stop] for start, stop in slice_bounds(len(rows), n) if start < stop]
