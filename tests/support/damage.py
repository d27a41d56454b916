"""Mutated files of models and runs: what reads them must refuse them in one line, or give
what was saved.
"""

import contextlib
import hashlib
import io
import json
import pickle
import random
import shutil
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import runs
from tiny_translator import LONGEST, make_subwords

from minitf.config import Config
from minitf.cpu import workers
from minitf.errors import UserError
from minitf.files.models import save_model
from minitf.text import Words
from minitf.training import commandline
from minitf.training.log import RunLog
from minitf.training.settings import parse
from minitf.transformer import Transformer
from minitf.translation import Translator

ODD_VALUES = [
    0,
    -1,
    1,
    2,
    3,
    10**6,
    10**9,
    2**31,
    2**63,
    10**30,
    0.5,
    -0.1,
    1e300,
    float("nan"),
    float("inf"),
]
ODD_VALUES += [
    "",
    "16",
    "x" * 50,
    "pre",
    None,
    True,
    False,
    [],
    [1],
    {},
    {"a": 1},
    "\u2028",
    "../../etc/passwd",
]


def mutated(whole, rng):
    """The bytes with a few changed, a stretch cut out or doubled, or the end missing.
    rng: random.Random.
    """
    changed = bytearray(whole)
    start, length = rng.randrange(len(whole)), rng.randrange(1, 40)
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del changed[start : start + length]
    elif kind == 2:
        changed[start:start] = changed[start : start + length]
    else:
        del changed[start:]
    return bytes(changed)


def mutated_json(text, rng):
    """JSON with one value replaced by an odd one, left out, or put where it does not belong."""
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


def mutated_archive(whole, rng):
    """An .npz whose checksums are right and one of whose arrays is not: header, bytes or the
    values in its JSON.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(out, "w") as new:
        members = old.infolist()
        chosen = rng.choice([members[0], rng.choice(members)])
        for member in members:
            content = old.read(member)
            if member is chosen:
                array = np.load(io.BytesIO(content))
                if member.filename.startswith("meta.json") and array.size > 2:
                    content = npy(np.frombuffer(mutated_json(array.tobytes(), rng), np.uint8))
                elif rng.random() < 0.5:
                    content = mutated(content[:200], rng) + content[200:]
                else:
                    content = npy(odd_array(array, rng))
            if not (member is chosen and rng.random() < 0.05):
                new.writestr(member.filename, content, member.compress_type)
    return out.getvalue()


def odd_array(array, rng):
    """An array of another type or shape, or with numbers that are none; of objects, it
    would be a pickle.
    """
    kinds = [
        lambda: array.astype(rng.choice([np.float64, np.float16, np.int8, np.complex64, bool])),
        lambda: array[..., :-1] if array.ndim else np.zeros(3),
        lambda: array.reshape(-1),
        lambda: array.astype(np.float32) * np.nan,
        lambda: array.astype(object),
        lambda: np.array(["text"]),
    ]
    with np.errstate(all="ignore"):
        return rng.choice(kinds)()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


# The folders of a model with subwords, of one with words, and of a run ----------------------------


def make(names):
    """Make these of the folders, here."""
    for name, pieces in (
        ("subwords", make_subwords()),
        ("words", Words.train(["the dog saw a bird ."])),
    ):
        if name in names:
            config = Config.preset("tiny", len(pieces), tie=False)
            notes = {"longest": LONGEST, "step": 3}
            save_model(
                name, Transformer(config, seed=1).state(), config.to_dict(), pieces, notes=notes
            )
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
    files = {"run": ["checkpoint.npz"], "words": ["model.npz", "words.txt", "config.json"]}
    files["subwords"] = ["model.npz", "subwords.model", "subwords.model", "config.json"]
    name = rng.choice(files[folder.name.split("-")[0]])
    content = (folder / name).read_bytes()
    kinds = {
        ".npz": [mutated, mutated_archive, mutated_archive],
        ".json": [mutated, mutated_json, mutated_json],
    }
    changed = rng.choice(kinds.get(Path(name).suffix, [mutated]))(content, rng)
    (folder / name).write_bytes(changed)
    # Somebody made the hash fit.
    if name not in ("config.json", "checkpoint.npz") and rng.random() < 0.8:
        card = json.loads((folder / "config.json").read_text())
        card["sha256"][name] = hashlib.sha256(changed).hexdigest()
        (folder / "config.json").write_text(json.dumps(card))
    return name


# What a checkpoint can ask for: where that is not to be had, it is named itself.
ELSEWHERE = ("cannot be read", "is a folder", "unknown backend", "CuPy", "of the text")


# Bytes that a small model may take in all: Python's own figures do not hold what C++ takes.
OUTSIDE = 64 << 20


def refuse_pickle(*_, **__):
    raise AssertionError("something was unpickled")


def resident(forget=False):
    """The most memory of this process, in bytes, since it was last forgotten, C++ included;
    0 where nobody tells.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024


def measured(folder):
    """Use the folder: (what came of it, bytes at the most).

    Raises whatever is no UserError, and for memory in C++.
    """
    before = resident(forget=True)
    try:
        return _measured(folder)
    finally:
        assert resident() - before <= OUTSIDE, f"{resident() - before:,} bytes more than before"


def _measured(folder):
    tracemalloc.start()
    try:
        # On one core: the copies of the process that decode with it send each other pickles,
        # which are no files.
        one_core = mock.patch.object(workers, "cores", lambda: 1)
        refused = mock.patch.multiple(
            pickle, load=refuse_pickle, loads=refuse_pickle, Unpickler=refuse_pickle
        )
        with one_core, refused:
            use(folder)
        return "used", tracemalloc.get_traced_memory()[1]
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, error
        named = (str(folder), "no finite probabilities", *ELSEWHERE)
        assert any(words in str(error) for words in named), f"it names no file: {error}"
        return "refused", tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def campaign(numbers, names=("subwords", "words", "run")):
    """Damage a copy of one of the folders once for each number, which is the seed of it.

    Returns how many files were "used" and "refused", the largest "memory", as a multiple of that
    for the whole file, and the list of those that "failed": neither used nor refused, or with
    too much memory.
    """
    results = {"used": 0, "refused": 0, "memory": 0.0, "failed": []}
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model of odd numbers overflows
        make(names)
        whole = {}
        for name in names:
            use(Path(name))  # what is imported and kept once does not count
            result, whole[name] = measured(Path(name))
            assert result == "used", name
        for i in numbers:
            rng = random.Random(i)
            name = rng.choice(names)
            copy = Path(shutil.copytree(name, f"{name}-copy"))
            file = damage(copy, rng)
            Path("current").write_text(f"{i}, {file} of {name}")
            try:
                result, memory = measured(copy)
                assert memory <= 2 * whole[name], (
                    f"{memory / whole[name]:.1f} times the memory of the whole file"
                )
                results[result] += 1
                results["memory"] = max(results["memory"], memory / whole[name])
            except Exception as error:
                results["failed"].append(f"{i}, {file} of {name}: {type(error).__name__}: {error}")
            shutil.rmtree(copy)
    return results


if __name__ == "__main__":
    RunLog.draw = lambda self, seconds=0: None
    first, count = map(int, sys.argv[1:])
    print(json.dumps(campaign(range(first, first + count))))
