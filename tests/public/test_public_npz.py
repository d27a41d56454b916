"""Damaged and hostile .npz files: one line names the array, at little memory, and nothing runs."""

import random
import tracemalloc
import warnings
import zipfile
from io import BytesIO

import numpy as np
import pytest
from damage import mutated
from saved_files import assert_same, message

from minitf.errors import UserError
from minitf.public.npz import read_npz


def write_npz(path, entries, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def npy_bytes(array, **header):
    """Return the bytes of an .npy file, with some entries of its header replaced."""
    stream = BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array) | header
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + (b"" if array.dtype.hasobject else array.tobytes())


META = npy_bytes(np.frombuffer(b"{}", np.uint8))


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_pickled_arrays_are_refused_unopened(tmp_path):
    trap = np.array([Trap(tmp_path / "sprung"), None], dtype=object)
    np.savez(tmp_path / "a.npz", trap=trap, meta=np.zeros(2))
    text = message(read_npz, tmp_path / "a.npz")
    assert "'trap'" in text and "object" in text
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "header",
    [
        {"shape": (10**12,)},
        {"shape": (5 * 10**8,)},
        {"shape": (2**40, 2**40)},
        {"shape": (0, 2**62, 2**62)},
        {"shape": (-4,)},
        {"shape": (-1, -4)},
        {"shape": (1,) * 200 + (4,)},
        {"descr": "<f8"},
        {"descr": "<c8"},
        {"descr": "|V4"},
        {"descr": "|O"},
        {"descr": [("a", "<f4")]},
        {"descr": "nonsense"},
    ],
    ids=str,
)
def test_a_lying_header_takes_no_memory(tmp_path, header):
    path = tmp_path / "a.npz"
    write_npz(path, {"meta.json.npy": META, "w.npy": npy_bytes(np.zeros(4, np.float32), **header)})
    tracemalloc.start()
    text = message(read_npz, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "'w'" in text and "damaged" in text
    assert peak < 5e6


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_lying_table_of_contents_takes_no_memory(tmp_path, compression):
    path = tmp_path / "a.npz"
    entries = {"w.npy": npy_bytes(np.zeros(4, np.float32), shape=(10**9,)), "meta.json.npy": META}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.getinfo("w.npy").file_size += 4 * 10**9 - 16
    tracemalloc.start()
    text = message(read_npz, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "'w'" in text and "impossible size" in text
    assert peak < 5e6


@pytest.mark.parametrize(
    "entries, compression",
    [
        ({"meta.json.npy": META, "w.npy": b"hello"}, zipfile.ZIP_STORED),
        (
            {"meta.json.npy": META, "w.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f"},
            zipfile.ZIP_STORED,
        ),
        (
            {"meta.json.npy": META, "w.npy": b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16},
            zipfile.ZIP_STORED,
        ),
        ({"meta.json.npy": META, "w.npy": npy_bytes(np.zeros(4)) + b"x"}, zipfile.ZIP_STORED),
    ],
    ids=[
        "no header",
        "long header",
        "deep header",
        "longer",
    ],
)
def test_other_damage_names_the_array(tmp_path, entries, compression):
    write_npz(tmp_path / "a.npz", entries, compression)
    name = list(entries)[-1].removesuffix(".npy")
    assert f"array {name!r}" in message(read_npz, tmp_path / "a.npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_file_of_another_compression_is_refused(tmp_path, compression):
    """Python unpacks a block of bzip2 completely to read a byte: a bomb of 2 KB takes 4 GB."""
    write_npz(
        tmp_path / "a.npz", {"meta.json.npy": META, "w.npy": npy_bytes(np.zeros(9))}, compression
    )
    assert "unknown compression" in message(read_npz, tmp_path / "a.npz")


@pytest.mark.parametrize("names", [("w.npy", "w.npy"), ("w.npy", "w"), ("w.txt",)])
def test_a_file_with_other_entries_is_refused(tmp_path, names):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the double name
        for name in ("meta.json.npy", *names):
            archive.writestr(name, META)
    assert "is not an array" in message(read_npz, tmp_path / "a.npz")


def test_entries_that_share_their_bytes_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.json.npy", META)
        archive.writestr("w.npy", npy_bytes(np.zeros(1000)))
        for i in range(100):
            twin = zipfile.ZipInfo(f"w{i}.npy")
            first = archive.getinfo("w.npy")
            for field in ("CRC", "compress_size", "file_size", "header_offset"):
                setattr(twin, field, getattr(first, field))
            archive.filelist.append(twin)
    assert "larger than the file" in message(read_npz, path)


def test_a_mutated_file_loads_exactly_or_is_refused(tmp_path):
    rng = random.Random(1)
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(12)}
    path, refused = tmp_path / "a.npz", 0
    for save in np.savez, np.savez_compressed:
        save(path, **arrays)
        intact = path.read_bytes()
        for _ in range(150):
            path.write_bytes(mutated(intact, rng))
            try:
                loaded = read_npz(path)
            except UserError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                refused += 1
            else:
                assert_same(loaded, arrays)
    assert refused > 200
