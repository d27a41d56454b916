#!/usr/bin/env bash
# CuPy's remainder of two positive numbers can be negative.
#
# One would guess: `cupy.remainder(x, y)`, or `x % y`, is NumPy's function on a GPU, so 0 <= x % y < y for positive floats.
# What is true: CuPy 14.2.0 compiles x - floor(x / y) * y, with the quotient rounded; NumPy's remainder is exact. In float64,
#   1.7 / 0.1 is 17, so 1.7 % 0.1 is -2.2e-16, or -1.4e-16 if the compiler makes one instruction of the last two operations;
#   NumPy has 0.0999. In float32, 1e9 % 6.2831855 is -64, or -33.5; NumPy has 4.17.
# Why it matters: an angle or a position that is wrapped into [0, period) can leave it. `(x % y // step).astype(int)` is then the
#   index -1 or less, which CuPy reads from the other end without a word.
# It needs no GPU: the formula is read from what CuPy compiles, and computed by NumPy, with and without the single instruction.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q cupy-cuda12x==14.2.0 numpy==2.3.5
cd "$folder"
cat > kernels.py <<'PY'
import ast
import re
import warnings
from fractions import Fraction
from pathlib import Path

import cupy
import numpy as np

warnings.simplefilter("ignore")  # cupyx.jit is experimental
from cupyx.jit import _compile, _cuda_typerules, _cuda_types


def wrapped(x, y, z):
    z[0] = x[0] % y[0]


assert _cuda_typerules.get_ufunc("cuda", ast.Mod) is cupy.remainder  # % in kernels is this function
header = (Path(cupy.__file__).parent / "_core/include/cupy/carray.cuh").read_text()
for dtype, name, x, y in ((np.float64, "double", 1.7, 0.1), (np.float32, "float", 1e9, 6.2831855)):
    array, modifiers = _cuda_types.CArray(np.dtype(dtype), 1, True, True), ["__global__"]
    code = _compile.transpile(wrapped, modifiers, "cuda", (array,) * 3, _cuda_types.void).code
    (formula,) = re.findall(r"return (in0.*);", code)
    (quotient,) = re.findall(rf"{name} _floor_divide\({name} x.*\s+return (.*);", header)
    print(f"{formula}, with _floor_divide(x, y) = {quotient}")
    assert formula == "in0 - _floor_divide(in0, in1) * in1", "this has changed"
    assert quotient == "floor(x / y)", "this has changed"
    x, y = dtype(x), dtype(y)
    q = np.floor(x / y)
    two = x - q * y
    one = dtype(Fraction(float(x)) - Fraction(float(q)) * Fraction(float(y)))  # rounded once
    print(f"{x} % {y} in {name}: {two} or {one}; NumPy: {np.remainder(x, y)}")
    assert two < 0 and one < 0 and 0 < np.remainder(x, y) < y
PY
"$folder/venv/bin/python" kernels.py
