"""Damaged models and runs: each is refused or still readable."""

import contextlib
import hashlib
import io
import json
import pickle
import random
import shutil
import struct
import sys
import tracemalloc
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import runs
from safetensors.numpy import load, save
from saved_files import weights_in
from tiny_translator import LONGEST, make_subwords

from minitf.config import Config
from minitf.cpu import processes
from minitf.errors import UserError
from minitf.files.arrays import KEY, digest
from minitf.files.models import save_model
from minitf.text import Words
from minitf.training import commandline
from minitf.training.log import RunLog
from minitf.training.settings import parse
from minitf.transformer import Transformer
from minitf.translation import Translator

ODD_VALUES = [0, -1, 1, 2, 10**6, 2**31, 2**63, 0.5, 1e300, float("nan"), float("inf"), None, True]
ODD_VALUES += ["", "16", "x" * 50, "pre", "\u2028", "../../etc/passwd", [], [1], {}, {"a": 1}]


def mutated(content, rng):
    """Return the bytes with some bits flipped, a slice removed or repeated, or the end missing.

    rng: a random.Random.
    """
    changed = bytearray(content)
    start, length = rng.randrange(len(content)), rng.randrange(1, 40)
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del changed[start : start + length]
    elif kind == 2:
        changed[start:start] = changed[start : start + length]
    else:
        del changed[start:]
    return bytes(changed)


def mutated_json(text, rng):
    """Return JSON text with one value replaced by an odd one, removed or added."""
    value = json.loads(text)
    places = []

    def walk(node):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(child, dict | list):
                walk(child)

    walk(value)
    node, key = rng.choice(places)
    if rng.random() < 0.15:
        del node[key]
    elif rng.random() < 0.1 and isinstance(node, dict):
        node["surplus"] = rng.choice(ODD_VALUES)
    else:
        node[key] = rng.choice(ODD_VALUES)
    return json.dumps(value).encode()


def mutated_safetensors(content, rng):
    """Return a .safetensors file with an odd header, value or array; its sha256 is correct."""
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    if rng.random() < 0.3:
        header = mutated_json(header, rng)
        return struct.pack("<Q", len(header)) + header + content[8 + size :]
    arrays, metadata = load(content), json.loads(header).get("__metadata__")
    meta = json.loads(metadata[KEY])["meta"] if metadata else None
    if meta and rng.random() < 0.5:
        meta = json.loads(mutated_json(json.dumps(meta), rng))
    else:
        name = rng.choice(sorted(arrays))
        arrays[name] = np.asarray(odd_array(arrays[name], rng), order="C")
        if rng.random() < 0.1:
            del arrays[name]
    if meta is not None:
        metadata = {KEY: json.dumps({"sha256": digest(arrays, meta), "meta": meta})}
    return save(arrays, metadata)


def odd_array(array, rng):
    """Return an array of another type or shape, or full of NaN."""
    kinds = [
        lambda: array.astype(rng.choice([np.float64, np.float16, np.int8, np.complex64, bool])),
        lambda: array[..., :-1] if array.ndim else np.zeros(3),
        lambda: array.reshape(-1),
        lambda: array.astype(np.float32) * np.nan,
    ]
    with np.errstate(all="ignore"):
        return rng.choice(kinds)()


# A model with subwords, one with words, and a run: a folder each ----------------------------------


def make(names):
    """Make these folders in the current one."""
    for name, vocabulary in (
        ("subwords", make_subwords()),
        ("words", Words.train(["the dog saw a bird ."])),
    ):
        if name in names:
            config = Config.preset("tiny", len(vocabulary), tie=False)
            weights = Transformer(config, seed=1).state()
            notes = {"max_subwords": LONGEST, "step": 3}
            save_model(name, weights, config.to_dict(), vocabulary, notes=notes)
    if "run" in names:
        runs.write_text("train", 60, seed=1)
        runs.write_text("valid", 5, seed=2)
        assert runs.run("run", "--steps", "1", "--set", "d_model=64", "--set", "d_ff=256") == 0


