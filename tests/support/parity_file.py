"""How the fixtures of test_parity.py are stored: one run of numbers, and an index that cuts
it into arrays.

A whole model has a hundred small arrays; as members of an .npz each would cost more
than its numbers.
"""

import json

import numpy as np


def write(path, arrays, **notes):
    """Store arrays by name, all as float64 (which holds ids and masks exactly),
    and notes as JSON.
    """
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    index = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    numbers = np.concatenate([array.astype(np.float64).ravel() for array in arrays.values()])
    text = json.dumps({"index": index, **notes}).encode()
    np.savez_compressed(path, numbers=numbers, index=np.frombuffer(text, np.uint8))


def read(path):
    """Give back (arrays by name, notes)."""
    with np.load(path, allow_pickle=False) as file:
        numbers, notes = file["numbers"], json.loads(file["index"].tobytes())
    arrays, start = {}, 0
    for name, (dtype, shape) in notes.pop("index").items():
        size = int(np.prod(shape, dtype=int))
        arrays[name] = numbers[start : start + size].reshape(shape).astype(dtype)
        start += size
    assert start == len(numbers), f"{path} holds {len(numbers)} numbers and names {start}"
    return arrays, notes
