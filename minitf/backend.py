"""Which array library is in use: NumPy on the CPU, CuPy on the GPU.

Chosen once for the whole process.

Every other file says `from minitf.backend import xp` and writes `xp.exp(...)`. `xp` is one object
that `use` fills with the names of the chosen library, so switching costs nothing at the call: no
array carries a device. All Tensors of a process are in one place; ids and masks wait on the CPU.
"""

import contextlib
import importlib
import os
import sys
import types
from collections.abc import Iterator, Sequence

import numpy as np

from minitf.errors import UserError

__all__ = ["nccl", "on_gpu", "to_device", "to_numpy", "use", "using", "xp"]

DType = np.dtype | type | str  # for type hints: what NumPy takes as a dtype


class _Library:
    """The names of the array library in use."""

    def __getattr__(self, name):
        # Reached only for names that the library itself makes on demand, such as numpy.random.
        return getattr(self.__dict__["_module"], name)


xp = _Library()


def use(library: str | types.ModuleType) -> None:
    """Choose the array library: "numpy", "cupy", or a module that looks like one of them.

    Arrays made before the switch stay where they are, so call it before the first Tensor is made.
    Raises UserError for an unknown name, for CuPy without a GPU, and where CuPy is not installed.
    """
    module = _load(library) if isinstance(library, str) else library
    if not isinstance(module, types.ModuleType):
        raise TypeError(
            f"use() takes the name of a library or a module, not {type(library).__name__}"
        )
    xp.__dict__.clear()
    xp.__dict__.update(
        {name: value for name, value in vars(module).items() if not name.startswith("_")}
    )
    xp.__dict__["_module"] = module
    has_kernels = module.__name__ == "cupy" or hasattr(module, "kernels")
    xp.__dict__["_room"] = "cpu" if module is np else "gpu" if has_kernels else None  # of its forms


@contextlib.contextmanager
def using(library: str | types.ModuleType) -> Iterator[_Library]:
    """Use another array library inside a `with` block: for tests that compare the two."""
    before = xp.__dict__["_module"]
    use(library)
    try:
        yield xp
    finally:
        use(before)


def _load(name):
    if name not in ("numpy", "cupy"):
        raise UserError(f"unknown backend {name!r}: choose numpy or cupy")
    try:
        module = importlib.import_module(name)
    except ImportError:
        raise UserError(
            "CuPy is not installed: pip install 'cupy-cuda13x[ctk]' (or cupy-cuda12x[ctk]), "
            "or use --backend numpy"
        ) from None
    if name == "cupy" and not module.cuda.is_available():
        raise UserError("CuPy finds no usable GPU (see nvidia-smi): use --backend numpy")
    return module


def to_device(array: np.ndarray | Sequence | float, dtype: DType | None = None) -> np.ndarray:
    """Give the array (or nested list) as an array of the library in use, moved there
    if it has to be.
    """
    return xp.asarray(array, dtype=dtype)


def to_numpy(array: np.ndarray | Sequence | float) -> np.ndarray:
    """Give the array as a NumPy array.

    From a GPU this waits for the result: log with it, do not compute.
    """
    if isinstance(array, np.ndarray):
        return array
    return xp.asnumpy(array) if hasattr(xp, "asnumpy") else np.asarray(array)


def on_gpu():
    """Whether a GPU computes: it works through a queue, and the host has to wait when it
    reads a number.
    """
    return xp.__dict__["_module"] is not np


def nccl():
    """Give CuPy's door to NCCL, which sums arrays over several GPUs.

    Raises UserError where it is not installed.
    """
    library = importlib.import_module("cupy.cuda.nccl")
    if not library.available:
        raise UserError(
            "several GPUs need NCCL: pip install nvidia-nccl-cu13 (or "
            "nvidia-nccl-cu12, as your CuPy)"
        )
    return library


try:
    use(os.environ.get("MINITF_BACKEND") or "numpy")
except UserError as error:  # while it is imported there is no program yet that could catch this
    print(f"MINITF_BACKEND: {error}", file=sys.stderr)
    raise SystemExit(2) from None
