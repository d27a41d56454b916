"""Check minitf on a GPU and write the results as JSON: one command for a machine with CuPy.

    python examples/benchmarks/gpu_check.py --out examples/benchmarks/results/gpu.json
    python examples/benchmarks/gpu_check.py --parts training --models base --precisions tf32
    python examples/benchmarks/gpu_check.py --parts multi30k --data FOLDER

If the GPU is at hand for half an hour only, make these three runs, in this order, and mend what
fails in between. Each should take less than ten minutes; if it is killed, the folder OUT has what
was done before. The first tries everything with small sizes, the second compares results with the
CPU's, and the third measures speed, so nothing else may run beside it. (With less time, make the
first, and then the training part of the third.)

    check="python3 examples/benchmarks/gpu_check.py --commit COMMIT"    # that of the checkout
    $check --small --precisions tf32 --out $OUT/small.json

    for part in tests parity course; do $check --parts $part --out $OUT/$part.json & done; wait

    for part in training kernels decoding; do
        $check --parts $part --precisions tf32 --out $OUT/$part.json
    done

Then run the training part with `--precisions float32 bfloat16`, and multi30k, whose corpus is
downloaded unless --data names its folder. CuPy keeps compiled kernels in ~/.cupy/kernel_cache: if
the machine is made anew between the runs, take that folder along. minitf need not be installed. If
a kernel fails, MINITF_FORMS=off shows whether the rest is right.

It needs NumPy, CuPy, sentencepiece, sacrebleu and pytest, and PyTorch for the comparisons;
pytest-xdist makes the tests faster. Each part ends within ten minutes, finished or not:

    tests      the tests marked gpu: every op, a training step and decoding on CuPy, compared with
               NumPy
    parity     50 updates of the trainer on NumPy, on CuPy with fused kernels, and on CuPy without:
               three loss curves
    course     the nine lessons on CuPy, and translate.py on CuPy and on NumPy
    training   the training step of base and small compared with PyTorch eager in the same
               precision, two processes of each
    kernels    each fused kernel compared with the plain operations it replaces
    decoding   beam search of base compared with a cached one written by hand in PyTorch
    multi30k   a model trained on Multi30k by a published recipe, and its BLEU

The report names the device, the versions, the commit and the date, so that a figure can be traced.
Each part runs in its own process, since a process in which the GPU failed once cannot use it again.
The report is written after each part, and within a part after each lesson, curve, operation and
row; the tests print to a file of their own beside it, .tests.txt. Without a GPU, the program prints
one line and exits with code 2.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from benchmarks import gpu  # noqa: E402

PACKAGES = (
    "numpy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "sentencepiece",
    "sacrebleu",
    "pytest",
    "torch",
)
LIMIT = 570  # seconds for a part
TEST_PROCESSES = 8  # where pytest-xdist is installed: compiling the kernels takes longest
TRAINING = "--quick --steps {steps} --set dropout=0.1 --batch-tokens 512 --patience 0 --out {out}"
# The published recipe, as far as the time limit allows; lessons/REPRODUCE.md has a run on a CPU.
MULTI30K = (
    "--corpus {corpus} --preset tiny --set n_layers=4 --set d_model=128 --set d_ff=256 --set "
    "n_heads=4 --set dropout=0.3 --vocabulary-size 10000 --batch-tokens {batch_tokens} "
    "--learning-rate 2.53 --warmup-steps 2000 --steps {steps} --minutes 6 --valid-every "
    "{valid_every} --save-every {save_every} --average 10 --patience 0 --beam {beam} --max-extra "
    "{max_extra} --alpha 1.0 --precision {precision} --backend cupy --out {out}"
)
_NAMES = ("steps", "batch_tokens", "valid_every", "save_every", "beam", "max_extra")
LENGTHS = dict(zip(_NAMES, (8000, 8192, 1060, 53, 5, 50), strict=True))
SMALL_LENGTHS = dict(zip(_NAMES, (4, 500, 4, 2, 1, 0), strict=True))
SMALL_OPERATIONS = {"pairs": 2, "length": 3, "d": 16, "words": 7, "rows": 2, "weights": 5}
# threadpoolctl only steers the threads of a CPU; a machine that was set up for GPUs may lack it.
NO_THREADS = """import contextlib
def threadpool_info():
    return []
