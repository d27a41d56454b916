"""minitf: the Transformer of "Attention Is All You Need", written from scratch on NumPy and CuPy.

Letters for the axes of arrays, everywhere:

    B batch     T target length   S source length   D d_model
    H heads     K d_k             U d_v             F d_ff          V vocabulary
    W beams     R = B * W texts, decoded side by side

Masks are boolean, True = may attend. Gradients are called gx, gy: of x, of y.
"""

from typing import TYPE_CHECKING

from minitf import functions
from minitf.backend import use, using
from minitf.config import Config
from minitf.errors import UserError
from minitf.tensor import Tensor, no_grad
from minitf.transformer import Transformer

if TYPE_CHECKING:
    from minitf.check import grad_check, same
    from minitf.translation import Translator

__version__ = "0.2.0"
__all__ = [
    "Config",
    "Tensor",
    "Transformer",
    "Translator",
    "UserError",
    "functions",
    "grad_check",
    "no_grad",
    "same",
    "use",
    "using",
]


def __getattr__(name):
    """Load the Translator and the checks when they are asked for, as few programs need them."""
    if name in ("Translator", "grad_check", "same"):
        from minitf import check, translation

        return getattr(translation if name == "Translator" else check, name)
    raise AttributeError(f"module 'minitf' has no attribute {name!r}")
