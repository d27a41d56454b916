"""Files of another model, damaged and hostile files: one line names the file, at little memory."""

import json
import random
import struct
import tracemalloc

import numpy as np
import pytest
from damage import mutated, resident
from saved_files import assert_same, message, shapes_of, weights_in

from minitf.errors import UserError
from minitf.files.arrays import MAX_HEADER, load_arrays, save_arrays, write_arrays
from minitf.files.models import read_model, save_model
from minitf.text import Subwords


def write_safetensors(path, header, data=b""):
    """Write a file with this header: a dictionary, or the bytes of its text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def entry(shape=(4,), dtype="F32", size=16):
    """Return the header's entry for the first array of a file."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}


@pytest.fixture
def saved_file(tmp_path, arrays):
    """Return the file of the arrays and {"step": 12}."""
    save_arrays(tmp_path / "a.safetensors", arrays, {"step": 12})
    return tmp_path / "a.safetensors"


# Files of another model ---------------------------------------------------------------------------


def test_missing_and_unknown_arrays_are_named(saved_file, arrays):
    shapes = shapes_of(arrays)
    del shapes["step"]
    shapes["decoder.bias"] = (7,)
    text = message(load_arrays, saved_file, shapes)
    assert str(saved_file) in text and "missing: decoder.bias; unknown: step" in text


def test_both_shapes_are_named(saved_file, arrays):
    text = message(load_arrays, saved_file, shapes_of(arrays) | {"encoder.weight": (7, 5)})
    assert "'encoder.weight'" in text and "(5, 7)" in text and "(7, 5)" in text


def test_missing_file_folder_and_other_files(tmp_path):
    assert "no such file" in message(load_arrays, tmp_path / "none.safetensors")
    assert str(tmp_path) in message(load_arrays, tmp_path)
    for content in (b"", b"PK", b"hello", b"\x00" * 1000, b"PK\3\4" + b"\x00" * 1000):
        (tmp_path / "a.safetensors").write_bytes(content)
        assert "damaged" in message(load_arrays, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", x=np.zeros(2))
    assert "damaged" in message(load_arrays, tmp_path / "b.npz")
    write_arrays(tmp_path / "b.safetensors", {"x": np.zeros(2)})
    assert "not a checkpoint" in message(load_arrays, tmp_path / "b.safetensors")


# Damaged and hostile files ------------------------------------------------------------------------


def test_a_flipped_bit_is_noticed(saved_file, arrays):
    """Safetensors has no checksum, so save_arrays adds a sha256."""
    intact = saved_file.read_bytes()
    data = intact.index(arrays["encoder.weight"].tobytes())
    for position in (data, data + 9, intact.index(b"encoder.bias"), intact.index(b'"step') + 9):
        changed = bytearray(intact)
        changed[position] ^= 16
        saved_file.write_bytes(changed)
        assert str(saved_file) in message(load_arrays, saved_file)


@pytest.mark.parametrize(
    "before, after",
    [("[5,7]", "[7,5]"), ('"F64"', '"I64"'), ('"x"', '"y"'), (r"\"step\": 12", r"\"step\": 13")],
)
def test_a_changed_header_is_noticed(tmp_path, before, after):
    path = tmp_path / "a.safetensors"
    save_arrays(path, {"x": np.zeros((5, 7))}, {"step": 12})
    path.write_bytes(path.read_bytes().replace(before.encode(), after.encode()))
    assert "its sha256 differs" in message(load_arrays, path)


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
        {"w": entry([1] * 4_000_000 + [4])},
        {f"w{i}": entry([0], size=0) for i in range(200_000)},
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


@pytest.mark.parametrize("count", [300, pytest.param(6000, marks=pytest.mark.slow)])
def test_a_mutated_file_loads_exactly_or_is_refused(tmp_path, arrays, count):
    rng = random.Random(count)
    path = tmp_path / "file"
    save_arrays(tmp_path / "new", arrays, {"step": 12})
    original = (tmp_path / "new").read_bytes()
    refused = 0
    for _ in range(count):
        path.write_bytes(mutated(original, rng))
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
        lambda folder: damage(weights_in(folder)),
        [".safetensors", "sha256"],
    ),
    "other words": (
        lambda folder: (folder / "words.txt").write_text("other\n"),
        ["words.txt", "sha256"],
    ),
    "no weights": (
        lambda folder: weights_in(folder).unlink(),
        [".safetensors", "no such file"],
    ),
    "no words": (lambda folder: (folder / "words.txt").unlink(), ["words.txt", "no such file"]),
    "no card": (lambda folder: (folder / "config.json").unlink(), ["has no config.json"]),
    "two kinds": (lambda folder: (folder / "subwords.model").write_bytes(b""), ["subwords.model"]),
}
CARDS = {
    "half": ("{", ["damaged"]),
    "list": ("[]", ["not a config.json of this minitf (format None; this version reads 1)"]),
    "later": ('{"format": 2}', ["(format 2; this version reads 1): update minitf"]),
    "text": ('{"format": "1"}', ["(format '1'; this version reads 1)"]),
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


def test_a_model_must_be_a_folder(tmp_path):
    assert "no such folder" in message(read_model, tmp_path / "none")
    (tmp_path / "file").write_text("")
    assert "is a file" in message(read_model, tmp_path / "file")
