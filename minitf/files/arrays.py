"""Named arrays and a dictionary of plain values in one .safetensors file.

A damaged or hostile file is refused in one line: a sha256 covers its content, its header is
compared with its size before memory is allocated for an array, and nothing is unpickled.
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from minitf.atomic import save_bytes
from minitf.errors import UserError

KEY = "minitf"  # the only key of the metadata: safetensors would write several in random order
MAX_HEADER = 1 << 23  # bytes, enough for 64,000 arrays; parsing a header takes 20 times its size
DTYPES = {  # NumPy's names and those of the format, in the order of the arrays in a file
    **{"uint64": "U64", "int64": "I64", "float64": "F64"},
    **{"float32": "F32", "uint32": "U32", "int32": "I32"},
    **{"float16": "F16", "uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8"},
}
NAMES = {kind: name for name, kind in DTYPES.items()} | {"BF16": "uint16"}  # NumPy lacks that type


# Writing ------------------------------------------------------------------------------------------


def save_arrays(path: str | Path, arrays: dict[str, np.ndarray], meta: dict) -> None:
    """Write named arrays and a dictionary of plain values to one .safetensors file.

    An existing file is replaced at once; until then it is unchanged. Equal arrays and values
    make equal files.

    Raises UserError if the disk refuses and for names and values of more than 8 MB, TypeError for
    an array without numbers or a value that JSON lacks.
    """
    save_bytes(path, *file_content(arrays, meta))


def file_content(
    arrays: dict[str, np.ndarray], meta: dict | None = None, form: str | None = None
) -> list[bytes | np.ndarray]:
    """Return the parts of a file; without `meta` it contains only the arrays, and no sha256.

    form: the value of the key "format", which other programs look for.

    The bytes are those of safetensors' own `save_file`: the length of the header in eight bytes,
    the header in JSON, padded to a multiple of eight, and the arrays, the widest types first. But
    `save_file` writes under a name of its own, which a killed process leaves behind.
    """
    arrays = {name: _as_stored(name, array) for name, array in arrays.items()}
    header = {}
    if meta is not None:
        header["__metadata__"] = {KEY: json.dumps({"sha256": digest(arrays, meta), "meta": meta})}
    if form is not None:
        header["__metadata__"] = {"format": form}
    order = list(DTYPES)
    names = sorted(arrays, key=lambda name: (order.index(arrays[name].dtype.name), name))
    stop = 0
    for name in names:
        array, start, stop = arrays[name], stop, stop + arrays[name].nbytes
        kind = DTYPES[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [start, stop]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise UserError(
            f"the names and plain values of the file take more than {MAX_HEADER:,} bytes: "
            "save fewer of them"
        )
    return [len(text).to_bytes(8, "little") + text, *(arrays[name] for name in names)]


def _as_stored(name, array):
    """Return the array in C order and in native bytes."""
    array = np.asarray(array)
    if array.dtype.newbyteorder("=").name not in DTYPES:
        raise TypeError(
            f"array {name!r} is of dtype {array.dtype}: only plain numbers can be saved"
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def digest(arrays: dict[str, np.ndarray], meta: dict) -> str:
    """Return the sha256 of the dictionary and of each array's name, dtype, shape and bytes."""
    sha256 = hashlib.sha256(json.dumps(meta).encode())
    for name, array in sorted(arrays.items()):
        sha256.update(f"{name!r} {array.dtype} {array.shape}".encode())
        sha256.update(array)
    return sha256.hexdigest()


# Reading ------------------------------------------------------------------------------------------


def load_arrays(
    path: str | Path, checked: bool = True
) -> tuple[dict[str, np.ndarray], dict | None]:
    """Return the named arrays of a .safetensors file, and the dictionary that `save_arrays` wrote.

    checked: whether the file must have the dictionary, and its sha256; else it may be None.

    Raises UserError, naming the file, if it is missing or damaged.
    """
    from safetensors import safe_open

    with user_errors(path):
        with open(path, "rb") as file:
            start = int.from_bytes(file.read(8), "little") + 8
        if start > MAX_HEADER + 8:
            raise ValueError("its header is too long")
        # Opening the file compares its header with its size, before memory is taken.
        with safe_open(path, framework="numpy") as file:
            content = np.memmap(path, np.uint8, "c").view(np.ndarray)
            arrays, metadata = {}, file.metadata() or {}
            for name in file.offset_keys():  # one begins where another ends
                stored = file.get_slice(name)
                kind, shape = stored.get_dtype(), stored.get_shape()
                if kind not in NAMES:
                    raise UserError(f"{path}: array {name!r} is of type {kind}: convert it to F32")
                dtype = np.dtype(NAMES[kind])
                stop = start + math.prod(shape) * dtype.itemsize
                array, start = content[start:stop].view(dtype).reshape(shape), stop
                arrays[name] = from_bfloat16(array) if kind == "BF16" else array
        if KEY not in metadata:
            if checked:
                raise UserError(f"{path}: not a checkpoint (it has arrays only): choose another")
            return arrays, None
        stored = json.loads(metadata[KEY])
        if stored["sha256"] != digest(arrays, stored["meta"]):
            raise ValueError("its sha256 differs")
        return arrays, stored["meta"]


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the float32 numbers whose upper 16 bits are given; the lower ones are 0."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


@contextlib.contextmanager
def user_errors(name: object) -> Iterator[None]:
    """Turn any error that a damaged file causes in this block into one line that begins `name`."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise UserError(f"{name}: no such file: check the path") from error
    except OSError as error:
        hint = "choose another"
        if isinstance(error, PermissionError):
            hint = "give yourself permission to read it, or choose another"
        raise UserError(f"{name}: cannot be read ({error.strerror or error}): {hint}") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{name}: damaged ({reason}): copy the file again or use an older one"
        ) from error


def exists(path: str | Path) -> bool:
    """Return whether there is a file or folder. Raises UserError if the system does not tell.

    Path.exists raises an OSError then, and since Python 3.14 it says that there is none.
    """
    with user_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)
        return True
    return False


# Averaging ----------------------------------------------------------------------------------------


def average(
    checkpoints: Iterable[str | Path | dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Return the average of some checkpoints, in the dtypes of the first, summed in float64.

        average[name] = (checkpoint_1[name] + ... + checkpoint_n[name]) / n

    checkpoints: paths of files that `save_arrays` wrote; a dictionary of arrays counts as a file.

    Raises UserError if names or shapes differ from those of the first checkpoint.
    Source: section 6.1 (the last 5 checkpoints of a base model, the last 20 of a big one).
    """
    sums, dtypes, shapes, count = {}, {}, None, 0
    for count, each in enumerate(checkpoints, 1):
        arrays = each if isinstance(each, dict) else load_arrays(each)[0]
        present = {name: array.shape for name, array in arrays.items()}
        if shapes is None:
            shapes = present
            sums = {name: np.zeros(shape) for name, shape in present.items()}
            dtypes = {name: array.dtype for name, array in arrays.items()}
        if present != shapes:
            name = f"checkpoint {count}" if isinstance(each, dict) else each
            raise UserError(f"{name} has other arrays than the first: average those of one run")
        for name in sums:
            sums[name] += arrays[name]
    return {name: (total / count).astype(dtypes[name]) for name, total in sums.items()}
