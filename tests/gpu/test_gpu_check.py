"""What gpu_check.py does on a GPU, as far as a machine without one can run it."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import EXAMPLES, ROOT, SUPPORT

from minitf import backend

sys.path.insert(0, str(EXAMPLES))

from benchmarks import gpu_check


@pytest.fixture(autouse=True)
def path(monkeypatch):
    """gpu_check.py adds to it."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forms_are", "parts"), [("on", ["tests", "small", "decoding"]), ("off", ["course"])]
)
def test_it_runs_on_the_stand_in_from_end_to_end(forms_are, parts, tmp_path):
    """As the program that a person starts; with small sizes."""
    path = os.pathsep.join(map(str, (ROOT, SUPPORT, SUPPORT / "stand_in")))
    out = tmp_path / "gpu"
    done = subprocess.run(
        [sys.executable, gpu_check.__file__, *parts, "--small", "--out", "gpu"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "MINITF_FORMS": forms_are},
        capture_output=True,
        text=True,
        check=False,
    )
    results = json.loads((out / "results.json").read_text())
    found, log = results["parts"], (out / "log.txt").read_text(encoding="utf-8")
    assert done.returncode == 0, log[-3000:] + done.stderr[-1000:]
    assert results["device"] == "stand-in"
    for part in parts:
        assert found[part] and all(each["code"] == 0 for each in found[part].values())
        assert all(f"--- {part} {name}" in log for name in found[part])
        if part in ("small", "decoding"):
            (row,) = json.loads((out / f"gpu-{part}.json").read_text())["rows"]
            torch = {"torch"} if importlib.util.find_spec("torch") else set()
            assert row["contenders"].keys() == {"minitf"} | torch


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_a_gpu_one_line_says_so(tmp_path, capsys):
    assert gpu_check.main(["tests", "--out", str(tmp_path / "gpu")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "gpu").exists()


def test_the_comment_at_the_top_says_how_long_the_parts_take():
    minutes = [seconds / 60 for seconds in gpu_check.SECONDS.values()]
    first, last = sum(minutes[:5]), sum(minutes[5:])
    said = (
        f"at most {first + last:.0f} minutes: the first five {first:.0f}, the last two {last:.0f}"
    )
    assert said in gpu_check.__doc__
    assert all(f"\n    {part} " in gpu_check.__doc__ for part in gpu_check.SECONDS)


def test_a_part_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        gpu_check.main(["third"])
    assert ended.value.code == 2 and "there is no part 'third'" in capsys.readouterr().err


def test_the_files_with_gpu_tests_are_found(tmp_path):
    """All of them; and none that needs a package which a GPU machine may lack."""
    found = gpu_check._programs("tests", tmp_path, tmp_path, small=False)
    assert {"test_kernels", "test_products", "test_parity", "test_learning", "test_forms"} <= set(
        found
    )
    assert {"test_fused_step", "test_ssru", "test_decoder", "test_translator_on_gpu"} <= set(found)
    assert {"test_decode", "test_dropout", "test_optim", "test_loss"} <= set(found)
    for name in found.keys() - {Path(__file__).stem}:
        text = next((ROOT / "tests").rglob(f"{name}.py")).read_text(encoding="utf-8")
        assert "import hypothesis" not in text and "from threadpoolctl" not in text, name


LATE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(child.pid))
print("begun")
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no groups of processes on this system")
def test_the_parts_one_after_the_other(monkeypatch, tmp_path, capsys):
    """One fails, one is late and is ended with what it had started, and then one passes."""
    out, pid = tmp_path / "out", tmp_path / "pid"
    python = [sys.executable, "-c"]
    commands = {
        "fails": [*python, "print('no such kernel'); exit(3)"],
        "late": [*python, LATE, str(pid)],
        "good": [*python, "print('this'); print('is good')"],
        "missing": [str(tmp_path / "no such program")],
    }

    def programs(part, *_):
        if part == "good":  # what is known by then
            found = json.loads((out / "results.json").read_text())["parts"]
            assert found["fails"]["fails"]["code"] == 3 and found["late"]["late"]["code"] is None
        return {part: commands[part]}

    monkeypatch.setattr(gpu_check, "SECONDS", {"fails": 1, "late": 2, "good": 9, "missing": 1})
    monkeypatch.setattr(gpu_check, "_programs", programs)
    monkeypatch.setattr(backend, "use", lambda name: None)
    monkeypatch.setattr(gpu_check, "_device", lambda: "none")
    monkeypatch.setattr(gpu_check.signal, "signal", lambda *_: None)
    assert gpu_check.main(["--out", str(out)]) == 1
    found = json.loads((out / "results.json").read_text())["parts"]
    last = {part: found[part][part]["last"] for part in commands}
    assert (
        last.pop("missing").startswith("[Errno 2]") and found["missing"]["missing"]["code"] == 127
    )
    assert last == {"fails": "no such kernel", "late": "begun", "good": "is good"}
    assert "this\nis good" in (out / "log.txt").read_text()
    assert has_ended(int(pid.read_text()))
    capsys.readouterr()
    monkeypatch.undo()


