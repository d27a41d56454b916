"""Every kernel, as CUDA, for three generations of GPUs, by NVIDIA's compiler, which needs no GPU.

cupyx.jit turns the Python of a kernel into CUDA when it knows the types of the arguments. The types
are those of real launches, taken down while the simulator runs them. Needs CuPy and two wheels of
NVIDIA (the compiler and its headers):

    pip install -e '.[nvrtc]'
"""

import ctypes
import functools
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import strict
import test_kernels as checks

from minitf.backend import using
from minitf.gpu import kernels, warps

ARCHITECTURES = ["sm_75", "sm_80", "sm_90"]  # Turing, Ampere, Hopper
KERNELS = [
    name
    for name, function in vars(kernels).items()
    if callable(function) and function.__module__ == kernels.__name__ and name not in vars(warps)
]
RUNS = [
    lambda: checks.test_dropout_draws_the_mask_of_numpy(None, (2, 3), 5),
    lambda: checks.test_bias_relu_dropout(None, (3, 7), 0.3),
    lambda: checks.test_bias_relu_dropout_of_rounded_numbers(None, 0.3),
    lambda: checks.test_add_norm(None, (3, 7), 0.3),
    lambda: checks.test_attention(None, "padding", 0.3),
    lambda: checks.test_attention(None, "none", 0.0),
    lambda: checks.test_a_step_of_attention_to_the_own_text(None, 7, 4),
    lambda: checks.test_a_step_of_attention_to_the_source(None),
    lambda: checks.test_best_of_rows(None, 11, 3),
    lambda: checks.test_cross_entropy(None, 11, 0.1, ()),
    lambda: checks.test_cross_entropy(None, 11, 0.1, (1, 5)),
    lambda: checks.test_cross_entropy_writes_a_rounded_gradient(None),
    lambda: checks.test_adam(None),
    lambda: checks.test_add_segments(None, "some", 1),
    lambda: checks.test_column_sums(None, (3, 7)),
]


def wheel(pattern):
    """Find a file of one of NVIDIA's wheels, whose folders change with the version of CUDA."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else []
    return next((path for place in places for path in sorted(Path(place).rglob(pattern))), None)


LIBRARY, HEADER = wheel("libnvrtc.so*") or wheel("nvrtc64_*.dll"), wheel("cuda_fp16.h")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (LIBRARY and HEADER and importlib.util.find_spec("cupy")),
        reason="compiling the kernels needs CuPy and NVIDIA's compiler: pip install -e '.[nvrtc]'",
    ),
]


@functools.cache
def launches():
    """Run every kernel on the simulator; return [(kernel, arguments)] of its launches."""
    seen = []

    def launch(kernel, grid, block, *arguments):
        seen.append((kernel, arguments))
        simulate(kernel, grid, block, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        simulate, gemm = strict.with_kernels.kernels
        patch.setattr(strict.with_kernels, "kernels", (launch, gemm))
        with using(strict.with_kernels):
            for run in RUNS:
                run()
    return seen


def cuda_types(arguments):
    """The types that CuPy gives to these arguments; the text of the CUDA depends on them."""
    from cupyx.jit import _cuda_typerules, _cuda_types

    def cuda_type(value):
        if isinstance(value, strict.StrictArray):
            array = value._array
            return _cuda_types.CArray(array.dtype, array.ndim, array.flags.c_contiguous, True)
        return _cuda_typerules.get_ctype_from_scalar("cuda", value)

    return tuple(cuda_type(value) for value in arguments)


def with_ids(types, dtype):
    """The same types, but with another one for the first array of int64: ids, or targets."""
    from cupyx.jit import _cuda_types

    for i, old in enumerate(types):
        if isinstance(old, _cuda_types.CArray) and old.dtype == np.int64:
            new = _cuda_types.CArray(np.dtype(dtype), old._ndim, old._c_contiguous, True)
            return (*types[:i], new, *types[i + 1 :])
    return types


def with_large_arrays(types):
    """The same types, but with arrays of more than 2^31 bytes, whose indices have 64 bits."""
    from cupyx.jit import _cuda_types

    return tuple(
        _cuda_types.CArray(each.dtype, each._ndim, each._c_contiguous, False)
        if isinstance(each, _cuda_types.CArray)
        else each
        for each in types
    )


def cuda_of(kernel, types, monkeypatch):
    """The CUDA text that CuPy makes of the kernel, and the compiler's options."""
    import cupy
    from cupyx.jit import _compile, _cuda_types

    from minitf.gpu import cupy_launch as gpu

    # CuPy asks the device for these two
    monkeypatch.setattr(cupy._core, "_full_mask", lambda: 0xFFFFFFFF)
    monkeypatch.setattr(cupy._core, "_get_warpsize", lambda: 32)
    with using(cupy):
        function = gpu._compile(kernel)._func
        made = _compile.transpile(
            function, ['extern "C"', "__global__"], "cuda", types, _cuda_types.void
        )
    return made.code, made.options


def compiled(code, options):
    """Compile CUDA: (whether it went well, what the compiler said)."""
    import cupy

    library, program, length = ctypes.CDLL(str(LIBRARY)), ctypes.c_void_p(), ctypes.c_size_t()
    cupy_headers = Path(cupy.__file__).parent / "_core" / "include"
    folders = [cupy_headers, *(cupy_headers / "cupy" / "_cccl").glob("*"), HEADER.parent]
    options = [
        *options,
        "--device-as-default-execution-space",
        *(f"-I{folder}" for folder in folders),
    ]
    assert (
        library.nvrtcCreateProgram(
            ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None
        )
        == 0
    )
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    result = library.nvrtcCompileProgram(program, len(options), array)
    library.nvrtcGetProgramLogSize(program, ctypes.byref(length))
    said = ctypes.create_string_buffer(length.value)
    library.nvrtcGetProgramLog(program, said)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return result == 0, said.value.decode()


def test_the_launches_are_of_every_kernel():
    assert {kernel.__name__ for kernel, _ in launches()} | {"round_to_bfloat16"} == set(KERNELS)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles(name, architecture, monkeypatch):
    arguments = [arguments for kernel, arguments in launches() if kernel.__name__ == name]
    if name == "round_to_bfloat16":
        arguments = [
            [strict.StrictArray(np.zeros(3, np.uint32)), strict.StrictArray(np.zeros(3, np.uint16))]
        ]
    found = {cuda_types(values) for values in arguments}
    found |= {with_large_arrays(types) for types in found}
    # The ids of batches are int32, those of a corpus uint16 if its vocabulary is not too large.
    for types in found | {with_ids(types, ids) for types in found for ids in (np.uint16, np.int32)}:
        code, options = cuda_of(getattr(kernels, name), types, monkeypatch)
        assert "double" not in code.split(f"void {name}(")[1], "something is computed in float64"
        good, said = compiled(
            code, [*options, f"--gpu-architecture={architecture}", "--ptxas-options=-v"]
        )
        assert good, said
        assert "warning" not in said, said
        assert " 0 bytes spill stores" in said, said
        registers = int(re.findall(r"Used (\d+) registers", said)[-1])
        blocks = 65536 // 256 // (-(-registers // 8) * 8)
        # attend_newest has 71 before Hopper: there three blocks fit, whose loads overlap.
        assert blocks >= (3 if name == "attend_newest" else 4), (
            f"{registers} registers: {blocks} blocks of 256 threads fit a multiprocessor"
        )
