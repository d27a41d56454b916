"""A trained model in a folder: weights, subwords, and a card (config.json) with their hashes."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from minitf.errors import UserError
from minitf.files.arrays import load_arrays, naming, write_npz
from minitf.files.atomic import clean_leftovers, install, sha256, staged, writing
from minitf.text import Subwords, Words, load_subwords

__all__ = ["read_model", "read_notes", "save_model"]

WEIGHTS = "model.npz"
CARD = "config.json"
NEXT_CARD = "config.next.json"
FORMAT = 1


def save_model(
    directory: str | Path,
    arrays: dict[str, np.ndarray],
    config: dict,
    subwords: Subwords | Words,
    dtype: DTypeLike = "float16",
    notes: dict | None = None,
    probe: Callable[[dict[str, np.ndarray]], object] | None = None,
) -> None:
    """Write a model that `translate.py --model` reads: weights, subwords and config.json.

    The floating-point arrays are stored as `dtype`. config.json holds {"format": 1, "model":
    config, "sha256": {file: hash}} and the notes. Killed at any moment, the folder still holds
    the old model or the new one (for certain where both have the same subwords, as they have
    within a run).
    probe: called with the weights as they are stored. Its result is kept in config.json, so that
    whoever loads them can compare what they compute (minitf/translation/probe.py).

    Raises UserError where the disk refuses, and for weights that are not finite in `dtype`.
    """
    directory = Path(directory)
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    clean_leftovers(directory)
    weights = {name: _shrink(name, array, np.dtype(dtype)) for name, array in arrays.items()}
    stored, pieces = directory / WEIGHTS, directory / subwords.file_name
    card, next_card = directory / CARD, directory / NEXT_CARD
    # Deflate makes normally distributed float16 weights 8% smaller.
    writers = {
        stored: lambda aside: write_npz(aside, weights, {}, zipfile.ZIP_DEFLATED),
        pieces: subwords.save,
    }
    with staged(writers) as files:
        hashes = {path.name: sha256(aside) for path, aside in files.items()}
        head = {"format": FORMAT, "model": config, "sha256": hashes}
        if probe is not None:
            head["probe"] = probe(weights)
        text = json.dumps(head | (notes or {}) | head, indent=1, ensure_ascii=False) + "\n"
        with staged({next_card: lambda aside: aside.write_bytes(text.encode())}) as cards:
            # The next card first: between any two of these steps the hashes of one card
            # fit the files.
            install(cards, next_card)
            install(files, pieces)
            install(files, stored)
            install({card: next_card}, card)


def read_model(directory: str | Path) -> tuple[dict[str, np.ndarray], dict, Subwords | Words]:
    """Return what a folder of `save_model` holds: the arrays as float32, the config,
    and the subwords.

    Raises UserError where the folder or a file is missing, changed or damaged, or of an
    unknown format.
    """
    directory = Path(directory)
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "no such folder"
        raise UserError(f"{directory}: {what}: give the folder that holds the model's {CARD}")
    card = _fitting_card(directory)
    subwords = load_subwords(directory)
    if subwords.file_name not in card["sha256"]:
        raise UserError(f"{directory / subwords.file_name}: belongs to another model: delete it")
    arrays, _ = load_arrays(directory / WEIGHTS)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            arrays[name] = array.astype(np.float32, copy=False)
        if not np.isfinite(arrays[name]).all():
            raise UserError(
                f"{directory / WEIGHTS}: array {name!r} contains NaN or infinity: use another model"
            )
    return arrays, card["model"], subwords


def read_notes(directory: str | Path) -> dict:
    """Return the notes that `save_model` was given, such as the step; raises UserError as
    `read_model` does.
    """
    card = _fitting_card(Path(directory))
    return {key: value for key, value in card.items() if key not in ("format", "model", "sha256")}


def _fitting_card(directory):
    """Return config.json, or the successor that a killed save_model left:
    the one whose hashes fit.
    """
    problems = []
    for name in (CARD, NEXT_CARD):
        try:
            card = _read_card(directory / name)
            _check_hashes(directory, card["sha256"])
            return card
        except UserError as error:
            problems.append(error)
    raise problems[0]


def _read_card(path):
    with naming(path):
        card = json.loads(path.read_bytes())
    found = card.get("format") if isinstance(card, dict) else None
    if found != FORMAT:
        raise UserError(
            f"{path}: a model of unknown format ({found!r}, known is {FORMAT}): update minitf"
        )
    hashes = card.get("sha256")
    if (
        not isinstance(card.get("model"), dict)
        or not isinstance(hashes, dict)
        or WEIGHTS not in hashes
    ):
        raise UserError(f"{path}: incomplete (it needs model and sha256): copy the model again")
    return card


def _check_hashes(directory, hashes):
    for name, expected in hashes.items():
        path = directory / name
        if path.parent != directory:
            raise UserError(
                f"{directory / CARD}: names a file outside its folder: copy the model again"
            )
        with naming(path):
            found = sha256(path)
        if found != expected:
            raise UserError(
                f"{path}: changed since it was saved (its sha256 differs): copy the model again"
            )


def _shrink(name, array, dtype):
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        small = array.astype(dtype)
    if not np.isfinite(small).all():
        raise UserError(
            f"array {name!r} is not finite as {dtype}: save as float32, or see if the run diverged"
        )
    return small
