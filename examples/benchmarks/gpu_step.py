"""Time the work of one contender on a GPU, for gpu_check.py, which compares minitf with PyTorch.

    python examples/benchmarks/gpu_step.py '{"contender": "minitf", "work": "train",
        "precision": "tf32", "model": "base", "pairs": 512, "length": 48,
        "weights": "weights.npz"}'

It prints lines of JSON, each as soon as it is known. First results that show that both contenders
do the same: for a training step the loss and the length of the gradient without dropout, for
decoding the tokens of each sentence and their ln P. Then milliseconds and memory; with "profile",
how long the host and the GPU are busy, and with which kernels; with "forms", the milliseconds of
minitf without each of its forms.
"""

import json
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np

sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[2:0:-1]]

from benchmarks import work  # noqa: E402

VOCABULARY = 37000
REPEATS = {"train": 10, "decode": 2}  # calls; five such groups are timed


def main(text):
    """Do the task of the command line."""
    task = json.loads(text)
    task["sizes"] = _sizes(task)
    for found in CONTENDERS[task["contender"], task["work"]](task):
        print(json.dumps(found), flush=True)


def _sizes(task):
    from minitf.config import Config

    config = Config.preset(task["model"], task.get("vocabulary", VOCABULARY))
    names = ("n_layers", "d_model", "d_ff", "n_heads", "vocabulary_size")
    return {name: getattr(config, name) for name in names} | task.get("sizes", {})


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


def briefly(function, synchronise):
    """Return the median time of three calls after a first one, or of fewer slow calls."""
    function()
    synchronise()
    times = []
    while len(times) < 3 and sum(times) < 0.3:
        started = time.perf_counter()
        function()
        synchronise()
        times.append(time.perf_counter() - started)
    return _ms(float(np.median(times)))


def profiled(function, synchronise):
    """Return how long one call takes, and the host and the GPU in it, and the longest kernels.

    host_ms: until the call has started its last kernel, unless the kernels wait in a full queue.
    The profiler of PyTorch sees the kernels of all libraries of the process.
    """
    synchronise()
    started = time.perf_counter()
    function()
    started_all = time.perf_counter()
    synchronise()
    ended = time.perf_counter()
    found = {"host_ms": _ms(started_all - started), "call_ms": _ms(ended - started)}
    try:
        import torch
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return found
    try:
        if torch.cuda.is_available():
            torch.zeros(1, device="cuda")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as record:
            function()
            synchronise()
        events = record.key_averages()
    except Exception as error:
        return found | {"error": f"{type(error).__name__}: {error}"[:300]}
    kernels = [each for each in events if each.device_type == DeviceType.CUDA]
    kernels.sort(key=lambda each: -each.self_device_time_total)
    return found | {
        "launches": sum(each.count for each in kernels),
        "busy_ms": _ms(sum(each.self_device_time_total for each in kernels) / 1e6),
        "kernels": [
            [each.key[:60], each.count, _ms(each.self_device_time_total / 1e6)]
            for each in kernels[:25]
        ],
    }


def _ms(seconds):
    return round(seconds * 1000, 3)


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


def _ours(task, function):
    from minitf import backend, forms

    wait = backend.xp.cuda.Device().synchronize
    repeats = task.get("repeats", REPEATS[task["work"]])
    yield {
        "ms": milliseconds(function, wait, repeats),
        "memory": backend.xp.get_default_memory_pool().total_bytes(),
    }
    without = {}
    chosen = _used(function) if task.get("forms") else []
    for name in chosen:
        with forms.on([op for op in forms.all_forms() if op.__name__ != name]):
            try:
                without[name] = briefly(function, wait)
            except Exception as error:
                without[name] = f"{type(error).__name__}: {error}"[:300]
        yield {"without": without}
    if task.get("profile"):  # last: what a profiler leaves behind may slow down the host
        yield {"profile": profiled(function, wait)}


