"""A pytorch_model.bin, read without PyTorch and without running anything in it.

The file is a pickle, which is a program. Python's `pickle` would run it; here its operations are
listed by `pickletools`, and the few that a dictionary of tensors needs are carried out on a stack.
There is no way from them to a function.
"""

import io
import math
import pickletools
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minitf.errors import UserError, in_file
from minitf.files.arrays import user_errors

__all__ = ["read_torch"]

MAX_PICKLE = 1 << 22  # bytes, enough for 20,000 tensors; their numbers are elsewhere in the file
_LEGACY = 0x1950A86A20F9469CFC6C  # the first pickle in files of before PyTorch 1.6
_PROTOCOL = 1001  # the second
_STORAGES = {
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    "torch DoubleStorage": "<f8",
    "torch LongStorage": "<i8",
}
_DICTIONARY = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_KNOWN = {*_STORAGES, _DICTIONARY, _TENSOR}
_MARK = object()


class _Global(str):
    """The name of a class or a function, which is never called."""


class _Storage(NamedTuple):
    key: str
    dtype: str


class _Tensor(NamedTuple):
    storage: _Storage
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
        tensors = _tensors(_unpickled(io.BytesIO(archive.read(names[0]))))
        storages = {
            storage: np.frombuffer(archive.read(f"{root}data/{storage.key}"), storage.dtype)
            for storage in {tensor.storage for tensor in tensors.values()}
        }
    return _arrays(tensors, storages)


def _read_legacy(path, file):
    start = io.BytesIO(file.read(MAX_PICKLE))
    if start.getvalue()[:8] == (1).to_bytes(8, "little"):
        raise UserError("a binary of Marian, as Firefox's models are: minitf reads Marian's .npz")
    if _unpickled(start) != _LEGACY or _unpickled(start) != _PROTOCOL:
        raise ValueError("not a file of PyTorch")
    system = _unpickled(start)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("its numbers are not little-endian")
    tensors, keys = _tensors(_unpickled(start)), _unpickled(start)
    known = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    # The keys are compared only if they are strings: hashing nested tuples could take for ever.
    listed = isinstance(keys, list) and all(type(key) is str for key in keys)
    if not listed or sorted(keys) != sorted(known):
        raise ValueError("its list of storages does not fit its tensors")
    storages = {}
    file.seek(start.tell())
    size = path.stat().st_size
    for key in keys:
        storage = known[key]
        count = int.from_bytes(file.read(8), "little")
        if count * np.dtype(storage.dtype).itemsize > size - file.tell():
            raise ValueError("it ends early")
        storages[storage] = np.fromfile(file, storage.dtype, count)
    return _arrays(tensors, storages)


def _tensors(content):
    """Return the dictionary if all its values are tensors."""
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, _Tensor) for name, value in content.items()
    ):
        raise ValueError("it contains more than tensors by name")
    return content


def _arrays(tensors, storages):
    """Return each tensor as a view of its storage, which several tensors may share."""
    arrays = {}
    for name, (storage, offset, shape, strides) in tensors.items():
        size = math.prod(shape)
        if offset + size > len(storages[storage]):
            raise ValueError(f"{name!r} is larger than its storage")
        # The numbers in `strides` are compared, and not used.
        expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if any(
            length > 1 and stride != wanted
            for length, stride, wanted in zip(shape, strides, expected, strict=True)
        ):
            raise ValueError(f"{name!r} is not contiguous")
        arrays[name] = storages[storage][offset : offset + size].reshape(shape)
    return arrays


# The pickle's operations --------------------------------------------------------------------------


def _unpickled(file):
    """Return what a pickle describes, from dictionaries, lists, tuples, numbers and tensors."""
    stack, memo = [], {}
    for operation, argument, _ in pickletools.genops(file):
        name = operation.name
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return stack.pop()
        if name == "MARK":
            stack.append(_MARK)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            stack.append(_named(argument))
        elif name in _OPERATIONS:
            _OPERATIONS[name](stack)
        else:
            raise ValueError(f"its pickle does more than describe tensors ({name})")
    raise ValueError("its pickle has no end")


def _named(name):
    """Return the name of a class or a function. Raises ValueError for all but four."""
    if name not in _KNOWN:
        wanted = " ".join(str(name).split()).replace(" ", ".")[:80]
        raise UserError(f"its pickle wants {wanted}, which is not a tensor: nothing was run")
    return _Global(name)


def _call(stack):
    """Carry out one of the two calls that a dictionary of tensors needs."""
    arguments, called = stack.pop(), stack.pop()
    if type(called) is _Global and called == _DICTIONARY and arguments == ():
        stack.append({})
    elif type(called) is _Global and called == _TENSOR:
        storage, offset, shape, strides = arguments[:4]
        numbers = (offset, *shape, *strides)
        if type(storage) is not _Storage or len(shape) != len(strides) or len(shape) > 4:
            raise ValueError("a tensor has no shape")
        if not all(type(n) is int and 0 <= n <= sys.maxsize for n in numbers):
            raise ValueError("a tensor has an impossible shape")
        stack.append(_Tensor(storage, offset, tuple(shape), tuple(strides)))
    else:
        raise UserError("its pickle calls what it must not: nothing was run")


def _persistent(stack):
    """Replace ("storage", type, key, device, size) by a storage."""
    _, kind, key, *_ = stack.pop()
    if type(kind) is not _Global or kind not in _STORAGES or type(key) is not str:
        raise ValueError("an unknown kind of storage")
    stack.append(_Storage(key, _STORAGES[kind]))


def _since_mark(stack):
    start = len(stack) - 1
    while stack[start] is not _MARK:
        start -= 1
        if start < 0:
            raise ValueError("its pickle is cut")
    items = stack[start + 1 :]
    del stack[start:]
    return items


def _tuple(size):
    def build(stack):
        items = stack[len(stack) - size :]
        if len(items) < size:
            raise ValueError("its pickle is cut")
        del stack[len(stack) - size :]
        stack.append(tuple(items))

    return build


def _set_items(stack):
    items = _since_mark(stack)
    _update(stack[-1], zip(items[::2], items[1::2], strict=True))


def _set_item(stack):
    value, key = stack.pop(), stack.pop()
    _update(stack[-1], [(key, value)])


def _update(dictionary, pairs):
    if not isinstance(dictionary, dict):
        raise ValueError("its pickle sets an item of something else than a dictionary")
    for key, value in pairs:
        if type(key) is not str:
            raise ValueError("a name in it is not a string")
        dictionary[key] = value


def _append(stack, items):
    if not isinstance(stack[-1], list):
        raise ValueError("its pickle appends to something else than a list")
    stack[-1].extend(items)


_CONSTANTS = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_LITERALS = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_OPERATIONS = {
    "REDUCE": _call,
    "BINPERSID": _persistent,
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "APPEND": lambda stack: _append(stack, [stack.pop()]),
    "APPENDS": lambda stack: _append(stack, _since_mark(stack)),
    "BUILD": lambda stack: stack.pop(),  # the attributes of a dictionary, such as its version
}
