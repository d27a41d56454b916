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
import functools
import hashlib
import os
import re
import reprlib
from pathlib import Path

import numpy as np

from minitf.atomic import writing
from minitf.errors import UserError, in_file
from minitf.files.arrays import average, load_arrays, save_arrays
from minitf.files.models import (
    CONFIG,
    VOCABULARIES,
    WEIGHTS,
    check_notes,
    forget_other_vocabularies,
    save_model,
)
from minitf.text import load_subwords
from minitf.training.log import CURVES, LINES
from minitf.translation.probe import probe

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

__all__ = ["RunFolder"]

CHECKPOINT = "checkpoint.safetensors"
STEP_WEIGHTS = re.compile(r"weights-(\d{8,})\.safetensors")
RESULTS = "results.json"
# Files that a run writes or deletes; those of another origin are not its to touch.
_OF_A_RUN = (*VOCABULARIES, LINES, CURVES, RESULTS)
META = {  # the values in every checkpoint
    "settings": dict,
    "config": dict,
    "step": int,
    "epoch": int,
    "position": int,
    "weights": list,
    "best": (int, float),
    "bad_validations": int,
    "validated": int,
    "best_perplexity": (int, float),
    "seconds": (int, float),
    "machine": dict,
    "data": str,
    "valid_text": str,
    "subwords": str,
    "probe": (list, type(None)),
    "notes": dict,
    "languages": list,
}

_LOCKED = set()  # descriptors of locked folders


def _leave_locks():
    """Close what a forked worker inherits: a lock lasts until its last descriptor is closed."""
    for descriptor in _LOCKED:
        os.close(descriptor)
    _LOCKED.clear()  # the worker may fork, too


if fcntl:
    os.register_at_fork(after_in_child=_leave_locks)


