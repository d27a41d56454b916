"""The form of Adam on a GPU: one kernel, which reads and writes each number once."""

from minitf import optim
from minitf.backend import to_device
from minitf.forms import form_of
from minitf.gpu import kernels
from minitf.gpu.launch import has_kernels, launch
from minitf.gpu.warps import THREADS


@form_of(optim.adam_update)
def adam_update(x, g, m, v, t, rate, beta_1=0.9, beta_2=0.98, eps=1e-9, finite=True):
    """Change x, m and v in place; the kernel reads `finite`, so the host need not wait for it."""
    if not has_kernels(x, g, m, v) or x.ndim != 1:
        return NotImplemented
    # Both bias corrections are numbers, so the kernel does not compute them for each element:
    # sqrt(v/c) + eps = (sqrt(v) + eps sqrt(c)) / sqrt(c)
    root = (1 - beta_2**t) ** 0.5
    scale = rate * root / (1 - beta_1**t)
    flag = to_device(finite).reshape(1)
    numbers = map(float, (beta_1, beta_2, eps * root, scale))  # float64 scalars would widen all
    arguments = x, g, m, v, *numbers, flag
    launch(kernels.adam, (-(-x.size // THREADS),), (THREADS,), *arguments)
    return None
