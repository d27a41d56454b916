"""Check minitf on a GPU, and measure it, in at most 480 seconds.

    python examples/benchmarks/gpu_check.py --out FOLDER [PART ...]

These parts run one after the other, or those that are named; each writes its results to
FOLDER/PART.json as soon as they are known, so that a part that is killed leaves what was done. All
its work is that of other programs: what they print is in FOLDER/PART.log. Nothing else may run
beside them.

    tests           the tests marked gpu: every op and form, a training step and decoding on CuPy,
                    compared with NumPy. Each file has a process of its own, since a process in
                    which the GPU failed once cannot use it again. Tests that fail run once more,
                    each alone, with CUDA_LAUNCH_BLOCKING=1, which makes errors name their kernel.
    sanitizer       the tests of the kernels, with NVIDIA's compute-sanitizer
    course          the nine lessons on CuPy, and translate.py on CuPy and on NumPy
    small           the training step of small in float32, compared with PyTorch eager's
    tf32            the training step of base in this precision
    bfloat16        the same
    decoding        beam search of base compared with a cached one written by hand in PyTorch

The last four are rows of benchmark.py, such as `--rows gpu-small`.

It needs NumPy, CuPy, sentencepiece, sacrebleu, safetensors, threadpoolctl and pytest, and PyTorch
for the comparisons; minitf need not be installed. CuPy keeps compiled kernels in
~/.cupy/kernel_cache: on another machine, they are compiled again. Without a GPU, the program prints
one line and exits with code 2.
"""

import argparse
import contextlib
import datetime
import functools
import importlib.metadata
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

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from benchmarks.benchmark import commit_of  # noqa: E402
from minitf import backend  # noqa: E402
from minitf.atomic import save_text  # noqa: E402
from minitf.errors import UserError  # noqa: E402

LONGEST = 600  # seconds for a part that is named
TEST_FILES, LESSONS = 9, 5  # processes at a time, for 16 cores
PAIRS = 9  # timings of minitf and of PyTorch
PYTEST = ["-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts="]
PYTEST += ["-m", "gpu and not slow"]
# CuPy's pool hides most reads beyond the end of an array; without it, each array is one of CUDA's.
PYTEST_WITHOUT_POOL = (
    "import sys, cupy, pytest; cupy.cuda.set_allocator(None); sys.exit(pytest.main(sys.argv[1:]))"
)


