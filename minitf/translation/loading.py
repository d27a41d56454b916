"""From a model's folder to a Transformer with its weights; changed code is refused."""

from collections.abc import Callable
from pathlib import Path

from minitf.config import Config
from minitf.errors import UserError, in_file
from minitf.files.models import CONFIG, check_notes, read_model
from minitf.text import Vocabulary
from minitf.transformer import Transformer
from minitf.translation.probe import check_probe

__all__ = ["check_size", "check_subwords", "load_model"]


def load_model(
    directory: str | Path, model: Callable[..., Transformer] = Transformer
) -> tuple[Transformer, Vocabulary, dict]:
    """Return the model of a folder that `save_model` wrote, its subwords, and the notes.

    model: called as model(config, initialise=False); a model whose code was changed is made by
    its own function.
    Raises UserError as `read_model` does, for weights of another model, if the model computes other
    numbers than the one that was saved, and for impossible notes.
    """
    arrays, fields, subwords, notes = read_model(directory)
    with in_file(directory):
        config = Config.from_dict(fields)
        try:
            if model is Transformer:
                check_size(config, arrays)
            made = model(config, initialise=False).load_state(arrays)
        except (TypeError, ValueError) as error:
            if model is not Transformer:  # a mistake in the given code is shown with its traceback
                raise
            raise UserError(f"its {CONFIG} is damaged ({error}): copy the model again") from None
        check_subwords(config, len(subwords))
        check_probe(made, notes.pop("probe", None))
        check_notes(notes)
    return made, subwords, notes


def check_size(config: Config, arrays: dict) -> None:
    """Raise UserError if a model of this configuration would be far larger than these arrays.

    Call it before building a model from a file: then a damaged number does not fill the memory. The
    number of parameters may differ a little, because a layer may have been changed in the code.
    """
    size = sum(array.size for array in arrays.values())
    layers = max(config.n_layers, config.n_decoder_layers)
    if config.count_parameters() > 2 * size or layers > len(arrays):
        raise UserError(
            f"{size:,} numbers in {len(arrays)} arrays are too few for a model of "
            f"{layers} layers and {config.count_parameters():,} parameters: copy the folder again"
        )


def check_subwords(config: Config, count: int) -> None:
    """Raise UserError unless the model has as many ids as there are subwords."""
    if count != config.vocabulary_size:
        raise UserError(
            f"{count:,} subwords, but the model knows {config.vocabulary_size:,}: "
            "copy both files from the same model"
        )
