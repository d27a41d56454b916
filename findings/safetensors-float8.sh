#!/usr/bin/env bash
# safetensors for NumPy writes float8 arrays that it cannot read.
#
# One would guess: what `safetensors.numpy.save_file` writes, `load_file` of the same module reads. For bfloat16, which NumPy
#   does not have either, it does.
# What is true: with safetensors 0.8.0 and ml_dtypes 0.5.4 a float8_e4m3fn or float8_e5m2 array is saved without a word, in a valid
#   file; loading it raises "module 'numpy' has no attribute 'float8_e4m3fn'". int4 and float4 are refused when saving.
# Why it matters: a model quantised to float8 in NumPy is on the disk, and the loss is noticed when it is needed. Write its
#   bytes as uint8, with the type in the metadata, or test the load before the original goes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q safetensors==0.8.0 ml_dtypes==0.5.4 numpy==2.3.5
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

for name, expected in [
    ("bfloat16", "read"),
    ("float8_e4m3fn", "saved, not read"),
    ("float8_e5m2", "saved, not read"),
]:
    array = np.array([1, 2, 3, 4], getattr(ml_dtypes, name))
    save_file({"x": array}, "x.safetensors")
    try:
        outcome = "read" if (load_file("x.safetensors")["x"] == array).all() else "read wrongly"
    except AttributeError as error:
        print(error)
        outcome = "saved, not read"
    print(name, outcome)
    assert outcome == expected, "this has changed"
PY
