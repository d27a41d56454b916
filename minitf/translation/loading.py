"""From a model's folder to a Transformer with its weights;
one whose code was changed is refused.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from minitf.config import Config
from minitf.errors import UserError, in_file
from minitf.files.models import CONFIG, read_model
from minitf.text import Subwords, Words
from minitf.transformer import Transformer
from minitf.translation.probe import check_probe

__all__ = ["load_model", "load_weights"]


def load_model(
    directory: str | Path, model: Callable[..., Transformer] = Transformer
) -> tuple[Transformer, Subwords | Words, dict]:
    """Return the model of a folder that `save_model` wrote, its subwords, and the notes.

    model: called as model(config, initialise=False); a model whose code was changed is made by
    its own function.
    Raises UserError as `read_model` does, where the weights are those of another model, and where
    the model computes something else than the one that was saved.
    """
    arrays, fields, subwords, notes = read_model(directory)
    with in_file(directory):
        config = Config.from_dict(fields)
        try:
            if model is Transformer:
                config.check_size(arrays)
            made = load_weights(model(config, initialise=False), arrays)
        except (TypeError, ValueError, MemoryError) as error:
            # A mistake in the code that was given is shown with its traceback.
            if model is not Transformer:
                raise
            raise UserError(f"its {CONFIG} is damaged ({error}): copy the model again") from None
        config.check_subwords(len(subwords))
        check_probe(made, notes.pop("probe", None))
    return made, subwords, notes


def load_weights(model: Transformer, arrays: dict[str, np.ndarray]) -> Transformer:
    """Return the model with the weights of a file.

    Raises UserError; if settings differ, it names them.
    """
    try:
        return model.load_state(arrays)
    except UserError:
        model.config.check_arrays(arrays)
        raise
