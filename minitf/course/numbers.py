"""The numbers behind a figure, kept inside its PNG file: so a figure drawn again can be compared.

Two runs of a lesson draw the same curves, but for rounding, and the pixels of two versions of
matplotlib differ. So numbers are compared, and not pixels.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["agree", "keep_numbers", "numbers_behind", "numbers_in"]

FIELD = "numbers"  # of the PNG file
MOST = 200  # numbers kept of an array
COLOURS = 128  # of a PNG file: a figure has few, so its file becomes several times smaller
TOLERANCE = 0.02  # of the largest number of an array


def numbers_behind(arguments: object) -> list:
    """Return the strings and the lists of numbers in nested arguments, in their order."""
    return list(_parts(arguments))


def keep_numbers(path: Path, behind: list) -> None:
    """Store the numbers in a PNG file, and make the file smaller by giving it few colours."""
    from PIL import Image, PngImagePlugin

    fields = PngImagePlugin.PngInfo()
    fields.add_text(FIELD, json.dumps(behind, separators=(",", ":")), zip=True)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
    small.save(path, optimize=True, pnginfo=fields)


def numbers_in(path: Path) -> list | None:
    """Return what `keep_numbers` stored in a PNG file, or None."""
    from PIL import Image

    with Image.open(path) as image:
        image.load()
        stored = image.text.get(FIELD)
    return None if stored is None else json.loads(stored)


def agree(some: list, others: list) -> bool:
    """Return whether the numbers of two figures agree, but for rounding."""
    return len(some) == len(others) and all(map(_agrees, some, others))


def _agrees(some, other):
    if isinstance(some, str) or isinstance(other, str):
        return some == other
    if len(some) != len(other):
        return False
    some, other = (np.array(numbers, dtype=float) for numbers in (some, other))
    missing = np.isnan(some)
    if not some.size or missing.all():
        return np.array_equal(missing, np.isnan(other))
    tolerance = TOLERANCE * np.nanmax(abs(some))
    return bool(np.allclose(some, other, rtol=0, atol=tolerance, equal_nan=True))


def _parts(value) -> Iterator:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from _parts(inner)
    elif isinstance(value, tuple):  # as (x, y): y may be small beside x, so each is compared alone
        for inner in value:
            yield from _parts(inner)
    elif value is None or isinstance(value, (str, Path)):
        yield str(value)
    elif _is_array_of_numbers(value):
        yield _kept(np.asarray(value, dtype=float).ravel())
    else:
        for inner in value:
            yield from _parts(inner)


def _is_array_of_numbers(value):
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:  # rows of different lengths
        return False


def _kept(numbers):
    """Return some numbers of an array, with mean and deviation if there are more."""
    if numbers.size <= MOST:
        chosen = numbers
    else:
        some = numbers[np.linspace(0, numbers.size - 1, MOST).astype(int)]
        chosen = np.concatenate([some, [numbers.mean(), numbers.std()]])
    return [float(f"{number:.5g}") for number in chosen]
