"""The folder of a training run: a checkpoint to resume from, the weights to average, and the model.

A run writes its first checkpoint before its first update. Whenever the process is killed after
that, the folder holds a complete checkpoint, the weights that the checkpoint names, and, once a
model was saved, a complete model. The files of a save, in their order:

    written                       if the process is killed after it
    weights of this step          a file too many; the old model and checkpoint
    model-HASH.safetensors        the same
    config.json, which names it   the new model; resumed from the old checkpoint
    checkpoint.safetensors        all that is new; weights too many
    (older weights are deleted)

Each is written beside its place and then renamed, so that no file is ever half there.
"""

import contextlib
import hashlib
import re
from pathlib import Path

import numpy as np

from minitf.atomic import check_empty, locked, writing
from minitf.errors import UserError
from minitf.files.arrays import average, exists, load_arrays, save_arrays
from minitf.text import load_subwords

CHECKPOINT = "checkpoint.safetensors"
STEP_WEIGHTS = re.compile(r"weights-(\d{8,})\.safetensors")


class RunFolder:
    """The folder of one run.

    path: of the folder, which need not exist before `locked`. say: called with each line to print.
    Every method raises UserError if the disk refuses to read or to write.
    """

    def __init__(self, path, say=print):
        self.path, self.say = Path(path), say

    @property
    def checkpoint(self):
        """The path of the checkpoint, or of the one that will be written."""
        return self.path / CHECKPOINT

    @contextlib.contextmanager
    def locked(self):
        """Make the folder and keep other trainers out of it for a block; then remove it if empty.

        Raises UserError if another trainer is in it.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    self.path.rmdir()

    def check_new(self):
        """Raise UserError unless a new run can begin here: the folder must be new or empty."""
        if exists(self.checkpoint):
            raise UserError(
                f"{self.path} already contains a run: resume it with --resume, or choose "
                "another folder with --out"
            )
        check_empty(self.path)

    # Weights and their average --------------------------------------------------------------------

    def save_weights(self, names, step, arrays, count, write=True):
        """Write the weights of this step; return the last `count` of the names, its own included.

        names: of the files with the weights of earlier steps. arrays: {parameter: array}.
        """
        name = f"weights-{step:08d}.safetensors"
        if write:
            save_arrays(self.path / name, arrays, {"step": step})
        others = [old for old in names if old != name]
        return [*others, name][-count:]

    def average(self, names, arrays):
        """Return the names of the averaged weights, and the average.

        names: of the files to average; the last one contains `arrays`, the weights of this step.

        A missing or damaged file is no reason to lose a training run: the average begins again.
        """
        *others, newest = names
        try:
            return names, average([*(self.path / name for name in others), arrays])
        except UserError as error:
            self.say(f"average  begins again with this step: {error}")
            return [newest], arrays

    def step_of(self, name):
        """Return the step after which weights were written."""
        return int(STEP_WEIGHTS.fullmatch(name)[1])

    def delete_old_weights(self, names):
        """Delete all weights but these: those of older steps, and what a killed run left behind."""
        with writing(self.path):
            for path in self.path.iterdir():
                if STEP_WEIGHTS.fullmatch(path.name) and path.name not in names:
                    path.unlink(missing_ok=True)

    # Checkpoints ----------------------------------------------------------------------------------

    def save_checkpoint(self, model, optimizer, meta, subwords):
        """Write the state of the run: arrays by name, plain values, and at first the subwords.

        model, optimizer: {name: array}. meta: {name: value}; the sha256 of the subwords is added.
        Raises UserError for an array that is not finite: the checkpoint before it is kept.
        """
        arrays = {f"model.{name}": array for name, array in model.items()} | optimizer
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise UserError(
                    f"{name} contains NaN or infinity after step {meta['step']}; the checkpoint "
                    "before it is kept: continue from it with --resume and a lower --learning-rate"
                )
        is_first = not exists(self.checkpoint)
        try:
            if is_first:
                subwords.save(self.path / subwords.file_name)
            save_arrays(self.checkpoint, arrays, meta | {"subwords": _sha256_of(subwords)})
        except UserError:
            for name in subwords.contents() if is_first else ():
                (self.path / name).unlink(missing_ok=True)  # the run can begin again
            raise

    def read_checkpoint(self):
        """Return what `save_checkpoint` was given: two dictionaries of arrays, meta, the subwords.

        Raises UserError for a missing, damaged or changed file.
        """
        if not exists(self.checkpoint):
            raise UserError(
                f"{self.path} contains no checkpoint: omit --resume, or name another "
                "folder with --out"
            )
        arrays, meta = load_arrays(self.checkpoint)
        subwords = load_subwords(self.path)
        if meta.get("subwords") != _sha256_of(subwords):
            raise UserError(
                f"{self.path / subwords.file_name}: changed since the checkpoint: copy the run "
                "again"
            )
        model = {name[6:]: array for name, array in arrays.items() if name.startswith("model.")}
        optimizer = {name: array for name, array in arrays.items() if not name.startswith("model.")}
        return model, optimizer, meta, subwords


def _sha256_of(subwords):
    """Return the sha256 of a vocabulary: of its file, or of its files one after the other."""
    return hashlib.sha256(b"".join(subwords.contents().values())).hexdigest()
