"""Public models in files, for tests: the stored one, and the same in other formats."""

import json
import shutil

import numpy as np
from paths import FIXTURES
from safetensors.numpy import load_file

from minitf.config import Config
from minitf.public.names import names_of_layers
from minitf.tensor import no_grad

PUBLIC = FIXTURES / "public"
FILES = ("config.json", "vocab.json", "source.spm", "target.spm")
MODEL_YML = """\
dec-depth: 1
dim-emb: 16
dim-vocabs:
  - {size}
  - {size}
enc-depth: 2
tied-embeddings-all: true
transformer-decoder-autoreg: self-attention
transformer-dim-ffn: 24
transformer-ffn-activation: swish
transformer-heads: 4
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-preprocess: ""
type: transformer
"""


def vocabulary():
    return json.loads((PUBLIC / "vocab.json").read_text(encoding="utf-8"))


def hugging_face(folder, weights="model.safetensors", settings=None):
    """Copy the stored model to a folder; settings: entries of config.json that are changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(PUBLIC / name, folder / name)
    target = "model.safetensors" if weights.endswith("safetensors") else "pytorch_model.bin"
    shutil.copy(PUBLIC / weights, folder / target)
    if settings:
        found = json.loads((folder / "config.json").read_text()) | settings
        (folder / "config.json").write_text(json.dumps(found))
    return folder


def marian(folder, settings=None, **arrays):
    """Write the stored model as Marian would; settings: lines of model.yml that are changed."""
    folder.mkdir(parents=True, exist_ok=True)
    config = Config(90, n_layers=2, n_decoder_layers=1, d_model=16, d_ff=24, n_heads=4)
    weights = load_file(PUBLIC / "model.safetensors")
    text = MODEL_YML.format(size=len(vocabulary()) - 1)
    for name, value in (settings or {}).items():
        lines = [line for line in text.split("\n") if line and not line.startswith(f"{name}:")]
        text = "\n".join([*lines, f"{name}: {value}", ""])
    np.savez(folder / "opus.npz", **(marian_arrays(weights, config, text) | arrays))
    write_yaml(folder / "opus.vocab.yml", sorted(vocabulary(), key=vocabulary().get)[:-1])
    for name in ("source.spm", "target.spm"):
        shutil.copy(PUBLIC / name, folder / name)
    return folder


def marian_arrays(weights, config, settings):
    """Return the arrays of a .npz from those of Hugging Face; Marian has no <pad>, the last row."""
    found = {
        "Wemb": weights["model.shared.weight"][:-1],
        "decoder_ff_logit_out_b": weights["final_logits_bias"][:, :-1],
        "special:model.yml": np.frombuffer(settings.encode() + b"\0", np.int8),
    }
    for each in names_of_layers(config):
        array = weights[each.hugging_face]
        found[each.marian] = array.T if array.ndim == 2 else array[None]
    return found


def write_yaml(path, names):
    """Write a vocabulary as Marian does: some keys have a line of their own."""
    lines = []
    for i, name in enumerate(names):
        key = json.dumps(name, ensure_ascii=False)
        lines.append(f"? {key}\n: {i}\n" if i % 7 == 0 else f"{key}: {i}\n")
    path.write_text("".join(lines), encoding="utf-8")


def rows():
    """Return the stored model's id of each id of minitf: <pad> <unk> <s> </s> and the others."""
    found = vocabulary()
    special = found["<pad>"], found["<unk>"], found["<pad>"], found["</s>"]
    return [*special, *(i for i in range(len(found)) if i not in special)]


def reference(activation="swish"):
    """Return source ids, target ids (both minitf's) and transformers' logits of those ids."""
    stored = np.load(PUBLIC / "logits.npz")
    ours = {theirs: i for i, theirs in reversed(list(enumerate(rows())))}
    source, target = (np.vectorize(ours.get)(stored[name]) for name in ("source", "target"))
    target[:, 0] = 2  # the start mark, for which transformers uses <pad>
    return source, target, stored[activation][..., rows()]


def logits_of(model, source, target):
    with model.evaluating(), no_grad():
        return model(source, target).numpy()


def difference(model, activation="swish"):
    """Return the largest difference of logits from transformers', of the largest logit.

    The ids that minitf never writes have no finite logit.
    """
    source, target, expected = reference(activation)
    found = logits_of(model, source, target)
    never = list(model.config.suppressed_ids)
    assert np.isneginf(found[..., never]).all()
    kept = np.setdiff1d(np.arange(found.shape[-1]), never)
    return np.abs(found - expected)[..., kept].max() / np.abs(expected).max()
