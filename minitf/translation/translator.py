"""Lines of text in, their translations out: in order, one for one, whatever the lines hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import numpy as np
from threadpoolctl import threadpool_limits

from minitf.backend import on_gpu
from minitf.beyond.sampling import sample
from minitf.cpu.machine import keep_memory
from minitf.cpu.strips import for_decoding
from minitf.cpu.sums import stretches
from minitf.cpu.workers import over_cores
from minitf.decode import beam_search, greedy
from minitf.errors import UserError
from minitf.tensor import no_grad
from minitf.text import Subwords, Words, make_batch
from minitf.transformer import Transformer
from minitf.translation.loading import load_model
from minitf.translation.sentences import cut_line

__all__ = ["Translation", "Translator"]

_LONGEST = 100  # for a model that does not say how long its sentences may be
_ON_GPU = 8  # times as many tokens are decoded side by side
# The number of slices that a batch of so many rows (sentences times beams) is cut into.
_PIECES = {32: 2, 256: 4}


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a line: its text, ln P of it, and the score that ranked it.

    Both figures are sums over the parts, where a line was translated in parts.
    """

    text: str
    log_probability: float
    score: float


class Translator:
    """A model and its subwords.

    The weights are read when it is made: where they change, make another one.

    longest: how many subwords it reads at once. A longer sentence is cut at the end of a clause
    or a word. usual: a line of more subwords is translated sentence by sentence, because a model
    that learned from single sentences leaves some out where several stand in a row (a sixth of the
    longest, if it is not given).
    """

    def __init__(
        self,
        model: Transformer,
        subwords: Subwords | Words,
        longest: int = _LONGEST,
        usual: int | None = None,
    ):
        self.model, self.fast, self.subwords = model, for_decoding(model), subwords
        # There are none for more, and the end mark takes one.
        if model.config.positions == "learned":
            longest = max(1, min(longest, model.config.max_length - 1))
        self.longest, self.usual = longest, min(longest, usual or max(1, longest // 6))

    @classmethod
    def load(
        cls, directory: str | Path, whole: int = 0, model: Callable[..., Transformer] = Transformer
    ) -> Self:
        """Read a model's folder. Raises UserError with one line that says what to do.

        whole: a line of up to so many subwords is translated in one piece, whatever the model says.
        model: what makes it, as for `load_model`: the class or function that it was trained with.
        """
        model, subwords, notes = load_model(directory, model)
        longest = notes.get("longest")
        longest = longest if isinstance(longest, int) and longest > 0 else _LONGEST
        return cls(model, subwords, max(longest, whole), whole)

    def translate(
        self,
        lines: Iterable[str],
        beam: int = 4,
        alpha: float = 0.6,
        max_extra: int = 50,
        n_best: int = 1,
        batch_tokens: int = 3000,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[list[Translation]]:
        """Translate each line; returns a list of up to n_best Translations per line, in the
        order of the lines.

        A line without any text gives one empty translation. batch_tokens: how many source tokens,
        times beams, each core decodes side by side; a GPU takes eight times as many. progress:
        called with the number of parts done and of all parts.
        Raises UserError for a beam width or an n_best that cannot be, and for a model that
        computes no numbers.
        """
        if not 1 <= n_best <= beam:
            raise UserError(
                f"{n_best} translations of a line cannot come from a beam of {beam}: widen the beam"
            )

        def search(source, places):
            return self._search(source, beam, alpha, max_extra, n_best)

        return self._over_lines(lines, search, beam, batch_tokens, progress)

    def sample(
        self,
        lines: Iterable[str],
        alpha: float = 0.6,
        max_extra: int = 50,
        first: int = 0,
        batch_tokens: int = 3000,
        progress: Callable[[int, int], object] | None = None,
        **settings: float,
    ) -> list[list[Translation]]:
        """Draw one translation of each line, word by word; returns what translate returns.

        settings: temperature, top_k, top_p, seed (see sampling.sample). first: the number of the
        first line, where a text comes in several calls. A translation depends on the line, its
        number and the seed, and not on the lines beside it.
        """

        def search(source, places):
            rows = [(first + line, part) for line, part in places]
            found = sample(
                self.fast, source, max_extra=max_extra, alpha=alpha, rows=rows, **settings
            )
            return _finite([[best] for best in found])

        return self._over_lines(lines, search, 1, batch_tokens, progress)

    def _over_lines(self, lines, search, beam, batch_tokens, progress):
        """Translate the parts of all lines, on all cores; search(source, places) translates a
        batch of them.

        places: of each row, the number of the line and that of the part in it.
        """
        if isinstance(lines, str):
            raise TypeError("translate() and sample() take a list of lines, not one string")
        keep_memory()
        lines = list(lines)
        parts, places = [], []
        for i, line in enumerate(lines):
            for k, part in enumerate(self.parts(line)):
                parts.append(part)
                places.append((i, k))

        def work(rows):
            source = make_batch(
                [parts[i] for i in rows], [[]] * len(rows), len(self.subwords)
            ).source
            return [self._ranked(best) for best in search(source, [places[i] for i in rows])]

        if on_gpu():  # a GPU: whole batches, and large ones
            batch_tokens *= _ON_GPU
        batches = list(_by_length([len(part) for part in parts], max(1, batch_tokens // beam)))
        pieces = batches if on_gpu() else [piece for rows in batches for piece in cut(rows, beam)]
        found, done = [None] * len(parts), 0
        with threadpool_limits(1, "blas"):
            for rows, translations in zip(pieces, over_cores(work, pieces), strict=True):
                for i, ranked in zip(rows, translations, strict=True):
                    found[i] = ranked
                done += len(rows)
                if progress:
                    progress(done, len(parts))
        results = [[] for _ in lines]
        for (owner, _), translations in zip(places, found, strict=True):
            results[owner].append(translations)
        return [_joined(pieces) for pieces in results]

    def _ranked(self, hypotheses):
        texts = self.subwords.decode([hypothesis.ids for hypothesis in hypotheses])
        pairs = zip(texts, hypotheses, strict=True)
        return [Translation(line.strip(), best.log_probability, best.score) for line, best in pairs]

    def _search(self, source, beam, alpha, max_extra, n_best):
        if beam == 1:
            found = [[best] for best in greedy(self.fast, source, max_extra, alpha=alpha)]
        else:
            found = beam_search(self.fast, source, beam, alpha, max_extra, n_best)
        return _finite(found)

    def parts(self, line: str) -> list[list[int]]:
        """Cut a line into lists of subword ids of at most `longest` each; none if there is
        nothing to translate.
        """
        return cut_line(line, self.subwords, self.longest, self.usual)

    def attention(
        self,
        line: str,
        kind: str = "source",
        layer: int | None = None,
        beam: int = 4,
        alpha: float = 0.6,
        max_extra: int = 50,
    ) -> tuple[np.ndarray, list[str], list[str]]:
        """Say who attends to whom when the line is translated: (weights (H, T, S), row tokens,
        column tokens).

        kind: "source" for decoder to source, "encoder" or "decoder" for self-attention. layer:
        counted from 1; the last one by default. A line of several parts is read as its first part.
        """
        model, parts = self.model, self.parts(line)
        stacks = {
            "source": (model.decoder, "source_attention"),
            "encoder": (model.encoder, "self_attention"),
            "decoder": (model.decoder, "self_attention"),
        }
        if kind not in stacks:
            raise UserError(f"unknown attention {kind!r}: choose source, encoder or decoder")
        if not parts:
            raise UserError("there is no text whose attention could be drawn")
        stack, name = stacks[kind]
        layer = len(stack.layers) if layer is None else layer
        if not 1 <= layer <= len(stack.layers):
            raise UserError(f"no layer {layer}: the model has layers 1 to {len(stack.layers)}")
        chosen = getattr(stack.layers[layer - 1], name)
        source = make_batch(parts[:1], [[]], len(self.subwords)).source
        with threadpool_limits(1, "blas"):
            best = self._search(source, beam, alpha, max_extra, 1)[0][0]
        batch = make_batch(parts[:1], [best.ids], len(self.subwords))
        chosen.keep_weights = True
        try:
            with model.evaluating(), no_grad():
                model(batch.source, batch.target_in)
        finally:
            chosen.keep_weights = False
        read = [*self.subwords.pieces(parts[0]), "</s>"]
        # A row of the decoder is where the next word is decided, so it is labelled with that word.
        written = [*self.subwords.pieces(best.ids), "</s>"]
        seen = ["<s>", *written[:-1]]
        rows, columns = {
            "source": (written, read),
            "encoder": (read, read),
            "decoder": (written, seen),
        }[kind]
        return chosen.weights[0], rows, columns


def _finite(found):
    """Raise UserError if a row has no translation, or one without a finite probability."""
    if not all(best and math.isfinite(best[0].log_probability) for best in found):
        raise UserError(
            "the model computes no finite probabilities: its weights are of no use, take another"
        )
    return found


def cut(rows, beam):
    """Cut the rows of a batch into the pieces that cores take, each for itself with
    one-thread products.

    The products of one step of decoding are too small to share. The cut follows from the size of
    the batch alone, so that the result does not depend on the number of cores.
    """
    n = max((n for least, n in _PIECES.items() if len(rows) * beam >= least), default=1)
    return [rows[start:stop] for start, stop in stretches(len(rows), n) if start < stop]


def _by_length(lengths, batch_tokens):
    """Group indices into batches of about equal length, the longest first: memory runs out at
    once or never.
    """
    order = np.argsort([-length for length in lengths], kind="stable").tolist()
    start = 0
    while start < len(order):
        stop = start + max(1, batch_tokens // (lengths[order[start]] + 1))
        yield order[start:stop]
        start = stop


def _joined(pieces):
    """Join the k-th best translations of the parts of one line."""
    if not pieces:
        return [Translation("", 0.0, 0.0)]
    if len(pieces) == 1:
        return pieces[0]
    return [
        Translation(
            " ".join(t.text for t in ranked if t.text),
            sum(t.log_probability for t in ranked),
            sum(t.score for t in ranked),
        )
        for ranked in zip(*pieces, strict=False)
    ]
