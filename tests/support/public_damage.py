"""Damaged public models: each is refused in one line, or gives a model with finite logits."""

import contextlib
import json
import random
import shutil
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
from damage import ODD_VALUES
from firefox_files import firefox
from public_files import hugging_face, logits_of, marian

from minitf.errors import UserError
from minitf.public import importing
from minitf.public.importing import import_model
from minitf.translation.loading import load_model

SPARE = 6 << 20  # bytes that a small import takes besides its arrays, as tracemalloc counts them
KINDS = ("model.safetensors", "new.bin", "legacy.bin", "marian", "release", "firefox")


def make(folder, kind):
    """Write an undamaged model; returns what to import, and the files to damage."""
    if kind == "firefox":
        firefox(folder)
        return folder, sorted(folder.iterdir())
    if kind in ("marian", "release"):
        source = marian(folder)
        if kind == "release":
            path = folder.with_name("release.zip")
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for each in sorted(source.iterdir()):
                    archive.write(each, each.name)
            return path, [path]
        return source, sorted(source.iterdir())
    source = hugging_face(folder, kind)
    weights = [path for path in source.iterdir() if path.suffix in (".safetensors", ".bin")]
    return source, sorted(source.iterdir()) + 4 * weights


def damage(path, dice):
    """Damage a file; returns a word for what was done."""
    content = bytearray(path.read_bytes())
    if path.suffix == ".json" and dice.random() < 0.6:
        found = json.loads(content)
        name = dice.choice(list(found))
        found[dice.choice([name, "odd"])] = dice.choice(ODD_VALUES)
        path.write_text(json.dumps(found))
        return "entry"
    kind = dice.choice(["flip", "flip", "number", "cut", "insert", "swap", "fill"])
    # Headers are at both ends of these formats.
    place = int(dice.choice([dice.random() ** 3, 1 - dice.random() ** 3]) * len(content))
    place = min(place, max(0, len(content) - 1))
    if kind == "flip":
        for _ in range(dice.choice([1, 1, 3, 30])):
            content[min(place + dice.randrange(64), len(content) - 1)] ^= 1 << dice.randrange(8)
    elif kind == "number":
        size = dice.choice([1, 2, 4, 8])
        value = dice.choice(
            [0, (1 << 8 * size) - 1, 1 << (8 * size - 1), dice.getrandbits(8 * size)]
        )
        content[place : place + size] = value.to_bytes(size, "little")
    elif kind == "cut":
        del content[place:]
    elif kind == "insert":
        content[place:place] = dice.randbytes(dice.choice([1, 8, 1000]))
    elif kind == "swap":
        other = dice.randrange(len(content))
        content[place : place + 16], content[other : other + 16] = (
            content[other : other + 16],
            content[place : place + 16],
        )
    else:
        content[place : place + 200] = bytes([dice.choice([0, 255, 40])]) * 200
    path.write_bytes(content)
    return kind


def outcome(source, out):
    """Import, load and run a model; returns "used", "refused", or what is wrong."""
    size = sum(path.stat().st_size for path in ([source] if source.is_file() else source.iterdir()))
    tracemalloc.start()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            # The trial of placeholders is nine tenths of an import, and reads no file.
            with mock.patch.object(importing, "copied_placeholders", lambda *_: []):
                import_model(source, out, "float32", say=lambda line: None)
            model, subwords, _ = load_model(out)
            ids = np.array([[*subwords.encode(["the dog"])[0], 3]])
            logits = logits_of(model, ids, np.array([[2, 5, 6]]))
        found = "used" if not np.isnan(logits).any() else "used, with NaN"
    except UserError as error:
        found = "refused" if "\n" not in str(error) else f"two lines: {error}"
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found if most < 2 * size + SPARE else f"{found}, with {most:,} bytes for {size:,}"


def campaign(folder, seeds):
    """Return how many damaged models were refused and used, and a line for each that failed."""
    result = {"refused": 0, "used": 0, "failed": []}
    for seed in seeds:
        dice, place = random.Random(seed), Path(folder) / str(seed)
        kind = KINDS[seed % len(KINDS)]
        source, files = make(place / "in", kind)
        path = dice.choice(files)
        done = damage(path, dice)
        found = outcome(source, place / "out")
        if found in result:
            result[found] += 1
        else:
            result["failed"].append(f"seed {seed}, {kind}, {path.name}, {done}: {found}")
        with contextlib.suppress(OSError):
            shutil.rmtree(place)
    return result
