"""Files that do not fit, damaged and hostile files: one line names file and array, no
memory is taken.
"""

import random
import tracemalloc
import zipfile
from io import BytesIO

import numpy as np
import pytest
from damage import mutated
from saved_files import assert_same, message, shapes_of

from minitf.errors import UserError
from minitf.files.arrays import load_arrays, save_arrays
from minitf.files.arrays import write_npz as write_ours
from minitf.files.models import read_model, save_model
from minitf.text import Subwords


def write_npz(path, entries, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def npy_bytes(array, **header):
    """The bytes of an .npy file, with entries of its header changed."""
    stream = BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array) | header
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + (b"" if array.dtype.hasobject else array.tobytes())


META = npy_bytes(np.frombuffer(b"{}", np.uint8))


# Files that do not fit ----------------------------------------------------------------------------


def test_missing_and_unknown_arrays_are_named(saved, arrays):
    shapes = shapes_of(arrays)
    del shapes["step"]
    shapes["decoder.bias"] = (7,)
    text = message(load_arrays, saved, shapes)
    assert str(saved) in text and "missing: decoder.bias; unknown: step" in text


def test_both_shapes_are_named(saved, arrays):
    text = message(load_arrays, saved, shapes_of(arrays) | {"encoder.weight": (7, 5)})
    assert "'encoder.weight'" in text and "(5, 7)" in text and "(7, 5)" in text


def test_missing_file_folder_and_other_files(tmp_path):
    assert "no such file" in message(load_arrays, tmp_path / "none.npz")
    assert str(tmp_path) in message(load_arrays, tmp_path)
    for content in (b"", b"PK", b"hello", b"\x00" * 1000):
        (tmp_path / "a.npz").write_bytes(content)
        assert "damaged" in message(load_arrays, tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros(2))
    assert "not a file of minitf" in message(load_arrays, tmp_path / "b.npz")
    write_npz(tmp_path / "c.npz", {"readme.txt": b"hello"})
    assert "'readme.txt'" in message(load_arrays, tmp_path / "c.npz")


# Damaged and hostile files ------------------------------------------------------------------------


def test_a_truncated_file_is_refused(saved):
    whole = saved.read_bytes()
    for length in range(0, len(whole), 97):
        saved.write_bytes(whole[:length])
        assert "damaged" in message(load_arrays, saved)


def test_a_flipped_bit_names_the_array(saved, arrays):
    whole = saved.read_bytes()
    data = arrays["encoder.weight"].tobytes()
    for place in (0, 9, len(data) - 1):
        changed = bytearray(whole)
        changed[whole.index(data) + place] ^= 16
        saved.write_bytes(changed)
        text = message(load_arrays, saved)
        assert str(saved) in text and "'encoder.weight'" in text


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
def test_a_lying_header_takes_no_memory(tmp_path, header):
    path = tmp_path / "a.npz"
    write_npz(path, {"meta.json.npy": META, "w.npy": npy_bytes(np.zeros(4, np.float32), **header)})
    tracemalloc.start()
    text = message(load_arrays, path)
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
        ({"w.npy": npy_bytes(np.zeros(4))}, zipfile.ZIP_LZMA),
        ({"meta.json.npy": npy_bytes(np.frombuffer(b"[" * 9000, np.uint8))}, zipfile.ZIP_STORED),
        ({"meta.json.npy": npy_bytes(np.frombuffer(b"[1]", np.uint8))}, zipfile.ZIP_STORED),
        ({"meta.json.npy": npy_bytes(np.frombuffer(b"\xff{}", np.uint8))}, zipfile.ZIP_STORED),
    ],
    ids=[
        "no header",
        "long header",
        "deep header",
        "longer",
        "lzma",
        "deep json",
        "list",
        "no utf-8",
    ],
)
def test_other_damage_names_the_array(tmp_path, entries, compression):
    write_npz(tmp_path / "a.npz", entries, compression)
    name = list(entries)[-1].removesuffix(".npy")
    assert f"array {name!r}" in message(load_arrays, tmp_path / "a.npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_entries_that_share_a_name_or_their_bytes_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for content in (META, META):
            archive.writestr("meta.json.npy", content)
    assert "meta.json" in message(load_arrays, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.json.npy", META)
        archive.writestr("w.npy", npy_bytes(np.zeros(1000)))
        for i in range(100):
            twin = zipfile.ZipInfo(f"w{i}.npy")
            first = archive.getinfo("w.npy")
            for field in ("CRC", "compress_size", "file_size", "header_offset"):
                setattr(twin, field, getattr(first, field))
            archive.filelist.append(twin)
    assert "impossible size" in message(load_arrays, path)


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_mutated_file_loads_exactly_or_is_refused(tmp_path, arrays, count):
    rng = random.Random(count)
    path = tmp_path / "a.npz"
    save_arrays(path, arrays, {"step": 12})
    write_ours(tmp_path / "b.npz", arrays, {"step": 12}, zipfile.ZIP_DEFLATED)
    originals = [path.read_bytes(), (tmp_path / "b.npz").read_bytes()]
    refused = 0
    for i in range(count):
        path.write_bytes(mutated(originals[i % 2], rng))
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
    "damaged weights": (lambda folder: damage(folder / "model.npz"), ["model.npz", "sha256"]),
    "other words": (
        lambda folder: (folder / "words.txt").write_text("other\n"),
        ["words.txt", "sha256"],
    ),
    "no weights": (lambda folder: (folder / "model.npz").unlink(), ["model.npz", "no such file"]),
    "no words": (lambda folder: (folder / "words.txt").unlink(), ["words.txt", "no such file"]),
    "no card": (lambda folder: (folder / "config.json").unlink(), ["config.json", "no such file"]),
    "two kinds": (lambda folder: (folder / "subwords.model").write_bytes(b""), ["subwords.model"]),
}
CARDS = {
    "half": ("{", ["damaged"]),
    "list": ("[]", ["unknown format"]),
    "later": ('{"format": 2}', ["unknown format (2"]),
    "incomplete": ('{"format": 1}', ["incomplete"]),
    "outside": ('{"format": 1, "model": {}, "sha256": {"../a": "", "model.npz": ""}}', ["outside"]),
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


def test_a_model_must_be_a_folder(tmp_path):
    assert "no such folder" in message(read_model, tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert "is a file" in message(read_model, tmp_path / "file")
