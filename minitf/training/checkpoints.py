"""The folder of a training run: a checkpoint to resume from, the last weights to average, and the
model they make.

Killed at any moment, the folder holds a complete model, a complete checkpoint, and the weights that
the checkpoint names: new files are written first, then the checkpoint, and files that are no longer
needed are deleted last.
"""

import functools
import re
import reprlib
from pathlib import Path

import numpy as np

from minitf.errors import UserError
from minitf.files.arrays import average, load_arrays, save_arrays
from minitf.files.atomic import sha256
from minitf.files.models import CARD, save_model
from minitf.text import load_subwords
from minitf.translation.probe import probe

__all__ = ["RunFolder"]

CHECKPOINT = "checkpoint.npz"
# The values in a checkpoint besides its arrays, and those that earlier versions did not write.
META = {
    "settings": dict,
    "config": dict,
    "step": int,
    "epoch": int,
    "position": int,
    "weights": list,
}
META |= {"best": (int, float), "bad_validations": int}
LATER = {
    "validated": int,
    "best_perplexity": (int, float),
    "seconds": (int, float),
    "machine": dict,
}
LATER |= {"data": str, "subwords": str, "probe": (list, type(None))}
WEIGHTS = re.compile(r"weights-\d{8,}\.npz")


class RunFolder:
    """A folder for one run. say: takes a line to print."""

    def __init__(self, path, say=print):
        self.path, self.say = Path(path), say
        self.checkpoint = self.path / CHECKPOINT

    def must_be_free(self):
        """Raise UserError if the folder holds a run or a model already, or is a file."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: choose another --out")
        for name, what in ((CHECKPOINT, "a run"), (CARD, "a model")):
            if (self.path / name).exists():
                raise UserError(
                    f"{self.path} holds {what} already: go on with --resume, "
                    "or choose another --out"
                )

    def has_checkpoint(self):
        """Return whether there is a checkpoint to resume from."""
        return self.checkpoint.exists()

    def has_model(self):
        """Return whether there is a model to translate with."""
        return (self.path / CARD).exists()

    def add_weights(self, names, step, arrays, count):
        """Write the weights of a step; returns the last `count` of the names and this one."""
        name = f"weights-{step:08d}.npz"
        save_arrays(self.path / name, arrays, {"step": step})
        return [*(old for old in names if old != name), name][-count:]

    def average(self, names, step, arrays):
        """Return the names of the weights that took part, the last of them from this step, and
        their average.

        If one of the files is gone or damaged the average starts again with the weights of this
        step: a training is not lost for that.
        """
        try:
            return names, average([self.path / each for each in names])
        except UserError as error:
            self.say(f"average  starts again with step {step}: {error}")
            return names[-1:], arrays

    def forget_weights(self, names):
        """Delete the weights that are not among the names: those of older steps, and what a
        killed run left.
        """
        for path in self.path.iterdir():
            if WEIGHTS.fullmatch(path.name) and path.name not in names:
                path.unlink(missing_ok=True)

    def save_model(self, model, arrays, subwords, notes):
        """Write the model for translate.py --model, with these weights in place of its own."""
        config = model.config.to_dict()
        save_model(
            self.path, arrays, config, subwords, notes=notes, probe=functools.partial(probe, model)
        )

    def save_subwords(self, subwords):
        """Write the subwords, without which a checkpoint is of no use, for a run that
        has no model yet.
        """
        try:
            subwords.save(self.path / subwords.file_name)
        except OSError as error:
            raise UserError(
                f"{self.path}: could not be written ({error.strerror}): free some space"
            ) from None

    def save_checkpoint(self, model, optimizer, meta, subwords):
        """Write the state of the run: arrays by name, and plain values.

        The subwords are there already.

        Raises UserError for an array that is not finite: a good checkpoint is not
        replaced by a bad one.
        """
        arrays = {f"model.{name}": array for name, array in model.items()} | optimizer
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise UserError(
                    f"{name} is not finite after step {meta['step']}: the checkpoint "
                    "before it is kept"
                )
        meta = meta | {"subwords": sha256(self.path / subwords.file_name)}
        save_arrays(self.checkpoint, arrays, meta)

    def read_checkpoint(self):
        """Return (model, optimizer, meta, subwords).

        Raises UserError for a missing, damaged or changed file.
        """
        path = self.checkpoint
        if not path.exists():
            raise UserError(
                f"{self.path} holds no checkpoint to resume from: leave --resume out, or set --out"
            )
        arrays, meta = load_arrays(path)
        _check_meta(path, meta)
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise UserError(
                    f"{path}: array {name!r} contains NaN or infinity: begin a new run "
                    "in another --out"
                )
        subwords = load_subwords(self.path)
        if meta.get("subwords") not in (None, sha256(self.path / subwords.file_name)):
            raise UserError(
                f"{self.path / subwords.file_name}: changed since the checkpoint: "
                "copy the run again"
            )
        found = [
            name
            for name in meta["weights"]
            if WEIGHTS.fullmatch(name) and (self.path / name).exists()
        ]
        if len(found) < len(meta["weights"]):
            self.say(
                f"average  {len(meta['weights']) - len(found)} of its weights-*.npz are gone; "
                "the rest is used"
            )
        model = {name[6:]: array for name, array in arrays.items() if name.startswith("model.")}
        optimizer = {name: array for name, array in arrays.items() if not name.startswith("model.")}
        return model, optimizer, meta | {"weights": found}, subwords


def _check_meta(path, meta):
    """Refuse values that no checkpoint can have, before anything is made of them."""
    for key, kind in (META | LATER).items():
        if key in meta:
            value = meta[key]
            odd = kind is int and isinstance(value, int) and value < 0
            odd |= (
                kind is list
                and isinstance(value, list)
                and not all(isinstance(name, str) for name in value)
            )
            if odd or not isinstance(value, kind):
                raise UserError(
                    f"{path}: damaged ({key!r} is {reprlib.repr(value)}): take an older "
                    "copy of the run"
                )
        elif key in META:
            raise UserError(
                f"{path}: not a checkpoint of a run (it lacks {key!r}): choose another --out"
            )
