"""Run a lesson on the stand-in for GPU arrays:  python on_the_stand_in.py LESSON [its options]

The library must not hide a transfer to the GPU; a lesson may, for a shorter line. So here
the stand-in takes what CuPy takes: lists and NumPy arrays as indices, and np.f(array) where
CuPy has an f.
"""

import runpy
import sys

import numpy as np
import strict

from minitf import backend


def on_device(part):
    return strict.StrictArray(np.asarray(part)) if isinstance(part, np.ndarray | list) else part


def take_what_cupy_takes():
    array, get_item, add_at = strict.StrictArray, strict.StrictArray.__getitem__, strict.Ufunc.at

    def indices(key):
        return tuple(map(on_device, key)) if isinstance(key, tuple) else on_device(key)

    array.__getitem__ = lambda self, key: get_item(self, indices(key))
    strict.Ufunc.at = lambda self, target, key, *values: add_at(self, target, indices(key), *values)
    array.__array_function__ = lambda self, function, types, args, named: strict._compute(
        function, args, named
    )


if __name__ == "__main__":
    take_what_cupy_takes()
    backend.use(strict.module)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
