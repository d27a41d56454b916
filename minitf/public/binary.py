"""Marian's binaries, .bin: float32, or int8 as in the models of Firefox and Bergamot."""

import gzip
import itertools
import math
import os
import struct
from pathlib import Path

import numpy as np

from minitf.errors import UserError
from minitf.files.arrays import user_errors

_MAX_EXPANSION = 64  # times its own size that a .gz may unpack to; a real one hardly grows
_SHORTLIST = 0xF11A48D5013417F5  # how a file of likely translations of each subword begins
_FLOAT, _INT8, _SCALED_INT8 = 0x0404, 0x0101, 0x4101


def is_binary(path: Path) -> bool:
    """Return whether a file has the name of a binary, compressed or not."""
    return path.name.endswith((".bin", ".bin.gz"))


def files_of(folder: Path, ending: str) -> list[Path]:
    """Return the files of a folder with an ending, or with .gz after it if there is no other."""
    files = {path.name.removesuffix(".gz"): path for path in folder.glob(f"*{ending}.gz")}
    files |= {path.name: path for path in folder.glob(f"*{ending}")}
    return [files[name] for name in sorted(files)]


def read_decompressed(path: Path) -> bytes:
    """Return the content of a file, a .gz decompressed. Raises UserError for a damaged one.

    Its first bytes decide, not its name: browsers decompress what they download, and keep the name.
    """
    with user_errors(path), open(path, "rb") as packed:
        if packed.peek(2)[:2] != b"\x1f\x8b":
            return packed.read()
        most = _MAX_EXPANSION * os.path.getsize(path)
        with gzip.open(packed) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"it decompresses to more than {_MAX_EXPANSION} times its size")
        return content


def read_binary(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a binary, all but its settings as float32.

    The file has, as little-endian numbers of 64 bits, a version and the number of arrays; for each
    array the length of its name, its type, its number of axes and its bytes; then all names, all
    shapes (32 bits an axis), the length of a gap, the gap, and the numbers of all arrays.
    Raises UserError for a damaged file, a shortlist, and numbers of another type.
    """
    content = read_decompressed(path)
    with user_errors(path):
        version, count = struct.unpack_from("<2Q", content)
        if version == _SHORTLIST:
            raise UserError(
                f"{path}: a shortlist of likely subwords: name the model's file, model.*.bin"
            )
        if version != 1:
            raise UserError(f"{path}: not a binary of Marian: name the model's file, model.*.bin")
        at = 16 + 32 * count
        lengths, kinds, axes, sizes = zip(*struct.iter_unpack("<4Q", content[16:at]), strict=True)
        names_end = at + sum(lengths)
        shapes_end = names_end + 4 * sum(axes)
        (gap,) = struct.unpack_from("<Q", content, shapes_end)
        start = shapes_end + 8 + gap
        if start + sum(sizes) != len(content):
            raise ValueError("its arrays are longer or shorter than the file")
        names = [name.rstrip(b"\0").decode() for name in _slices(content, at, lengths)]
        shapes = _slices(content, names_end, [4 * n for n in axes])
        shapes = [np.frombuffer(shape, "<i4").tolist() for shape in shapes]
        arrays, data = {}, _slices(content, start, sizes)
        for name, kind, shape, numbers in zip(names, kinds, shapes, data, strict=True):
            if not name.endswith("_QuantMultA"):  # for int8 activations, which minitf does not have
                arrays[name] = _array(name, kind, shape, numbers)
        return arrays


def read_shortlist(path: Path, size: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Return a shortlist: the number of first ids, `starts`, and `candidates`, see Shortlist.

    The file has, as little-endian numbers of 64 bits, its mark, a checksum, the number of first
    ids, the number of candidates for each, and the lengths of two lists: of the starts, of 64 bits,
    and of the candidates, of 32 bits.
    size: of the vocabulary in which the candidates are. Raises UserError for a damaged file.
    """
    content = read_decompressed(path)
    with user_errors(path):
        kind, _, first, _, n_starts, n_candidates = struct.unpack_from("<6Q", content)
        if kind != _SHORTLIST:
            raise ValueError("not a shortlist")
        if len(content) != 48 + 8 * n_starts + 4 * n_candidates:
            raise ValueError("its lists are longer or shorter than the file")
        starts = np.frombuffer(content, "<u8", n_starts, 48)
        candidates = np.frombuffer(content, "<u4", n_candidates, 48 + 8 * n_starts)
        if first > size or candidates.max(initial=0) >= size:
            raise ValueError(f"it has ids beyond the {size:,} subwords")
        if starts[:1] != 0 or starts[-1:] != n_candidates or (starts[1:] < starts[:-1]).any():
            raise ValueError("its lists do not follow each other")
        return first, starts.astype(np.int64), candidates.astype(np.int64)


def _slices(content, start, sizes):
    """Return consecutive slices of these sizes, the first of which begins at `start`."""
    ends = itertools.accumulate(sizes, initial=start)
    return [content[begin:end] for begin, end in itertools.pairwise(ends)]


def _array(name, kind, shape, numbers):
    """Return an array from its bytes; int8 as float32.

        w = int8 / m    with m the float32 that follows the numbers

    A matrix of int8 is stored transposed, under its untransposed shape, unless it is an embedding.
    """
    if kind not in (_FLOAT, _INT8, _SCALED_INT8):
        raise ValueError(f"array {name!r} is of type {kind:#x}, not float32 or int8")
    count = math.prod(shape)
    if kind != _SCALED_INT8:
        dtype = "<f4" if kind == _FLOAT else "i1"
        return np.frombuffer(numbers, dtype, count).reshape(shape)
    (scale,) = np.frombuffer(numbers, "<f4", 1, count)
    if not (0 < scale < np.inf):
        raise ValueError(f"array {name!r} has the scale {scale}")
    whole = np.frombuffer(numbers, "i1", count)
    whole = whole.reshape(shape) if "Wemb" in name else whole.reshape(shape[::-1]).T
    return whole / scale
