"""Marian, the C++ toolkit that trains the models of OPUS-MT and Firefox: pymarian is all of it.

    python -m benchmarks.with_marian OPTIONS

runs its trainer with these options, a JSON object.
"""

import sys

from benchmarks.protocol import cores, refuse, serve

try:
    import pymarian
except ImportError:
    refuse("Marian is not installed (pip install pymarian==1.12.42 for --python, on Linux)")

import ctypes
import json
import re
import subprocess
from pathlib import Path

import numpy as np

from benchmarks import work

UPDATE = re.compile(r"Up\. \d+ .*Cost (\S+) .*gNorm (\S+)")
PR_SET_PDEATHSIG, SIGKILL = 1, 9


def trainer_options(task, model, texts, vocabulary):
    """Return the options of the trainer for a model with the sizes of minitf's."""
    sizes = task["model"]
    return {
        "type": "transformer",
        "model": str(model),
        "train_sets": list(map(str, texts)),
        "vocabs": [str(vocabulary)] * 2,
        "dim_emb": sizes["d_model"],
        "transformer_dim_ffn": sizes["d_ff"],
        "transformer_heads": sizes["n_heads"],
        "enc_depth": sizes["n_layers"],
        "dec_depth": sizes["n_layers"],
        "transformer_ffn_activation": "relu",
        "transformer_dropout": sizes["dropout"],
        "tied_embeddings_all": True,
        "optimizer_params": [*work.BETAS, work.ADAM_EPS],
        "cost_type": "ce-mean-words",
        "clip_norm": 0,
        "cpu_threads": task["threads"] or cores(),
        "seed": 1,
    }


class Training:
    """A trainer that makes an update whenever it gets the text of a batch.

    Marian trains until its text ends. So it reads a pipe, and its log says when an update is done.
    """

    def __init__(self, task):
        folder, size = Path(task["folder"]), task["model"]["vocabulary_size"]
        vocabulary = folder / "words.yml"
        words = "".join(f'"{word}": {i}\n' for i, word in enumerate(work.words(size)))
        vocabulary.write_text(words, encoding="utf-8")
        source, _, target = work.batch(task)
        self.text = "".join(
            "\t".join(" ".join(map(str, ids[ids > work.EOS])) for ids in pair) + "\n"
            for pair in zip(source, target, strict=True)
        )
        options = trainer_options(task, folder / "trained.npz", ["stdin"], vocabulary) | {
            "pretrained_model": str(folder / "marian.npz"),
            "tsv": True,
            "mini_batch": task["pairs"],
            "maxi_batch": 1,
            "shuffle": "none",
            "learn_rate": work.RATE,
            # Marian spreads eps' over all V ids, minitf eps over the V - 1 wrong ones.
            "label_smoothing": work.SMOOTHING * size / (size - 1),
            "disp_freq": "1u",
        }
        command = [sys.executable, "-m", "benchmarks.with_marian", json.dumps(options)]
        pipes = dict.fromkeys(("stdin", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, text=True, **pipes)

    def __call__(self):
        """Make one update; returns the loss, and the length of the gradient."""
        print(self.text, end="", file=self.process.stdin, flush=True)
        for line in self.process.stderr:
            if found := UPDATE.search(line):
                return tuple(map(float, found.groups()))
        raise RuntimeError("Marian's trainer has ended")

    def memory(self):
        """Return None: what is known is the memory of this process, and not of the trainer's."""


def check_training(task):
    """Return the losses of three updates; the length of the first gradient goes into a file."""
    training = Training(task)
    found = [training() for _ in range(3)]
    np.savez(task["out"], length=found[0][1])
    return [loss for loss, _ in found]


def trained(task):
    """Train a model with the texts and the subwords in its folder, if it is not there yet."""
    folder = Path(task["trained"])
    if not (folder / "model.npz").exists():
        texts = folder / "train.source", folder / "train.target"
        options = trainer_options(task, folder / "training.npz", texts, folder / "vocab.spm") | {
            "mini_batch": 64,
            "after_batches": task["updates"],
            "learn_rate": task["rate"],
            "lr_warmup": task["updates"] // 4,
            "label_smoothing": work.SMOOTHING,
        }
        pymarian.Trainer(**options).train()
        # A signal that asks Marian to end lets it save its model, as if it were done.
        progress = (folder / "training.npz.progress.yml").read_text(encoding="utf-8")
        if (done := int(re.search(r"^batches: (\d+)", progress, re.MULTILINE)[1])) < task[
            "updates"
        ]:
            raise SystemExit(f"Marian was stopped after {done} of {task['updates']} updates")
        (folder / "training.npz").rename(folder / "model.npz")


def translating(task):
    """Return a function that translates lines with a model that Marian trained."""
    folder = Path(task["trained"])
    translator = pymarian.Translator(
        models=[str(folder / "model.npz")],
        vocabs=[str(folder / "vocab.spm")] * 2,
        beam_size=task["beam"],
        normalize=task["alpha"],
        mini_batch=64,
        maxi_batch=1000,
        maxi_batch_sort="src",
        cpu_threads=task["threads"] or cores(),
        quiet_translation=True,
    )
    return work.translating(task, translator.translate)


JOBS = {
    "about": lambda task: {"Marian": pymarian.__version__},
    "train": Training,
    "check train": check_training,
    "trained": trained,
    "translate": translating,
    "check translate": lambda task: translating(task)(),
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)  # it ends as soon as the benchmark does
        pymarian.Trainer(**json.loads(sys.argv[1])).train()
    else:
        serve(JOBS)
