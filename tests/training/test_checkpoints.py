"""The folder of a run: which checkpoint counts, which weights are averaged, which files remain."""

import os
from pathlib import Path

import numpy as np
import pytest
from runs import copied_run, prepare_folder, run
from saved_files import assert_same, message

from minitf import atomic
from minitf.files.arrays import save_arrays
from minitf.training.checkpoints import RunFolder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


MINE = (
    "words.txt vocabulary.json source.spm subwords.model log.jsonl curves.png results.json "
    "valid.out model-0123abcd.safetensors weights-00000001.safetensors"
)


@pytest.mark.parametrize("name", MINE.split())
def test_files_of_the_user_are_not_overwritten_by_a_run(folder, capsys, name):
    Path("mine").mkdir()
    Path("mine", name).write_text("my own words\n")
    assert run("mine") == 2
    assert f"mine contains {name}, which a run would overwrite" in capsys.readouterr().err
    assert [path.name for path in Path("mine").iterdir()] == [name]
    assert Path("mine", name).read_text() == "my own words\n"


def test_other_files_of_the_user_may_stay_in_the_folder_of_a_run(folder):
    Path("mine").mkdir()
    for name in ("notes.txt", "nohup.out", "weights-best.safetensors"):
        Path("mine", name).write_text("my own words\n")
    assert run("mine", "--steps", "2") == 0
    assert Path("mine/nohup.out").read_text() == "my own words\n"


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_checkpoint", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run("here")
    assert {path.name for path in Path("here").iterdir()} == {"log.jsonl", "words.txt"}
    assert run("here", "--steps", "2") == 0


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


@pytest.mark.parametrize("damage", ["missing", "damaged", "another shape", "another type"])
def test_an_average_leaves_out_only_what_it_cannot_read(tmp_path, damage):
    said, names = [], []
    run_folder = RunFolder(tmp_path, said.append)
    states = [{"x": np.full(5, step, np.float32)} for step in (1, 2, 6)]
    for step, state in enumerate(states, 1):
        names = run_folder.add_weights(names, step, state, 3)
    path = tmp_path / names[1]
    if damage == "missing":
        path.unlink()
    elif damage == "damaged":
        path.write_bytes(b"no more")
    else:
        x = np.ones(4, np.float32) if damage == "another shape" else np.ones(5)
        save_arrays(path, {"x": x}, {"step": 2})
    taken, averaged = run_folder.average(names, states[2])
    assert taken == [names[0], names[2]] and str(path) in said[0] and len(said) == 1
    assert_same(averaged, {"x": np.full(5, 3.5, np.float32)})


def test_the_stamp_changes_whenever_a_checkpoint_is_written(tmp_path):
    folder, stamps = RunFolder(tmp_path), []
    for _ in range(3):
        stamps.append(folder.stamp())
        save_arrays(folder.checkpoint, {"a": np.zeros(2)}, {"step": 1})  # of the same size
    assert stamps[0] is None and len(set(stamps)) == 3


def test_only_weights_are_forgotten(tmp_path):
    kept = {"weights-00000008.safetensors", "weights-best.safetensors", "weights-00000004.txt"}
    gone = {"weights-00000004.safetensors", "weights-123456789.safetensors"}
    for name in kept | gone:
        (tmp_path / name).write_bytes(b"")
    RunFolder(tmp_path).forget_weights(["weights-00000008.safetensors"])
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    """Path.exists raises an error for a file in it; who runs the tests may read everything."""

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    run_folder = RunFolder(tmp_path)
    for ask in (run_folder.stamp, run_folder.must_be_free, run_folder.must_be_unlocked):
        assert "cannot be read (Permission denied): choose another folder" in message(ask)


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
        RunFolder(tmp_path).must_be_unlocked()
    finally:
        os.close(end[1])
        os.waitpid(worker, 0)
        for descriptor in (*begun, end[0]):
            os.close(descriptor)
