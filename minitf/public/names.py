"""One model's arrays in minitf, at Hugging Face and in Marian: their names, and two orders.

The features of d_model can be renumbered without any change of what a model computes, as long as
every array that has them is renumbered alike. So a model with the paper's interleaved sinusoid is,
renumbered, a model with all sines first, as public models have them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from minitf.config import Config
from minitf.errors import UserError

# Hugging Face's names of the embedding: a file contains one or more of them, all with equal values.
TABLES = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_ATTENTIONS = {  # minitf's attention and residual, Hugging Face's attention, Marian's
    "encoder": [("self_attention", "attention_residual", "self_attn", "self")],
    "decoder": [
        ("self_attention", "self_residual", "self_attn", "self"),
        ("source_attention", "source_residual", "encoder_attn", "context"),
    ],
}
_PROJECTIONS = (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))


class Names(NamedTuple):
    """One array under its three names, and its shape in minitf.

    A matrix is transposed at Hugging Face; a vector is a matrix of one row in Marian.
    """

    minitf: str
    hugging_face: str
    marian: str
    shape: tuple[int, ...]


def names_of_layers(config: Config) -> Iterator[Names]:
    """Yield the names of all arrays but the embedding and the output bias."""
    for side, n in (("encoder", config.n_layers), ("decoder", config.n_decoder_layers)):
        for i in range(n):
            places = f"{side}.layers.{i}.", f"model.{side}.layers.{i}.", f"{side}_l{i + 1}_"
            for names in _names_of_a_layer(side, config):
                yield Names(*(a + b for a, b in zip(places, names[:3], strict=True)), names[3])


def _names_of_a_layer(side, config):
    d_model, d_ff, attentions = config.d_model, config.d_ff, _ATTENTIONS[side]
    if side == "decoder" and config.decoder == "ssru":  # at Hugging Face no model has one
        ours, residual = attentions[0][:2]
        yield f"{ours}.value.weight", "", "rnn_W", (d_model, d_model)
        yield f"{ours}.forget.weight", "", "rnn_Wf", (d_model, d_model)
        yield f"{ours}.forget.bias", "", "rnn_bf", (d_model,)
        yield from _norm_names(residual, "", "rnn_ffn", d_model)
        attentions = attentions[1:]
    for ours, residual, theirs, marian in attentions:
        for name, letter in _PROJECTIONS:
            projection = f"{theirs}.{'out' if letter == 'o' else letter}_proj"
            shape = d_model, d_model
            yield f"{ours}.{name}.weight", f"{projection}.weight", f"{marian}_W{letter}", shape
            yield f"{ours}.{name}.bias", f"{projection}.bias", f"{marian}_b{letter}", (d_model,)
        yield from _norm_names(residual, f"{theirs}_layer_norm", f"{marian}_Wo", d_model)
    yield "feed_forward.inner.weight", "fc1.weight", "ffn_W1", (d_model, d_ff)
    yield "feed_forward.inner.bias", "fc1.bias", "ffn_b1", (d_ff,)
    yield "feed_forward.outer.weight", "fc2.weight", "ffn_W2", (d_ff, d_model)
    yield "feed_forward.outer.bias", "fc2.bias", "ffn_b2", (d_model,)
    yield from _norm_names("feed_forward_residual", "final_layer_norm", "ffn_ffn", d_model)


def _norm_names(ours, theirs, marian, d_model):
    yield f"{ours}.norm.gain", f"{theirs}.weight", f"{marian}_ln_scale", (d_model,)
    yield f"{ours}.norm.bias", f"{theirs}.bias", f"{marian}_ln_bias", (d_model,)


def arrays_of_model(arrays, config, table, bias, maker):
    """Return {minitf's name: array}, taken out of `arrays`, in which nothing may be left.

    table: the embedding. bias: the name of the bias of the output. maker: whose names the arrays of
    the layers have, "hugging_face" or "marian". Raises UserError for an array that is missing,
    unknown or of another shape.
    """
    output_bias = pop_checked(arrays, bias, (1, len(table)))[0]
    renamed = {"embedding.weight": table, "output_bias": output_bias}
    for names in names_of_layers(config):
        if maker == "hugging_face":
            renamed[names.minitf] = pop_checked(arrays, names.hugging_face, names.shape[::-1]).T
        else:
            shape = names.shape if len(names.shape) == 2 else (1, *names.shape)
            renamed[names.minitf] = pop_checked(arrays, names.marian, shape).reshape(names.shape)
    if arrays:
        raise UserError(f"unknown array {min(arrays)!r}: minitf cannot run this architecture")
    return renamed


def pop_checked(arrays, name, shape):
    """Remove an array and return it. Raises UserError if it is missing or of another shape."""
    if name not in arrays:
        raise UserError(f"its weights lack {name!r}: another architecture, or a damaged file")
    array = arrays.pop(name)
    if array.shape != tuple(shape):
        raise UserError(
            f"array {name!r} has shape {array.shape}, its configuration needs {tuple(shape)}: copy "
            "both files from the same model"
        )
    if array.dtype.kind != "f":
        raise UserError(f"array {name!r} is of type {array.dtype}, not of floating-point numbers")
    return array


# The order of the sinusoid's features -------------------------------------------------------------


def to_halves(config: Config, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of an interleaved model, by minitf's names, for the layout in halves."""
    order = [*range(0, config.d_model, 2), *range(1, config.d_model, 2)]
    axes = {"embedding.weight": 1}
    for names in names_of_layers(config):
        *_, layer, kind = names.minitf.split(".")
        if layer not in ("query", "key", "value", "inner"):
            axes[names.minitf] = len(names.shape) - 1
        elif kind == "weight":
            axes[names.minitf] = 0  # from the features to those of the heads
    return {
        name: np.take(array, order, axis=axes[name]) if name in axes else array
        for name, array in arrays.items()
    }
