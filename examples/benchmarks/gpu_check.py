"""Check minitf on a GPU, and measure it.

    python examples/benchmarks/gpu_check.py --out FOLDER [PART ...]

The parts run one after the other, or those that are named; nothing else may run beside them. Each
is a few programs. Whenever one of these ends, FOLDER/results.json gets its exit code and its last
line, and FOLDER/log.txt all that it printed: so a run that is killed leaves what was done.

    tests           the tests marked gpu: every op and form, a training step, decoding, the bundled
                    model and one of Firefox's, on CuPy and on NumPy. Each file has a process of its
                    own, since a process in which the GPU failed once cannot use it again. Where
                    some fail, the first runs once more with CUDA_LAUNCH_BLOCKING=1, which makes
                    errors name their kernel.
    small           the training step of small in float32, compared with PyTorch eager's
    tf32            the training step of base in this precision
    bfloat16        the same
    decoding        beam search of base compared with a cached one written by hand in PyTorch
    course          the nine lessons on CuPy
    sanitizer       the tests of the kernels, with NVIDIA's compute-sanitizer

All take at most 13 minutes: the first five 9, the last two 4. The parts that measure are rows
of benchmark.py, such as `--rows gpu-small`; their reports are FOLDER/gpu-small.json and so on.

It needs NumPy, CuPy, sentencepiece, sacrebleu, safetensors, threadpoolctl and pytest, and PyTorch
for the comparisons; minitf need not be installed. CuPy keeps compiled kernels in
~/.cupy/kernel_cache: on another machine, they are compiled again. Without a GPU, the program prints
one line and exits with code 2.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from benchmarks.benchmark import commit_of  # noqa: E402
from minitf import backend  # noqa: E402
from minitf.atomic import save_text  # noqa: E402
from minitf.errors import UserError  # noqa: E402

# The seconds of each part, if all run: one that ends early leaves them to those after it.
SECONDS = {"tests": 200, "small": 80, "tf32": 90, "bfloat16": 90, "decoding": 80}
SECONDS |= {"course": 150, "sanitizer": 90}
AT_A_TIME = 9  # programs, for 16 cores; those that measure are alone in their part
PAIRS = "9"  # timings of minitf and of PyTorch
PYTHON = sys.executable
OPTIONS = ["-v", "--tb=short", "-o", "addopts=", "-m", "gpu and not slow"]  # of pytest
# CuPy's pool hides most reads beyond the end of an array; without it, each array is one of CUDA's.
PYTEST_WITHOUT_POOL = (
    "import sys, cupy, pytest; cupy.cuda.set_allocator(None); sys.exit(pytest.main(sys.argv[1:]))"
)


def main(arguments=None):
    """Run the parts; return exit code 0 if all their programs ended well."""
    parser = argparse.ArgumentParser(description="Check minitf on a GPU, and measure it.")
    said = f"of {', '.join(SECONDS)} (default: all)"
    parser.add_argument("parts", nargs="*", metavar="PART", help=said)
    parser.add_argument("--out", default="gpu", help="the folder of the results (default gpu)")
    said = "the same parts with small sizes: to see that they run, and not how fast"
    parser.add_argument("--small", action="store_true", help=said)
    options = parser.parse_args(arguments)
    if odd := [part for part in options.parts if part not in SECONDS]:
        parser.error(f"there is no part {odd[0]!r}: choose {', '.join(SECONDS)}")
    # CuPy compiles several times as fast with its headers compiled once, where CUDA can do that.
    os.environ.setdefault("CUPY_NVRTC_USE_PCH", "1")
    # Lessons and rows are processes, and minitf may not be installed.
    path = filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    try:
        backend.use("cupy")
    except UserError as error:
        print(f"gpu_check.py: {error}", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    folder = Path(options.out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    results = {"device": _device(), "commit": commit_of(ROOT), "parts": parts}
    deadline = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as scratch,
        open(folder / "log.txt", "a", encoding="utf-8") as log,
    ):
        for part in options.parts or SECONDS:
            deadline += SECONDS[part]
            parts[part] = found = {}
            for name, ended in _run_part(_programs(part, folder, scratch, options.small), deadline):
                printed, found[name] = ended.pop("printed"), ended
                save_text(folder / "results.json", json.dumps(results, indent=1) + "\n")
                print(said := f"{part} {name}: {json.dumps(ended)}", flush=True)
                print(f"\n--- {said}\n{printed}", file=log, flush=True)
    codes = {ended["code"] for found in parts.values() for ended in found.values()}
    return 0 if codes <= {0} else 1


def _device():
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def _programs(part, folder, scratch, small):
    """Return the programs of a part, {name: command}."""
    if part == "tests":
        files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _is_for_gpu(path)]
        files.sort(key=lambda path: path.stem != "test_forms")  # the longest begins first
        files = [path for path in files if path.stem == "test_products" or not small]
        pytest = [PYTHON, "-m", "pytest", *OPTIONS, "-o"]  # which remembers what failed
        return {path.stem: [*pytest, f"cache_dir={scratch}/{path.stem}", path] for path in files}
    if part == "sanitizer":
        command = ["compute-sanitizer", "--error-exitcode", "99", "--print-limit", "20"]
        command += [PYTHON, "-c", PYTEST_WITHOUT_POOL, *OPTIONS]
        return {"test_kernels": [*command, "tests/gpu/test_kernels.py"]}
    if part == "course":
        lessons = sorted((ROOT / "lessons").glob("0*.py"), reverse=True)  # the last is the longest
        more = ["--backend", "cupy", "--figures", scratch]
        quick = {"09_train_wmt": ["--quick"]}
        lessons = lessons[-1:] if small else lessons
        return {path.stem: [PYTHON, path, *more, *quick.get(path.stem, [])] for path in lessons}
    size = ["--quick"] if small else ["--pairs", PAIRS]
    row = [PYTHON, "examples/benchmarks/benchmark.py", "--rows", f"gpu-{part}", *size]
    return {part: [*row, "--json", str(folder / f"gpu-{part}.json")]}


def _is_for_gpu(path):
    """Return whether a file has tests marked gpu; others may need packages that are missing."""
    return re.search(r"mark\.gpu|\blibrary\b.*\):", path.read_text(encoding="utf-8")) is not None


# Programs -----------------------------------------------------------------------------------------

RUNNING = set()  # the processes of the programs that run


def _run_part(programs, deadline):
    """Run programs side by side; yield the name of each, and what it did, as soon as it ended."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = {pool.submit(_run, each, deadline): name for name, each in programs.items()}
        for ended in as_completed(running):
            yield running[ended], ended.result()


