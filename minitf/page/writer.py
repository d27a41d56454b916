"""The page: one HTML file with the numbers of a translation, the views of them, and the model."""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minitf import forms
from minitf.atomic import save_text
from minitf.common.layers import is_own
from minitf.config import Config
from minitf.decode import Decoding, fast_decoding, last_logits, made_up_texts
from minitf.errors import UserError
from minitf.files.models import to_stored
from minitf.page.explained import Explained
from minitf.text import Subwords, Words
from minitf.text.normalise import word_for_and
from minitf.text.protected import PLACEHOLDERS
from minitf.text.vocabulary import SPACE_SYMBOL, SPECIALS
from minitf.transformer import Transformer

HERE = Path(__file__).parent
# The program of the page, in this order, and those parts of it that only a page with a model has.
PROGRAM = (
    "engine.js", "translation.js", "tools.js", "story.js", "stage.js", "words.js", "attention.js",
    "heads.js", "hand.js", "masks.js", "steps.js", "beam.js", "try.js", "page.js",
)  # fmt: skip
OF_MODEL = ("engine.js", "hand.js", "try.js")
MAX_TOKENS = 50  # tokens; the pictures of longer texts show their beginning
MIN_TOKENS = 10  # tokens that are always shown
MAX_WEIGHTS = 48_000  # characters of weights; with them, a page without a model stays under 200 kB
LARGEST = 32_000_000  # characters; a browser opens a larger page too slowly
# The settings that minitf/page/engine.js computes; the sizes are free.
FITTING = {
    "positions": "sinusoid",
    "sinusoid_layout": "interleaved",
    "sinusoid_base": "paper",
    "tie": True,
    "attention_bias": False,
    "activation": "relu",
    "output_bias": False,
    "suppressed_ids": (),
    "decoder": "self-attention",
}
_ADVICE = "write the page without --with-model"


def write_page(path: str | Path, explained: Explained, **options: Any) -> None:
    """Write the page to a file, whole or not at all; options: the other arguments of `page`."""
    save_text(path, page(explained, **options))


def page(
    explained: Explained,
    model: Transformer | None = None,
    subwords: Subwords | Words | None = None,
    max_subwords: int = 100,
    max_unsplit: int = 100,
    reads_capitals: bool = True,
    languages: Sequence[str] = ("", ""),
    origin: str = "",
    hint: str = "",
    examples: Sequence[str] = (),
    turning: str = "",
) -> str:
    """Return the HTML of a page that shows how a line was translated.

    It needs no other file and makes no request: its policy allows the one script that it contains,
    by its sha256, and nothing else.
    model, subwords: what the page translates with what is typed there; without them it only shows
    this line. It searches as this line was searched.
    max_subwords, max_unsplit, reads_capitals: of the Translator: the subwords that it reads at
    once, those of a line that is never split, and whether it reads a line in capitals as it is.
    languages: the codes of source and target, such as "en" and "de".
    origin: a sentence about the model: who made it, and its licence.
    hint, examples: what the model can translate: a sentence about it, and lines to choose from.
    turning: a line that a beam of 4 translates better than greedy decoding, or "".
    Raises UserError if the page's program cannot compute the model, or the page would be too large.
    """
    n_shown, weights = _deflate_weights(explained)
    limits = {
        "max_subwords": max_subwords,
        "max_unsplit": max_unsplit,
        "reads_capitals": reads_capitals,
        "and": word_for_and(languages[0], subwords.characters if subwords else "&"),
    }
    names = [name for name in PROGRAM if model is not None or name not in OF_MODEL]
    script = "".join(_source(name) for name in names)
    style = _source("page.css")
    more = {"hint": hint, "examples": list(examples), "turning": turning}
    if model is not None:
        _check_fit(model, subwords)
        more["ids"] = [explained.source_ids, explained.target_ids]
    head, templates = ("", "") if model is None else _head_and_weights(model, subwords)
    fields = {
        "title": html.escape(f"{explained.line} → {explained.translation}"),
        "line": html.escape(explained.line),
        "translation": html.escape(explained.translation),
        "source_lang": html.escape(languages[0]),
        "target_lang": html.escape(languages[1]),
        "origin": html.escape(origin),
        "note": html.escape(_note(explained, n_shown)),
        "data": _json(_data(explained, n_shown, weights, limits, languages) | more),
        "head": head,
        "weights": templates,
        "style": style,
        "style_hash": _sha256(style),
        "script": script,
        "script_hash": _sha256(script),
    }
    # In one pass: braces in a sentence stay what they are.
    text = re.sub(r"\{\{(\w+)\}\}", lambda name: fields[name[1]], _source("template.html"))
    if len(text) > LARGEST:
        raise UserError(
            f"the page would have {len(text) / 1e6:.0f} MB: leave the model out of it, or use a "
            "smaller one"
        )
    return text


def _source(name):
    return (HERE / name).read_text(encoding="utf-8")


