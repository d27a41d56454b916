"""From a folder of minitf to a folder that Hugging Face's MarianMTModel loads."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from minitf.atomic import install, save_text, staged, writing
from minitf.errors import UserError, in_file
from minitf.files.arrays import write_arrays
from minitf.files.models import exported_notes
from minitf.public.hugging_face import (
    CONFIG,
    NORMALISE,
    OUR_NOTES,
    OURS,
    VOCABULARY,
    WEIGHTS,
)
from minitf.public.importing import must_be_free
from minitf.public.layout import to_halves
from minitf.public.names import TABLES, names_of_layers
from minitf.text import PairedSubwords, Words
from minitf.text.vocabulary import SPECIALS
from minitf.translation.loading import load_model

__all__ = ["export_model"]

THEIR_EPS = 1e-5  # in transformers' layer norm; no setting changes it
MAX_LENGTH = 1024  # positions for which transformers computes sinusoids


def export_model(folder: str | Path, out: str | Path, say: Callable[[str], object] = print) -> None:
    """Write a model of minitf as a folder for transformers, in float32.

    Raises UserError for a model that MarianMTModel cannot represent, and if `out` is not empty.
    """
    folder, out = Path(folder), Path(out)
    must_be_free(out)
    model, subwords, notes = load_model(folder)
    with in_file(folder):
        _check(model.config, subwords)
        pieces = [*SPECIALS, *subwords.listed()]
        if len(set(pieces)) < len(pieces):
            raise UserError("its subwords repeat, so they cannot be a vocab.json")
    arrays = _their_arrays(model.config, model.state())
    known = exported_notes(notes)
    differences = _differences(model.config, subwords)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    files = {
        CONFIG: _config(model.config) | {OUR_NOTES: known | _normalisation(subwords)},
        "generation_config.json": _generation(model.config),
        VOCABULARY: {piece: i for i, piece in enumerate(pieces)},
        "tokenizer_config.json": _tokenizer(notes),
    }
    for name, content in files.items():
        save_text(out / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    save_text(out / "README.md", _card(out.resolve().name, known, differences))
    contents = subwords.contents()
    one = contents.get(subwords.file_name)
    writers = {
        out / name: lambda temporary, name=name: temporary.write_bytes(contents.get(name, one))
        for name in (PairedSubwords.source_name, PairedSubwords.target_name)
    }
    writers[out / WEIGHTS] = lambda temporary: write_arrays(temporary, arrays, form="pt")
    with staged(writers) as written:
        for path in written:
            install(written, path)
    say(f"made     {out}: transformers.MarianMTModel.from_pretrained({str(out)!r}) loads it")
    for line in differences:
        say(f"notice   {line}")
    if "licence" not in known:
        say(
            "notice   its config.json names no licence: add that of the training text before "
            "publishing"
        )


def _check(config, subwords):
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


def _ids(config):
    return {
        "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id,
        "bos_token_id": config.bos_id,
        "decoder_start_token_id": config.bos_id,
        "forced_eos_token_id": config.eos_id,
    }


def _config(config):
    """Return config.json: the settings of MarianMTModel, and minitf's own for the way back."""
    sides = {}
    for side, layers in (("encoder", config.n_layers), ("decoder", config.n_decoder_layers)):
        sides |= {
            f"{side}_layers": layers,
            f"{side}_attention_heads": config.n_heads,
            f"{side}_ffn_dim": config.d_ff,
        }
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
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        **_ids(config),
        OURS: config.to_dict(),
    }


def _normalisation(subwords):
    """Return the note about how lines are normalised, {} for subwords that are never."""
    if not isinstance(subwords, PairedSubwords):
        return {}
    return {NORMALISE: "opus" if subwords.opus else "none"}


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


def _card(title, notes, differences):
    """Return README.md."""
    lines = [f"- {name.replace('_', ' ')}: {value}" for name, value in notes.items()]
    lines += [f"- notice: {line}" for line in differences]
    about = "A translation model of minitf, for transformers.MarianMTModel."
    return "\n".join([f"# {title}", "", about, "", *lines, ""])
