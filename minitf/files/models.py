"""A trained model in a folder: weights, subwords, and config.json with their hashes.

The file of the weights has a part of its hash in its name, such as model-1fb2a501.safetensors, and
config.json names it. So new weights are written beside the old ones, and renaming config.json
switches to them.
"""

import hashlib
import json
import re
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minitf.atomic import save_bytes, save_text, sha256, writing
from minitf.backend import DType, is_finite
from minitf.errors import UserError
from minitf.files.arrays import exists, file_content, load_arrays, user_errors
from minitf.text import Vocabulary, load_subwords

WEIGHTS = r"model-[0-9a-f]{8}\.safetensors(\.tmp)?"
SCALE = "_scale"  # follows a matrix's name; so compressed-tensors, and vLLM, name its scales
CONFIG = "config.json"
FORMAT = 1
SHORTLIST = "shortlist.safetensors"


class Note(NamedTuple):
    """What may be known about a model: one entry of its config.json.

    kind: of its value. is_kept: whether a model that is tuned from it keeps it. is_exported:
    whether another library is told.
    """

    kind: type
    is_kept: bool
    is_exported: bool


NOTES = {
    # How it reads lines: see Translator.
    "max_subwords": Note(int, True, True),
    "max_unsplit": Note(int, True, True),
    "reads_capitals": Note(bool, True, True),
    "placeholders": Note(list, True, False),
    # Whose work it is.
    "source": Note(str, True, True),
    "licence": Note(str, True, True),
    "credit": Note(str, True, True),
    # Its training text, its updates, the number of averaged checkpoints, and what its page says.
    "source_language": Note(str, False, True),
    "target_language": Note(str, False, True),
    "corpus": Note(str, False, False),
    "step": Note(int, False, False),
    "averaged": Note(int, False, False),
    "page": Note(dict, False, False),
}


class Int8Matrix:
    """An int8 matrix and its scales; NumPy multiplies them where it needs an array, as float32."""

    def __init__(self, numbers: np.ndarray, scales: np.ndarray):
        self.numbers, self.scales = numbers, scales
        self.shape, self.size, self.dtype = numbers.shape, numbers.size, np.dtype(np.float32)

    def __array__(self, dtype=None, copy=None):
        return np.multiply(self.numbers, self.scales, dtype=dtype or self.dtype)


class SavedModel(NamedTuple):
    """The content of a model's folder."""

    arrays: dict[str, np.ndarray | Int8Matrix]
    config: dict
    subwords: Vocabulary
    notes: dict


