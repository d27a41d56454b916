"""Time one side's training step on a GPU, in a process of its own: what gpu_check.py starts for its training part.

    python examples/gpu_step.py '{"side": "minitf", "precision": "tf32", "model": "base", "pairs": 512, "length": 48,
                                  "weights": "weights.npz"}'

Prints one line of JSON: milliseconds, the loss of a step without dropout, and the memory that was taken.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from benchmarks import work  # noqa: E402

VOCABULARY = 37000
STEPS = 10  # in a stretch; five stretches are timed


def main(text):
    """Do what the task says."""
    task = json.loads(text)
    task["sizes"] = _sizes(task)
    print(json.dumps(SIDES[task["side"]](task)))


def _sizes(task):
    from minitf.config import Config

    config = Config.preset(task["model"], VOCABULARY)
    names = ("n_layers", "d_model", "d_ff", "n_heads", "vocabulary_size")
    return {name: getattr(config, name) for name in names}


def milliseconds(step, synchronise):
    """The median over five stretches, after two steps that compile and reserve what is needed."""
    times = []
    for stretch in range(6):
        synchronise()
        started = time.perf_counter()
        for _ in range(STEPS if stretch else 2):
            step()
        synchronise()
        times.append((time.perf_counter() - started) / STEPS * 1000)
    return round(float(np.median(times[1:])), 4)


def with_minitf(task):
    """The step of minitf's trainer; the weights are drawn here and written for the other side."""
    from minitf import Config, Transformer, backend
    from minitf import functions as F
    from minitf.optim import Adam, gradient_norm
    from minitf.products import use_precision

    backend.use("cupy")
    use_precision(task["precision"])
    model = Transformer(Config(**task["sizes"], dropout=0.1))
    np.savez(task["weights"], **model.state())
    batch = work.batch(task | {"model": task["sizes"]})
    loss = float(model.eval().loss(*batch)[0])
    model.train()
    optimizer, steps = Adam(model.named_parameters()), iter(range(10**6))

    def step():
        optimizer.zero_grad()
        with F.dropout_state(1, next(steps)):
            total, _ = model.loss(*batch)
        total.backward()
        float(total), float(gradient_norm(optimizer.collect()))
        optimizer.step(work.RATE)

    found = {"ms": milliseconds(step, backend.xp.cuda.Device().synchronize), "loss": loss}
    return found | {"memory": backend.xp.get_default_memory_pool().total_bytes()}


def with_torch(task):
    """PyTorch eager: fused attention, fused Adam, autocast for bfloat16."""
    import torch
    from benchmarks import pytorch

    torch.backends.cuda.matmul.allow_tf32 = task["precision"] == "tf32"
    model = pytorch.model_of({"model": task["sizes"] | {"dropout": 0.1}, "weights": task["weights"]}).cuda()
    batch = [torch.from_numpy(ids.astype(np.int64)).cuda() for ids in work.batch(task | {"model": task["sizes"]})]
    optimizer = torch.optim.Adam(model.parameters(), lr=work.RATE, betas=work.BETAS, eps=work.ADAM_EPS, fused=True)
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
        total = loss_of()
        total.backward()
        total.item()
        optimizer.step()

    found = {"ms": milliseconds(step, torch.cuda.synchronize), "loss": loss}
    return found | {"memory": torch.cuda.max_memory_allocated()}


SIDES = {"minitf": with_minitf, "torch": with_torch}

if __name__ == "__main__":
    main(sys.argv[1])
