"""The stand-in for GPU arrays under CuPy's name, for processes that ask for CuPy: with this folder
and `tests/support` in PYTHONPATH.

Kernels run thread by thread, so a program of some length needs MINITF_FORMS=off.
"""

import types

import on_the_stand_in
import strict

on_the_stand_in.take_what_cupy_takes()
globals().update(
    {name: value for name, value in vars(strict.with_kernels).items() if not name.startswith("__")}
)
__version__ = strict.NAMES["version"]
_memory = types.SimpleNamespace(total_bytes=lambda: 7, free_bytes=lambda: 0)
_runtime = types.SimpleNamespace(
    getDeviceProperties=lambda number: {"name": b"stand-in", "totalGlobalMem": 1 << 34},
    runtimeGetVersion=lambda: 0,
)
_device = types.SimpleNamespace(
    synchronize=lambda: None, compute_capability="90", mem_info=(1 << 34, 1 << 34)
)
cuda = types.SimpleNamespace(
    is_available=lambda: True,
    Device=lambda: _device,
    runtime=_runtime,
    set_allocator=lambda allocator: None,
)


def get_default_memory_pool():
    return _memory


def __getattr__(name):
    return getattr(strict.with_kernels, name)
