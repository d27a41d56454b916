"""A model of Marian: an .npz with weights and settings, and its vocabulary."""

import re
from pathlib import Path

from minitf.errors import UserError, in_file
from minitf.files.arrays import user_errors
from minitf.public.formats import (
    PublicModel,
    check_list,
    check_pulled,
    config_of,
    layers_of,
    notes_of_card,
    read_json,
    rows_of,
    take,
)
from minitf.public.npz import read_npz
from minitf.text import PairedSubwords
from minitf.text.sentencepiece_file import processor
from minitf.text.vocabulary import SPECIALS, read

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
    check_pulled(path, *path.parent.glob("*.spm"), *path.parent.glob("*vocab.yml"))
    arrays = read_npz(path)
    with in_file(path):
        config = _config(arrays, like)
    pieces, subwords_of = _vocabulary(path.parent)
    check_list(pieces, config.vocabulary_size, path)
    if not {"</s>", "<unk>"} <= set(pieces):
        raise UserError(f"{path.parent}: its vocabulary lacks </s> or <unk>: copy the model again")
    rows = rows_of(len(pieces), -1, pieces.index("<unk>"), -1, pieces.index("</s>"))
    with in_file(path.parent):
        subwords = subwords_of([pieces[i] for i in rows[len(SPECIALS) :]])
    config = config.replace(vocabulary_size=len(rows))
    with in_file(path):
        renamed = _arrays(arrays, config, len(pieces))
    return PublicModel(config, renamed, rows, subwords, notes_of_card(path.parent))


def _config(arrays, like):
    """Return minitf's Config. Raises UserError for another architecture."""
    if any("rnn" in name or "ssru" in name for name in arrays):
        raise UserError(f"{_REFUSED['transformer-decoder-autoreg'][1]}: minitf cannot run it")
    if "Wpos" in arrays:
        raise UserError("its positions are learned: minitf cannot run this architecture")
    if any(array.dtype.kind != "f" for name, array in arrays.items() if name != _SETTINGS):
        raise UserError("its weights are integers (int8): take the model that was not quantised")
    if _SETTINGS not in arrays:
        raise UserError("not a model of Marian: it has no settings")
    text = arrays.pop(_SETTINGS).tobytes().rstrip(b"\0").decode("utf-8", errors="replace")
    settings = {name: value.strip("\"'") for name, value in _LINE.findall(text)}
    for name, (needed, meaning) in _REFUSED.items():
        if settings.get(name, "") not in needed:
            raise UserError(f"{meaning} ({name}): minitf cannot run this architecture")
    activation = settings.get("transformer-ffn-activation", "swish")
    if activation not in ("relu", "swish"):
        raise UserError(f"its activation is {activation[:40]!r}: minitf has relu and swish")
    table = arrays.get("Wemb")
    if table is None or table.ndim != 2:
        raise UserError("it has no table Wemb: minitf reads models with one table for all")
    return config_of(
        vocabulary_size=len(table),
        n_layers=_number(settings, "enc-depth"),
        n_decoder_layers=_number(settings, "dec-depth"),
        d_model=_number(settings, "dim-emb"),
        d_ff=_number(settings, "transformer-dim-ffn"),
        n_heads=_number(settings, "transformer-heads"),
        activation=activation,
        sinusoid_base="t2t" if like == "marian" else "paper",
        eps=1e-6 if like == "marian" else 1e-5,
    )


def _number(settings, name):
    value = settings.get(name, "")
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise UserError(f"its setting {name!r} is not a number: copy the file again")
    return int(value)


def _arrays(arrays, config, size):
    """Return {minitf's name: array}. Raises UserError for arrays of another architecture."""
    table = take(arrays, "Wemb", (size, config.d_model))
    bias = take(arrays, "decoder_ff_logit_out_b", (1, size)).reshape(size)
    layers = layers_of(
        arrays,
        config,
        lambda names: names.marian,
        lambda shape: shape if len(shape) == 2 else (1, *shape),
    )
    if arrays:
        raise UserError(f"unknown array {min(arrays)!r}: minitf cannot run this architecture")
    return layers | {"embedding.weight": table, "output_bias": bias}


# The vocabulary -----------------------------------------------------------------------------------


def _vocabulary(folder):
    """Return the subwords in the order of their ids, and a function that makes the vocabulary.

    That function takes the subwords without special tokens.
    """
    models = [folder / PairedSubwords.source_name, folder / PairedSubwords.target_name]
    list_file = _list_file(folder)
    if list_file is None:  # Marian can read a SentencePiece model itself; its ids are the model's
        (path,) = _single_file(folder, "*.spm")
        with in_file(path):
            content = read(path)
            one = processor(content)
        pieces = one.id_to_piece(list(range(one.get_piece_size())))
        return pieces, lambda rest: PairedSubwords(content, content, rest, opus=False)
    for model in models:
        if not model.exists():
            raise UserError(
                f"{folder} has no {model.name}: minitf cannot read models whose text is cut by "
                "other programs than SentencePiece"
            )
    pieces = _listed(list_file)
    return pieces, lambda rest: PairedSubwords(read(models[0]), read(models[1]), rest)


def _list_file(folder):
    """Return the list of subwords in a folder, or None if it has none."""
    decoder = folder / "decoder.yml"
    if decoder.exists():
        text = decoder.read_text(encoding="utf-8", errors="replace")
        named = re.search(r"^vocabs:\s*\n\s*- *([^\s/\\]+)$", text, re.MULTILINE)
        if named and (folder / named[1]).exists() and not named[1].endswith(".spm"):
            return folder / named[1]
    lists = [*sorted(folder.glob("*vocab.yml")), *sorted(folder.glob("vocab.json"))]
    return lists[0] if lists else None


def _single_file(folder, pattern):
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        raise UserError(
            f"{folder} has {len(files)} files {pattern}: put the model's own vocabulary next to it"
        )
    return files


def _listed(path):
    """Return the subwords of a vocab.yml or vocab.json in the order of their ids."""
    if path.suffix == ".json":
        ids = read_json(path)
    else:
        with user_errors(path):
            ids = _yaml_pairs(path.read_bytes().decode())
    if sorted(i for i in ids.values() if type(i) is int) != list(range(len(ids))):
        raise UserError(f"{path}: the ids are not 0, 1, 2, ...: copy the model again")
    return sorted(ids, key=ids.get)


def _yaml_pairs(text):
    """Return {subword: id} of the lines `subword: id` and of pairs `? subword`, `: id`."""
    ids, key = {}, None
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if line.startswith("? "):
            key = line[2:]
            continue
        if key is None:
            if not line or line == "---":
                continue
            key, _, number = line.rpartition(":")
        else:
            number = line.removeprefix(":")
        ids[_scalar(key)] = int(number)
        key = None
    return ids


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