def threadpool_limits(*args, **kwargs):
    return contextlib.nullcontext()
class ThreadpoolController:
    lib_controllers = ()
    info = staticmethod(threadpool_info)
    limit = staticmethod(threadpool_limits)
    def select(self, **which):
        return self
"""


def main(arguments=None):
    """Run the chosen parts and write the report; returns exit code 0 if all of them passed."""
    options = _options(arguments)
    # CuPy compiles several times as fast with its headers compiled once, where CUDA can do that.
    os.environ.setdefault("CUPY_NVRTC_USE_PCH", "1")
    _add_to_path(
        str(ROOT)
    )  # lessons and translate.py are processes, and minitf may not be installed
    with tempfile.TemporaryDirectory() as folder:
        if not importlib.util.find_spec("threadpoolctl"):
            (Path(folder) / "threadpoolctl.py").write_text(NO_THREADS, encoding="utf-8")
            sys.path.append(folder)
            _add_to_path(folder)
        from minitf import backend
        from minitf.errors import UserError

        try:
            backend.use("cupy")
        except UserError as error:
            print(f"gpu_check.py: {error}", file=sys.stderr)
            return 2
        report = described(options)
        if len(options.parts) > 1:
            arguments = sys.argv[1:] if arguments is None else list(arguments)
            passed = [
                _in_its_process(part, arguments, report, Path(options.out), folder)
                for part in options.parts
            ]
            return 0 if all(passed) else 1
        (part,), started = options.parts, time.perf_counter()

        def note(found):
            report[part] = found | {"seconds": round(time.perf_counter() - started, 1)}
            _write(report, Path(options.out))

        options.deadline = started + LIMIT
        try:
            note(PARTS[part](options, note))
        except Exception:
            note({"passed": False, "error": traceback.format_exc()[-2000:]})
    print(f"{part}: {json.dumps(report[part], indent=1)}", flush=True)
    return 0 if report[part]["passed"] else 1


def _add_to_path(folder):
    """Let processes import from a folder, after all others."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), folder]))


def _in_its_process(part, arguments, report, path, folder):
    """Run one part, add its result to the report; returns whether it passed."""
    own = Path(folder) / f"{part}.json"
    command = [sys.executable, __file__, *arguments, "--parts", part, "--out", str(own)]
    code = _code(command, LIMIT + 20)
    found = json.loads(own.read_text(encoding="utf-8")).get(part, {}) if own.exists() else {}
    report[part] = {"passed": False} | found | ({"ended": code} if code not in (0, 1) else {})
    for suffix in (".log.jsonl", ".tests.txt"):
        for log in Path(folder).glob(f"*{suffix}"):
            shutil.copy(log, path.with_suffix(suffix))
    _write(report, path)
    return code == 0


def _code(command, seconds):
    """Run a program for at most so many seconds; returns its exit code, or that it was ended.

    The processes that it has started are ended with it: left alone on the GPU, they would slow down
    what is measured next.
    """
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"not done after {seconds} seconds"
    finally:
        if process.poll() is None:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()


def _write(report, path):
    """Write the report, completely or not at all."""
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, path)


def _options(arguments):
    parser = argparse.ArgumentParser(description="Check minitf on a GPU and write a JSON report.")
    parser.add_argument("--out", default="gpu.json", help="the report (default gpu.json)")
    parser.add_argument(
        "--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="the parts to run"
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="the folder of the corpora (default: MINITF_DATA)"
    )
    parser.add_argument(
        "--commit", nargs="?", help="the commit of the code, if git does not know it"
    )
    parser.add_argument(
        "--models", nargs="+", default=["base", "small"], help="models of the training part"
    )
    parser.add_argument(
        "--precisions",
        nargs="+",
        default=["float32", "tf32", "bfloat16"],
        help="precisions of the training part; multi30k uses the first",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="the same parts with small sizes, in minutes: to see that they run, and not how fast",
    )
    options = parser.parse_args(arguments)
    if options.data:
        os.environ["MINITF_DATA"] = options.data
    return options


