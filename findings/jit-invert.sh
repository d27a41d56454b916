#!/usr/bin/env bash
# In a kernel of cupyx.jit, `~` of a comparison is always true.
#
# One would guess: `~(x > 1)` in a function under `cupyx.jit.rawkernel` is what it is in NumPy, and in CuPy outside kernels:
#   the opposite of `x > 1`. The function is Python, and its masks are combined by `&` and `|`, which work.
# What is true: CuPy 14.2.0 writes C++'s `~`, which takes the comparison as the integer 0 or 1; ~0 is -1 and ~1 is -2, and
#   both are true. NVIDIA's compiler (NVRTC 12.9.86) sees that: the kernel stores 1 without a look at x. CuPy says nothing.
# Why it matters: the kernel runs, and the branch for what is masked computes everything. `not` gives what `~` should.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q cupy-cuda12x==14.2.0 nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79 numpy==2.3.5
cd "$folder"
cat > kernels.py <<'PY'
import ctypes
import re
import warnings
from pathlib import Path

import cupy
import numpy as np
import nvidia.cuda_nvrtc
import nvidia.cuda_runtime

warnings.simplefilter("ignore")  # cupyx.jit is experimental
from cupyx.jit import _compile, _cuda_types


def with_invert(x, y):
    y[0] = ~(x[0] > 1)


def with_not(x, y):
    y[0] = not (x[0] > 1)


def in_ptx(kernel):
    """Return what the kernel of a float32 and a boolean array is compiled to, which needs no GPU."""
    arrays = [_cuda_types.CArray(np.dtype(each), 1, True, True) for each in ("float32", "bool")]
    modifiers = ['extern "C"', "__global__"]
    code = _compile.transpile(kernel, modifiers, "cuda", tuple(arrays), _cuda_types.void).code
    print(re.findall(r"y\[0\] = .*", code)[0])
    own = Path(cupy.__file__).parent / "_core" / "include"
    nvidia_headers = Path(*nvidia.cuda_runtime.__path__) / "include"
    folders = [own, *(own / "cupy" / "_cccl").glob("*"), nvidia_headers]
    options = [f"-I{folder}" for folder in folders]
    options += ["--std=c++17", "--gpu-architecture=compute_80", "--device-as-default-execution-space"]
    options = [option.encode() for option in options]
    (path,) = (Path(*nvidia.cuda_nvrtc.__path__) / "lib").glob("libnvrtc.so*")
    library, program, size = ctypes.CDLL(str(path)), ctypes.c_void_p(), ctypes.c_size_t()
    text = code.encode()
    assert not library.nvrtcCreateProgram(ctypes.byref(program), text, b"k.cu", 0, None, None)
    assert not library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*options)
    )
    assert not library.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    assert not library.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()


for kernel, expected in ((with_invert, False), (with_not, True)):
    reads_x = "ld.global" in in_ptx(kernel)
    print(kernel.__name__, "reads x:", reads_x)
    assert reads_x == expected, "this has changed"
print("NumPy:", ~(np.float32([0, 2]) > 1))
PY
"$folder/venv/bin/python" kernels.py
