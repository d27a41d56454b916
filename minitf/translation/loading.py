"""From a model's folder to a Transformer with its weights; changed code is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from minitf.config import Config
from minitf.errors import UserError, in_file
from minitf.files.models import CONFIG, read_model
from minitf.text import Vocabulary
from minitf.transformer import Transformer
from minitf.translation.probe import check_probe

__all__ = ["check_size", "check_subwords", "load_model", "load_weights"]

_AGAIN = (
    "copy the whole folder again, or, for a model made in Python, use the settings "
    "and the code that it was made with"
)


def load_model(
    directory: str | Path, model: Callable[..., Transformer] = Transformer
) -> tuple[Transformer, Vocabulary, dict]:
    """Return the model of a folder that `save_model` wrote, its subwords, and the notes.

    model: called as model(config, initialise=False); a model whose code was changed is made by
    its own function.
    Raises UserError as `read_model` does, for weights of another model, and if the model computes
    other numbers than the one that was saved.
    """
    arrays, fields, subwords, notes = read_model(directory)
    with in_file(directory):
        config = Config.from_dict(fields)
        try:
            if model is Transformer:
                check_size(config, arrays)
            made = load_weights(model(config, initialise=False), arrays)
        except (TypeError, ValueError) as error:
            if model is not Transformer:  # a mistake in the given code is shown with its traceback
                raise
            raise UserError(f"its {CONFIG} is damaged ({error}): copy the model again") from None
        check_subwords(config, len(subwords))
        check_probe(made, notes.pop("probe", None))
    return made, subwords, notes


def load_weights(
    model: Transformer, arrays: dict[str, np.ndarray], advice: str = _AGAIN
) -> Transformer:
    """Return the model with the weights of a file.

    Raises UserError, which names the settings that differ, and ends in the advice.
    """
    try:
        return model.load_state(arrays)
    except UserError:
        _check_settings(model.config, arrays, advice)
        raise


def check_size(config: Config, arrays: dict) -> None:
    """Raise UserError if a model of this configuration would be far larger than these arrays.

    Call it before building a model from a file: then a damaged number does not fill the memory. The
    number of parameters may differ a little, because a layer may have been changed in the code.
    """
    size = sum(array.size for array in arrays.values())
    layers = max(config.n_layers, config.n_decoder_layers)
    if config.count_parameters() > 2 * size or layers > len(arrays):
        _check_settings(config, arrays)
        raise UserError(
            f"{size:,} numbers in {len(arrays)} arrays are too few for a model of "
            f"{layers} layers and {config.count_parameters():,} parameters: {_AGAIN}"
        )


def check_subwords(config: Config, count: int) -> None:
    """Raise UserError unless the model has as many ids as there are subwords."""
    if count != config.vocabulary_size:
        raise UserError(
            f"{count:,} subwords, but the model knows {config.vocabulary_size:,}: "
            "copy both files from the same model"
        )


def _check_settings(config, arrays, advice=_AGAIN):
    """Raise UserError if arrays, by name, were made with other settings, and name these."""

    def length(name, axis):
        return arrays[name].shape[axis] if name in arrays and arrays[name].ndim == 2 else None

    def layers(stack):
        numbers = [name.removeprefix(f"{stack}.layers.").split(".")[0] for name in arrays]
        return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)

    layer, c = "encoder.layers.0.", config
    settings = {  # setting: in the file (None if unknown), in the configuration
        "n_layers": (layers("encoder"), c.n_layers),
        "n_decoder_layers": (layers("decoder") or None, c.n_decoder_layers),
        "attention_bias": (layer + "self_attention.query.bias" in arrays, c.attention_bias),
        "output_bias": ("output_bias" in arrays, c.output_bias),
        "tie": ("target_embedding.weight" not in arrays, c.tie),
        "norm": ("pre" if "encoder.norm.gain" in arrays else "post", c.norm),
        "positions": (
            "learned" if "source_positions.learned.weight" in arrays else "sinusoid",
            c.positions,
        ),
        "vocabulary_size": (length("embedding.weight", 0), c.vocabulary_size),
        "d_model": (length("embedding.weight", 1), c.d_model),
        "d_ff": (length(layer + "feed_forward.inner.weight", 1), c.d_ff),
        "n_heads * d_k": (length(layer + "self_attention.query.weight", 1), c.n_heads * c.d_k),
        "n_heads * d_v": (length(layer + "self_attention.value.weight", 1), c.n_heads * c.d_v),
        "max_length": (length("source_positions.learned.weight", 0), c.max_length),
    }
    if layers("decoder") == layers("encoder") and c.n_decoder_layers == c.n_layers:
        del settings["n_decoder_layers"]  # it follows n_layers: named once
    differing = [
        f"{name} is {found}, not {here}"
        for name, (found, here) in settings.items()
        if found not in (None, here)
    ]
    if differing:
        raise UserError(
            f"the weights were made with another configuration ({'; '.join(differing)}): {advice}"
        )
