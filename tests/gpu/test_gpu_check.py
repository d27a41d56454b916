"""What gpu_check.py does on a GPU, as far as a machine without one can run it."""

import importlib.util
import json
import os
import subprocess
import sys
import time
import types
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
    done = subprocess.run(
        [sys.executable, gpu_check.__file__, *parts, "--small", "--out", str(tmp_path / "gpu")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "MINITF_FORMS": forms_are},
        capture_output=True,
        text=True,
        check=False,
    )
    for part in parts:
        found = json.loads((tmp_path / "gpu" / f"{part}.json").read_text())
        printed = done.stdout[-3000:] + done.stderr[-1000:]
        if "rows" in found and importlib.util.find_spec("torch") is None:
            assert (
                list(found["rows"][0]["contenders"]) == ["minitf"] and "torch" in found["missing"]
            )
        else:
            assert found["passed"], printed
    assert json.loads((tmp_path / "gpu" / "machine.json").read_text())["device"] == "stand-in"


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_a_gpu_one_line_says_so(tmp_path, capsys):
    assert gpu_check.main(["tests", "--out", str(tmp_path / "gpu")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "gpu").exists()


def test_the_comment_at_the_top_says_how_long_all_parts_take():
    total = sum(seconds for seconds, _ in gpu_check.PARTS.values())
    assert f"in at most {total} seconds" in gpu_check.__doc__.replace("\n", " ")


def test_a_part_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        gpu_check.main(["third"])
    assert ended.value.code == 2 and "there is no part 'third'" in capsys.readouterr().err


def test_the_files_with_gpu_tests_are_found():
    """All of them; and none that needs a package which a GPU machine may lack."""
    found = {
        path.name for path in (ROOT / "tests").rglob("test_*.py") if gpu_check._has_gpu_tests(path)
    }
    assert {
        "test_kernels.py",
        "test_products.py",
        "test_parity.py",
        "test_learning.py",
        "test_forms.py",
        "test_fused_step.py",
    } <= found
    assert {"test_decode.py", "test_dropout.py", "test_optim.py", "test_loss.py"} <= found
    for name in found - {Path(__file__).name}:
        text = next((ROOT / "tests").rglob(name)).read_text(encoding="utf-8")
        assert "import hypothesis" not in text and "from threadpoolctl" not in text, name


LATE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no groups of processes on this system")
def test_the_parts_one_after_the_other(monkeypatch, tmp_path, capsys):
    """One fails, one is late and is ended with what it had started, and then one passes."""
    out = tmp_path / "out"

    def fails(options, note):
        note({"rows": [1]})
        noted = json.loads((out / "fails.json").read_text())
        assert noted["rows"] == [1] and not noted["passed"] and noted["seconds"] >= 0
        raise RuntimeError("no such kernel")

    def late(options, note):
        program = [sys.executable, "-c", LATE, str(out / "pid")]
        return {"passed": gpu_check._run(program, options.deadline)[0] == 0}

    def good(options, note):
        program = [sys.executable, "-c", "print('this is good')"]
        return {"passed": gpu_check._run(program, options.deadline)[0] == 0}

    parts = {"fails": (1, fails), "late": (2, late), "good": (9, good)}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    monkeypatch.setattr(backend, "use", lambda name: None)
    monkeypatch.setattr(gpu_check, "described", lambda options: {"device": "none"})
    monkeypatch.setattr(gpu_check.signal, "signal", lambda *_: None)
    assert gpu_check.main(["--out", str(out)]) == 1
    assert capsys.readouterr().out.endswith("fails: FAILED\nlate: FAILED\ngood: passed\n")
    report = json.loads((out / "fails.json").read_text())
    assert "no such kernel" in report["error"] and report["rows"] == [1]
    assert "this is good" in (out / "good.log").read_text()
    assert has_ended(int((out / "pid").read_text()))


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
def test_a_program_that_takes_too_long_is_reported_with_what_it_printed(tmp_path, capsys):
    program = "import time\nprint('begun')\ntime.sleep(60)\n"
    command = [sys.executable, "-c", program]
    code, output, _ = gpu_check._run(command, time.perf_counter() + 2)
    assert code is None and output == "begun\n"
    assert output in capsys.readouterr().out, "the log has it, too"


def test_failures_are_found_in_what_pytest_printed():
    printed = """\
tests/a.py::test_x[1] PASSED                          [ 10%]
tests/a.py::test_y[as it is] FAILED                   [ 20%]
tests/b.py::test_z[a]
some words PASSED
tests/b.py::test_z[b] ERROR
FAILED tests/a.py::test_y[as it is] - ValueError
"""
    passed, failed = gpu_check._of_pytest(printed)
    assert failed == ["tests/a.py::test_y[as it is]", "tests/b.py::test_z[b]"]
    assert passed == ["tests/a.py::test_x[1]"]


def test_what_fails_runs_once_more_alone(monkeypatch, tmp_path):
    runs = []

    def run(command, deadline, **environment):
        name = command[-1]
        runs.append((name, environment))
        if name == "a.py::x":
            return 1, "E   illegal access", 1.0
        if "::" in name:
            return 0, "", 1.0
        if name.endswith("test_kernels.py"):
            return 1, "a.py::x FAILED\na.py::y FAILED\na.py::z PASSED\n", 2.0
        return 5, "", 0.1

    monkeypatch.setattr(gpu_check, "_run", run)
    options = types.SimpleNamespace(small=False, deadline=time.perf_counter() + 9)
    found = gpu_check.run_tests(options, lambda found: None)
    assert not found["passed"] and found["files"]["test_kernels"]["failed"] == 2
    assert found["alone"] == {"a.py::x": "E   illegal access", "a.py::y": "passes"}
    assert runs[-1][1] == {"CUDA_LAUNCH_BLOCKING": "1"} and not runs[0][1]


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
    options = types.SimpleNamespace(deadline=time.perf_counter() + 9)
    found = gpu_check.sanitize(options, None)
    assert not found["passed"] and found["code"] == 99 and found["tests"] == 1
    assert "Invalid __global__ read" in found["errors"]


@pytest.mark.slow
def test_translations_of_both_sides(monkeypatch, tmp_path):
    """The part `course` calls translate.py as a user would; here both times on the CPU."""
    run = gpu_check._run
    monkeypatch.setattr(
        gpu_check,
        "_run",
        lambda command, deadline: run(
            [w.replace("cupy", "numpy") for w in command[:4]] + command[4:], deadline
        ),
    )
    found = gpu_check._translations(tmp_path, 400, time.perf_counter() + 300)
    assert found["passed"] and found["same"] == found["lines"] == 400 and found["ln_p_apart"] == 0
