"""How the forms of a GPU start kernels and matrix products: on a real one, or on the
simulator of the tests.
"""

import functools
import importlib

import numpy as np

from minitf.backend import xp

__all__ = ["cuda", "gemm", "generation", "has_kernels", "launch"]


class _InsideKernels:
    """The words that have a meaning only inside a kernel:
    `launch` puts the real ones in its place.
    """

    def __getattr__(self, name):
        raise AttributeError(
            f"cuda.{name} is for kernels: start them with minitf.gpu.launch.launch"
        )


cuda = _InsideKernels()


def has_kernels(*arrays):
    """Tell whether kernels can work on these arrays: on a GPU, in float32."""
    return xp.__dict__["_room"] == "gpu" and all(array.dtype == np.float32 for array in arrays)


def launch(kernel, grid, block, *arguments):
    """Run a kernel once for every thread: `grid` blocks of `block` threads each, both given as one
    to three lengths.
    """
    if min(grid) > 0:
        _starters()[0](kernel, grid, block, *arguments)


def gemm(*arguments):
    """Multiply matrices as cuBLAS does: see cupy_launch.py, and matmul.py, where this is called."""
    _starters()[1](*arguments)


def generation():
    """Return the generation of the GPU in use: 75 Turing, 80 Ampere, 90 Hopper."""
    return int(xp.cuda.Device().compute_capability) if xp.__name__ == "cupy" else 90


def _starters():
    """Return what starts a kernel, and a product: the simulator's own two functions, or CuPy's."""
    return getattr(xp.__dict__["_module"], "kernels", None) or _of_cupy()


@functools.cache
def _of_cupy():
    own = importlib.import_module("minitf.gpu.cupy_launch")
    return own.launch, own.gemm