def _used(function):
    """Return the names of the forms that compute in a call."""
    from minitf import forms

    used, table = [], forms.all_forms()

    def noting(name, form):
        def noted(*arguments, **options):
            result = form(*arguments, **options)
            if result is not NotImplemented and name not in used:
                used.append(name)
            return result

        return noted

    noted = {op: noting(op.__name__, form) for op, form in table.items()}
    with mock.patch.dict(table, noted), forms.on():
        function()
    return used


def train_minitf(task):
    """Time the update of minitf's trainer.

    If a gradient is not finite, the weights stay unchanged, and the host does not wait to find out.
    """
    from minitf import functions as F
    from minitf.backend import xp
    from minitf.optim import Adam, gradient_norm

    model = _our_model(task)
    batch = work.batch(task | {"model": task["sizes"]})
    optimizer, steps = Adam(model.named_parameters()), iter(range(10**6))
    loss, _ = model.eval().loss(*batch)
    loss.backward()
    yield {"loss": float(loss), "gradient": float(gradient_norm(optimizer.gather_gradients()))}
    model.train()

    def step():
        optimizer.zero_grad()
        with F.dropout_state(1, next(steps)):
            total, _ = model.loss(*batch)
        total.backward()
        finite = xp.isfinite(total.data) & xp.isfinite(gradient_norm(optimizer.gather_gradients()))
        optimizer.step(work.RATE, finite=finite)

    yield from _ours(task, step)


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

    yield {"found": [(best[0].ids, best[0].log_probability) for best in decode()]}
    yield from _ours(task, decode)


# PyTorch ------------------------------------------------------------------------------------------


def _their_model(task):
    import torch

    from benchmarks import pytorch

    torch.backends.cuda.matmul.allow_tf32 = task["precision"] == "tf32"
    sizes = task["sizes"] | {"dropout": 0.1}
    return pytorch.model_of({"model": sizes, "weights": task["weights"]}).to(_device())


def _device():
    """Return PyTorch's name for the GPU, or for the CPU where a stand-in takes minitf's arrays."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _theirs(task, function):
    import torch

    on_gpu = torch.cuda.is_available()
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    repeats = task.get("repeats", REPEATS[task["work"]])
    yield {
        "ms": milliseconds(function, wait, repeats),
        "memory": torch.cuda.max_memory_allocated() if on_gpu else 0,
    }
    if task.get("profile"):
        yield {"profile": profiled(function, wait)}


def train_torch(task):
    """Time PyTorch eager: fused attention, fused Adam, autocast for bfloat16."""
    import torch

    from benchmarks import pytorch

    model = _their_model(task)
    batch = [
        torch.from_numpy(ids.astype(np.int64)).to(_device())
        for ids in work.batch(task | {"model": task["sizes"]})
    ]
    optimizer = torch.optim.Adam(
        model.parameters(), lr=work.RATE, betas=work.BETAS, eps=work.ADAM_EPS, fused=True
    )

    half = torch.autocast(_device(), torch.bfloat16, enabled=task["precision"] == "bfloat16")

    def loss_of():
        with half:
            return pytorch.loss_of(model, *batch, None)

    model.eval()
    loss = loss_of()
    loss.backward()
    squares = [p.grad.double().square().sum() for p in model.parameters()]
    yield {"loss": float(loss.detach()), "gradient": float(torch.stack(squares).sum().sqrt())}
    del loss, squares
    model.train()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()

    yield from _theirs(task, step)


def decode_torch(task):
    """Time beam search with a cache, written by hand, with its bookkeeping on the GPU."""
    import torch

    from benchmarks import pytorch_decode

    model = _their_model(task).eval()
    sentences = work.sentences(task | {"model": task["sizes"]})
    source = torch.from_numpy(sentences.astype(np.int64)).to(_device())

    def decode():
        with torch.inference_mode(), torch.device(_device()):
            return pytorch_decode.beam_search(model, source, task)

    yield {"found": decode()}
    yield from _theirs(task, decode)


CONTENDERS = {
    ("minitf", "train"): train_minitf,
    ("minitf", "decode"): decode_minitf,
    ("torch", "train"): train_torch,
    ("torch", "decode"): decode_torch,
}

if __name__ == "__main__":
    main(sys.argv[1])