def _run(command, deadline):
    """Run a program until it ends or a deadline comes; if tests failed, the first once more.

    Returns its exit code (None: not done), its seconds, its last line, and all that it printed.
    """
    code, seconds, printed = _attempt(command, deadline)
    last = (printed.strip().splitlines() or [""])[-1]
    if "pytest" in command and code == 1:
        blocking = {"CUDA_LAUNCH_BLOCKING": "1"}
        printed += _attempt([*command, "--last-failed", "--exitfirst"], deadline, **blocking)[2]
    elif "pytest" in command and code == 5:
        code = 0  # the file has only names of tests for a GPU
    return {"code": code, "seconds": seconds, "last": last, "printed": printed}


def _attempt(command, deadline, **environment):
    """Return the exit code of a program (None: it was ended), its seconds, and what it printed."""
    started = time.perf_counter()
    environment = os.environ | {"PYTHONUNBUFFERED": "1"} | environment
    with tempfile.TemporaryFile() as file:  # what was printed before a limit is there, too
        try:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return 127, 0.0, str(error)
        RUNNING.add(process)
        try:
            code = process.wait(max(1, deadline - started))
        except subprocess.TimeoutExpired:
            code = None
        _end(process)
        process.wait()
        RUNNING.discard(process)
        file.seek(0)
        printed = file.read().decode(errors="replace")
    return code, round(time.perf_counter() - started, 1), printed


def _stop(*_):
    """End this program, and those that it has started: they would slow down what comes next."""
    for process in list(RUNNING):
        _end(process)
    os._exit(1)


def _end(process):
    """End a process and all that it has started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
