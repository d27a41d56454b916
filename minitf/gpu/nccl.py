"""NCCL, the library that sums arrays over several GPUs."""

from minitf.errors import UserError

__all__ = ["load"]


def load():
    """Return CuPy's interface to NCCL.

    Raises UserError if NCCL is not installed.
    """
    from cupy.cuda import nccl as library

    if not library.available:
        raise UserError(
            "several GPUs need NCCL: pip install nvidia-nccl-cu13 (or "
            "nvidia-nccl-cu12, to match your CuPy)"
        )
    return library