def save_model(
    folder: str | Path,
    arrays: dict[str, np.ndarray],
    config: dict,
    subwords: Vocabulary,
    dtype: DType | None = "float16",
    notes: dict | None = None,
    probe: Callable[[dict[str, np.ndarray]], object] | None = None,
    shortlist: dict[str, np.ndarray] | None = None,
) -> None:
    """Write a model that `translate.py --model` reads: weights, subwords and config.json.

    The arrays are stored by `to_stored`. config.json holds {"format": 1, "model": config, "sha256":
    {file: hash}} and the notes. Whenever the process is killed, the folder holds the old model or
    the new one, for certain if both have the same subwords, as they have within a run.
    probe: called with the weights as they will be read. Its result is kept in config.json, so that
    a program that loads them can compare its own (minitf/translation/loading.py).
    shortlist: the arrays of a Shortlist by name, in a file of their own.

    Raises UserError if the disk refuses, and for weights that are not finite.
    """
    folder = Path(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    weights = {}
    for name, array in arrays.items():
        weights |= to_stored(dtype, name, array)
    parts, digest = file_content(weights), hashlib.sha256()
    for part in parts:
        digest.update(part)
    named = f"model-{digest.hexdigest()[:8]}.safetensors"
    contents = subwords.contents()
    if shortlist:
        contents[SHORTLIST] = b"".join(file_content(shortlist))
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    head = {"format": FORMAT, "model": config, "sha256": hashes | {named: digest.hexdigest()}}
    if probe is not None:
        head["probe"] = probe(with_scales(weights))
    for name, content in contents.items():
        save_bytes(folder / name, content)
    save_bytes(folder / named, *parts)
    text = json.dumps(head | (notes or {}) | head, indent=1, ensure_ascii=False) + "\n"
    save_text(folder / CONFIG, text)
    with writing(folder):
        for path in folder.iterdir():
            if path.name != named and re.fullmatch(WEIGHTS, path.name):
                path.unlink(missing_ok=True)


def to_stored(dtype: DType | None, name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Return an array as a model's file has it, by name: floating-point numbers as `dtype`.

    "int8" is for matrices: one becomes two arrays, `name` and `name_scale`, whose product it is.

        w_ij ~ q_ij s_i      q_ij = w_ij / s_i, rounded half to even      s_i = max_j |w_ij| / 127

    There is one scale for each row, (n, 1), for each column, (1, m), or for all numbers, (1, 1),
    whichever has the smallest squared error. Vectors are then stored as float32.
    An array with a number that is too large for the type stays as it is: float16 ends at 65,504.
    None: all stay as they are. Raises UserError for NaN and infinity.
    Source: absmax quantisation, Dettmers et al. 2022 (LLM.int8()), section 2.1.
    """
    array = np.asarray(array)
    if dtype is None or array.dtype.kind != "f":
        return {name: array}
    if not is_finite(array):
        raise UserError(f"array {name!r} contains NaN or infinity: check whether training diverged")
    is_int8 = np.dtype(dtype) == np.int8
    with np.errstate(over="ignore", invalid="ignore"):
        if is_int8 and array.ndim == 2 and array.size:
            numbers, scales = _quantise(array.astype(np.float32))
            return {name: numbers, name + SCALE: scales} if is_finite(scales) else {name: array}
        small = array.astype("float32" if is_int8 else dtype)
    return {name: small if is_finite(small) else array}


def _quantise(matrix):
    """Return int8 numbers and float32 scales, whose product is nearly the matrix."""
    candidates = []
    for axis in (1, 0, (0, 1)):
        scales = np.abs(matrix).max(axis, keepdims=True) / np.float32(127)
        q = np.rint(matrix / np.where(scales, scales, 1)).clip(-127, 127).astype(np.int8)
        candidates.append((np.square(q * scales - matrix, dtype=np.float64).sum(), q, scales))
    return min(candidates, key=lambda each: each[0])[1:]


def with_scales(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray | Int8Matrix]:
    """Return a file's arrays, int8 ones with their scales; ValueError if these do not fit."""
    arrays = dict(arrays)
    for name in [name for name, array in arrays.items() if array.dtype == np.int8]:
        numbers, scales = arrays[name], arrays.pop(name + SCALE, None)
        if scales is None or np.broadcast_shapes(numbers.shape, scales.shape) != numbers.shape:
            raise ValueError(f"{name + SCALE!r} is missing or of another shape")
        arrays[name] = Int8Matrix(numbers, scales)
    return arrays


def read_model(folder: str | Path) -> SavedModel:
    """Return the model that `save_model` wrote to a folder, its weights in the type of the file.

    Raises UserError if the folder or a file is missing, changed or damaged, or of an
    unknown format.
    """
    folder = Path(folder)
    if not exists(folder):
        raise UserError(f"{folder}: no such folder: give the folder of a trained model")
    if not exists(folder / CONFIG):
        if any(folder.glob("*.bin*")):
            raise UserError(
                f"{folder}: a model of another program, such as Firefox: convert it first: "
                f"python -m minitf public {folder} OUT"
            )
        raise UserError(
            f"{folder} is not the folder of a trained model: it has no {CONFIG}: "
            "name the folder that has one"
        )
    config = _read_config(folder / CONFIG)
    hashes = config["sha256"]
    for name in hashes:
        with user_errors(folder / name):
            digest = sha256(folder / name)
        if digest != hashes[name]:
            raise UserError(
                f"{folder / name}: changed since it was saved (its sha256 differs): copy the "
                "model again"
            )
    subwords = load_subwords(folder)
    for name in subwords.contents():
        if name not in hashes:
            raise UserError(f"{folder / name}: belongs to another model: copy the model again")
    path = folder / _weights_of(hashes)
    arrays, _ = load_arrays(path, checked=False)
    with user_errors(path):
        return SavedModel(with_scales(arrays), config["model"], subwords, _notes(config))


def read_shortlist(folder: str | Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of the shortlist of a model that `read_model` has verified, or None."""
    if SHORTLIST not in _read_config(Path(folder) / CONFIG)["sha256"]:
        return None
    return load_arrays(Path(folder) / SHORTLIST, checked=False)[0]


def _weights_of(hashes):
    """Return the name of the weights among those of a model's files, or None."""
    names = (name for name in hashes if name.endswith(".safetensors") and name != SHORTLIST)
    return next(names, None)


def read_notes(folder: str | Path) -> dict:
    """Return the notes of a model, such as the step, and its probe; reads config.json alone.

    Raises UserError if it is missing or damaged.
    """
    return _notes(_read_config(Path(folder) / CONFIG))


def kept_notes(notes: dict) -> dict:
    """Return those notes of a model that one tuned from it keeps."""
    return {name: notes[name] for name, note in NOTES.items() if note.is_kept and name in notes}


def exported_notes(notes: dict) -> dict:
    """Return those notes of a model that another library is told."""
    return {name: notes[name] for name, note in NOTES.items() if note.is_exported and name in notes}


def check_notes(notes: dict) -> None:
    """Raise UserError if one of NOTES has a value that it cannot have."""
    for name, note in NOTES.items():
        value = notes.get(name)
        if name in notes and (
            type(value) is not note.kind
            or (note.kind is int and value < 1)
            or (note.kind is list and not all(isinstance(x, str) and x.strip() for x in value))
        ):
            value = reprlib.repr(value)
            raise UserError(f'damaged (entry "{name}": {value}): copy the model again')


def _notes(config):
    return {key: value for key, value in config.items() if key not in ("format", "model", "sha256")}


def _read_config(path):
    with user_errors(path):
        content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        content = {}
    if "format" not in content and "model_type" in content:
        raise UserError(
            f"{path}: a model for Hugging Face's transformers: convert it first: "
            f"python -m minitf public {path.parent} OUT"
        )
    if (version := content.get("format")) != FORMAT:
        raise UserError(
            f"{path}: not a {CONFIG} of this minitf (format {version!r}; this version reads "
            f"{FORMAT}): update minitf, or name another folder"
        )
    model, hashes = content.get("model"), content.get("sha256")
    if not (isinstance(model, dict) and isinstance(hashes, dict) and _weights_of(hashes)):
        raise UserError(f"{path}: incomplete (it needs model and sha256): copy the model again")
    return content
