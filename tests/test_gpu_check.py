"""What examples/gpu_check.py does on a GPU, as far as a machine without one can run it."""

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import strict

from minitf import Config, Transformer, backend
from minitf.backend import using

ROOT = Path(__file__).parent.parent


def load(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


gpu_check = load("gpu_check")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_a_gpu_one_line_says_so(tmp_path, capsys):
    assert gpu_check.main(["--out", str(tmp_path / "gpu.json"), "--parts", "parity"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "gpu.json").exists()


def test_the_files_with_gpu_tests_are_found():
    """All of them; and none that needs a package which a GPU machine may lack."""
    found = {path.name for path in (ROOT / "tests").glob("test_*.py") if gpu_check._has_gpu_tests(path)}
    assert {"test_kernels.py", "test_products.py", "test_strict.py", "test_parity.py", "test_learning.py"} <= found
    assert {"test_decode.py", "test_first_losses.py", "test_dropout.py", "test_optim.py", "test_loss.py"} <= found
    for name in found - {Path(__file__).name}:
        text = (ROOT / "tests" / name).read_text(encoding="utf-8")
        assert "import hypothesis" not in text and "from threadpoolctl" not in text, name


def test_threads_of_a_cpu_can_be_done_without(tmp_path):
    (tmp_path / "threadpoolctl.py").write_text(gpu_check.NO_THREADS)
    code = "import sys; sys.path.insert(0, sys.argv[1]); from minitf.parallel import machine; print(machine(1))"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "'replicas': 1" in done.stdout


def test_two_sides_are_summed_up():
    ours = [{"ms": 10, "loss": 2.0, "memory": 5}, {"ms": 12, "loss": 2.0, "memory": 5}]
    theirs = [{"ms": 20, "loss": 2.002, "memory": 9}, {"error": "out of memory"}]
    row = gpu_check._summary({"minitf": ours, "torch": theirs}, tokens=1100)
    assert row["minitf"]["ms"] == 11 and row["minitf"]["tokens_per_second"] == 100_000
    assert row["ratio"] == pytest.approx(20 / 11, abs=1e-3) and row["losses_apart"] == pytest.approx(1e-3, rel=1e-2)
    alone = gpu_check._summary({"minitf": ours, "torch": theirs[1:]}, tokens=1100)
    assert "ratio" not in alone and alone["minitf"]["ms"] == 11


@pytest.mark.slow
def test_three_curves(monkeypatch, tmp_path):
    """The part `parity` on the stand-ins, with a smaller model and text."""
    for name in ("train.en", "train.de"):
        (tmp_path / name).write_text("the dog sees the cat\na cat runs\n" * 4, encoding="utf-8")
    text = " ".join(str(tmp_path / name) for name in ("train.en", "train.de"))
    smaller = f" --train {text} --valid {text} --subwords none --set n_layers=1 --set d_model=8 --set d_ff=12"
    monkeypatch.setattr(gpu_check, "TRAINING", gpu_check.TRAINING.replace("512", "12") + smaller)
    libraries = {"numpy": "numpy", "cupy": strict.with_kernels, "cupy, plain": strict.with_kernels}
    report = gpu_check.parity(None, steps=2, libraries=libraries)
    assert report["passed"] and max(report["apart"].values()) < 1e-5
    assert all(len(curve) == 2 for curve in report["losses"].values())
    assert json.loads(json.dumps(report)) == report


def test_each_operation_that_is_timed_runs_with_kernels_and_without(monkeypatch):
    sizes = {"pairs": 2, "length": 3, "d": 16, "words": 7, "rows": 2, "weights": 5}
    names, launch = [], strict.with_kernels.kernels[0]

    def noted(kernel, *rest):
        names.append(kernel.__name__)
        launch(kernel, *rest)

    monkeypatch.setattr(strict.with_kernels, "kernels", (noted, strict.with_kernels.kernels[1]))
    with using(strict.with_kernels):
        for name, operation in gpu_check._operations(backend.xp, **sizes).items():
            names.clear()
            operation()
            assert names, f"{name} has no fused kernel"
            names.clear()
            with backend.plain():
                operation()
            assert not names


@pytest.mark.slow
def test_the_step_that_is_timed(monkeypatch, tmp_path):
    """minitf's side, on the simulator: its weights are written for the other side, its loss is that of NumPy."""
    step, gpu, use, done = load("gpu_step"), strict.with_kernels, backend.use, []
    device = types.SimpleNamespace(Device=lambda: types.SimpleNamespace(synchronize=None))
    memory = types.SimpleNamespace(total_bytes=lambda: 7)
    monkeypatch.setattr(gpu, "cuda", device, raising=False)
    monkeypatch.setattr(gpu, "get_default_memory_pool", lambda: memory, raising=False)
    monkeypatch.setattr(backend, "use", lambda name: use(gpu if name == "cupy" else name))
    monkeypatch.setattr(step, "VOCABULARY", 11)
    monkeypatch.setattr(step, "milliseconds", lambda function, synchronise: done.append(function()) or 3.5)
    task = {"precision": "float32", "model": "tiny", "pairs": 2, "length": 3, "weights": str(tmp_path / "weights.npz")}
    task["sizes"] = step._sizes(task) | {"n_layers": 1, "d_model": 16, "d_ff": 12}
    with using("numpy"):
        found = step.with_minitf(task)
    assert (found["ms"], found["memory"], len(done)) == (3.5, 7, 1)
    with using("numpy"), np.load(task["weights"]) as arrays:
        model = Transformer(Config(**task["sizes"]), initialise=False).load_state(arrays)
        loss, _ = model.eval().loss(*step.work.batch(task | {"model": task["sizes"]}))
    assert float(loss) == pytest.approx(found["loss"], rel=1e-5)
