"""A MarianMT model at Hugging Face, in and out: config.json, weights, vocab.json, two .spm."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from minitf.atomic import check_empty, save_bytes, save_text, writing
from minitf.config import Config
from minitf.errors import UserError, in_file
from minitf.files.arrays import file_content, load_arrays, user_errors
from minitf.files.models import CONFIG, check_notes, exported_notes
from minitf.public import formats
from minitf.public.names import TABLES, arrays_of_model, names_of_layers, pop_checked, to_halves
from minitf.public.torch_file import read_torch
from minitf.text import PairedSubwords, Subwords, Words
from minitf.text.vocabulary import SPECIALS
from minitf.transformer import sinusoid
from minitf.translation.loading import load_model

VOCABULARY = "vocab.json"
WEIGHTS, TORCH_WEIGHTS = "model.safetensors", "pytorch_model.bin"
MODELS = (PairedSubwords.source_name, PairedSubwords.target_name)
OURS = "minitf"  # the entry of config.json with the Config of a model that minitf exported
OUR_NOTES = "minitf_notes"  # the entry with what is known about it, by these names
NORMALISE = "normalise"  # in OUR_NOTES: how lines are normalised first, "opus" or "none"
# The fields of a Config for which transformers has no entry.
_SWITCHES = (
    *("eps", "sinusoid_base", "max_length", "label_smoothing", "suppressed_ids"),
    *("dropout", "attention_dropout", "feed_forward_dropout"),
)
_REFUSED = {  # entry: (the value that minitf needs, what another one means)
    "scale_embedding": (True, "its embeddings are not multiplied by the root of d_model"),
    "static_position_embeddings": (True, "its positions are learned"),
    "normalize_before": (False, "its norms come before the sub-layers (pre-norm)"),
    "normalize_embedding": (False, "its embeddings are normalised"),
    "add_final_layer_norm": (False, "it has a last norm, as pre-norm models have"),
    "share_encoder_decoder_embeddings": (True, "its source and target have separate vocabularies"),
    "tie_word_embeddings": (True, "its output has a matrix of its own"),
}
_KINDS = {int: "an integer", bool: "true or false", str: "a text", dict: "an object"}
_DEFAULTS = {"scale_embedding": False}  # of transformers, where they are not what minitf needs
_CARD = """\
# {}

A translation model of minitf, for transformers.MarianMTModel.

{}
"""
THEIR_EPS = 1e-5  # in transformers' layer norm; no setting changes it
MAX_LENGTH = 1024  # positions for which transformers computes sinusoids


# In -----------------------------------------------------------------------------------------------


def read_hugging_face(folder: Path, like: str = "marian") -> formats.PublicModel:
    """Return the model of a folder with config.json, weights, vocab.json, source.spm, target.spm.

    like: "marian" computes as the program that trained the public models, "transformers" as the
    library does. Raises UserError for a missing or damaged file, and for another architecture.
    """
    settings = formats.read_json(folder / CONFIG)
    with in_file(folder / CONFIG):
        config = _minitf_config(settings, like)
        if OURS in settings:
            with user_errors(f"entry {OURS!r}"):
                ours = Config.from_dict(_entry(settings, OURS, dict))
                config = config.replace(**{name: getattr(ours, name) for name in _SWITCHES})
        pad, start = (_entry(settings, f"{x}_token_id", int) for x in ("pad", "decoder_start"))
        eos = settings.get("eos_token_id")
        if isinstance(eos, list):  # several may end a text; padding and the start are not written
            settings["eos_token_id"] = [i for i in eos if i not in (pad, start)]
        eos = _entry(settings, "eos_token_id", int)
        exported = _entry(settings, OUR_NOTES, dict, {})
        check_notes(exported)
        how = _entry(exported, NORMALISE, str, "")
    weights = [folder / name for name in (WEIGHTS, TORCH_WEIGHTS) if (folder / name).exists()]
    if not weights:
        raise UserError(f"{folder} has neither {WEIGHTS} nor {TORCH_WEIGHTS}: add one of them")
    path, size = weights[0], config.vocabulary_size
    formats.refuse_lfs_pointers(path, *(folder / name for name in (VOCABULARY, *MODELS)))
    pieces = formats.order_by_id(formats.read_json(folder / VOCABULARY), size, folder / VOCABULARY)
    unk = pieces.index("<unk>")
    special = {pad, unk, start, eos}
    if not special <= set(range(len(pieces))) or len({pad, unk, eos}) < 3 or start in (unk, eos):
        raise UserError(f"{folder / CONFIG}: a special id is wrong: copy the model again")
    rows = formats.file_rows(len(pieces), pad, unk, start, eos)
    subwords = _subwords(folder, [pieces[i] for i in rows[len(SPECIALS) :]], how)
    config = config.replace(vocabulary_size=len(rows))
    arrays = read_torch(path) if path.name == TORCH_WEIGHTS else load_arrays(path, checked=False)[0]
    with in_file(path):
        notices = _drop_stray_output(arrays)
        arrays = _minitf_arrays(arrays, config, size)
    if isinstance(subwords, PairedSubwords) and not subwords.opus and not how:
        notices.append(
            "punctuation is not normalised, as neither name nor card says that this is a model of "
            "OPUS-MT: if it is one, put its README.md into the folder, and convert it again"
        )
    notes = formats.licence_of_card(folder) | exported_notes(exported)
    return formats.PublicModel(config, arrays, rows, subwords, notes, tuple(notices))


def _minitf_config(settings, like):
    """Return minitf's Config. Raises UserError for another architecture."""
    kind = settings.get("model_type")
    if kind != "marian":
        raise UserError(
            f"a model of type {str(kind)[:40]!r}: minitf reads MarianMT models only (type 'marian')"
        )
    for name, (needed, meaning) in _REFUSED.items():
        if _entry(settings, name, bool, _DEFAULTS.get(name, needed)) != needed:
            raise UserError(f"{meaning} ({name}): minitf cannot run this architecture")
    for name in ("ffn_dim", "attention_heads"):
        if _entry(settings, f"encoder_{name}", int) != _entry(settings, f"decoder_{name}", int):
            raise UserError(f"its encoder and decoder differ in {name}: minitf cannot run it")
    return formats.config_of(
        like,
        _entry(settings, "activation_function", str),
        vocabulary_size=_entry(settings, "vocab_size", int),
        n_layers=_entry(settings, "encoder_layers", int),
        n_decoder_layers=_entry(settings, "decoder_layers", int),
        d_model=_entry(settings, "d_model", int),
        d_ff=_entry(settings, "encoder_ffn_dim", int),
        n_heads=_entry(settings, "encoder_attention_heads", int),
    )


