"""The array library in use, chosen once for the process: NumPy on the CPU, CuPy on the GPU.

The other files say `from minitf.backend import xp` and write `xp.exp(...)`. `xp` is one object,
which `use` fills with the names of the chosen library, so a call costs nothing extra. Arrays carry
no device of their own: all Tensors of a process are on the same one, while ids and masks are NumPy
arrays until they are used.
"""

import contextlib
import importlib
import os
import types
from collections.abc import Iterator, Sequence

import numpy as np

from minitf.errors import UserError, in_file

__all__ = ["copy_into", "is_finite", "on_gpu", "to_device", "to_numpy", "use", "using", "xp"]

DType = np.dtype | type | str  # for type hints: anything that NumPy takes as a dtype
FOLDERS = {"numpy": "cpu", "cupy": "gpu"}  # where a library has faster forms: see forms.py


class _Library:
    """The names of the array library in use, which `use` puts here."""

    def __getattr__(self, name):
        # Called only for a name that is not here: before a library was chosen, and if the library
        # creates it on demand, as numpy.random.
        if "_module" not in self.__dict__:
            use(None)
            return getattr(self, name)
        return getattr(self._module, name)


xp = _Library()


def use(library: str | types.ModuleType | None) -> None:
    """Choose the array library: "numpy", "cupy", or a module with the same functions.

    None: the one that MINITF_BACKEND names, else NumPy, unless one is in use already.
    Arrays made before the switch do not move, so call it before the first Tensor is made.
    Raises UserError for an unknown name, and if CuPy or a GPU is missing.
    """
    if library is None:
        if "_module" not in xp.__dict__:
            with in_file("MINITF_BACKEND"):
                use(os.environ.get("MINITF_BACKEND") or "numpy")
        return
    module = _load(library) if isinstance(library, str) else library
    names = xp.__dict__  # Python finds xp.exp here at once, without a call of __getattr__
    names.clear()
    names.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
    names["_module"], names["_folder"] = module, FOLDERS.get(module.__name__)


@contextlib.contextmanager
def using(library: str | types.ModuleType) -> Iterator[_Library]:
    """Use another array library inside a `with` block, for tests that compare two."""
    before = xp._module
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
    except ImportError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f'CuPy cannot be imported ({reason}): in the repository, pip install -e ".[cuda13]" '
            '(".[cuda12]" if nvidia-smi shows CUDA 12), or use --backend numpy'
        ) from None
    version = getattr(module, "__version__", "0")
    if name == "cupy" and int(version.partition(".")[0]) < 14:
        raise UserError(
            f'CuPy {module.__version__} is too old: pip install -e ".[cuda13]" brings 14'
        )
    if name == "cupy" and not module.cuda.is_available():
        raise UserError("CuPy finds no usable GPU (see nvidia-smi): use --backend numpy")
    return module


def to_device(array: np.ndarray | Sequence | float, dtype: DType | None = None) -> np.ndarray:
    """Return an array, list or number as an array of the library in use, on its device.

    Raises TypeError for a masked array, and for anything but numbers on a GPU, where NumPy would
    make an array of objects.
    """
    try:
        return xp.asarray(refuse_masked(array), dtype=dtype)
    except ValueError as error:
        if str(error).startswith("Unsupported dtype"):
            raise TypeError(f"a GPU has only arrays of numbers: {error}") from None
        raise


def refuse_masked(array):
    """Return the same array, list or number. Raises TypeError for a masked array."""
    if hasattr(array, "filled"):
        raise TypeError("a masked array would lose its mask: use .filled(0) and functions.where")
    return array


def to_numpy(array: np.ndarray | Sequence | float) -> np.ndarray:
    """Return the array as a NumPy array.

    On a GPU this waits for the result, so use it for logging and not in a computation.
    """
    if isinstance(array, np.ndarray):
        return array
    return xp.asnumpy(array) if hasattr(xp, "asnumpy") else np.asarray(array)


def is_finite(array):
    """Return whether no number of a NumPy array is NaN or infinite."""
    if array.dtype == np.float16 and array.size:  # by the bits: isfinite takes ten times as long
        return bool(array.view(np.int16).max() < 0x7C00 and array.view(np.uint16).max() < 0xFC00)
    return bool(np.isfinite(array).all())


def copy_into(out, array):
    """Copy a NumPy array into an array of the library in use, and into its dtype.

    Weights are stored as float16. They become float32 by their bits: the sign and the exponent move
    to their places there, and the factor corrects the exponent. NumPy's conversion takes four times
    as long, which is a tenth of the time of a short translation.
    """
    halves = array.dtype == np.float16 and is_finite(array)
    if halves and isinstance(out, np.ndarray) and out.dtype == np.float32:
        bits = out.view(np.int32)
        bits[...] = array.view(np.int16)
        bits <<= 13
        bits &= ~0x70000000  # copies of the sign
        out *= 2.0**112
    elif hasattr(array, "scales"):  # an Int8Matrix: in half the time of its product, copied
        out[...] = to_device(array.numbers)
        out *= to_device(array.scales)
    else:
        out[...] = to_device(array)


def on_gpu():
    """Return whether another library than NumPy is in use, so that a GPU computes.

    On a GPU, reading a number waits for all operations that are queued.
    """
    return xp._module is not np
