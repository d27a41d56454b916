"""Shared by the tests of saved files: old files, equal arrays, and the one line of an error."""

import json

import numpy as np
import pytest

from minitf.errors import UserError
from minitf.files.arrays import read_arrays
from minitf.files.atomic import sha256


def save_npz(path, arrays, meta, compressed=False):
    """Write arrays and plain values as minitf 0.1 did."""
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    save = np.savez_compressed if compressed else np.savez
    save(path, **{"meta.json": text}, **arrays)


def to_first_edition(folder):
    """Turn the files of a model or a run into those that minitf 0.1 would have written."""
    for path in folder.glob("*.safetensors"):
        arrays, meta = read_arrays(path)
        if meta and "weights" in meta:
            meta["weights"] = [name.replace(".safetensors", ".npz") for name in meta["weights"]]
        save_npz(path.with_suffix(".npz"), arrays, meta or {}, compressed=path.stem == "model")
        path.unlink()
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]["model.safetensors"]
    config["sha256"]["model.npz"] = sha256(folder / "model.npz")
    (folder / "config.json").write_text(json.dumps(config))


def shapes_of(arrays):
    return {name: array.shape for name, array in arrays.items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype and left[name].shape == right[name].shape, name
        assert np.array_equal(left[name], right[name]), name


def message(function, *arguments):
    """Return the text of the UserError that the call raises: one line, without a traceback."""
    with pytest.raises(UserError) as caught:
        function(*arguments)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600
    return text
