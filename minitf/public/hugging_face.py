"""A MarianMT model as Hugging Face has it: a folder with config.json, weights and vocabulary."""

import contextlib
import re
from pathlib import Path

import numpy as np

from minitf.errors import UserError, in_file
from minitf.files.arrays import read_arrays
from minitf.files.models import exported_notes
from minitf.public.formats import (
    PublicModel,
    check_list,
    check_pulled,
    config_of,
    is_opus,
    layers_of,
    notes_of_card,
    read_json,
    rows_of,
    take,
)
from minitf.public.layout import from_halves
from minitf.public.names import TABLES
from minitf.public.torch_file import read_torch
from minitf.text import PairedSubwords, Subwords
from minitf.text.vocabulary import SPECIALS, read
from minitf.transformer import sinusoid

__all__ = [
    "CONFIG",
    "NORMALISE",
    "OURS",
    "OUR_NOTES",
    "TORCH_WEIGHTS",
    "VOCABULARY",
    "WEIGHTS",
    "read_hugging_face",
]

CONFIG, VOCABULARY, TOKENIZER = "config.json", "vocab.json", "tokenizer_config.json"
WEIGHTS, TORCH_WEIGHTS = "model.safetensors", "pytorch_model.bin"
_MODELS = (PairedSubwords.source_name, PairedSubwords.target_name)
OURS = "minitf"  # the entry of config.json with the Config of a model that minitf exported
OUR_NOTES = "minitf_notes"  # the entry with what is known about it, by these names
NORMALISE = "normalise"  # in OUR_NOTES: how lines are normalised first, "opus" or "none"
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}
_REFUSED = {  # entry: (the value that minitf needs, what another one means)
    "normalize_before": (False, "its norms come before the sub-layers (pre-norm)"),
    "add_final_layer_norm": (False, "it has a last norm, as pre-norm models have"),
    "normalize_embedding": (False, "its embeddings are normalised"),
    "static_position_embeddings": (True, "its positions are learned"),
    "scale_embedding": (True, "its embeddings are not multiplied by the root of d_model"),
    "share_encoder_decoder_embeddings": (True, "its source and target have separate vocabularies"),
    "tie_word_embeddings": (True, "its output has a matrix of its own"),
}
_DEFAULTS = {"scale_embedding": False}  # of transformers, where they are not what minitf needs


def read_hugging_face(folder: Path, like: str = "marian") -> PublicModel:
    """Return the model of a folder with config.json, weights, vocab.json, source.spm, target.spm.

    like: "marian" computes as the program that trained the public models, "transformers" as the
    library does: with the exponents 2i/d_model of the sinusoid, and 1e-5 in layer norm.
    Raises UserError for a missing or damaged file, and for a model of another architecture.
    """
    settings = read_json(folder / CONFIG)
    with in_file(folder / CONFIG):
        config = _config(settings, like)
        pad = _entry(settings, "pad_token_id")
        start = _entry(settings, "decoder_start_token_id")
        eos = _entry(settings, "eos_token_id")
    path = _weights(folder)
    check_pulled(path, *(folder / name for name in (VOCABULARY, *_MODELS)))
    pieces = _pieces(folder / VOCABULARY)
    check_list(pieces, config.vocabulary_size, folder / VOCABULARY)
    if not all(0 <= i < len(pieces) for i in (pad, start, eos)) or "<unk>" not in pieces:
        raise UserError(
            f"{folder / VOCABULARY}: lacks <unk>, or a special id of {CONFIG}: copy the model again"
        )
    rows = rows_of(len(pieces), pad, pieces.index("<unk>"), start, eos)
    if len({pad, pieces.index("<unk>"), eos}) < 3 or start in (rows[1], eos):
        raise UserError(f"{folder / CONFIG}: two special tokens share an id: copy the model again")
    subwords = _subwords(folder, [pieces[i] for i in rows[len(SPECIALS) :]], settings)
    config = config.replace(vocabulary_size=len(rows))
    arrays = read_torch(path) if path.name == TORCH_WEIGHTS else read_arrays(path)[0]
    with in_file(path):
        notices = [*_forget_stray_output(arrays), *_notice_of_normalisation(subwords, settings)]
        renamed = _arrays(arrays, config, len(pieces))
        if OURS in settings:
            config, renamed = from_halves(settings[OURS], config, renamed)
    notes = notes_of_card(folder) | _languages(folder / TOKENIZER) | _our_notes(settings)
    return PublicModel(config, renamed, rows, subwords, notes, tuple(notices))


def _config(settings, like):
    """Return minitf's Config. Raises UserError for another architecture."""
    kind = settings.get("model_type")
    if kind is None and {"format", "model", "sha256"} <= set(settings):
        raise UserError(
            "already a model of minitf: use it with --model; --export hf converts it for "
            "transformers"
        )
    if kind != "marian":
        raise UserError(
            f"a model of type {str(kind)[:40]!r}: minitf reads MarianMT models only (type 'marian')"
        )
    for name, (needed, meaning) in _REFUSED.items():
        if settings.get(name, _DEFAULTS.get(name, needed)) != needed:
            raise UserError(f"{meaning} ({name}): minitf cannot run this architecture")
    activation = settings.get("activation_function")
    if activation not in _ACTIVATIONS:
        raise UserError(f"its activation is {str(activation)[:40]!r}: minitf has relu and swish")
    for name in ("ffn_dim", "attention_heads"):
        if _entry(settings, f"encoder_{name}") != _entry(settings, f"decoder_{name}"):
            raise UserError(f"its encoder and decoder differ in {name}: minitf cannot run it")
    return config_of(
        vocabulary_size=_entry(settings, "vocab_size"),
        n_layers=_entry(settings, "encoder_layers"),
        n_decoder_layers=_entry(settings, "decoder_layers"),
        d_model=_entry(settings, "d_model"),
        d_ff=_entry(settings, "encoder_ffn_dim"),
        n_heads=_entry(settings, "encoder_attention_heads"),
        activation=_ACTIVATIONS[activation],
        sinusoid_base="t2t" if like == "marian" else "paper",
        eps=1e-6 if like == "marian" else 1e-5,
    )


