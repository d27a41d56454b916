"""Files come back as they were saved; a killed save leaves a whole file; damage is refused."""

import errno
import json
import os
import random
import shutil
import stat
import struct
import tracemalloc

import numpy as np
import pytest
from damage import hash_again, mutated, resident
from safetensors.numpy import load_file, save_file
from saved_files import assert_same, message, weights_in

from minitf.atomic import atomic_folder, check_empty, save_bytes, save_text, writing
from minitf.errors import UserError
from minitf.files.arrays import (
    DTYPES,
    KEY,
    MAX_HEADER,
    average,
    digest,
    file_content,
    load_arrays,
    save_arrays,
    user_errors,
)
from minitf.files.models import read_model, read_notes, save_model
from minitf.text import Subwords

# Saved and loaded ---------------------------------------------------------------------------------


def test_what_is_written_can_be_read(saved, arrays, monkeypatch):
    """The longest header that may be written is the longest one that is read."""
    length = int.from_bytes(saved.read_bytes()[:8], "little")
    monkeypatch.setattr("minitf.files.arrays.MAX_HEADER", length)
    save_arrays(saved, arrays, {"step": 12})
    content, loaded = saved.read_bytes(), load_arrays(saved)[0]
    assert_same(loaded, arrays)
    loaded["exact"][...] = 0  # the arrays are a copy of the file
    assert saved.read_bytes() == content
    monkeypatch.setattr("minitf.files.arrays.MAX_HEADER", length - 1)
    assert "save fewer" in message(save_arrays, saved, arrays, {"step": 12})
    assert "too long" in message(load_arrays, saved)


@pytest.mark.parametrize("meta", [None, {"größe": "\u2028"}])
def test_the_file_is_that_of_safetensors(tmp_path, arrays, meta):
    """Byte for byte, so other programs read it; with every type, and names that JSON escapes."""
    arrays |= {f'{name} ä"\n\x7f\x01': np.arange(6).reshape(2, 3).astype(name) for name in DTYPES}
    save_bytes(tmp_path / "ours", *file_content(arrays, meta))
    stored = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    value = json.dumps({"sha256": digest(stored, meta), "meta": meta})
    save_file(stored, tmp_path / "theirs", None if meta is None else {KEY: value})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_arrays_of_any_memory_order_come_back(tmp_path):
    """Safetensors stores the bytes in memory order, and raises no error for a transposed array."""
    cube = np.arange(24.0).reshape(2, 3, 4)
    views = {
        "big-endian": cube.astype(">f4"),
        "transposed": cube.T,
        "every second": cube[:, ::2],
        "reversed": cube[::-1],
        "broadcast": np.broadcast_to(cube[0, 0], (3, 4)),
        "column": np.asfortranarray(cube)[..., 1],
        "one number": cube[1, 2, 3],
        "no axis": np.array(3),
    }
    meta = {"größe": [1.5, None, True], "state": 2**127 + 1, "nested": {"a": "\u2028"}}
    save_arrays(tmp_path / "a.safetensors", views, meta)
    loaded, found = load_arrays(tmp_path / "a.safetensors")
    views["big-endian"] = cube.astype(np.float32)
    assert_same(loaded, views)
    assert all(array.flags.writeable for array in loaded.values())
    assert found == meta


def test_equal_arrays_make_equal_files(saved, arrays, tmp_path):
    backwards = dict(reversed(arrays.items()))
    save_arrays(tmp_path / "again.safetensors", backwards, {"step": 12})
    assert saved.read_bytes() == (tmp_path / "again.safetensors").read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_others_may_read_the_file_if_the_umask_lets_them(tmp_path, arrays):
    before = os.umask(0o027)
    try:
        save_arrays(tmp_path / "a.safetensors", arrays, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "value",
    [
        *(np.array([value]) for value in (None, "a", 1j, True)),
        pytest.param(
            np.ones(1, np.longdouble),
            marks=pytest.mark.skipif(np.longdouble == np.float64, reason="a float64 here"),
        ),
    ],
)
def test_only_numbers_are_saved(saved, arrays, value):
    with pytest.raises(TypeError, match="'odd'"):
        save_arrays(saved, {"odd": value}, {})
    with pytest.raises(TypeError):
        save_arrays(saved, {}, {"odd": np.float32(1)})
    assert_same(load_arrays(saved)[0], arrays)
    assert os.listdir(saved.parent) == [saved.name]


# Killed while saving ------------------------------------------------------------------------------


