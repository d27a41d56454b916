"""Start kernels and matrix products, on a real GPU or on the simulator of the tests."""

import functools

from minitf.backend import xp
from minitf.errors import UserError


class _InsideKernels:
    """A placeholder for cupyx.jit, whose functions exist only inside a kernel.

    `launch` replaces it in the kernels that it compiles.
    """

    def __getattr__(self, name):
        raise AttributeError(
            f"cuda.{name} works only inside a kernel: start kernels with minitf.gpu.launch.launch"
        )


cuda = _InsideKernels()


def has_kernels(*arrays):
    """Return whether there are kernels for these arrays: on a GPU, in float32. None is ignored."""
    if xp._folder != "gpu":
        return False
    return all(array is None or array.dtype.char == "f" for array in arrays)


def launch(kernel, grid, block, *arguments):
    """Run a kernel once for every thread of a grid of blocks.

    grid: the number of blocks along one to three axes. block: the number of threads of each.
    If the GPU or its compiler raises an error, a note is added that says how to do without kernels.
    """
    if min(grid) == 0:
        return
    try:
        _starters()[0](kernel, grid, block, *arguments)
    except Exception as error:
        if not isinstance(error, MemoryError):
            error.add_note(f"The kernel {kernel.__name__} failed: set MINITF_FORMS=off to use none")
        raise


def gemm(*arguments):
    """Multiply matrices with cuBLAS: see `gemm` in cupy_launch.py, and its caller matmul.py."""
    _starters()[1](*arguments)


def nccl():
    """Return CuPy's interface to NCCL, the library that sums arrays over several GPUs.

    Raises UserError if NCCL is not installed.
    """
    from cupy.cuda import nccl as library

    if not library.available:
        raise UserError(
            "several GPUs need NCCL: pip install nvidia-nccl-cu13 (or "
            "nvidia-nccl-cu12, to match your CuPy)"
        )
    return library


def _starters():
    """Return the functions `launch` and `gemm` of the simulator, or else those for CuPy."""
    return vars(xp._module).get("kernels") or _of_cupy()


@functools.cache
def _of_cupy():
    from minitf.gpu import cupy_launch  # which needs CuPy

    return cupy_launch.launch, cupy_launch.gemm
