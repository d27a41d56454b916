"""Files that survive a crash: arrays in one .npz file, and a trained model in a folder.

Every file is written under another name beside its own, brought to the disk, and only then renamed: a process
that is killed at any moment leaves the old file or the new one, never half of either. Files are read without
pickle, and each array's header is checked against the size of the file before memory is taken for it: a
damaged or hostile file ends in one line that names the array.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from minitf.backend import DType
from minitf.config import Config
from minitf.errors import UserError, in_file
from minitf.text import Subwords, Words, load_subwords
from minitf.transformer import Transformer
from minitf.translation.probe import check_probe, probe

__all__ = [
    "average",
    "clean_leftovers",
    "load_arrays",
    "load_model",
    "load_weights",
    "read_model",
    "read_notes",
    "save_arrays",
    "save_model",
    "save_text",
]

META = "meta.json"  # the array, of bytes, that holds the JSON text
WEIGHTS = "model.npz"
CARD = "config.json"
NEXT_CARD = "config.next.json"
FORMAT = 1

ASIDE = re.compile(r".+\.[0-9a-f]{8}\.tmp(\.tmp)?")
INFLATION = 1040  # deflate makes at most 1032 bytes of one


# Writing ----------------------------------------------------------------------------------------------------


def save_arrays(path: str | Path, arrays: dict[str, np.ndarray], meta: dict) -> None:
    """Write named arrays and a dictionary of plain values to one .npz file, whole or not at all.

    The file that stood there is replaced in one step; until then it stays untouched. `numpy.load` reads the
    result; the array "meta.json" holds the dictionary as JSON text.

    Raises UserError where the disk refuses, TypeError for what is no number array or no JSON value.
    """
    path = Path(path)
    clean_leftovers(path.parent)
    with _staged({path: lambda aside: _write_npz(aside, arrays, meta)}) as files:
        _install(files, path)


def save_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all, with line feeds on every system. Raises UserError as above."""
    path = Path(path)
    content = text.encode(errors="replace")
    with _staged({path: lambda aside: aside.write_bytes(content)}) as files:
        _install(files, path)


def clean_leftovers(folder: str | Path, minutes: float = 10) -> None:
    """Remove the half-written files that killed processes left in a folder.

    Only files older than `minutes` go, because another process may be writing a younger one this moment.
    """
    newest = time.time() - 60 * minutes
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if ASIDE.fullmatch(entry.name) and entry.stat().st_mtime <= newest:
                os.unlink(entry.path)


@contextlib.contextmanager
def _staged(writers):
    """Bring each file to the disk under a name of its own; what is not installed in the block is removed.

    writers: {path: function that writes the file it is given}   ->   {path: the name it has for now}
    """
    files = {}
    try:
        for path, write in writers.items():
            files[path] = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
            with _writing(path):
                write(files[path])
                with open(files[path], "rb+") as file:
                    os.fsync(file.fileno())
        yield files
    finally:
        for aside in files.values():
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)


def _install(files, path):
    with _writing(path):
        os.replace(files[path], path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def _writing(path):
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{path}: could not be written ({reason}): free some space or choose another folder; the existing file is "
            "unchanged"
        ) from error


def _sync_folder(folder):
    # A rename is on the disk when its folder is. Windows cannot open a folder, some systems cannot sync one.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_npz(path, arrays, meta, compression=zipfile.ZIP_STORED):
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    if META in arrays:
        raise ValueError(f"no array can be called {META!r}: the file keeps the dictionary under that name")
    with open(path, "wb") as file, zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in {META: text, **arrays}.items():
            array = np.asarray(array)
            if not _is_supported(array.dtype):
                raise TypeError(f"array {name!r} is of dtype {array.dtype}: only plain numbers can be saved")
            # ZipInfo's fixed date makes equal arrays equal files; zip64 allows arrays of over 2 GiB.
            member = zipfile.ZipInfo(name + ".npy")
            member.compress_type = compression
            with archive.open(member, "w", force_zip64=True) as stream:
                npy.write_array(stream, array, version=(1, 0), allow_pickle=False)


def _is_supported(dtype):
    return dtype.kind in "fiu" and dtype.itemsize <= 8


# Reading ----------------------------------------------------------------------------------------------------


def load_arrays(path: str | Path, shapes: dict[str, tuple] | None = None) -> tuple[dict[str, np.ndarray], dict]:
    """Read what `save_arrays` wrote: the named arrays and the dictionary.

    shapes: the names and shapes that the file must hold, neither fewer nor more; None takes what it holds.

    Raises UserError, naming file and array, for a file that is missing, damaged, not ours or of other shapes.
    """
    path = Path(path)
    with _blame(path), open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        members = _members(archive, path, os.fstat(file.fileno()).st_size)
        if META not in members:
            raise UserError(f"{path}: not a file of minitf (it holds no {META!r}): choose another file")
        if shapes is not None:
            _check_names(members.keys() - {META}, shapes.keys())
        for name, member in members.items():
            with _blame(f"{path}: array {name!r}"):
                _check_header(archive, member, None if shapes is None else shapes.get(name))
        arrays = {}
        for name, member in members.items():
            with _blame(f"{path}: array {name!r}"), archive.open(member) as stream:
                array = npy.read_array(stream, allow_pickle=False)
                arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        with _blame(f"{path}: array {META!r}"):
            meta = json.loads(arrays.pop(META).tobytes())
            if not isinstance(meta, dict):
                raise ValueError("it holds no dictionary")
    return arrays, meta


