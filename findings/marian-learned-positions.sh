#!/usr/bin/env bash
# Marian's option for learned positions changes nothing, and is stored in the model as if it did.
#
# One would guess: `--transformer-train-position-embeddings true` trains a table of positions in place of the sinusoid, so a
#   program that finds this setting in a model has to look for the table, or to refuse the model.
# What is true: with pymarian 1.12.42 (Marian 1.12) the model has the setting, no array of positions, and the weights that training
#   without the option gives, to the last bit. The code asks for another name, `transformer-train-positions`.
# Why it matters: whoever compares learned positions with sinusoids in this toolkit compares a model with itself. A reader of
#   such files goes by the array (`Wpos`), and not by the setting.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pymarian==1.12.42 numpy==2.3.5
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
from pathlib import Path

import numpy as np
import pymarian

Path("lines").write_text("a b c\nb a d\nc d\nd\n" * 50)
words = ["</s>", "<unk>", *"abcd"]
Path("words.yml").write_text("".join(f"{word}: {i}\n" for i, word in enumerate(words)))
models = []
for learned in (False, True):
    path = f"{learned}.npz"
    pymarian.Trainer(
        type="transformer", model=path, train_sets=["lines"] * 2, vocabs=["words.yml"] * 2,
        transformer_train_position_embeddings=learned,
        dim_emb=16, transformer_dim_ffn=16, transformer_heads=2, enc_depth=1, dec_depth=1,
        mini_batch=8, after_batches=20, cpu_threads=1, workspace=64, seed=1, quiet=True,
    ).train()
    with np.load(path) as file:
        models.append(dict(file))
settings = [model.pop("special:model.yml").tobytes().decode() for model in models]
lines = [text for text in settings[1].split("\n") if "train-position" in text]
same = all(np.array_equal(models[0][name], models[1][name]) for name in models[0])
print(*lines, sep="\n")
print(f"{len(models[1])} arrays, as without the option: {models[0].keys() == models[1].keys()}")
print(f"with the same numbers: {same}")
assert lines == ["transformer-train-position-embeddings: true"], "this has changed"
assert models[0].keys() == models[1].keys() and same, "this has changed"
PY
