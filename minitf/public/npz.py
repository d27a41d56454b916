"""The arrays of an .npz file, which may be damaged or hostile: nothing is unpickled."""

import math
import os
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from minitf.files.arrays import user_errors

__all__ = ["read_npz"]

MAX_INFLATION = 1040  # deflate makes at most 1032 bytes of one


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file. Raises UserError for a missing or damaged file."""
    arrays = {}
    with (
        user_errors(path),
        open(path, "rb") as stream,
        np.load(stream, allow_pickle=False) as file,
    ):
        for name in _checked(path, file.zip):
            with user_errors(f"{path}: array {name!r}"):
                array = file[name]
                arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return arrays


def _checked(path, archive):
    """Return the names of the arrays; raises ValueError if one claims more than its data.

    numpy.load would take the memory that a header claims before it reads the data.
    """
    names = []
    members = archive.infolist()
    if sum(member.compress_size for member in members) > os.path.getsize(path):
        raise ValueError("its arrays are larger than the file")
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in names:
            raise ValueError(f"entry {member.filename!r} is not an array")
        # Of other compressions the first few bytes can already unpack to gigabytes.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"unknown compression of {name!r}")
        with user_errors(f"{path}: array {name!r}"), archive.open(member) as stream:
            if member.file_size > MAX_INFLATION * member.compress_size:
                raise ValueError("impossible size")
            if npy.read_magic(stream) != (1, 0):
                raise ValueError("unknown header")
            shape, _, dtype = npy.read_array_header_1_0(stream)
            if dtype.kind not in "fiu" or dtype.itemsize > 8:
                raise ValueError(f"dtype {dtype} is not a plain number")
            if stream.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
                raise ValueError(f"its size does not fit shape {shape} of {dtype}")
        names.append(name)
    return names