def _entry(settings, name):
    value = settings.get(name)
    if isinstance(value, list) and len(value) == 1:  # as transformers allows for the end mark
        (value,) = value
    if type(value) is not int:
        raise UserError(f"entry {name!r} is not an integer: copy the model again")
    return value


def _our_notes(settings):
    """Return the notes of a model that minitf exported, {} for others."""
    notes = exported_notes(_exported_notes(settings))
    return {name: value for name, value in notes.items() if type(value) in (str, int, bool)}


def _exported_notes(settings):
    notes = settings.get(OUR_NOTES)
    return notes if isinstance(notes, dict) else {}


def _languages(path):
    """Return the notes about single languages in tokenizer_config.json, which may be missing."""
    with contextlib.suppress(UserError):
        settings = read_json(path)
        names = {
            f"{side}_language": str(settings.get(f"{side}_lang")) for side in ("source", "target")
        }
        return {name: code for name, code in names.items() if re.fullmatch("[a-z]{2,3}", code)}
    return {}


def _pieces(path):
    """Return the subwords of vocab.json in the order of their ids."""
    ids = read_json(path)
    if sorted(i for i in ids.values() if type(i) is int) != list(range(len(ids))):
        raise UserError(f"{path}: the ids are not 0, 1, 2, ...: copy the model again")
    return sorted(ids, key=ids.get)


def _weights(folder):
    for name in (WEIGHTS, TORCH_WEIGHTS):
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{folder} has neither {WEIGHTS} nor {TORCH_WEIGHTS}: add one of them")


def _subwords(folder, pieces, settings):
    """Return the vocabulary; one that minitf exported becomes one file again."""
    models = []
    for name in _MODELS:
        if not (folder / name).exists():
            raise UserError(
                f"{folder} has no {name}: minitf cannot read models whose text is cut by other "
                "programs than SentencePiece"
            )
        with in_file(folder / name):
            models.append(read(folder / name))
    if models[0] == models[1]:
        try:
            one = Subwords(models[0])
        except UserError:
            pass
        else:
            if one.listed() == pieces:
                return one
    exported = _exported_notes(settings).get(NORMALISE)
    with in_file(folder / VOCABULARY):
        opus = exported == "opus" if exported else is_opus(folder)
        return PairedSubwords(*models, pieces, opus)


def _notice_of_normalisation(subwords, settings):
    """Return a line, in a list, about text that is not normalised for want of a hint."""
    known = NORMALISE in _exported_notes(settings)
    if known or not isinstance(subwords, PairedSubwords) or subwords.opus:
        return []
    return [
        "punctuation is not normalised, as neither name nor card says that this is a model of "
        "OPUS-MT: if it is one, put its README.md into the folder, and convert it again"
    ]


def _arrays(arrays, config, size):
    """Return {minitf's name: array}. Raises UserError for arrays of another architecture."""
    table = _table(arrays, (size, config.d_model))
    _check_positions(arrays, config)
    bias = take(arrays, "final_logits_bias", (1, size)).reshape(size)
    layers = layers_of(
        arrays, config, lambda names: names.hugging_face, lambda shape: tuple(reversed(shape))
    )
    if arrays:
        raise UserError(f"unknown array {min(arrays)!r}: minitf cannot run this architecture")
    layers = {name: array.T if array.ndim == 2 else array for name, array in layers.items()}
    return layers | {"embedding.weight": table, "output_bias": bias}


def _forget_stray_output(arrays):
    """Forget an output matrix that differs from the table; return a notice of it in a tuple.

    `_config` has refused models whose output is not the table. So such a matrix is a leftover of
    their conversion, as in the first tc-big models: transformers up to 4.29 replaced it by the
    table, later versions the table by it (its issues 26216 and 45005).
    """
    *tables, output = TABLES
    table = next((arrays[name] for name in tables if name in arrays), None)
    if table is None or output not in arrays or np.array_equal(arrays[output], table):
        return ()
    del arrays[output]
    return (f"{output} is left out: it differs from the table, which such models have as output",)


def _table(arrays, shape):
    present = [name for name in TABLES if name in arrays]
    table = take(arrays, (present or TABLES)[0], shape)
    for name in present[1:]:
        if not np.array_equal(take(arrays, name, shape), table):
            raise UserError(f"{present[0]} and {name} differ: minitf reads models with one table")
    return table


def _check_positions(arrays, config):
    """Forget the positions of an older file. Raises UserError if they are not the sinusoids."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        if name not in arrays:
            continue
        table = arrays.pop(name)
        good = table.ndim == 2 and table.shape[1] == config.d_model and table.dtype.kind == "f"
        if not good or not np.allclose(
            table, sinusoid(len(table), config.d_model, "halves"), atol=2e-3
        ):
            raise UserError(f"{name} is not the sinusoid: minitf cannot import learned positions")
