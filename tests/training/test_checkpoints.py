"""The folder of a run: which checkpoint counts, which weights are averaged, which files remain."""

import os
from pathlib import Path

import numpy as np
import pytest
from runs import copied_run, prepare_folder, run
from saved_files import assert_same

from minitf import atomic
from minitf.files.arrays import save_arrays
from minitf.training.checkpoints import RunFolder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["words.txt", "nohup.out"])
def test_a_run_begins_in_a_new_or_an_empty_folder(folder, capsys, name):
    Path("mine").mkdir()
    Path("mine", name).write_text("my own words\n")
    assert run("mine") == 2
    assert f"mine is not empty (it contains {name}): choose" in capsys.readouterr().err
    assert [path.name for path in Path("mine").iterdir()] == [name]
    assert run(f"mine/{name}") == 2
    assert "there is a file of this name: choose another" in capsys.readouterr().err


def test_a_run_that_cannot_begin_leaves_no_folder(folder):
    assert run("new", "--valid", "gone.en", "gone.de") == 2
    assert not Path("new").exists()


def test_the_old_checkpoint_is_kept_until_the_new_one_is_on_the_disk(folder, monkeypatch, capsys):
    copied_run("here", "--steps", "8")
    replace = os.replace

    def refuse_checkpoints(source, target):
        if Path(target).name.startswith("checkpoint"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(atomic.os, "replace", refuse_checkpoints)
    assert run("here", "--resume") == 2
    assert "checkpoint.safetensors: could not be written" in capsys.readouterr().err
    assert RunFolder("here").read_checkpoint()[2]["step"] == 8


def test_the_newest_weights_are_averaged_without_their_file(tmp_path):
    said = []
    run_folder = RunFolder(tmp_path, said.append)
    rng = np.random.default_rng(0)
    states = [{"x": rng.standard_normal(5).astype(np.float32)} for _ in range(3)]
    names = []
    for step, state in enumerate(states, 1):
        names = run_folder.add_weights(names, step, state, 2)
    assert names == ["weights-00000002.safetensors", "weights-00000003.safetensors"]
    mean = {"x": ((states[1]["x"].astype(float) + states[2]["x"]) / 2).astype(np.float32)}
    (tmp_path / names[1]).write_bytes(b"never read")
    taken, averaged = run_folder.average(names, states[2])
    assert taken == names and said == []
    assert_same(averaged, mean)


@pytest.mark.parametrize("damage", ["missing", "of another model"])
def test_an_average_begins_again_after_weights_that_cannot_be_read(tmp_path, damage):
    said, names = [], []
    run_folder = RunFolder(tmp_path, said.append)
    states = [{"x": np.full(5, step, np.float32)} for step in (1, 2, 6)]
    for step, state in enumerate(states, 1):
        names = run_folder.add_weights(names, step, state, 3)
    path = tmp_path / names[1]
    path.unlink()
    if damage == "of another model":
        save_arrays(path, {"x": np.ones(4, np.float32)}, {"step": 2})
    taken, averaged = run_folder.average(names, states[2])
    assert taken == [names[2]] and averaged is states[2]
    assert len(said) == 1 and str(path) in said[0]


def test_only_weights_are_forgotten(tmp_path):
    kept = {"weights-00000008.safetensors", "weights-best.safetensors", "weights-00000004.txt"}
    gone = {"weights-00000004.safetensors", "weights-123456789.safetensors"}
    for name in kept | gone:
        (tmp_path / name).write_bytes(b"")
    RunFolder(tmp_path).forget_weights(["weights-00000008.safetensors"])
    assert {path.name for path in tmp_path.iterdir()} == kept


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes are forked")
def test_a_worker_does_not_keep_the_lock_of_a_trainer_that_was_killed(tmp_path):
    begun, end = os.pipe(), os.pipe()
    with RunFolder(tmp_path).locked():
        if (worker := os.fork()) == 0:
            os.close(end[1])
            os.write(begun[1], b"1")
            os.read(end[0], 1)  # works on until the pipe is closed
            os._exit(0)
        os.read(begun[0], 1)
    try:
        with RunFolder(tmp_path).locked():
            pass
    finally:
        os.close(end[1])
        os.waitpid(worker, 0)
        for descriptor in (*begun, end[0]):
            os.close(descriptor)