class _Misfit(Exception):
    """The file is whole, but belongs to a model of other settings."""


@contextlib.contextmanager
def _blame(what):
    """Turn whatever a damaged file makes zipfile, zlib, numpy and json raise into one line about `what`."""
    try:
        yield
    except UserError:
        raise
    except _Misfit as error:
        raise UserError(f"{what}: {error}: use the settings that the file was made with") from error
    except FileNotFoundError as error:
        raise UserError(f"{what}: no such file: check the path") from error
    except OSError as error:
        raise UserError(f"{what}: cannot be read ({error.strerror or error}): choose another file") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{what}: damaged ({reason}): copy the file again or take an older one") from error


def _members(archive, path, size):
    """Give the archive's entries by array name, after checks that need only its table of contents."""
    members = {}
    stored = 0
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in members:
            raise UserError(f"{path}: not a file of minitf (entry {member.filename!r}): choose another file")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(f"{path}: array {name!r}: unknown compression: write the file with minitf")
        members[name] = member
        # What the table claims cannot take more room than the file has; so no claim can make us take more
        # memory than the file could fill.
        stored += member.compress_size
        if stored > size or member.file_size > INFLATION * member.compress_size:
            raise UserError(f"{path}: array {name!r}: damaged (impossible size): copy the file again")
    return members


def _check_header(archive, member, wanted):
    """Compare an array's header with the size of its entry, and with the wanted shape, before reading it."""
    with archive.open(member) as stream:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("unknown header")
        shape, _, dtype = npy.read_array_header_1_0(stream)
        if not _is_supported(dtype):
            raise ValueError(f"dtype {dtype} is not a plain number")
        size = stream.tell() + math.prod(shape) * dtype.itemsize
        if size != member.file_size:
            raise ValueError(f"shape {shape} of {dtype} does not fit its {member.file_size:,} bytes")
    if wanted is not None and tuple(wanted) != shape:
        raise _Misfit(f"it has shape {shape}, the model needs {tuple(wanted)}")


def _check_names(found, wanted):
    problems = []
    for names, what in ((wanted - found, "missing"), (found - wanted, "unknown")):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            problems.append(f"{what}: " + ", ".join(sorted(names)[:5]) + more)
    if problems:
        raise _Misfit("arrays " + "; ".join(problems))


def average(paths: Iterable[str | Path]) -> dict[str, np.ndarray]:
    """Average the arrays of several files, summed in float64 and given back in their own dtype.

        mean[name] = (file_1[name] + ... + file_n[name]) / n

    Raises UserError where the files do not hold the same names, shapes and dtypes.
    Source: section 6.1 (the last 5 checkpoints of a base model, the last 20 of a big one).
    """
    paths = [Path(path) for path in paths]
    if not paths:
        raise UserError("nothing to average: give at least one checkpoint")
    first, _ = load_arrays(paths[0])
    shapes = {name: array.shape for name, array in first.items()}
    sums = {name: array.astype(np.float64) for name, array in first.items()}
    for path in paths[1:]:
        arrays, _ = load_arrays(path, shapes)
        for name, array in arrays.items():
            if array.dtype != first[name].dtype:
                raise UserError(
                    f"{path}: array {name!r} is {array.dtype}, in {paths[0]} it is {first[name].dtype}: "
                    f"average checkpoints of one run"
                )
            sums[name] += array
    return {name: _cast(total / len(paths), first[name].dtype) for name, total in sums.items()}


def _cast(values, dtype):
    return (values if dtype.kind == "f" else np.rint(values)).astype(dtype)


# A trained model in a folder --------------------------------------------------------------------------------


def save_model(
    directory: str | Path,
    arrays: dict[str, np.ndarray],
    config: dict,
    subwords: Subwords | Words,
    dtype: DType = "float16",
    notes: dict | None = None,
    model: Transformer | None = None,
) -> None:
    """Write a model that `load_model` and `translate.py --model` read: weights, subwords and config.json.

    The floating-point arrays are stored as `dtype`. config.json holds {"format": 1, "model": config,
    "sha256": {file: hash}} and the notes. Killed at any moment, the folder still holds the old model or the
    new one (for certain where both have the same subwords, as they have within a run).
    model: the Transformer that the weights are for. What it computes with them is kept (minitf/translation/probe.py), so that
    another one, with a layer changed in the code, is refused when they are loaded.

    Raises UserError where the disk refuses, and for weights that are not finite in `dtype`.
    """
    directory = Path(directory)
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    clean_leftovers(directory)
    weights = {name: _shrink(name, array, np.dtype(dtype)) for name, array in arrays.items()}
    stored, pieces = directory / WEIGHTS, directory / subwords.file_name
    card, next_card = directory / CARD, directory / NEXT_CARD
    # Deflate makes normally distributed float16 weights 8% smaller.
    writers = {
        stored: lambda aside: _write_npz(aside, weights, {}, zipfile.ZIP_DEFLATED),
        pieces: subwords.save,
    }
    with _staged(writers) as files:
        hashes = {path.name: sha256(aside) for path, aside in files.items()}
        head = {"format": FORMAT, "model": config, "sha256": hashes}
        if model is not None:
            head["probe"] = probe(model, weights)
        text = json.dumps(head | (notes or {}) | head, indent=1, ensure_ascii=False) + "\n"
        with _staged({next_card: lambda aside: aside.write_bytes(text.encode())}) as cards:
            # The next card first: between any two of these steps the hashes of one card fit the files.
            _install(cards, next_card)
            _install(files, pieces)
            _install(files, stored)
            _install({card: next_card}, card)


