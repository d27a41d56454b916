"""Every mistake of mistakes.py is refused in one line, with exit code 2, and changes nothing."""

import shlex
import shutil
from pathlib import Path

import pytest
from command import Command, is_refused
from mistakes import TRAINER, TRANSLATE, prepare
from runs import prepare_folder, run

from minitf.training import commandline
from minitf.training.trainer import Trainer


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    with pytest.MonkeyPatch.context() as patch:
        prepare_folder(folder, patch)
        prepare(folder, lambda out: run(out, "--steps", "1"))
    return folder


@pytest.fixture
def folder(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("MINITF_DATA", str(tmp_path / "no-data"))
    return tmp_path / "here"


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def test_the_trainer_refuses_in_one_line(folder, monkeypatch, capsys):
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("this was to be refused before"))
    before = contents(folder)
    for line, reason in TRAINER.items():
        arguments = line.split(" ")
        if "--out" not in arguments:
            arguments += ["--out", "made"]
        assert commandline.main(arguments, "train.py") == 2, line
        error = capsys.readouterr().err
        assert error.startswith("train.py: ") and error.count("\n") == 1, (line, error)
        assert reason in error, line
        assert not Path("made/checkpoint.safetensors").exists(), line
        assert not Path("made/config.json").exists(), line
        shutil.rmtree("made", ignore_errors=True)
        after = contents(folder)
        assert before.items() <= after.items(), f"what was there is changed by {line}"
        for path in after.keys() - before.keys():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_translate_refuses_in_one_line(folder):
    before, translate = contents(folder), Command(folder / "model")
    for line, reason in TRANSLATE.items():
        assert is_refused(translate(*shlex.split(line)), reason), line
        assert contents(folder) == before, line


def test_there_are_sixty():
    assert len(TRAINER) + len(TRANSLATE) >= 60