def described(options):
    """Return the machine, the versions and the date, for the report."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit or _commit(),
        "device": properties["name"].decode(),
        "memory": int(properties["totalGlobalMem"]),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "small": options.small,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _commit():
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() or "unknown"
    return "unknown"


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# The parts ----------------------------------------------------------------------------------------


def run_tests(options, note):
    """Run the tests marked gpu, from the files that contain any.

    Other files may need packages that are not installed.
    """
    tests = ROOT / "tests" / ("gpu" if options.small else "")
    files = [path for path in sorted(tests.rglob("test_*.py")) if _has_gpu_tests(path)]
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-m", "gpu and not slow"]
    command += ["-o", "addopts="]
    if importlib.util.find_spec("xdist"):
        command += ["-n", str(TEST_PROCESSES)]
    path = Path(options.out).with_suffix(".tests.txt")
    with open(path, "wb") as file:
        try:
            code = subprocess.run(
                [*command, *map(str, files)],
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=LIMIT,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    return _of_pytest(path.read_text(encoding="utf-8", errors="replace"), code)


def _of_pytest(output, code):
    """Return what the report says of the tests. code: of pytest; None if it was not done in time.

    >>> _of_pytest("[gw0] PASSED a.py::x\\na.py::y FAILED [ 50%]", None)["summary"]
    'not done after 570 seconds: 1 passed, 1 failed'
    """
    failed = re.findall(r"(?:FAILED|ERROR) (\S+::\S+)|(\S+::\S+) (?:FAILED|ERROR)", output)
    failures = sorted({first or second for first, second in failed})
    if code is None:
        passed = len(re.findall(r"\bPASSED\b", output))
        summary = f"not done after {LIMIT} seconds: {passed} passed, {len(failures)} failed"
    else:
        summary = re.sub(r"=+", "", (output.strip().splitlines() or [""])[-1]).strip()
    return {
        "passed": code == 0,
        "summary": summary,
        "failures": failures,
        "output": "" if code == 0 else output[-4000:],
    }


def _has_gpu_tests(path):
    return re.search(r"mark\.gpu|\blibrary\b.*\):", path.read_text(encoding="utf-8")) is not None


def parity(options, note, steps=50, libraries=None):
    """Train on the CPU, on the GPU, and on the GPU without fused kernels, and compare the losses.

    In float32 the curves diverge slowly, because the last bits differ and each update builds on the
    one before.
    """
    from minitf import backend, forms

    libraries = libraries or {"numpy": "numpy", "cupy": "cupy", "cupy, plain": "cupy"}
    curves, seconds = {}, {}
    for name, library in libraries.items():
        started = time.perf_counter()
        with backend.using(library), tempfile.TemporaryDirectory() as folder:
            if name.endswith("plain"):
                with forms.off():
                    curves[name] = _losses(folder, steps)
            else:
                curves[name] = _losses(folder, steps)
        seconds[name] = round(time.perf_counter() - started, 1)
        if note:
            note({"passed": False, "losses": curves, "took": seconds})
    first = np.array(curves["numpy"])
    apart = {
        name: float(np.max(np.abs(np.array(curve) / first - 1))) for name, curve in curves.items()
    }
    early = {
        name: float(np.max(np.abs(np.array(curve) / first - 1)[:5]))
        for name, curve in curves.items()
    }
    passed = all(error < 1e-3 for error in apart.values()) and all(
        error < 1e-4 for error in early.values()
    )
    return {
        "passed": passed,
        "apart": apart,
        "apart_first_5": early,
        "losses": curves,
        "took": seconds,
    }


def _losses(folder, steps):
    from minitf.training import commandline

    settings, _ = commandline.parse(TRAINING.format(steps=steps, out=f"{folder}/run").split())
    trainer = commandline.build(settings)
    return [float(trainer.update()[0]) for _ in range(steps)]


def time_kernels(options, note):
    """Time each fused operation, forward and backward, and the plain operations it replaces."""
    from gpu_step import milliseconds

    from minitf import backend, forms

    found, wait = {}, backend.xp.cuda.Device().synchronize
    sizes, repeats = (SMALL_OPERATIONS, 1) if options.small else ({}, 10)
    for name, operation in _operations(backend.xp, **sizes).items():
        fused = milliseconds(operation, wait, repeats)
        with forms.off():
            found[name] = {"fused_ms": fused, "plain_ms": milliseconds(operation, wait, repeats)}
        found[name]["ratio"] = round(found[name]["plain_ms"] / fused, 2)
        if "dropout" in name:
            found[name]["note"] = "the plain mask is drawn on the CPU, and copied"
        note({"passed": False, "operations": found})
    return {"passed": True, "operations": found}


def _operations(xp, pairs=512, length=48, d=512, words=37000, rows=4096, weights=63_000_000):
    """Return the fused operations and their arrays.

    The default sizes are those of the base model: 24,576 positions, 37,000 tokens.
    """
    from minitf import functions as F
    from minitf.config import Config
    from minitf.loss import projected_cross_entropy
    from minitf.nn import Dropout, LayerNorm, Linear, Parameter
    from minitf.optim import Adam
    from minitf.tensor import Tensor
    from minitf.transformer import MultiHeadAttention

    rng = np.random.default_rng(0)

    def tensor(*shape):
        return Tensor(rng.standard_normal(shape, dtype=np.float32))

    def both_ways(function):
        def run():
            with F.dropout_state(1, 1):
                y = function()
            y.backward(xp.ones_like(y.data))

        return run

    norm, rate, inner, outer = (
        LayerNorm(d),
        Dropout(0.1),
        Linear(d, 4 * d, rng),
        Linear(4 * d, d, rng),
    )
    matrices = inner.weight, inner.bias, outer.weight, outer.bias
    x, added = tensor(pairs, length, d), tensor(pairs, length, d)
    heads = [tensor(pairs, 8, length, d // 8) for _ in range(3)]
    module = MultiHeadAttention(Config(words, d_model=d, n_heads=8), rng)
    mask = xp.asarray(np.tri(length, dtype=bool)[None, None])
    table, ids = tensor(words, d), rng.integers(0, words, (pairs, length))
    hidden, target = tensor(rows, d), rng.integers(0, words, rows)
    optimizer = Adam([("x", Parameter(rng.standard_normal(weights, dtype=np.float32)))])
    optimizer.collect()  # a gradient of zeros, without which Adam refuses a step
    return {
        "layer norm": both_ways(lambda: norm(x)),
        "residual, dropout, layer norm": both_ways(
            lambda: F.add_norm(x, added, norm.gain, norm.bias, norm.eps, 0.1)
        ),
        "feed-forward": both_ways(lambda: F.feed_forward(x, *matrices)),
        "feed-forward with dropout": both_ways(lambda: F.feed_forward(x, *matrices, 0.1)),
        "dropout": both_ways(lambda: rate(x)),
        "attention": both_ways(lambda: F.attention(*heads, mask)),
        "attention with dropout": both_ways(lambda: F.attention(*heads, mask, 0.1)),
        "multi-head attention": both_ways(lambda: module(x, x, mask)),
        "embedding": both_ways(lambda: F.embedding(table, ids)),
        "cross-entropy": both_ways(lambda: projected_cross_entropy(hidden, table, target)[0]),
        "Adam": lambda: optimizer.step(1e-9),
    }


def run_course(options, note):
    """Run the lessons on the GPU, four at a time, and compare translate.py on GPU and CPU."""
    with tempfile.TemporaryDirectory() as folder:
        lessons = [str(path) for path in sorted((ROOT / "lessons").glob("0*.py"))]
        lessons = lessons[:1] if options.small else lessons
        commands = [[lesson, "--backend", "cupy", "--figures", folder] for lesson in lessons]
        if not options.small:
            commands[-1].append("--quick")
        with ThreadPoolExecutor(4) as pool:
            running = {
                pool.submit(_run, command, options.deadline): Path(command[0]).stem
                for command in commands
            }
            found = {}
            for ended in as_completed(running):
                found[running[ended]] = ended.result()
                note({"passed": False, "lessons": found})
        translations = _translations(folder, 12 if options.small else 400, options.deadline)
    passed = all(run["code"] == 0 for run in found.values()) and translations["passed"]
    return {"passed": passed, "lessons": found, "translations": translations}


def _run(command, deadline=None):
    command, started = [sys.executable, *command], time.perf_counter()
    left = LIMIT if deadline is None else max(1, deadline - started)
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=left
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        return {"code": None, "output": f"not done after {left:.0f} seconds: {output[-1500:]}"}
    run = {"code": done.returncode, "seconds": round(time.perf_counter() - started, 1)}
    run["last"] = (done.stdout.strip().splitlines() or [""])[-1]
    return run if done.returncode == 0 else run | {"output": (done.stdout + done.stderr)[-2000:]}


def _translations(folder, n=400, deadline=None):
    """Return the bundled model's translations of n lines of the built-in corpus, on CPU and GPU."""
    from minitf.data import toy

    source = Path(folder) / "source.txt"
    source.write_text(
        "".join(f"{line}\n" for line in toy.splits(0)["test"][0][:n]), encoding="utf-8"
    )
    runs, lines = {}, {}
    for library in ("numpy", "cupy"):
        out = Path(folder) / f"{library}.jsonl"
        files = ["--input", str(source), "--output", str(out)]
        runs[library] = _run(
            ["examples/translate.py", "--backend", library, "--format", "json", *files], deadline
        )
        if runs[library]["code"] != 0:
            return {"passed": False, **runs}
        lines[library] = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    pairs = list(zip(lines["numpy"], lines["cupy"], strict=True))
    equal = [
        abs(a["log_probability"] - b["log_probability"])
        for a, b in pairs
        if a["translation"] == b["translation"]
    ]
    found = {"lines": len(pairs), "same": len(equal), "ln_p_apart": max(equal, default=None)}
    return {"passed": len(equal) >= 0.99 * len(pairs) and max(equal) < 1e-3, **found, **runs}