def test_the_model_folder_is_complete_after_each_rename(tmp_path, words, monkeypatch):
    """Reads copies of the folder from before and after every rename and deletion."""
    folder = tmp_path / "model"
    save_model(folder, {"weight": np.ones(3)}, {"version": 1}, words)
    copies = []

    def copying(change):
        def copy_and_change(*paths, **options):
            copies.append(shutil.copytree(folder, tmp_path / f"copy{len(copies)}"))
            change(*paths, **options)
            copies.append(shutil.copytree(folder, tmp_path / f"copy{len(copies)}"))

        return copy_and_change

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", copying(os.replace))
        patch.setattr(os, "unlink", copying(os.unlink))
        save_model(folder, {"weight": np.full(3, 2)}, {"version": 2}, words)
    versions = []
    for copy in copies:
        loaded, config, _, _ = read_model(copy)
        assert (loaded["weight"] == config["version"]).all()
        versions.append(config["version"])
    assert len(versions) >= 6 and versions == sorted(versions) and set(versions) == {1, 2}
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["config.json", weights_in(folder).name, "words.txt"]


# The disk refuses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EACCES, "you may not write there: choose"),
        (errno.ENOENT, "its folder does not exist: make it"),
        (errno.ENOSPC, "the disk is full: free"),
        (errno.EIO, "free some space or choose another folder"),
    ],
)
def test_the_advice_is_about_the_error(code, advice):
    def refuse():
        with writing("there"):
            raise OSError(code, os.strerror(code))

    assert f"{os.strerror(code)}): {advice}" in message(refuse)


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (OSError(errno.ENOSPC, "No space left"), UserError, "step.safetensors.*No space left"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_a_save_that_ends_early_keeps_the_old_file(error, raised, said, saved, arrays, monkeypatch):
    def end(handle):
        raise error

    monkeypatch.setattr(os, "fsync", end)
    with pytest.raises(raised, match=said):
        save_arrays(saved, {"new": np.zeros(3)}, {})
    assert_same(load_arrays(saved)[0], arrays)
    assert os.listdir(saved.parent) == [saved.name]


def test_a_checkpoint_is_not_copied_to_be_saved(tmp_path):
    """A checkpoint is three times as large as its model."""
    arrays = {f"{i}": np.ones(1 << 20, np.float32) for i in range(16)}
    before = resident(forget=True)
    save_arrays(tmp_path / "a.safetensors", arrays, {})
    assert resident() - before < 16 << 20


def test_folders_that_cannot_be_written(saved, words):
    for path in (saved.parent / "none" / "a.safetensors", saved / "a.safetensors"):
        assert str(path) in message(save_arrays, path, {}, {})
    assert str(saved) in message(save_model, saved, {}, {}, words)


# Averaging ----------------------------------------------------------------------------------------


def test_average_is_the_mean(tmp_path):
    rng = np.random.default_rng(1)
    stacks = {
        "a": rng.standard_normal((5, 3, 4)).astype(np.float32),
        "b": rng.uniform(3e4, 6e4, (5, 6)).astype(np.float16),  # whose sum is too large for it
        "c": rng.standard_normal((5, 2)),
    }
    paths = [tmp_path / f"{i}.safetensors" for i in range(5)]
    for i, path in enumerate(paths):
        save_arrays(path, {name: stack[i] for name, stack in stacks.items()}, {"step": i})
    mean = average(paths)
    for name, array in mean.items():
        assert array.dtype == stacks[name].dtype
        assert np.array_equal(array, stacks[name].mean(0, dtype=np.float64).astype(array.dtype))
    assert mean.keys() == {"a", "b", "c"}
    assert_same(average([*paths[:4], {name: stack[4] for name, stack in stacks.items()}]), mean)


def test_average_leaves_the_arrays_that_it_is_given():
    before = [{"x": np.full(2, value)} for value in (1.0, 2.0)]  # in the type of the sums
    assert average(before)["x"].tolist() == [1.5, 1.5]
    assert [each["x"].tolist() for each in before] == [[1, 1], [2, 2]]


@pytest.mark.parametrize("other", [{"x": np.zeros(3)}, {"y": np.zeros(2)}])
def test_average_refuses_other_arrays(other):
    assert "checkpoint 2 has other arrays" in message(average, [{"x": np.zeros(2)}, other])


# A model's folder ---------------------------------------------------------------------------------


def test_a_model_comes_back_as_it_was_saved(tmp_path, arrays, words):
    save_model(
        tmp_path / "new" / "model", arrays, {"d_model": 7}, words, notes={"bleu": 31.5, "format": 9}
    )
    loaded, config, subwords, notes = read_model(tmp_path / "new" / "model")
    assert config == {"d_model": 7}
    assert notes == read_notes(tmp_path / "new" / "model") == {"bleu": 31.5}
    assert subwords.contents() == words.contents()
    assert loaded["encoder.weight"].dtype == np.float16 and loaded["order"].dtype == np.int32
    assert np.array_equal(loaded["encoder.weight"], arrays["encoder.weight"].astype(np.float16))
    assert loaded.keys() == arrays.keys()
    card = json.loads((tmp_path / "new" / "model" / "config.json").read_bytes())
    assert card["bleu"] == 31.5 and card["format"] == 1
    weights = weights_in(tmp_path / "new" / "model").name
    assert sorted(os.listdir(tmp_path / "new" / "model")) == ["config.json", weights, "words.txt"]
    assert card["sha256"][weights].startswith(weights[6:14])


def test_weights_that_are_not_finite_are_named(tmp_path, words):
    save_model(tmp_path, {"x": np.ones(2)}, {}, words)
    for value in (np.nan, np.inf, -np.inf):
        assert "'x'" in message(save_model, tmp_path, {"x": np.array([1, value])}, {}, words)
    assert read_model(tmp_path)[0]["x"].tolist() == [1, 1]


def test_weights_that_float16_cannot_hold_are_stored_as_they_are(tmp_path, words):
    """They are no reason to lose a run: the model is written before its checkpoint."""
    given = {"x": np.array([1, 1e6], np.float32), "y": np.array([1, 65504], np.float32)}
    save_model(tmp_path, given, {}, words)
    found = read_model(tmp_path)[0]
    assert {name: array.dtype.name for name, array in found.items()} == {
        "x": "float32",
        "y": "float16",
    }
    assert found["x"].tolist() == [1, 1e6] and found["y"].tolist() == [1, 65504]


ROWS = np.array([[127, 0.5, 1.5, -2.5], [1270, -1270, 1270, 0]], np.float32)  # with three ties
INT8 = {  # a matrix, its numbers, the shape of its scales
    "rows": (ROWS, [[127, 0, 2, -2], [127, -127, 127, 0]], (2, 1)),
    "columns": (ROWS.T, [[127, 127], [0, -127], [2, 127], [-2, 0]], (1, 2)),
    "one, as Firefox's": (np.array([[127, 3], [90, 5]]) / 37, [[127, 3], [90, 5]], (1, 1)),
    "zeros": (np.zeros((2, 2)), [[0, 0], [0, 0]], (2, 1)),
}


@pytest.mark.parametrize(("matrix", "numbers", "shape"), INT8.values(), ids=INT8)
def test_a_matrix_of_int8_has_the_scales_that_lose_least(matrix, numbers, shape, tmp_path, words):
    """Whoever multiplies the two arrays has the matrix; a vector loses nothing."""
    given = {"w": matrix, "b": np.array([1e-9, 1e6], np.float32)}
    save_model(
        tmp_path, given, {}, words, "int8", probe=lambda read: np.asarray(read["w"]).tolist()
    )
    stored = load_file(weights_in(tmp_path))
    assert stored["w"].tolist() == numbers and stored["w_scale"].shape == shape
    found, *_, notes = read_model(tmp_path)
    assert found.keys() == given.keys() and np.array_equal(found["b"], given["b"])
    assert np.array_equal(found["w"], stored["w"] * stored["w_scale"])
    assert np.asarray(found["w"]).tolist() == notes["probe"]
    assert (np.abs(found["w"] - matrix) <= 0.5001 * stored["w_scale"]).all()


@pytest.mark.parametrize("shape", [None, (3, 1), (4, 2, 2), (0,)])
def test_scales_that_do_not_fit_are_refused(shape, tmp_path, words):
    save_model(tmp_path, {"w": np.eye(2)}, {}, words, "int8")
    path = weights_in(tmp_path)
    scales = {} if shape is None else {"w_scale": np.ones(shape, np.float32)}
    save_bytes(path, *file_content({"w": load_file(path)["w"]} | scales))
    hash_again(tmp_path, path.name)
    assert f"{path}: damaged (" in message(read_model, tmp_path)


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, arrays, words, monkeypatch):
    """Else it could be empty after a power cut; and its folder is flushed after the last rename."""
    events = []
    replace, fsync = os.replace, os.fsync

    def noted_fsync(handle):
        events.append(("flush", os.fstat(handle).st_ino))
        fsync(handle)

    def noted_replace(source, target):
        events.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted_replace)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    save_arrays(tmp_path / "a.safetensors", arrays, {})
    save_text(tmp_path / "b.txt", "text")
    words.save(tmp_path / "words.txt")
    save_model(tmp_path / "model", {"weight": np.ones(3)}, {"version": 1}, words)
    renamed = [(i, file) for i, (what, file) in enumerate(events) if what == "rename"]
    assert len(renamed) == 6
    assert all(("flush", file) in events[:i] for i, file in renamed)
    if os.name != "nt":  # where a folder cannot be flushed
        folders = [path.stat().st_ino for path in (tmp_path, tmp_path / "model")]
        first = [i for i, _ in renamed][:2]  # of the files that are written by themselves
        assert all(events[i + 1] == ("flush", folders[0]) for i in first)
        assert events[-1] == ("flush", folders[1])


