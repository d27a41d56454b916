"""Arrays in one .npz file, read without pickle.

Each array's header is checked against the size of the file before memory is taken for it: a damaged
or hostile file ends in one line that names the array.
"""

import contextlib
import json
import math
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from minitf.errors import UserError
from minitf.files.atomic import clean_leftovers, install, staged

__all__ = ["average", "load_arrays", "save_arrays"]

META = "meta.json"  # the array, of bytes, that holds the JSON text
INFLATION = 1040  # deflate makes at most 1032 bytes of one


# Writing ------------------------------------------------------------------------------------------


def save_arrays(path: str | Path, arrays: dict[str, np.ndarray], meta: dict) -> None:
    """Write named arrays and a dictionary of plain values to one .npz file, completely
    or not at all.

    An existing file is replaced in one step; until then it is unchanged. `numpy.load` reads the
    result; the array "meta.json" holds the dictionary as JSON text.

    Raises UserError where the disk refuses, TypeError for an array without numbers or a value
    that JSON lacks.
    """
    path = Path(path)
    clean_leftovers(path.parent)
    with staged({path: lambda aside: write_npz(aside, arrays, meta)}) as files:
        install(files, path)


def write_npz(path, arrays, meta, compression=zipfile.ZIP_STORED):
    """Write the arrays and the dictionary to this path,
    without the care that `save_arrays` takes.
    """
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    if META in arrays:
        raise ValueError(
            f"no array can be called {META!r}: the file keeps the dictionary under that name"
        )
    with open(path, "wb") as file, zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in {META: text, **arrays}.items():
            array = np.asarray(array)
            if not _is_supported(array.dtype):
                raise TypeError(
                    f"array {name!r} is of dtype {array.dtype}: only plain numbers can be saved"
                )
            # ZipInfo's fixed date makes equal arrays equal files; zip64 allows arrays
            # of over 2 GiB.
            member = zipfile.ZipInfo(name + ".npy")
            member.compress_type = compression
            with archive.open(member, "w", force_zip64=True) as stream:
                npy.write_array(stream, array, version=(1, 0), allow_pickle=False)


def _is_supported(dtype):
    return dtype.kind in "fiu" and dtype.itemsize <= 8


# Reading ------------------------------------------------------------------------------------------


def load_arrays(
    path: str | Path, shapes: dict[str, tuple] | None = None
) -> tuple[dict[str, np.ndarray], dict]:
    """Return what `save_arrays` wrote: the named arrays and the dictionary.

    shapes: the names and shapes that the file must hold, neither fewer nor more; None takes
    what it holds.

    Raises UserError, naming file and array, for a file that is missing, damaged, not ours or
    of other shapes.
    """
    path = Path(path)
    with naming(path), open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        members = _members(archive, path, os.fstat(file.fileno()).st_size)
        if META not in members:
            raise UserError(
                f"{path}: not a file of minitf (it holds no {META!r}): choose another file"
            )
        if shapes is not None:
            _check_names(members.keys() - {META}, shapes.keys())
        for name, member in members.items():
            with naming(f"{path}: array {name!r}"):
                _check_header(archive, member, None if shapes is None else shapes.get(name))
        arrays = {}
        for name, member in members.items():
            with naming(f"{path}: array {name!r}"), archive.open(member) as stream:
                array = npy.read_array(stream, allow_pickle=False)
                arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        with naming(f"{path}: array {META!r}"):
            meta = json.loads(arrays.pop(META).tobytes())
            if not isinstance(meta, dict):
                raise ValueError("it holds no dictionary")
    return arrays, meta


class _Misfit(Exception):
    """The file is intact, but belongs to a model of other settings."""


@contextlib.contextmanager
def naming(what):
    """Turn any error that a damaged file causes in zipfile, zlib, numpy or json into one
    line about `what`.
    """
    try:
        yield
    except UserError:
        raise
    except _Misfit as error:
        raise UserError(f"{what}: {error}: use the settings that the file was made with") from error
    except FileNotFoundError as error:
        raise UserError(f"{what}: no such file: check the path") from error
    except OSError as error:
        raise UserError(
            f"{what}: cannot be read ({error.strerror or error}): choose another file"
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{what}: damaged ({reason}): copy the file again or take an older one"
        ) from error


def _members(archive, path, size):
    """Return the archive's entries by array name, after checks that need only its
    table of contents.
    """
    members = {}
    stored = 0
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in members:
            raise UserError(
                f"{path}: not a file of minitf (entry {member.filename!r}): choose another file"
            )
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(
                f"{path}: array {name!r}: unknown compression: write the file with minitf"
            )
        members[name] = member
        # Entries larger than the file are refused, so a false size cannot make us take more memory
        # than the file could fill.
        stored += member.compress_size
        if stored > size or member.file_size > INFLATION * member.compress_size:
            raise UserError(
                f"{path}: array {name!r}: damaged (impossible size): copy the file again"
            )
    return members


def _check_header(archive, member, wanted):
    """Compare an array's header with the size of its entry, and with the wanted shape,
    before reading it.
    """
    with archive.open(member) as stream:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("unknown header")
        shape, _, dtype = npy.read_array_header_1_0(stream)
        if not _is_supported(dtype):
            raise ValueError(f"dtype {dtype} is not a plain number")
        size = stream.tell() + math.prod(shape) * dtype.itemsize
        if size != member.file_size:
            raise ValueError(
                f"shape {shape} of {dtype} does not fit its {member.file_size:,} bytes"
            )
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
    """Return the average of the arrays of several files, summed in float64, in their own dtype.

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
                    f"{path}: array {name!r} is {array.dtype}, in {paths[0]} it is "
                    f"{first[name].dtype}: average checkpoints of one run"
                )
            sums[name] += array
    return {name: _cast(total / len(paths), first[name].dtype) for name, total in sums.items()}


def _cast(values, dtype):
    return (values if dtype.kind == "f" else np.rint(values)).astype(dtype)
