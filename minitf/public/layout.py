"""The order of the sinusoid's features: sines and cosines interleaved, or in halves.

The features of d_model can be renumbered without any change of what a model computes, as long as
every array that has them is renumbered alike. So a model with the paper's interleaved sinusoid is,
renumbered, a model with all sines first.
"""

import numpy as np

from minitf.config import Config
from minitf.errors import UserError
from minitf.files.arrays import user_errors
from minitf.public.names import names_of_layers

__all__ = ["from_halves", "to_halves"]


def to_halves(config: Config, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of an interleaved model, by minitf's names, for the layout in halves."""
    d = config.d_model
    return _renumbered(config, arrays, [*range(0, d, 2), *range(1, d, 2)])


def from_halves(
    fields: dict, config: Config, arrays: dict[str, np.ndarray]
) -> tuple[Config, dict[str, np.ndarray]]:
    """Return the Config and the arrays of a model as they were before its export.

    fields: of that Config; config: of the exported model. Raises UserError if they do not fit.
    """
    with user_errors("entry 'minitf'"):
        before = Config.from_dict(fields)
        switches = {
            name: getattr(before, name)
            for name in (
                "eps",
                "sinusoid_layout",
                "sinusoid_base",
                "dropout",
                "attention_dropout",
                "feed_forward_dropout",
                "label_smoothing",
                "attention_bias",
                "output_bias",
                "suppressed_ids",
                "max_length",
            )
        }
        if config.replace(**switches) != before:
            raise ValueError("it does not fit the other entries")
    if not before.attention_bias:
        arrays = _without_zeros(arrays, lambda name: "attention." in name and "bias" in name)
    if not before.output_bias:
        arrays = _without_zeros(arrays, lambda name: name == "output_bias")
    if before.sinusoid_layout == "interleaved":
        d = before.d_model
        order = np.arange(d).reshape(2, d // 2).T.reshape(-1)  # 0, d/2, 1, d/2 + 1, ...
        arrays = _renumbered(before, arrays, order)
    return before, arrays


def _without_zeros(arrays, leave_out):
    """Return the arrays but those that an export added. Raises UserError if one is not zero."""
    for name, array in arrays.items():
        if leave_out(name) and array.any():
            raise UserError(f"{name} is not zero, but the model has no such bias: export it again")
    return {name: array for name, array in arrays.items() if not leave_out(name)}


def _renumbered(config, arrays, order):
    """Return the arrays with the features of d_model in another order, wherever they are."""
    axes = _axes_of_features(config)
    return {
        name: np.take(array, order, axis=axes[name]) if name in axes else array
        for name, array in arrays.items()
    }


def _axes_of_features(config):
    """Return {name: the axis of the features between the layers}."""
    axes = {"embedding.weight": 1}
    for names in names_of_layers(config):
        *_, layer, kind = names.minitf.split(".")
        if layer in ("query", "key", "value", "inner"):
            if kind == "weight":
                axes[names.minitf] = 0  # from the features to those of the heads
        else:
            axes[names.minitf] = len(names.shape) - 1
    return axes