def test_a_probe_is_computed_with_the_weights_as_they_are_stored(tmp_path, words):
    """Else a program that loads them compares its numbers with those of other weights."""

    def probe(weights):
        return [float(weights["weight"][0]), str(weights["weight"].dtype)]

    save_model(tmp_path, {"weight": np.array([0.1])}, {"version": 1}, words, probe=probe)
    expected = [float(np.float16(0.1)), "float16"]
    assert read_model(tmp_path).notes["probe"] == expected


def test_a_model_in_the_place_of_another_has_its_own_hashes_and_no_leftovers(tmp_path, words):
    save_model(tmp_path, {"weight": np.ones(3)}, {"version": 1}, words)
    (tmp_path / "words.txt.tmp").write_bytes(b"half")
    (tmp_path / "model-0123abcd.safetensors.tmp").write_bytes(b"half")
    other = type(words)(["ein", "anderes"])
    save_model(tmp_path, {"weight": np.ones(3)}, {"version": 1}, other)
    assert read_model(tmp_path).subwords.contents() == other.contents()
    assert len(os.listdir(tmp_path)) == 3


# Folders ------------------------------------------------------------------------------------------


def test_a_folder_is_filled_completely_or_not_at_all(tmp_path):
    folder, unfinished = tmp_path / "new", tmp_path / "new.tmp"
    unfinished.mkdir()
    (unfinished / "a").write_text("of a killed process")
    with pytest.raises(ZeroDivisionError), atomic_folder(folder) as temporary:
        assert not any(temporary.iterdir())
        (temporary / "b").write_text("half")
        1 / 0  # noqa: B018
    assert not any(tmp_path.iterdir())
    for text in ("first", "second"):  # which comes too late
        with atomic_folder(folder) as temporary:
            (temporary / "a").write_text(text)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "first"}
    assert not unfinished.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such lock")