def _entry(settings, name, kind, default=None):
    """Return an entry of config.json. Raises UserError if it is of another kind, see _KINDS."""
    value = settings.get(name, default)
    if kind is int and isinstance(value, list) and len(value) == 1:
        (value,) = value  # as transformers allows for the end mark
    if type(value) is not kind:
        raise UserError(f"entry {name!r} is not {_KINDS[kind]}: copy the model again")
    return value


def _subwords(folder, pieces, how):
    """Return the vocabulary; one that minitf exported becomes one file again."""
    models = formats.sentencepiece_models(folder)
    if models[0] == models[1]:
        with contextlib.suppress(UserError):
            one = Subwords(models[0])
            if one.names[len(SPECIALS) :] == pieces:
                return one
    with in_file(folder / VOCABULARY):
        return PairedSubwords(*models, pieces, how == "opus" if how else formats.is_opus(folder))


def _drop_stray_output(arrays):
    """Drop an output matrix that differs from the table; return a notice of it in a list.

    Models whose output is not the table are refused. So such a matrix is a leftover of their
    conversion, as in the first tc-big models: transformers up to 4.29 replaced it by the table,
    later versions the table by it (its issues 26216 and 45005).
    """
    *tables, output = TABLES
    table = next((arrays[name] for name in tables if name in arrays), None)
    if table is None or output not in arrays or np.array_equal(arrays[output], table):
        return []
    del arrays[output]
    return [f"{output} is left out: it differs from the table, which such models have as output"]


def _minitf_arrays(arrays, config, size):
    """Return {minitf's name: array}. Raises UserError for arrays of another architecture."""
    present = [name for name in TABLES if name in arrays]
    table, *others = (
        pop_checked(arrays, name, (size, config.d_model)) for name in present or TABLES[:1]
    )
    for name, other in zip(present[1:], others, strict=True):
        if not np.array_equal(other, table):
            raise UserError(f"{present[0]} and {name} differ: minitf reads models with one table")
    for side in ("encoder", "decoder"):  # an older file has the positions, too
        name = f"model.{side}.embed_positions.weight"
        if name in arrays:
            stored = arrays.pop(name)
            expected = sinusoid(len(stored), config.d_model, "halves")
            if stored.shape != expected.shape or not np.allclose(stored, expected, atol=2e-3):
                raise UserError(
                    f"{name} is not the sinusoid: minitf cannot import learned positions"
                )
    return arrays_of_model(arrays, config, table, "final_logits_bias", "hugging_face")


# Out ----------------------------------------------------------------------------------------------