def main(arguments=None):
    """Run the parts; return exit code 0 if all of them passed."""
    options = _options(arguments)
    # CuPy compiles several times as fast with its headers compiled once, where CUDA can do that.
    os.environ.setdefault("CUPY_NVRTC_USE_PCH", "1")
    # Lessons and translate.py are processes, and minitf may not be installed.
    path = filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    try:
        backend.use("cupy")
    except UserError as error:
        print(f"gpu_check.py: {error}", file=sys.stderr)
        return 2
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    save_text(folder / "machine.json", json.dumps(described(options), indent=1) + "\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    passed, options.deadline = {}, time.perf_counter()
    for part in options.parts or PARTS:
        options.deadline += LONGEST if options.parts else PARTS[part][0]
        found = _result_of(part, options, folder)
        passed[part] = found["passed"]
        print(f"{part}: {json.dumps(found, indent=1)[:1500]}", flush=True)
    print("\n".join(f"{part}: {'passed' if good else 'FAILED'}" for part, good in passed.items()))
    return 0 if all(passed.values()) else 1


def _options(arguments):
    parser = argparse.ArgumentParser(description="Check minitf on a GPU, and measure it.")
    said = f"of {', '.join(PARTS)} (default: all)"
    parser.add_argument("parts", nargs="*", metavar="PART", help=said)
    parser.add_argument("--out", default="gpu", help="the folder of the results (default gpu)")
    parser.add_argument("--commit", help="the commit of the code, if git does not know it")
    said = "the same parts with small sizes: to see that they run, and not how fast"
    parser.add_argument("--small", action="store_true", help=said)
    options = parser.parse_args(arguments)
    if odd := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {odd[0]!r}: choose {', '.join(PARTS)}")
    return options


# Parts and their programs -------------------------------------------------------------------------

RUNNING = set()  # the processes of the programs that run


def _result_of(part, options, folder):
    """Run one part; return its result, which is written to a file in the folder as it grows."""
    started, noted = time.perf_counter(), {}

    def write(found):
        found = {"seconds": round(time.perf_counter() - started, 1)} | found
        save_text(folder / f"{part}.json", json.dumps(found, indent=1) + "\n")
        return found

    def note(found):
        noted.update(found)
        write(noted | {"passed": False})

    note({})
    with (
        open(folder / f"{part}.log", "w", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
    ):
        try:
            found = PARTS[part][1](options, note)
        except Exception:
            found = noted | {"passed": False, "error": traceback.format_exc()[-2000:]}
    return write(found)


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


def described(options):
    """Return the machine, the versions and the date, for the report."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit or commit_of(ROOT),
        "device": properties["name"].decode(),
        "memory": int(properties["totalGlobalMem"]),
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "small": options.small,
        "python": platform.python_version(),
        "packages": {each.name: each.version for each in importlib.metadata.distributions()},
        "nvidia-smi": subprocess.getoutput("nvidia-smi"),
    }


def _run(command, deadline, **environment):
    """Run a program until it ends or a deadline comes; what it prints goes to the log as well.

    Returns its exit code (None: not done), what it printed, and its seconds.
    """
    started = time.perf_counter()
    environment = os.environ | {"PYTHONUNBUFFERED": "1"} | environment
    with tempfile.TemporaryFile() as file:  # what was printed before a limit is there, too
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        RUNNING.add(process)
        try:
            code = process.wait(max(1, deadline - started))
        except subprocess.TimeoutExpired:
            code = None
        _end(process)
        process.wait()
        RUNNING.discard(process)
        file.seek(0)
        output = file.read().decode(errors="replace")
    seconds = round(time.perf_counter() - started, 1)
    shown = " ".join(word[:200] for word in command[1:])
    print(f"\n\n--- {shown}: code {code}, {seconds} s\n{output[-100_000:]}", flush=True)
    return code, output, seconds


# Is it right? -------------------------------------------------------------------------------------


def run_tests(options, note):
    """Run the tests marked gpu, from the files that contain any.

    Other files may need packages that are not installed.
    """
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_gpu_tests(path)]
    files.sort(key=lambda path: path.parent.name != "gpu")
    files.sort(key=lambda path: path.stem != "test_forms")  # the longest begins first
    if options.small:
        files = [path for path in files if path.stem == "test_products"]
    found = {"files": {}, "failures": [], "alone": {}}
    limit = options.deadline - (options.deadline - time.perf_counter()) / 4  # for what fails, again
    with ThreadPoolExecutor(TEST_FILES) as pool:
        tests = [sys.executable, *PYTEST]
        running = {pool.submit(_run, [*tests, str(path)], limit): path.stem for path in files}
        for ended in as_completed(running):
            code, output, seconds = ended.result()
            passed, failed = _of_pytest(output)
            counts = {"passed": len(passed), "failed": len(failed)}
            found["files"][running[ended]] = counts | {"code": code, "seconds": seconds}
            found["failures"] += failed
            note(found)
        running = {
            pool.submit(_run, [*tests, name], options.deadline, CUDA_LAUNCH_BLOCKING="1"): name
            for name in found["failures"][:27]
        }
        for ended in as_completed(running):
            code, output, _ = ended.result()
            errors = re.findall(r"^E  .*", output, re.MULTILINE)
            found["alone"][running[ended]] = "passes" if code == 0 else "\n".join(errors)[-600:]
            note(found)
    codes = {each["code"] for each in found["files"].values()}
    return found | {"passed": codes <= {0, 5}}  # 5: the file had only names of such tests


def _has_gpu_tests(path):
    return re.search(r"mark\.gpu|\blibrary\b.*\):", path.read_text(encoding="utf-8")) is not None


def _of_pytest(output):
    """Return the tests that passed, and that failed, by what pytest -v has printed so far.

    >>> _of_pytest("a.py::x[1 2] PASSED [ 50%]\\na.py::y ERROR")
    (['a.py::x[1 2]'], ['a.py::y'])
    """
    lines = re.findall(r"^(\S+::.+?) (PASSED|FAILED|ERROR)(?: +\[.*)?$", output, re.MULTILINE)
    failed = [name for name, result in lines if result != "PASSED"]
    return [name for name, result in lines if result == "PASSED"], list(dict.fromkeys(failed))


def sanitize(options, note):
    """Run the tests of the kernels with compute-sanitizer, which sees each access to memory."""
    if not shutil.which("compute-sanitizer"):
        return {"passed": True, "note": "compute-sanitizer is not installed"}
    command = ["compute-sanitizer", "--error-exitcode", "99", "--print-limit", "20"]
    command += [sys.executable, "-c", PYTEST_WITHOUT_POOL, *PYTEST[2:]]
    code, output, _ = _run([*command, "tests/gpu/test_kernels.py"], options.deadline)
    passed, failed = _of_pytest(output)
    errors = "\n".join(re.findall(r"^={9} .*", output, re.MULTILINE))[:3000]
    found = {"code": code, "tests": len(passed), "failures": failed, "errors": errors}
    return found | {"passed": code == 0}


def run_course(options, note):
    """Run the lessons on the GPU, and compare translate.py on GPU and CPU."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(LESSONS) as pool:
        lessons = [str(path) for path in sorted((ROOT / "lessons").glob("0*.py"))]
        lessons = lessons[:1] if options.small else lessons
        running, found = {}, {}
        for lesson in reversed(lessons):  # the last ones are the longest
            command = [sys.executable, lesson, "--backend", "cupy", "--figures", folder]
            command += ["--quick"] * (lesson == lessons[-1] and not options.small)
            running[pool.submit(_run, command, options.deadline)] = Path(lesson).stem
        n = 12 if options.small else 400
        translations = pool.submit(_translations, folder, n, options.deadline)
        for ended in as_completed(running):
            code, output, seconds = ended.result()
            last = (output.strip().splitlines() or [""])[-1]
            found[running[ended]] = {"code": code, "seconds": seconds, "last": last}
            note({"lessons": found})
        translations = translations.result()
    failed = [name for name, run in found.items() if run["code"] != 0]
    passed = not failed and translations["passed"]
    return {"passed": passed, "failed": failed, "lessons": found, "translations": translations}


def _translations(folder, n, deadline):
    """Return the bundled model's translations of n lines of the built-in corpus, on CPU and GPU."""
    from minitf.data import toy

    source, found = Path(folder) / "source.txt", []
    lines = toy.splits(0)["test"][0][:n]
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for library in ("numpy", "cupy"):
        out = Path(folder) / f"{library}.jsonl"
        command = [sys.executable, "examples/translate.py", "--backend", library]
        command += ["--format", "json", "--input", str(source), "--output", str(out)]
        code, output, _ = _run(command, deadline)
        if code != 0:
            return {"passed": False, "library": library, "code": code, "output": output[-1000:]}
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        found.append([(row["translation"], row["log_probability"]) for row in rows])
    equal = [abs(a[1] - b[1]) for a, b in zip(*found, strict=True) if a[0] == b[0]]
    passed = len(equal) >= 0.99 * len(found[0]) and max(equal) < 1e-3
    apart = {"same": len(equal), "ln_p_apart": max(equal, default=None)}
    return {"passed": passed, "lines": len(found[0]), **apart}


# How fast is it? ----------------------------------------------------------------------------------


def measure(name, options, note):
    """Run a row of benchmark.py; return its report. passed: both programs got the same result."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "examples/benchmarks/benchmark.py", "--rows", f"gpu-{name}"]
        command += ["--json", f"{folder}/report.json"]
        command += ["--quick"] if options.small else ["--pairs", str(PAIRS)]
        code, _, _ = _run(command, options.deadline)
        found = json.loads(Path(folder, "report.json").read_text(encoding="utf-8"))
    measured = [row["contenders"].keys() == {"minitf", "torch"} for row in found["rows"]]
    return found | {"passed": code == 0 and measured == [True]}


# The seconds of each part, if all run: one that ends early leaves them to those after it.
PARTS = {"tests": (100, run_tests), "sanitizer": (60, sanitize), "course": (120, run_course)}
for name, seconds in {"small": 45, "tf32": 60, "bfloat16": 55, "decoding": 40}.items():
    PARTS[name] = seconds, functools.partial(measure, name)

if __name__ == "__main__":
    sys.exit(main())
