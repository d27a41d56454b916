"""A model of Marian: an .npz with weights and settings, and its vocabulary."""

import io
import os
import re
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from minitf.errors import UserError, in_file
from minitf.files.arrays import user_errors
from minitf.public import formats
from minitf.public.formats import PublicModel
from minitf.public.names import arrays_of_model, take
from minitf.text import PairedSubwords
from minitf.text.vocabulary import SPECIALS, processor, read

__all__ = ["read_marian"]

_SETTINGS = "special:model.yml"
_REFUSED = {  # setting: (the values that minitf needs, what another one means); "" if it is missing
    "type": (("transformer", ""), "it is not a Transformer"),
    "transformer-decoder-autoreg": (
        ("self-attention", ""),
        "its decoder has no self-attention, as in Firefox's models with an SSRU",
    ),
    "transformer-preprocess": (("",), "its norms come before the sub-layers (pre-norm)"),
    "transformer-postprocess": (("dan",), "its sub-layers do not end in Add & Norm"),
    "transformer-postprocess-emb": (("d", ""), "its embeddings are normalised"),
    "transformer-postprocess-top": (("",), "it has a last norm, as pre-norm models have"),
    "transformer-train-position-embeddings": (("false", ""), "its positions are learned"),
    "transformer-no-projection": (("false", ""), "its attention has no output projection"),
    "transformer-ffn-depth": (("2", ""), "its feed-forward networks have other depths"),
    "transformer-decoder-ffn-depth": (("2", "0", ""), "its feed-forward networks differ in depth"),
    "transformer-decoder-dim-ffn": (("0", ""), "its decoder has another d_ff"),
    "right-left": (("false", ""), "it writes from the last word to the first"),
    "tied-embeddings-all": (("true",), "its source and target have tables of their own"),
}
_LINE = re.compile(r"^([\w-]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def read_marian(path: Path, like: str = "marian") -> PublicModel:
    """Return the model of an .npz file, and of the vocabulary in its folder.

    like: as for `read_hugging_face`. Raises UserError for a missing or damaged file, and for a
    model of another architecture.
    """
    formats.check_pulled(path, *path.parent.glob("*.spm"), *path.parent.glob("*vocab.yml"))
    arrays = read_npz(path)
    with in_file(path):
        config = _config(arrays, like)
        table = take(arrays, "Wemb", (config.vocabulary_size, config.d_model))
    pieces, subwords_of = _vocabulary(path.parent, len(table))
    if "</s>" not in pieces:
        raise UserError(f"{path.parent}: its vocabulary lacks </s>: copy the model again")
    rows = formats.rows_of(len(pieces), -1, pieces.index("<unk>"), -1, pieces.index("</s>"))
    with in_file(path.parent):
        subwords = subwords_of([pieces[i] for i in rows[len(SPECIALS) :]])
    config = config.replace(vocabulary_size=len(rows))
    with in_file(path):
        found = arrays_of_model(arrays, config, table, "decoder_ff_logit_out_b", "marian")
    return PublicModel(config, found, rows, subwords, formats.notes_of_card(path.parent))


def _config(arrays, like):
    """Return minitf's Config. Raises UserError for another architecture."""
    if any("rnn" in name or "ssru" in name for name in arrays):
        raise UserError(f"{_REFUSED['transformer-decoder-autoreg'][1]}: minitf cannot run it")
    if "Wpos" in arrays:
        raise UserError("its positions are learned: minitf cannot run this architecture")
    if any(array.dtype.kind != "f" for name, array in arrays.items() if name != _SETTINGS):
        raise UserError("its weights are integers (int8): take the model that was not quantised")
    if _SETTINGS not in arrays or "Wemb" not in arrays:
        raise UserError("not a model of Marian with one table: it has no settings, or no Wemb")
    text = arrays.pop(_SETTINGS).tobytes().rstrip(b"\0").decode("utf-8", errors="replace")
    settings = {name: value.strip("\"'") for name, value in _LINE.findall(text)}
    for name, (needed, meaning) in _REFUSED.items():
        if settings.get(name, "") not in needed:
            raise UserError(f"{meaning} ({name}): minitf cannot run this architecture")
    return formats.config_of(
        like,
        settings.get("transformer-ffn-activation", "swish"),
        vocabulary_size=len(arrays["Wemb"]),
        n_layers=_number(settings, "enc-depth"),
        n_decoder_layers=_number(settings, "dec-depth"),
        d_model=_number(settings, "dim-emb"),
        d_ff=_number(settings, "transformer-dim-ffn"),
        n_heads=_number(settings, "transformer-heads"),
    )


def _number(settings, name):
    value = settings.get(name, "")
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise UserError(f"its setting {name!r} is not a number: copy the file again")
    return int(value)


# The arrays ---------------------------------------------------------------------------------------


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file; nothing is unpickled.

    Raises UserError for a missing or damaged file. numpy.load would take the memory that a header
    claims before it reads the data.
    """
    arrays = {}
    with user_errors(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.compress_size for member in members) > os.path.getsize(path):
            raise ValueError("its arrays are larger than the file")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or name in arrays:
                raise ValueError(f"entry {member.filename!r} is not an array")
            with user_errors(f"{path}: array {name!r}"):
                arrays[name] = _array(archive, member)
    return arrays


def _array(archive, member):
    """Return an array, made of the bytes that are there, whatever its header claims."""
    # Of other compressions the first few bytes can already unpack to gigabytes.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("unknown compression")
    content = archive.read(member)
    stream = io.BytesIO(content)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("unknown header")
    shape, by_columns, dtype = npy.read_array_header_1_0(stream)
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise ValueError(f"dtype {dtype} is not a plain number")
    array = np.frombuffer(content, dtype, offset=stream.tell())
    array = array.reshape(shape, order="F" if by_columns else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


# The vocabulary -----------------------------------------------------------------------------------


def _vocabulary(folder, size):
    """Return the subwords in the order of their ids, and a function that makes the vocabulary.

    That function takes the subwords without special tokens.
    """
    lists = [*sorted(folder.glob("*vocab.yml")), *sorted(folder.glob("vocab.json"))]
    if not lists:  # Marian can read a SentencePiece model itself; its ids are the model's
        files = sorted(folder.glob("*.spm"))
        if len(files) != 1:
            raise UserError(f"{folder} has {len(files)} files *.spm: copy the model's vocabulary")
        with in_file(files[0]):
            content = read(files[0])
            one = processor(content)
        pieces = one.id_to_piece(list(range(one.get_piece_size())))
        formats.check_size(pieces, size, files[0])
        return pieces, lambda rest: PairedSubwords(content, content, rest, opus=False)
    models = formats.two_models(folder)
    if lists[0].suffix == ".json":
        ids = formats.read_json(lists[0])
    else:
        with user_errors(lists[0]):
            ids = _yaml_pairs(lists[0].read_bytes().decode())
    pieces = formats.in_order(ids, size, lists[0])
    return pieces, lambda rest: PairedSubwords(*models, rest)


def _yaml_pairs(text):
    """Return {subword: id} of the lines `subword: id` and of pairs `? subword`, `: id`.

    PyYAML's safe_load would lose some: of the keys `yes`, `true` and `1` it makes one.
    """
    entries = _ENTRY.finditer(text.replace("\r\n", "\n"))
    return {_scalar(entry[1] or entry[2]): int(entry[3]) for entry in entries}


_ENTRY = re.compile(r"^(?:\? (.*)\n:|(.*):) *([0-9]+)$", re.MULTILINE)
_ESCAPES = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f"}
_ESCAPES |= {"r": "\r", "e": "\x1b", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")


def _scalar(text):
    """Return the text of a YAML scalar: plain, or in single or double quotes."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return _ESCAPE.sub(_unescaped, text[1:-1])
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def _unescaped(match):
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else _ESCAPES.get(match[4], match[4])
