"""Time the work of one contender on a GPU, for gpu_check.py, which compares minitf with PyTorch.

    python examples/benchmarks/gpu_step.py '{"contender": "minitf", "work": "train",
        "precision": "tf32", "model": "base", "pairs": 512, "length": 48,
        "weights": "weights.npz"}'

It prints one line of JSON: milliseconds, the memory, and results that show that both contenders do
the same: for a training step the loss without dropout, for decoding the tokens of each sentence and
their ln P.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[2:0:-1]]

from benchmarks import work  # noqa: E402

VOCABULARY = 37000
REPEATS = {"train": 10, "decode": 2}  # calls; five such groups are timed


def main(text):
    """Do the task of the command line."""
    task = json.loads(text)
    task["sizes"] = _sizes(task)
    print(json.dumps(CONTENDERS[task["contender"], task["work"]](task)))


def _sizes(task):
    from minitf.config import Config

    config = Config.preset(task["model"], task.get("vocabulary", VOCABULARY))
    names = ("n_layers", "d_model", "d_ff", "n_heads", "vocabulary_size")
    return {name: getattr(config, name) for name in names}


def milliseconds(function, synchronise, repeats=10):
    """Return the median time over five repetitions, after two calls that compile and allocate."""
    times = []
    for stretch in range(6):
        synchronise()
        started = time.perf_counter()
        for _ in range(repeats if stretch else 2):
            function()
        synchronise()
        times.append((time.perf_counter() - started) / repeats * 1000)
    return round(float(np.median(times[1:])), 4)


# minitf -------------------------------------------------------------------------------------------


def _our_model(task):
    """Return minitf's model, after writing its weights for the other contender."""
    from minitf import Config, Transformer, backend
    from minitf.gpu.matmul import use_precision

    backend.use("cupy")
    use_precision(task["precision"])
    model = Transformer(Config(**task["sizes"], dropout=0.1))
    np.savez(task["weights"], **work.weights(model.state(), task["work"] == "decode"))
    with np.load(task["weights"]) as arrays:
        return model.load_state(arrays)


def _ours(task, function, **facts):
    from minitf import backend

    facts["ms"] = milliseconds(
        function, backend.xp.cuda.Device().synchronize, REPEATS[task["work"]]
    )
    return facts | {"memory": backend.xp.get_default_memory_pool().total_bytes()}


def train_minitf(task):
    """Time the update of minitf's trainer.

    If a gradient is not finite, the weights stay unchanged, and the host does not wait to find out.
    """
    from minitf import functions as F
    from minitf.backend import xp
    from minitf.optim import Adam, gradient_norm

    model = _our_model(task)
    batch = work.batch(task | {"model": task["sizes"]})
    loss = float(model.eval().loss(*batch)[0])
    model.train()
    optimizer, steps = Adam(model.named_parameters()), iter(range(10**6))

    def step():
        optimizer.zero_grad()
        with F.dropout_state(1, next(steps)):
            total, _ = model.loss(*batch)
        total.backward()
        finite = xp.isfinite(total.data) & xp.isfinite(gradient_norm(optimizer.collect()))
        optimizer.step(work.RATE, finite=finite)

    return _ours(task, step, loss=loss)


def decode_minitf(task):
    """Time beam search as in translate.py, without the text processing."""
    from minitf.translation import Translator

    translator, source = (
        Translator(_our_model(task), None),
        work.sentences(task | {"model": task["sizes"]}),
    )

    def decode():
        return translator._search(
            source, task["beam"], task["alpha"], task["length"] - task["source"], 1
        )

    found = [(best[0].ids, best[0].log_probability) for best in decode()]
    return _ours(task, decode, found=found)


# PyTorch ------------------------------------------------------------------------------------------


def _their_model(task):
    import torch

    from benchmarks import pytorch

    torch.backends.cuda.matmul.allow_tf32 = task["precision"] == "tf32"
    return pytorch.model_of(
        {"model": task["sizes"] | {"dropout": 0.1}, "weights": task["weights"]}
    ).cuda()


def _theirs(task, function, **facts):
    import torch

    facts["ms"] = milliseconds(function, torch.cuda.synchronize, REPEATS[task["work"]])
    return facts | {"memory": torch.cuda.max_memory_allocated()}


def train_torch(task):
    """Time PyTorch eager: fused attention, fused Adam, autocast for bfloat16."""
    import torch

    from benchmarks import pytorch

    model = _their_model(task)
    batch = [
        torch.from_numpy(ids.astype(np.int64)).cuda()
        for ids in work.batch(task | {"model": task["sizes"]})
    ]
    optimizer = torch.optim.Adam(
        model.parameters(), lr=work.RATE, betas=work.BETAS, eps=work.ADAM_EPS, fused=True
    )

    half = torch.autocast("cuda", torch.bfloat16, enabled=task["precision"] == "bfloat16")

    def loss_of():
        with half:
            return pytorch.loss_of(model, *batch, None)

    with torch.no_grad():
        model.eval()
        loss = float(loss_of())
    model.train()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()

    return _theirs(task, step, loss=loss)


def decode_torch(task):
    """Time beam search with a cache, written by hand, with its bookkeeping on the GPU."""
    import torch

    from benchmarks import pytorch_decode

    model = _their_model(task).eval()
    source = torch.from_numpy(
        work.sentences(task | {"model": task["sizes"]}).astype(np.int64)
    ).cuda()

    def decode():
        with torch.inference_mode(), torch.device("cuda"):
            return pytorch_decode.beam_search(model, source, task)

    return _theirs(task, decode, found=decode())


CONTENDERS = {
    ("minitf", "train"): train_minitf,
    ("minitf", "decode"): decode_minitf,
    ("torch", "train"): train_torch,
    ("torch", "decode"): decode_torch,
}

if __name__ == "__main__":
    main(sys.argv[1])