class RunFolder:
    """The folder of one run.

    path: of the folder, which need not exist before something is saved. say: called with each line
    to print. Every method raises UserError if the disk refuses to read or to write.
    """

    def __init__(self, path, say=print):
        self.path, self.say = Path(path), say

    @property
    def checkpoint(self):
        """The path of the checkpoint, or of the one that will be written."""
        return self.path / CHECKPOINT

    def has_checkpoint(self):
        """Return whether there is a checkpoint to resume from."""
        return self._has(self.checkpoint.name)

    def has_model(self):
        """Return whether there is a model to translate with."""
        return self._has(CONFIG)

    def _has(self, name=""):
        """Return whether there is a file of this name; without a name, whether there is a folder.

        Raises UserError for a folder that cannot be read.
        """
        with _reading(self.path):
            return (self.path / name).exists()

    def must_be_free(self, texts=()):
        """Raise UserError if the folder is a file, or contains what a new run would overwrite.

        That is another run, a model, or any file with a name of the run's. texts: the names of
        those whose translations the run will write.
        """
        if self._has() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: choose another folder with --out")
        if self.has_checkpoint():
            raise UserError(
                f"{self.path} already contains a run: resume it with --resume, or choose "
                "another folder with --out"
            )
        if self.has_model():
            raise UserError(
                f"{self.path} already contains a model: choose another folder with --out"
            )
        if name := self._foreign_file(map(translations, texts)):
            raise UserError(
                f"{self.path} contains {name}, which a run would overwrite or delete: move it "
                "away, or choose another folder with --out"
            )

    def _foreign_file(self, outputs):
        """Return the name of a file that is not of this run but has a name of its own, or None."""
        with _reading(self.path):
            present = set(os.listdir(self.path)) if self._has() else set()
            log = self.path / LINES
            killed = log.exists() and not log.stat().st_size
        names = {*_OF_A_RUN, *outputs} & present
        names |= set(filter(STEP_WEIGHTS.fullmatch, present))
        names |= set(filter(WEIGHTS.fullmatch, present))
        # A run that was killed before its first checkpoint left an empty log, and its vocabulary.
        if killed:
            names -= {LINES, *VOCABULARIES}
        return min(names, default=None)

    @contextlib.contextmanager
    def locked(self):
        """Keep other trainers out of the folder for a block. Raises UserError if one is in it.

        The operating system ends the lock with the process, however that ends. On Windows, and on
        file systems without locks, nothing is kept out.
        """
        if not fcntl:
            yield
            return
        with _reading(self.path):
            descriptor = os.open(self.path, os.O_RDONLY)
        _LOCKED.add(descriptor)
        try:
            with contextlib.suppress(OSError):  # no locks here
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UserError(
                        f"another process is training in {self.path}: wait until it ends, or "
                        "choose another folder with --out"
                    ) from None
            yield
        finally:
            if descriptor in _LOCKED:  # a forked worker has closed it already
                _LOCKED.remove(descriptor)
                os.close(descriptor)

    def must_be_unlocked(self):
        """Raise UserError if another trainer is in the folder."""
        if self._has():
            with self.locked():
                pass

    def stamp(self):
        """Return what changes whenever a checkpoint is written; None if there is none."""
        if not self.has_checkpoint():
            return None
        with _reading(self.path):
            status = self.checkpoint.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def must_be_as(self, stamp):
        """Raise UserError if another trainer has written a checkpoint since `stamp` was taken."""
        if self.stamp() != stamp:
            raise UserError(
                f"another process has trained in {self.path} meanwhile: continue its run with "
                "--resume, or choose another folder with --out"
            )

    def save_subwords(self, subwords):
        """Write the subwords, which a checkpoint needs, for a run that has no model yet.

        Those of another kind, which a killed run left, would be mistaken for this run's: they go.
        """
        path = self.path / subwords.file_name
        with writing(path):
            subwords.save(path)
        forget_other_vocabularies(self.path, subwords)

    # Weights and their average --------------------------------------------------------------------

    def add_weights(self, names, step, arrays, count):
        """Write the weights of a step; return the last `count` of the names and this one.

        names: of the files with the weights of earlier steps. arrays: {parameter: array}.
        """
        name = f"weights-{step:08d}.safetensors"
        save_arrays(self.path / name, arrays, {"step": step})
        others = [old for old in names if old != name]
        return [*others, name][-count:]

    def average(self, names, arrays):
        """Return the names of the averaged weights, and the average.

        names: of the files to average; the last one contains `arrays`, the weights of this step.

        A file that is missing, damaged or of another model is left out: that is no reason to lose
        a training run.
        """
        *others, newest = names
        try:
            return names, average([*(self.path / name for name in others), arrays])
        except UserError:
            others = [name for name in others if self._is_of(name, arrays)]
            return [*others, newest], average([*(self.path / name for name in others), arrays])

    def _is_of(self, name, arrays):
        """Return whether a file has weights of these shapes and types; else say what is wrong."""
        path = self.path / name
        try:
            found, _ = load_arrays(path, {key: array.shape for key, array in arrays.items()})
            if any(found[key].dtype != array.dtype for key, array in arrays.items()):
                raise UserError(f"{path}: its numbers are of another type")
        except UserError as error:
            self.say(f"average  without {error}")
            return False
        return True

    def step_of(self, name):
        """Return the step after which weights were written."""
        return int(STEP_WEIGHTS.fullmatch(name)[1])

    def forget_weights(self, names):
        """Delete all weights but these: those of older steps, and what a killed run left behind."""
        with writing(self.path):
            for path in self.path.iterdir():
                if STEP_WEIGHTS.fullmatch(path.name) and path.name not in names:
                    path.unlink(missing_ok=True)

    def save_model(self, model, arrays, subwords, notes):
        """Write the model for translate.py --model, with these weights instead of its own.

        arrays: {parameter: array}. notes: for config.json, such as the step.
        Raises UserError for weights that are not finite.
        """
        config = model.config.to_dict()
        save_model(
            self.path, arrays, config, subwords, notes=notes, probe=functools.partial(probe, model)
        )

    # Checkpoints ----------------------------------------------------------------------------------

    def save_checkpoint(self, model, optimizer, meta, subwords):
        """Write the state of the run: arrays by name, and plain values.

        model, optimizer: {name: array}. meta: the values of META, but for the sha256 of the
        subwords, which is added.
        Raises UserError for an array that is not finite: the checkpoint before it is kept.
        """
        arrays = {f"model.{name}": array for name, array in model.items()} | optimizer
        if name := _not_finite(arrays):
            raise UserError(
                f"{name} contains NaN or infinity after step {meta['step']}; the checkpoint before "
                "it is kept: continue from it with --resume and a lower --learning-rate"
            )
        meta = meta | {"subwords": _sha256_of(subwords)}
        save_arrays(self.checkpoint, arrays, meta)

    def read_checkpoint(self):
        """Return the arrays of the model and of the optimizer, the values, and the subwords.

        They are what `save_checkpoint` was given, but for weights whose files are missing.
        Raises UserError for a missing, damaged or changed file.
        """
        path = self.checkpoint
        if not path.exists():
            raise UserError(
                f"{self.path} contains no checkpoint: omit --resume, or name another "
                "folder with --out"
            )
        arrays, meta = load_arrays(path)
        _check_meta(path, meta)
        if name := _not_finite(arrays):
            raise UserError(
                f"{path}: array {name!r} contains NaN or infinity: begin a new run in another "
                "folder with --out"
            )
        subwords = load_subwords(self.path)
        if meta["subwords"] != _sha256_of(subwords):
            raise UserError(
                f"{self.path / subwords.file_name}: changed since the checkpoint: copy the run "
                "again"
            )
        meta["weights"] = self._existing(meta["weights"])
        model = {name[6:]: array for name, array in arrays.items() if name.startswith("model.")}
        optimizer = {name: array for name, array in arrays.items() if not name.startswith("model.")}
        return model, optimizer, meta, subwords

    def _existing(self, names):
        existing = [
            name for name in names if STEP_WEIGHTS.fullmatch(name) and (self.path / name).exists()
        ]
        if missing := len(names) - len(existing):
            self.say(
                f"average  {missing} of the run's weights-* files "
                f"{'is' if missing == 1 else 'are'} missing; the others are used"
            )
        return existing


@contextlib.contextmanager
def _reading(folder):
    """Turn any OSError in this block into one line about the folder of a run."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be read ({error.strerror}): choose another folder with --out"
        ) from None


def translations(name):
    """Return the name of the file with the translations of a text."""
    return f"{name}.out"


def _sha256_of(subwords):
    """Return the sha256 of a vocabulary: of its file, or of its files one after the other."""
    return hashlib.sha256(b"".join(subwords.contents().values())).hexdigest()


def _not_finite(arrays):
    """Return the name of the first array that contains NaN or infinity, or None."""
    return next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)


def _check_meta(path, meta):
    """Raise UserError for values that no checkpoint can have."""
    missing = [key for key in META if key not in meta]
    if missing:
        raise UserError(
            f"{path}: not a checkpoint of a run (it lacks {missing[0]!r}): choose another "
            "folder with --out"
        )
    for key, kind in META.items():
        if not _is_valid(meta[key], kind):
            raise UserError(
                f"{path}: damaged ({key!r} is {reprlib.repr(meta[key])}): use an older "
                "copy of the run"
            )
    with in_file(path):
        check_notes(meta["notes"])


def _is_valid(value, kind):
    if kind is int and isinstance(value, int) and value < 0:
        return False
    if kind is list and isinstance(value, list):
        return all(isinstance(name, str) for name in value)
    return isinstance(value, kind)
