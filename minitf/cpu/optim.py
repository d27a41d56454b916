"""The form of Adam on NumPy: block by block, so that each stays in the cache, on all threads."""

import numpy as np

from minitf import optim
from minitf.cpu.sums import blocks
from minitf.cpu.threads import parallel_for
from minitf.forms import form_of


@form_of(optim.adam_update)
def adam_update(x, g, m, v, t, rate, beta_1=0.9, beta_2=0.98, eps=1e-9, finite=True):
    """Change x, m and v in place; each array is read from memory once."""
    if not x.ndim:
        return NotImplemented
    if not finite:
        return None
    # Both bias corrections are numbers, so they need no pass over the arrays:
    # sqrt(v/c) + eps = (sqrt(v) + eps sqrt(c)) / sqrt(c)
    root = (1 - beta_2**t) ** 0.5
    scale = rate * root / (1 - beta_1**t)

    def update(block):
        data, gradient, mean, square = (array[block] for array in (x, g, m, v))
        scratch = gradient * (1 - beta_1)
        mean *= beta_1
        mean += scratch
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - beta_2
        square *= beta_2
        square += scratch
        np.sqrt(square, out=scratch)
        scratch += eps * root
        np.divide(mean, scratch, out=scratch)
        scratch *= scale
        data -= scratch

    return parallel_for(update, blocks(x.shape))