def has_ended(pid):
    for _ in range(100):
        try:  # a process that was ended stays in the table until its new parent has noticed
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no groups of processes on this system")
def test_a_program_that_is_stopped_ends_what_it_has_started(tmp_path):
    program = (
        "import signal, sys, time\n"
        "from benchmarks import gpu_check\n"
        "signal.signal(signal.SIGTERM, gpu_check._stop)\n"
        "gpu_check._run([sys.executable, '-c', *sys.argv[1:]], time.perf_counter() + 60)\n"
    )
    pid = tmp_path / "pid"
    path = os.pathsep.join(map(str, (ROOT, EXAMPLES)))
    process = subprocess.Popen(
        [sys.executable, "-c", program, LATE, str(pid)], env=os.environ | {"PYTHONPATH": path}
    )
    for _ in range(200):
        if pid.exists() and pid.read_text():
            break
        time.sleep(0.1)
    process.terminate()
    assert process.wait(10) == 1 and has_ended(int(pid.read_text()))


@pytest.mark.slow
def test_the_first_test_that_failed_runs_once_more(tmp_path):
    """Alone, and so that an error of a kernel comes up where it was started."""
    (tmp_path / "test_some.py").write_text("""
import os
import pytest

pytestmark = pytest.mark.gpu
def test_a(): pass
def test_b(): assert not os.environ.get("CUDA_LAUNCH_BLOCKING", "some kernel")
def test_c(): assert False
""")
    tests = gpu_check._programs("tests", tmp_path, tmp_path, small=True)["test_products"]
    command = [*tests[:-1], "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)]
    found = gpu_check._run(command, time.perf_counter() + 60)
    assert found["code"] == 1 and "1 passed" in found["last"]
    first, again = found["printed"].split("test session starts")[1:]
    assert "assert not 'some kernel'" in first and "test_c FAILED" in first
    assert "assert not '1'" in again and "test_c" not in again


@pytest.mark.skipif(os.name != "posix", reason="the program in its place is a shell script")
def test_the_sanitizer_runs_the_tests_and_says_what_it_saw(monkeypatch, tmp_path):
    """A script in its place reports an error."""
    program = tmp_path / "compute-sanitizer"
    program.write_text("""#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
echo "========= Invalid __global__ read"
shift
[ "$1" = -c ] && echo "tests/gpu/test_kernels.py::test_x PASSED [ 50%]" && exit 99
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (command,) = gpu_check._programs("sanitizer", tmp_path, tmp_path, small=False).values()
    found = gpu_check._run(command, time.perf_counter() + 9)
    assert found["code"] == 99 and "Invalid __global__ read" in found["printed"]