def read_model(directory: str | Path) -> tuple[dict[str, np.ndarray], dict, Subwords | Words]:
    """Read a folder that `save_model` wrote: the arrays as float32, the config, and the subwords.

    Raises UserError where the folder or a file is missing, changed or damaged, or of an unknown format.
    """
    directory = Path(directory)
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "no such folder"
        raise UserError(f"{directory}: {what}: give the folder that holds the model's {CARD}")
    card = _fitting_card(directory)
    subwords = load_subwords(directory)
    if subwords.file_name not in card["sha256"]:
        raise UserError(f"{directory / subwords.file_name}: belongs to another model: delete it")
    arrays, _ = load_arrays(directory / WEIGHTS)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            arrays[name] = array.astype(np.float32, copy=False)
        if not np.isfinite(arrays[name]).all():
            raise UserError(f"{directory / WEIGHTS}: array {name!r} contains NaN or infinity: use another model")
    return arrays, card["model"], subwords


def load_model(
    directory: str | Path, model: Callable[..., Transformer] = Transformer
) -> tuple[Transformer, Subwords | Words, dict]:
    """Return the model of a folder that `save_model` wrote, its subwords, and the notes.

    model: called as model(config, initialise=False); a model whose code was changed is made by its own function.
    Raises UserError as `read_model` does, where the weights are those of another model, and where the model computes
    something else than the one that was saved.
    """
    arrays, fields, subwords = read_model(directory)
    notes = read_notes(directory)
    with in_file(directory):
        config = Config.from_dict(fields)
        try:
            if model is Transformer:
                config.check_size(arrays)
            made = load_weights(model(config, initialise=False), arrays)
        except (TypeError, ValueError, MemoryError) as error:
            if model is not Transformer:  # a mistake in the code that was given is shown with its traceback
                raise
            raise UserError(f"its {CARD} is damaged ({error}): copy the model again") from None
        config.check_subwords(len(subwords))
        check_probe(made, notes.pop("probe", None))
    return made, subwords, notes


def load_weights(model: Transformer, arrays: dict[str, np.ndarray]) -> Transformer:
    """Give a model the weights of a file, and return it. Raises UserError; if settings differ, it names them."""
    try:
        return model.load_state(arrays)
    except UserError:
        model.config.check_arrays(arrays)
        raise


def read_notes(directory: str | Path) -> dict:
    """Read what `save_model` was given as notes, such as the step; raises UserError as `read_model` does."""
    card = _fitting_card(Path(directory))
    return {key: value for key, value in card.items() if key not in ("format", "model", "sha256")}


def _fitting_card(directory):
    """Read config.json; where a killed save_model left its successor, take the one whose hashes fit."""
    problems = []
    for name in (CARD, NEXT_CARD):
        try:
            card = _read_card(directory / name)
            _check_hashes(directory, card["sha256"])
            return card
        except UserError as error:
            problems.append(error)
    raise problems[0]


def _read_card(path):
    with _blame(path):
        card = json.loads(path.read_bytes())
    found = card.get("format") if isinstance(card, dict) else None
    if found != FORMAT:
        raise UserError(f"{path}: a model of unknown format ({found!r}, known is {FORMAT}): update minitf")
    hashes = card.get("sha256")
    if not isinstance(card.get("model"), dict) or not isinstance(hashes, dict) or WEIGHTS not in hashes:
        raise UserError(f"{path}: incomplete (it needs model and sha256): copy the model again")
    return card


def _check_hashes(directory, hashes):
    for name, expected in hashes.items():
        path = directory / name
        if path.parent != directory:
            raise UserError(f"{directory / CARD}: names a file outside its folder: copy the model again")
        with _blame(path):
            found = sha256(path)
        if found != expected:
            raise UserError(f"{path}: changed since it was saved (its sha256 differs): copy the model again")


def sha256(path):
    """Give the hash of a file's content, as text."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shrink(name, array, dtype):
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        small = array.astype(dtype)
    if not np.isfinite(small).all():
        raise UserError(f"array {name!r} is not finite as {dtype}: save as float32, or see if the run diverged")
    return small