def export_model(folder: str | Path, out: str | Path, say: Callable[[str], object] = print) -> None:
    """Write a model of minitf as a folder for transformers, in float32.

    Raises UserError for a model that MarianMTModel cannot represent, and if `out` is not empty.
    """
    folder, out = Path(folder), Path(out)
    check_empty(out)
    model, subwords, notes = load_model(folder)
    config = model.config
    with in_file(folder):
        _check_exportable(config, subwords)
    known = exported_notes(notes)
    how = {}
    if isinstance(subwords, PairedSubwords):
        how = {NORMALISE: "opus" if subwords.opus else "none"}
    contents = {
        CONFIG: _their_config(config) | {OUR_NOTES: known | how},
        "generation_config.json": _generation(config),
        VOCABULARY: {piece: i for i, piece in enumerate(subwords.names)},
        "tokenizer_config.json": _tokenizer(notes),
    }
    differences = _differences(config, subwords)
    lines = [f"- {name.replace('_', ' ')}: {value}" for name, value in known.items()]
    lines += [f"- notice: {line}" for line in differences]
    arrays, models = _their_arrays(config, model.state()), subwords.contents()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        save_bytes(out / name, models.get(name, models.get(subwords.file_name)))
    for name, content in contents.items():
        save_text(out / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    save_text(out / "README.md", _CARD.format(out.resolve().name, "\n".join(lines)))
    save_bytes(out / WEIGHTS, *file_content(arrays, form="pt"))
    say(f"made     {out}: transformers.MarianMTModel.from_pretrained({str(out)!r}) loads it")
    if "licence" not in known:
        differences.append(
            "its config.json names no licence: add the training text's before publishing"
        )
    for line in differences:
        say(f"notice   {line}")


def _check_exportable(config, subwords):
    """Raise UserError for what MarianMTModel has no setting for."""
    refused = {
        "its norms come before the sub-layers (norm pre)": config.norm != "post",
        "its positions are learned": config.positions != "sinusoid",
        "its exponents of the sinusoid are tensor2tensor's (sinusoid_base t2t); import a public "
        "model with --like transformers if it is to be exported again": (
            config.sinusoid_base != "paper"
        ),
        "d_k or d_v is not d_model / n_heads": not (
            config.d_k == config.d_v and config.d_k * config.n_heads == config.d_model
        ),
        "its embeddings and its output are not one matrix (tie)": not config.tie,
        "its decoder has an SSRU in place of self-attention": config.decoder != "self-attention",
        "its vocabulary is a list of words": isinstance(subwords, Words),
    }
    for reason, applies in refused.items():
        if applies:
            raise UserError(f"{reason}: MarianMTModel cannot represent this model")


def _their_arrays(config, state):
    """Return {Hugging Face's name: array}, with zeros for biases that the model does not have."""
    if config.sinusoid_layout == "interleaved":
        state = to_halves(config, state)
    size = config.vocabulary_size
    bias = state.get("output_bias", np.zeros(size, np.float32))
    arrays = {TABLES[0]: state["embedding.weight"], "final_logits_bias": bias.reshape(1, size)}
    for names in names_of_layers(config):
        array = state.get(names.minitf)
        if array is None:
            array = np.zeros(names.shape, np.float32)
        arrays[names.hugging_face] = array.T if array.ndim == 2 else array
    return arrays


def _their_config(config):
    """Return config.json: the settings of MarianMTModel, and minitf's own for the way back."""
    sides = {}
    for side, layers in (("encoder", config.n_layers), ("decoder", config.n_decoder_layers)):
        sides |= {
            f"{side}_layers": layers,
            f"{side}_attention_heads": config.n_heads,
            f"{side}_ffn_dim": config.d_ff,
        }
    needed = {name: value for name, (value, _) in _REFUSED.items()}
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary_size,
        "decoder_vocab_size": config.vocabulary_size,
        "d_model": config.d_model,
        **sides,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward_dropout,
        "max_position_embeddings": MAX_LENGTH,
        **needed,
        **_ids(config),
        OURS: config.to_dict(),
    }


def _ids(config):
    return {
        "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id,
        "bos_token_id": config.bos_id,
        "decoder_start_token_id": config.bos_id,
        "forced_eos_token_id": config.eos_id,
    }


def _generation(config):
    """Return generation_config.json: beam search, without the ids that are never written."""
    never = {"bad_words_ids": [[i] for i in config.suppressed_ids]} if config.suppressed_ids else {}
    return _ids(config) | {"num_beams": 4, "max_length": 512, "renormalize_logits": True} | never


def _tokenizer(notes):
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": str(notes.get("source_language", "")),
        "target_lang": str(notes.get("target_language", "")),
        "separate_vocabs": False,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": 512,
    }


def _differences(config, subwords):
    """Return a line for each way in which transformers will compute otherwise than minitf."""
    lines = []
    if config.eps != THEIR_EPS:
        lines.append(
            f"transformers adds {THEIR_EPS:g} to the variance in layer norm, this model "
            f"{config.eps:g}: as loaded, the logits differ slightly; set `eps` of its norms for "
            "the same"
        )
    if isinstance(subwords, PairedSubwords) and subwords.opus:
        lines.append("transformers does not normalise punctuation as OPUS does before subwords")
    return lines
