"""Files of another model, damaged and hostile files: one line names the file, at little memory."""

import errno
import json
import random
import struct
import tracemalloc
import warnings
import zipfile
from io import BytesIO

import numpy as np
import pytest
from damage import mutated, resident
from saved_files import assert_same, message, save_npz, shapes_of

from minitf.errors import UserError
from minitf.files import models
from minitf.files.arrays import (
    MAX_HEADER,
    load_arrays,
    read_arrays,
    save_arrays,
    write_arrays,
)
from minitf.files.models import read_model, read_notes, save_model
from minitf.text import Subwords


def write_safetensors(path, header, data=b""):
    """Write a file with this header: a dictionary, or the bytes of its text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def entry(shape=(4,), dtype="F32", size=16):
    """Return the header's entry for the first array of a file."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}


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


@pytest.fixture(params=["new", "old"])
def either(request, tmp_path, arrays):
    """Return the file that each edition writes for the arrays and {"step": 12}."""
    if request.param == "new":
        save_arrays(tmp_path / "a.safetensors", arrays, {"step": 12})
        return tmp_path / "a.safetensors"
    save_npz(tmp_path / "a.npz", arrays, {"step": 12})
    return tmp_path / "a.npz"


# Files of another model ---------------------------------------------------------------------------


def test_missing_and_unknown_arrays_are_named(either, arrays):
    shapes = shapes_of(arrays)
    del shapes["step"]
    shapes["decoder.bias"] = (7,)
    text = message(load_arrays, either, shapes)
    assert str(either) in text and "missing: decoder.bias; unknown: step" in text


def test_both_shapes_are_named(either, arrays):
    text = message(load_arrays, either, shapes_of(arrays) | {"encoder.weight": (7, 5)})
    assert "'encoder.weight'" in text and "(5, 7)" in text and "(7, 5)" in text