def train_multi30k(options, note):
    """Train a model with the sizes and recipe of the published one, and compute its BLEU.

    It uses the published subwords if they are in the data folder; else it downloads the raw text,
    which SentencePiece cuts.
    """
    from minitf.training import commandline

    cut = (Path(os.environ.get("MINITF_DATA", "")) / "multi30k" / "bpe10k" / "train.en").exists()
    with tempfile.TemporaryDirectory() as folder:
        corpus = "toy" if options.small else "multi30k-bpe10k" if cut else "multi30k"
        command = MULTI30K.format(
            corpus=corpus,
            out=f"{folder}/run",
            precision=options.precisions[0],
            **(SMALL_LENGTHS if options.small else LENGTHS),
        )
        code = commandline.main(command.split(), "gpu_check.py")
        command = command.replace(folder, "runs")  # as a person would write it
        if code:
            return {"passed": False, "command": command, "code": code}
        results = json.loads((Path(folder) / "run" / "results.json").read_text(encoding="utf-8"))
        shutil.copy(Path(folder) / "run" / "log.jsonl", Path(options.out).with_suffix(".log.jsonl"))
    passed = options.small or all(test["bleu"] > 30 for test in results["tests"].values())
    found = {
        "command": command,
        "steps": results["step"],
        "trained": results["seconds"],
        "tests": results["tests"],
    }
    return {"passed": passed, **found}


PARTS = {
    "tests": run_tests,
    "parity": lambda options, note: parity(options, note, 3 if options.small else 50),
    "course": run_course,
    "training": lambda options, note: gpu.training(
        options.models, options.precisions, note, options.small
    ),
    "kernels": time_kernels,
    "decoding": lambda options, note: gpu.decoding(options.small),
    "multi30k": train_multi30k,
}

if __name__ == "__main__":
    sys.exit(main())
