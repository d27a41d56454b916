"""Faster forms of the engine's ops, for CuPy on a GPU."""

from minitf.gpu import decode, functions, loss, multihead, optim  # noqa: F401  (they register forms)
from minitf.gpu.matmul import chosen_precision

# How far a form may be off, relative to the largest number. The examples are float32; a form and
# its equation do not round the operands of products in the same places.
_TOLERANCE = {"float32": 1e-3, "tf32": 1e-2, "bfloat16": 5e-2}


def tolerance() -> float:
    """Return how far a form may be off in the chosen precision of products."""
    return _TOLERANCE[chosen_precision()]