def test_missing_file_folder_and_other_files(tmp_path):
    assert "no such file" in message(load_arrays, tmp_path / "none.safetensors")
    assert str(tmp_path) in message(load_arrays, tmp_path)
    for content in (b"", b"PK", b"hello", b"\x00" * 1000, b"PK\3\4" + b"\x00" * 1000):
        (tmp_path / "a.safetensors").write_bytes(content)
        assert "damaged" in message(load_arrays, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", x=np.zeros(2))
    assert "not a checkpoint" in message(load_arrays, tmp_path / "b.npz")
    write_arrays(tmp_path / "b.safetensors", {"x": np.zeros(2)})
    assert "not a checkpoint" in message(load_arrays, tmp_path / "b.safetensors")
    write_npz(tmp_path / "c.npz", {"readme.txt": b"hello"})
    assert "'readme.txt'" in message(load_arrays, tmp_path / "c.npz")


# Damaged and hostile files ------------------------------------------------------------------------


def test_a_truncated_file_is_refused(either):
    intact = either.read_bytes()
    for length in range(0, len(intact), 97):
        either.write_bytes(intact[:length])
        assert "damaged" in message(load_arrays, either)


def test_a_flipped_bit_is_noticed(either, arrays):
    """Safetensors has no checksum, so save_arrays adds a sha256."""
    intact = either.read_bytes()
    data = intact.index(arrays["encoder.weight"].tobytes())
    for position in (data, data + 9, intact.index(b"encoder.bias"), intact.index(b'"step') + 9):
        changed = bytearray(intact)
        changed[position] ^= 16
        either.write_bytes(changed)
        assert str(either) in message(load_arrays, either)
    if either.suffix == ".npz":
        changed = bytearray(intact)
        changed[data] ^= 16
        either.write_bytes(changed)
        assert "'encoder.weight'" in message(load_arrays, either)


@pytest.mark.parametrize(
    "before, after",
    [("[5,7]", "[7,5]"), ('"F64"', '"I64"'), ('"x"', '"y"'), (r"\"step\": 12", r"\"step\": 13")],
)
def test_a_changed_header_is_noticed(tmp_path, before, after):
    path = tmp_path / "a.safetensors"
    save_arrays(path, {"x": np.zeros((5, 7))}, {"step": 12})
    path.write_bytes(path.read_bytes().replace(before.encode(), after.encode()))
    assert "its sha256 differs" in message(load_arrays, path)


def test_values_without_names_are_refused(tmp_path):
    write_arrays(tmp_path / "a.safetensors", {}, [1])
    save_npz(tmp_path / "a.npz", {}, [1])
    for path in tmp_path.iterdir():
        assert "not a checkpoint" in message(load_arrays, path)


@pytest.mark.parametrize(
    "header",
    [
        {"w": entry([10**12])},
        {"w": entry([5 * 10**8])},
        {"w": entry([10**9], size=4 * 10**9)},
        {"w": entry([2**40, 2**40])},
        {"w": entry([0, 2**62], size=0)},
        {"w": entry([0, 2**62, 2**62], size=0)},
        {"w": entry([-4])},
        {"w": entry([1] * 200 + [4])},
        {"w": entry(dtype="F64")},
        {"w": entry(dtype="nonsense")},
        {"w": entry(), "v": entry()},
        {"w": entry(size=15)},
        b'{"w": ' + b"[" * 9000,
        {"w": entry([1] * 1_000_000 + [4])},
        {f"w{i}": entry([0], size=0) for i in range(20_000)},
        {"__metadata__": {"minitf": "x" * MAX_HEADER}},
        {"__metadata__": {"minitf": "[" * 9000}},
        {"__metadata__": {"minitf": "[1]"}},
        {"__metadata__": {"minitf": '{"sha256": "", "meta": 5}'}},
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_hostile_header_takes_no_memory(tmp_path, header):
    path = tmp_path / "a.safetensors"
    data = bytes(16) if isinstance(header, dict) and "w" in header else b""
    write_safetensors(path, header, data)
    before = resident(forget=True)
    tracemalloc.start()
    text = message(load_arrays, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "damaged" in text
    assert peak < 5e6 and resident() - before < 5e6


def test_a_long_header_takes_little_memory(tmp_path):
    """Safetensors parses a header into about 20 times its size."""
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"w": entry([1] * (MAX_HEADER // 3 - 100) + [4])}, bytes(16))
    before = resident(forget=True)
    assert "damaged" in message(load_arrays, path)
    assert resident() - before < 40 * MAX_HEADER


@pytest.mark.parametrize("dtype, size", [("BF16", 2), ("BOOL", 1), ("C64", 8), ("F8_E4M3", 1)])
def test_types_that_are_not_supported_are_named(tmp_path, dtype, size):
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"w": entry(dtype=dtype, size=4 * size)}, bytes(4 * size))
    assert f"array 'w' is of type {dtype}: convert it to F32" in message(load_arrays, path)


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_pickled_arrays_are_refused_unopened(tmp_path):
    trap = np.array([Trap(tmp_path / "sprung"), None], dtype=object)
    np.savez(tmp_path / "a.npz", trap=trap, **{"meta.json": np.frombuffer(b"{}", np.uint8)})
    text = message(load_arrays, tmp_path / "a.npz")
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
def test_a_lying_header_of_an_old_file_takes_no_memory(tmp_path, header):
    path = tmp_path / "a.npz"
    write_npz(path, {"meta.json.npy": META, "w.npy": npy_bytes(np.zeros(4, np.float32), **header)})
    tracemalloc.start()
    text = message(load_arrays, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "'w'" in text and "damaged" in text
    assert peak < 5e6


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_lying_table_of_contents_of_an_old_file_takes_no_memory(tmp_path, compression):
    path = tmp_path / "a.npz"
    entries = {"w.npy": npy_bytes(np.zeros(4, np.float32), shape=(10**9,)), "meta.json.npy": META}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.getinfo("w.npy").file_size += 4 * 10**9 - 16
    tracemalloc.start()
    text = message(load_arrays, path)
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
        ({"meta.json.npy": npy_bytes(np.frombuffer(b"[" * 9000, np.uint8))}, zipfile.ZIP_STORED),
        ({"meta.json.npy": npy_bytes(np.frombuffer(b"\xff{}", np.uint8))}, zipfile.ZIP_STORED),
    ],
    ids=[
        "no header",
        "long header",
        "deep header",
        "longer",
        "deep json",
        "no utf-8",
    ],
)
def test_other_damage_names_the_array(tmp_path, entries, compression):
    write_npz(tmp_path / "a.npz", entries, compression)
    name = list(entries)[-1].removesuffix(".npy")
    assert f"array {name!r}" in message(load_arrays, tmp_path / "a.npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_old_file_of_another_compression_is_refused(tmp_path, compression):
    """Python unpacks a block of bzip2 completely to read a byte: a bomb of 2 KB takes 4 GB."""
    write_npz(
        tmp_path / "a.npz", {"meta.json.npy": META, "w.npy": npy_bytes(np.zeros(9))}, compression
    )
    assert "unknown compression" in message(load_arrays, tmp_path / "a.npz")


@pytest.mark.parametrize("names", [("w.npy", "w.npy"), ("w.npy", "w"), ("w.txt",)])
def test_an_old_file_with_other_entries_is_refused(tmp_path, names):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the double name
        for name in ("meta.json.npy", *names):
            archive.writestr(name, META)
    assert "is not an array of minitf" in message(load_arrays, tmp_path / "a.npz")


def test_a_lack_of_memory_is_not_called_damage(tmp_path, arrays, monkeypatch):
    def full(*arguments, **options):
        raise MemoryError

    save_arrays(tmp_path / "a.safetensors", arrays, {})
    monkeypatch.setattr("safetensors.safe_open", full)
    with pytest.raises(MemoryError):
        load_arrays(tmp_path / "a.safetensors")


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
    assert "larger than the file" in message(load_arrays, path)


@pytest.mark.parametrize("count", [300, pytest.param(6000, marks=pytest.mark.slow)])
def test_a_mutated_file_loads_exactly_or_is_refused(tmp_path, arrays, count):
    rng = random.Random(count)
    path = tmp_path / "file"
    save_arrays(tmp_path / "new", arrays, {"step": 12})
    save_npz(tmp_path / "stored.npz", arrays, {"step": 12})
    save_npz(tmp_path / "deflated.npz", arrays, {"step": 12}, compressed=True)
    originals = [(tmp_path / name).read_bytes() for name in ("new", "stored.npz", "deflated.npz")]
    refused = 0
    for i in range(count):
        path.write_bytes(mutated(originals[i % 3], rng))
        try:
            loaded, meta = load_arrays(path, shapes_of(arrays))
        except UserError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
        else:
            assert_same(loaded, arrays)
            assert meta == {"step": 12}
    assert refused > 0.8 * count


# A model's folder ---------------------------------------------------------------------------------


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


CHANGES = {
    "damaged weights": (
        lambda folder: damage(folder / "model.safetensors"),
        ["model.safetensors", "sha256"],
    ),
    "other words": (
        lambda folder: (folder / "words.txt").write_text("other\n"),
        ["words.txt", "sha256"],
    ),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        ["model.safetensors", "no such file"],
    ),
    "no words": (lambda folder: (folder / "words.txt").unlink(), ["words.txt", "no such file"]),
    "no card": (lambda folder: (folder / "config.json").unlink(), ["has no config.json"]),
    "two kinds": (lambda folder: (folder / "subwords.model").write_bytes(b""), ["subwords.model"]),
}
CARDS = {
    "half": ("{", ["damaged"]),
    "list": ("[]", ["not a config.json of this minitf (format None; this version reads 1)"]),
    "later": ('{"format": 2}', ["(format 2; this version reads 1): update minitf"]),
    "incomplete": ('{"format": 1}', ["incomplete"]),
    "outside": (
        '{"format": 1, "model": {}, "sha256": {"../a": "", "model.safetensors": ""}}',
        ["outside"],
    ),
}


@pytest.mark.parametrize("change, parts", CHANGES.values(), ids=CHANGES)
def test_a_changed_model_folder_is_refused(tmp_path, arrays, words, change, parts):
    save_model(tmp_path, arrays, {}, words)
    change(tmp_path)
    text = message(read_model, tmp_path)
    assert all(part in text for part in [str(tmp_path), *parts])


@pytest.mark.parametrize("card, parts", CARDS.values(), ids=CARDS)
def test_a_changed_card_is_refused(tmp_path, arrays, words, card, parts):
    save_model(tmp_path, arrays, {}, words)
    (tmp_path / "config.json").write_text(card)
    text = message(read_model, tmp_path)
    assert all(part in text for part in [str(tmp_path / "config.json"), *parts])


def test_subwords_of_another_model_are_refused(tmp_path, words):
    save_model(tmp_path, {}, {}, words)
    Subwords.train(["the dog sees the cat", "a cat"], 290, log=lambda text: None).save(
        tmp_path / "subwords.model"
    )
    assert "belongs to another model" in message(read_model, tmp_path)


def test_a_model_that_is_replaced_while_it_is_read_is_read_anew(tmp_path, words, monkeypatch):
    """The hashes are checked first, so weights that come after them could be another model's."""
    save_model(tmp_path, {"a": np.zeros(2, np.float32)}, {}, words, notes={"step": 1})

    def late(path):
        monkeypatch.undo()
        save_model(tmp_path, {"a": np.ones(2, np.float32)}, {}, words, notes={"step": 2})
        return read_arrays(path)

    monkeypatch.setattr(models, "read_arrays", late)
    found = read_model(tmp_path)
    assert (found.arrays["a"][0], found.notes) == (1, {"step": 2})


def test_a_model_in_a_folder_that_may_not_be_entered(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(models.Path, "exists", refuse)
    for read in (read_model, read_notes):
        assert "denied): give yourself permission to read it" in message(read, tmp_path)


def test_a_model_must_be_a_folder(tmp_path):
    assert "no such folder" in message(read_model, tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert "is a file" in message(read_model, tmp_path / "file")