def test_two_processes_do_not_fill_one_folder(tmp_path):
    def fill():
        with atomic_folder(tmp_path / "new"):
            pass

    with atomic_folder(tmp_path / "new") as temporary:
        (temporary / "mine").write_text("")
        assert "another process is writing to" in message(fill)
    assert os.listdir(tmp_path / "new") == ["mine"]


def test_a_folder_for_new_files_must_be_new_or_empty(tmp_path):
    check_empty(tmp_path / "new")
    check_empty(tmp_path)
    (tmp_path / "a.txt").write_text("mine")
    assert f"{tmp_path} is not empty (it contains a.txt): choose" in message(check_empty, tmp_path)
    text = message(check_empty, tmp_path / "a.txt")
    assert "a.txt: could not be written (Not a directory): its folder is a file: choose" in text


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


def test_missing_file_folder_and_other_files(tmp_path):
    assert "no such file" in message(load_arrays, tmp_path / "none.safetensors")
    assert str(tmp_path) in message(load_arrays, tmp_path)
    for content in (b"", b"PK", b"hello", b"\x00" * 1000, b"PK\3\4" + b"\x00" * 1000):
        (tmp_path / "a.safetensors").write_bytes(content)
        assert "damaged" in message(load_arrays, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", x=np.zeros(2))
    assert "damaged" in message(load_arrays, tmp_path / "b.npz")
    save_bytes(tmp_path / "b.safetensors", *file_content({"x": np.zeros(2)}))
    assert load_arrays(tmp_path / "b.safetensors", checked=False)[1] is None
    assert "not a checkpoint" in message(load_arrays, tmp_path / "b.safetensors")
    with pytest.raises(MemoryError), user_errors("a file that is not damaged"):
        raise MemoryError


# Damaged and hostile files ------------------------------------------------------------------------


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
        {"w": entry([0, 2**62, 2**62], size=0)},
        {"w": entry(dtype="nonsense")},
        {"w": entry(), "v": entry()},
        b'{"w": ' + b"[" * 9000,
        {"w": entry([1] * 4_000_000 + [4])},
        {f"w{i}": entry([0], size=0) for i in range(200_000)},
        {"__metadata__": {"minitf": "x" * MAX_HEADER}},
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


def test_types_that_are_not_supported_are_named(tmp_path):
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"w": entry(dtype="BOOL", size=4)}, bytes(4))
    assert "array 'w' is of type BOOL: convert it to F32" in message(load_arrays, path)


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
            loaded, meta = load_arrays(path)
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
    assert "not the folder of a trained model" in message(read_model, tmp_path / "file")