def use(folder):
    """Do what people do with the folder: translate with the model, or go on with the run."""
    if folder.name.startswith("run"):
        commandline.build(*parse(["--resume", "--out", str(folder)]))
        return
    found = Translator.load(folder).translate(
        ["the dog", "", "a bird saw the dog. " * 9], beam=1, max_extra=3
    )
    assert len(found) == 3 and found[1][0].text == ""


def damage(folder, rng):
    """Change one file of the folder; returns its name."""
    model = weights_in(folder).name
    files = {"run": ["checkpoint.safetensors"], "words": [model, "words.txt", "config.json"]}
    files["subwords"] = [model, "subwords.model", "subwords.model", "config.json"]
    name = rng.choice(files[folder.name.split("-")[0]])
    content = (folder / name).read_bytes()
    kinds = {
        ".safetensors": [mutated, mutated_safetensors, mutated_safetensors],
        ".json": [mutated, mutated_json, mutated_json],
    }
    changed = rng.choice(kinds.get(Path(name).suffix, [mutated]))(content, rng)
    (folder / name).write_bytes(changed)
    if name in (model, "words.txt", "subwords.model") and rng.random() < 0.8:
        hash_again(folder, name)
    return name


def hash_again(folder, name):
    """Update the sha256 of a changed file in config.json, as for a deliberate change."""
    config = json.loads((folder / "config.json").read_text())
    config["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(config))


# In a message about something that a damaged checkpoint asks for.
ELSEWHERE = ("cannot be read", "is a folder", "unknown backend", "CuPy", "of the text")

# bytes in all for a small model; Python's own figures leave out the memory of other languages
OUTSIDE = 64 << 20


def refuse_pickle(*_, **__):
    raise AssertionError("something was unpickled")


def resident(forget=False):
    """Return the peak memory of this process in bytes, 0 if the system does not tell.

    forget: start a new measurement.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024


def measured(folder):
    """Use the folder; returns "used" or "refused", and the peak memory in bytes.

    Raises any error but a UserError, and AssertionError if libraries take too much memory.
    """
    before = resident(forget=True)
    try:
        return _measured(folder)
    finally:
        assert resident() - before <= OUTSIDE, f"{resident() - before:,} bytes more than before"


def _measured(folder):
    tracemalloc.start()
    try:
        # On one core: workers that decode would send each other pickles, which are not files.
        one_core = mock.patch.object(processes, "cores", lambda: 1)
        refused = mock.patch.multiple(
            pickle, load=refuse_pickle, loads=refuse_pickle, Unpickler=refuse_pickle
        )
        with one_core, refused:
            use(folder)
        return "used", tracemalloc.get_traced_memory()[1]
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, error
        named = (str(folder), "the model outputs NaN", *ELSEWHERE)
        assert any(words in str(error) for words in named), f"it names no file: {error}"
        return "refused", tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def campaign(numbers, names=("subwords", "words", "run")):
    """Damage a copy of one of the folders for each number, which is its seed.

    Returns how many files were "used" and "refused", the peak "memory" as a multiple of that for
    the intact folder, and a list of those that "failed": neither used nor refused, or with too
    much memory.
    """
    results = {"used": 0, "refused": 0, "memory": 0.0, "failed": []}
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model with odd numbers overflows
        make(names)
        intact = {}
        for name in names:
            use(Path(name))  # what is imported and kept once does not count
            result, intact[name] = measured(Path(name))
            assert result == "used", name
        for i in numbers:
            rng = random.Random(i)
            name = rng.choice(names)
            copy = Path(shutil.copytree(name, f"{name}-copy"))
            file = damage(copy, rng)
            Path("current").write_text(f"{i}, {file} of {name}")
            try:
                result, memory = measured(copy)
                assert memory <= 2 * intact[name], (
                    f"{memory / intact[name]:.1f} times the memory of the intact folder"
                )
                results[result] += 1
                results["memory"] = max(results["memory"], memory / intact[name])
            except Exception as error:
                results["failed"].append(f"{i}, {file} of {name}: {type(error).__name__}: {error}")
            shutil.rmtree(copy)
    return results


if __name__ == "__main__":
    RunLog.draw = lambda self, seconds=0: None
    first, count = map(int, sys.argv[1:])
    print(json.dumps(campaign(range(first, first + count))))