def _sha256(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value):
    """Return JSON in which no character can begin a tag or a comment of HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _deflate_weights(explained):
    """Return how many tokens the pictures show, and their weights: in 1/255, deflated, in base64.

    Fewer tokens if the weights would make the page too heavy, as in a model with many heads.
    """
    n_shown = MAX_TOKENS
    while True:
        weights = {
            kind: _packed(np.rint(array[:, :, :n_shown, :n_shown] * 255).astype(np.uint8))
            for kind, array in explained.weights.items()
        }
        heavy = sum(len(each["packed"]) for each in weights.values()) > MAX_WEIGHTS
        if not heavy or n_shown <= MIN_TOKENS:
            return n_shown, weights
        n_shown -= 2


def _packed(array):
    return {"shape": array.shape, "packed": _deflate(array)}


def _note(explained, n_shown):
    """Return sentences about what the page leaves out or shows differently, or ""."""
    sentences = []
    if explained.decoder == "ssru":
        sentences.append(
            "The decoder of this model has no self-attention but a state (SSRU). In its place, the "
            "page shows how much of the state comes from each token: the mean of its features. A "
            "row sums to less than 1, because the state begins at 0."
        )
    if explained.parts > 1:
        sentences.append(
            f"The line was translated in {explained.parts} parts; this is the first of them."
        )
    if max(len(explained.source), len(explained.target)) > n_shown:
        sentences.append(f"The pictures show the first {n_shown} tokens.")
    return " ".join(sentences)


def _data(explained, n_shown, weights, limits, languages):
    """Return the content of the views, for JSON. limits: of the Translator, how it reads lines."""
    beam = [
        {
            "parents": step.parents,
            "tokens": [explained.names[i] for i in step.tokens],
            "log_probabilities": [
                round(p, 4) if p > -np.inf else None for p in step.log_probabilities
            ],
            "finished": step.finished,
            "kept": step.kept,
        }
        for step in explained.beam
    ]
    return {
        "line": explained.line,
        "translation": explained.translation,
        "languages": languages,
        "search": {
            "width": explained.width,
            "alpha": explained.alpha,
            "max_extra": explained.max_extra,
            "limit": explained.limit,
            **limits,
        },
        "source": explained.source[:n_shown],
        "target": explained.target[:n_shown],
        "decoder": explained.decoder,
        "is_cut": max(len(explained.source), len(explained.target)) > n_shown,
        "weights": weights,
        "vectors": {  # in 1/32, from -4 to 4
            name: _packed(np.rint(array[..., :n_shown, :].clip(-3.9, 3.9) * 32).astype(np.int8))
            for name, array in explained.vectors.items()
        },
        "steps": [
            [[token, round(p, 4)] for token, p in step] for step in explained.next_tokens[:n_shown]
        ],
        "beam": _deflate(json.dumps(beam).encode()),  # or it would be a sixth of the page
    }


def _head_and_weights(model, subwords):
    """Return what minitf/page/engine.js reads: a head, which says what the model is, and weights.

    Matrices are stored column after column, as int8 if it holds them: the head has their scales,
    and how many numbers in a row each is for. All else is float16, of which the high bytes are
    deflated; the low ones look random. A browser reads a template three times as fast as a script.
    """
    arrays, low, high = [], [], []
    for name, array in model.state().items():
        # The embedding of a token stays in one piece: a row is also a column of E^T.
        stored = [array, *to_stored("int8", name, array).values()]
        weights, q, *scales = stored if name == "embedding.weight" else [x.T for x in stored]
        arrays.append([name, array.shape])
        if scales and np.allclose(q * scales[0], weights, rtol=1e-6, atol=0):
            arrays[-1] += [q.shape[1] if scales[0].shape[1] == 1 else 1, scales[0].ravel().tolist()]
            low.append(q.tobytes())
        else:
            if np.abs(weights).max() > np.finfo("float16").max:
                raise UserError(f"a weight of this model is too large for float16: {_ADVICE}")
            halves = weights.astype("<f2").tobytes()
            low.append(halves[::2])
            high.append(halves[1::2])
    head = {"config": model.config.to_dict(), "arrays": arrays, "pieces": subwords.names}
    return f'<script type="application/json" id="head">{_json(head)}</script>\n', (
        f'<template id="low">{base64.b64encode(b"".join(low)).decode()}</template>\n'
        f'<template id="high">{_deflate(*high)}</template>\n'
    )


def _deflate(*arrays):
    """Return bytes, or those of arrays, one after another, deflated, in base64."""
    data = b"".join(map(bytes, arrays))
    return base64.b64encode(zlib.compress(data, 9, wbits=-15)).decode()  # -15: deflate-raw


def _check_fit(model, subwords):
    """Raise UserError for a model that minitf/page/engine.js does not compute."""

    def logits():  # those of the fused decoder, too, which calls no method of a layer
        source, texts = made_up_texts(model.config)
        with model.evaluating():
            decoding = fast_decoding(model) or Decoding(model, False)
            return [model(source, texts).numpy(), last_logits(decoding, source, texts)]

    is_same = all(map(is_own, model.modules()))
    if not is_same or len(forms.verified(logits)) < len(forms.all_forms()):
        raise UserError(f"the page translates only with an unchanged Transformer: {_ADVICE}")
    if not isinstance(subwords, Subwords):
        raise UserError(
            "the page translates only with subwords that minitf has learned, not with words or a "
            f"public model: {_ADVICE}"
        )
    symbols = subwords.names[len(SPECIALS) : subwords.names.index("<0x00>")]
    if not {symbol.removeprefix(SPACE_SYMBOL) for symbol in symbols} <= set(PLACEHOLDERS):
        raise UserError(f"the page cannot use subwords with symbols, as a parser has: {_ADVICE}")
    c: Config = model.config
    differing = [name for name, value in FITTING.items() if getattr(c, name) != value]
    if c.n_heads * c.d_k != c.d_model or c.d_v != c.d_k:
        differing.append("d_k or d_v")
    if differing:
        raise UserError(
            f"the page cannot translate with this model, whose {', '.join(differing)} is not the "
            f"paper's: {_ADVICE}"
        )
