"""What is common to all formats of public models: their content, subwords and notes."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minitf.config import Config
from minitf.errors import UserError, in_file
from minitf.files.arrays import user_errors
from minitf.text import BOS, PAD, UNK, PairedSubwords, Vocabulary
from minitf.text.vocabulary import read_bytes

_POINTER = "version https://git-lfs"
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}
_PAIR = re.compile(r"(?:^|[-/]|_tiny_)([a-z]{2,3})-([a-z]{2,3})$")
_PAIR_OF_FIREFOX = re.compile(r"model\.([a-z]{2})([a-z]{2})\.")
# One licence, or a list of them: in brackets, or each in a line of its own after a dash.
_LICENCE = re.compile(r"^[ \t]*license:[ \t]*(.+|(?:\n[ \t]*- .+)+)", re.MULTILINE)
_OPUS_CARD = re.compile(
    r"^(#+|-|base_model:(\n-)?) *(Helsinki-NLP/)?opus-mt|OPUS readme", re.MULTILINE | re.IGNORECASE
)


class PublicModel(NamedTuple):
    """A model as its file has it.

    config: of minitf. arrays: by minitf's names, the rows of the table in the file's order. rows:
    for each of minitf's ids the row of the table, or -1 for a row of zeros. subwords: in minitf's
    order. notes: what is known about it, such as its licence. notices: lines that its reader says.
    shortlist: the arrays of its Shortlist in minitf's ids, by name, if it has one.
    """

    config: Config
    arrays: dict[str, np.ndarray]
    rows: list[int]
    subwords: Vocabulary
    notes: dict
    notices: tuple[str, ...] = ()
    shortlist: dict[str, np.ndarray] | None = None


def config_of(like: str, activation: str, **fields: object) -> Config:
    """Return minitf's Config of a public model, which has all biases and never writes some ids.

    like: "marian", or "transformers" for the exponents 2i/d_model of the sinusoid, and 1e-5 in
    layer norm. Raises UserError for fields that no model can have.
    """
    if activation not in _ACTIVATIONS:
        raise UserError(f"its activation is {str(activation)[:40]!r}: minitf has relu and swish")
    return Config(
        activation=_ACTIVATIONS[activation],
        sinusoid_layout="halves",
        sinusoid_base="t2t" if like == "marian" else "paper",
        eps=1e-6 if like == "marian" else 1e-5,
        attention_bias=True,
        output_bias=True,
        suppressed_ids=(PAD, UNK, BOS),
        label_smoothing=0.1,
        **fields,
    )


# Subwords -----------------------------------------------------------------------------------------


def file_rows(size: int, pad: int, unk: int, start: int, eos: int) -> list[int]:
    """Return the row of the file for each of minitf's ids.

    pad, start: -1 for a row of zeros. The ids 4, 5, ... are the remaining rows in their order.
    """
    special = pad, unk, start, eos
    return [*special, *(i for i in range(size) if i not in special)]


def take_rows(array: np.ndarray, rows: list[int]) -> np.ndarray:
    """Return these rows of an array, zeros for -1."""
    rows = np.array(rows)
    array = array[np.maximum(rows, 0)]
    array[rows < 0] = 0
    return array


def order_by_id(ids: dict[str, object], size: int, path: Path) -> list[str]:
    """Return the subwords of {subword: id} in the order of their ids.

    Raises UserError unless there is one for each row of the table, `<unk>` among them.
    """
    if sorted(i for i in ids.values() if type(i) is int) != list(range(len(ids))):
        raise UserError(f"{path}: the ids are not 0, 1, 2, ...: copy the model again")
    check_rows(ids, size, path)
    return sorted(ids, key=ids.get)


def check_rows(pieces: Collection[str], size: int, path: Path) -> None:
    """Raise UserError unless there is a subword for each row, and `<unk>` is one.

    A table may have been padded to a multiple of 8, 16, ..., 128 rows, which makes it faster on a
    GPU; the last rows have no subword, and are left out.
    """
    n = len(pieces)
    if size not in (n, *(-(-n // (8 << k)) * (8 << k) for k in range(5))):
        raise UserError(
            f"{path}: {n:,} subwords, but the table has {size:,} rows: copy both files from the "
            "same model"
        )
    if "<unk>" not in pieces:
        raise UserError(f"{path}: lacks <unk>: copy the model again")


def sentencepiece_models(folder: Path) -> list[bytes]:
    """Return the contents of source.spm and target.spm. Raises UserError if one is missing."""
    contents = []
    for name in (PairedSubwords.source_name, PairedSubwords.target_name):
        if not (folder / name).exists():
            raise UserError(
                f"{folder} has no {name}: minitf cannot read models whose text is split by "
                "other programs than SentencePiece"
            )
        with in_file(folder / name):
            contents.append(read_bytes(folder / name))
    return contents


def refuse_lfs_pointers(*paths: Path) -> None:
    """Raise UserError for a file that git, without git-lfs, has replaced by a pointer to it."""
    for path in paths:
        if _beginning(path).startswith(_POINTER):
            raise UserError(
                f"{path}: a pointer of git-lfs in place of the file: install git-lfs, and run "
                "`git lfs pull` in this folder"
            )


def read_json(path: Path) -> dict:
    """Return the content of a JSON file, a dictionary. Raises UserError for any other content."""
    with user_errors(path):
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
    return content


# What is known about a model ----------------------------------------------------------------------


def licence_of_card(folder: Path) -> dict[str, str]:
    """Return {"licence": as the card of a folder names it, or LICENSE in its first line}, or {}."""
    if found := _LICENCE.search(_beginning(folder / "README.md")):
        value = found[1].strip()
        listed = value.strip("[]").split(",") if value.startswith("[") else value.split("\n")
        return {"licence": " and ".join(each.strip(" \t\r-\"'") for each in listed)[:100]}
    title = _beginning(folder / "LICENSE").strip().split("\n")[0].strip()
    return {"licence": title[:100]} if title else {}


def languages_of_name(name: str) -> dict[str, str]:
    """Return the languages that the name of a model, or Firefox's of its file, tells, or {}.

    >>> languages_of_name("opus-mt-en-de")
    {'source_language': 'en', 'target_language': 'de'}
    >>> languages_of_name("model.enpt.intgemm.alphas.bin")
    {'source_language': 'en', 'target_language': 'pt'}
    >>> languages_of_name("opus-mt-tc-big-en-cat_oci_spa")
    {}
    """
    languages = _PAIR.search(name.removesuffix(".zip")) or _PAIR_OF_FIREFOX.match(name)
    return {"source_language": languages[1], "target_language": languages[2]} if languages else {}


def is_opus(folder: Path) -> bool:
    """Return whether the name of a folder or its card says that the model is OPUS-MT's.

    A card that compares a model with OPUS-MT's, or names its corpus, says no such thing.
    """
    card = _beginning(folder / "README.md")
    return "opus-mt" in folder.resolve().name.lower() or bool(_OPUS_CARD.search(card))


def _beginning(path: Path) -> str:
    """Return the beginning of a text file, "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(5000)
    except OSError:
        return ""
