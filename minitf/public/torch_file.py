"""A pytorch_model.bin, read without PyTorch and without running anything in it.

The file is a pickle, which is a program: it may call any function that it names. Python's Unpickler
asks `find_class` for each name; this one knows dictionaries, tensors and the types of their
numbers, and refuses all other names.
"""

import collections
import io
import math
import pickle
import pickletools
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minitf.errors import UserError, in_file
from minitf.files.arrays import from_bfloat16, user_errors

MAX_PICKLE = 1 << 22  # bytes, enough for 20,000 tensors; their numbers are elsewhere in the file
_LEGACY = 0x1950A86A20F9469CFC6C  # the first pickle in files of before PyTorch 1.6
_PROTOCOL = 1001  # the second
_TYPES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "DoubleStorage": "<f8", "LongStorage": "<i8"}
_TYPES["BFloat16Storage"] = "<u2"  # the upper halves of float32


class _Tensor(NamedTuple):
    """Where a tensor is. key, dtype: of its storage, which several tensors may share."""

    key: str
    dtype: str
    offset: int
    shape: tuple
    strides: tuple


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a state dictionary by name.

    Raises UserError for a damaged file, and for one whose pickle contains anything but tensors.
    """
    with user_errors(path), in_file(path):
        if zipfile.is_zipfile(path):
            return _read_zip(path)
        with open(path, "rb") as file:
            return _read_legacy(path, file)


def _read_zip(path):
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        names = [name for name in members if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise ValueError("not a file of PyTorch")
        # PyTorch compresses nothing, so nothing here unpacks to more than the file.
        stored = all(m.compress_type == zipfile.ZIP_STORED for m in members.values())
        if not stored or sum(m.file_size for m in members.values()) > path.stat().st_size:
            raise ValueError("its members are larger than the file")
        if members[names[0]].file_size > MAX_PICKLE:
            raise ValueError("its pickle is too long")
        root = names[0].removesuffix("data.pkl")
        if f"{root}byteorder" in members and archive.read(f"{root}byteorder") != b"little":
            raise ValueError("its numbers are not little-endian")
        tensors = _tensors(_unpickle(io.BytesIO(archive.read(names[0]))))
        storages = {
            key: np.frombuffer(archive.read(f"{root}data/{key}"), dtype)
            for key, dtype in {(tensor.key, tensor.dtype) for tensor in tensors.values()}
        }
    return _arrays(tensors, storages)


def _read_legacy(path, file):
    start = io.BytesIO(file.read(MAX_PICKLE))
    if start.getvalue()[:8] == (1).to_bytes(8, "little"):
        raise UserError("a binary of Marian, as Firefox's models are: give it as a .bin of its own")
    if _unpickle(start) != _LEGACY or _unpickle(start) != _PROTOCOL:
        raise ValueError("not a file of PyTorch")
    system = _unpickle(start)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("its numbers are not little-endian")
    tensors, keys = _tensors(_unpickle(start)), _unpickle(start)
    dtypes = {tensor.key: tensor.dtype for tensor in tensors.values()}
    if sorted(keys) != sorted(dtypes):
        raise ValueError("its list of storages does not fit its tensors")
    storages = {}
    file.seek(start.tell())
    size = path.stat().st_size
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        if count * np.dtype(dtypes[key]).itemsize > size - file.tell():
            raise ValueError("it ends early")
        storages[key] = np.fromfile(file, dtypes[key], count)
    return _arrays(tensors, storages)


class _Unpickler(pickle.Unpickler):
    """Makes a _Tensor of each tensor, and a tuple of each storage (its key, its type)."""

    def find_class(self, module, name):
        """Return what a name of the pickle stands for. Raises UserError for others."""
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            # A new function each time: a pickle can change what it is given.
            return lambda storage, offset, shape, strides, *_: _Tensor(
                *storage, offset, tuple(shape), tuple(strides)
            )
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        wanted = " ".join(f"{module}.{name}".split())[:80]
        raise UserError(f"its pickle wants {wanted}, which is not a tensor: nothing was run")

    def persistent_load(self, reference):
        """Return (key, type) of ("storage", type, key, device, size)."""
        _, dtype, key, *_ = reference
        return key, dtype


def _unpickle(file):
    """Return what the next pickle of a file describes, each tensor as a _Tensor."""
    start = file.tell()
    for operation, argument, position in pickletools.genops(file):
        # The Unpickler takes the memory that these claim, before it reads on.
        if "BYTE" in operation.name or (operation.name.endswith("PUT") and argument > position):
            raise ValueError(f"its pickle does more than describe tensors ({operation.name})")
    file.seek(start)
    return _Unpickler(file).load()


def _tensors(content):
    """Return the content of a pickle. Raises ValueError unless it is {name: _Tensor}."""
    tensors = content.items() if isinstance(content, dict) else [(None, content)]
    for name, tensor in tensors:
        if (
            not (type(name) is str and isinstance(tensor, _Tensor) and type(tensor.key) is str)
            or tensor.dtype not in _TYPES.values()
            or not len(tensor.shape) == len(tensor.strides) <= 4
        ):
            raise ValueError("it contains more than tensors by name")
        numbers = (tensor.offset, *tensor.shape, *tensor.strides)
        if not all(type(n) is int and 0 <= n <= sys.maxsize for n in numbers):
            raise ValueError(f"{name!r} has an impossible shape")
    return content


def _arrays(tensors, storages):
    """Return each tensor as a view of its storage."""
    arrays = {}
    for name, (key, dtype, offset, shape, strides) in tensors.items():
        size = math.prod(shape)
        if offset + size > len(storages[key]) or storages[key].dtype != dtype:
            raise ValueError(f"{name!r} is larger than its storage")
        # The numbers in `strides` are compared, and not used.
        expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if any(
            length > 1 and stride != wanted
            for length, stride, wanted in zip(shape, strides, expected, strict=True)
        ):
            raise ValueError(f"{name!r} is not contiguous")
        array = storages[key][offset : offset + size].reshape(shape)
        arrays[name] = from_bfloat16(array) if dtype == _TYPES["BFloat16Storage"] else array
    return arrays
