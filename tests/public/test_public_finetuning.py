"""An imported model is fine-tuned on a person's own text, as any other model."""

import json
import shutil

import pytest
from firefox_files import firefox
from public_files import PUBLIC
from saved_files import quiet

from minitf import Translator
from minitf.data.toy import pairs
from minitf.files.models import read_model
from minitf.public.hugging_face import export_model
from minitf.public.importing import import_model
from minitf.training import Settings, train
from minitf.translation.loading import load_model


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Settings of a short run on own text that starts from the stored public model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINITF_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("minitf.plot.curves", lambda *_, **__: None)
    for name, n, seed in (("train", 60, 1), ("valid", 8, 2)):
        for language, lines in zip(("en", "de"), pairs(n, seed), strict=True):
            (tmp_path / f"{name}.{language}").write_text(
                "".join(f"{line}\n" for line in lines), encoding="utf-8"
            )
    import_model(PUBLIC, "public", like="transformers", say=quiet)
    return {
        "train": ["train.en", "train.de"],
        "valid": ["valid.en", "valid.de"],
        "start_from": "public",
        "out": "tuned",
        "steps": 40,
        "batch_tokens": 400,
        "warmup_steps": 4,
        "learning_rate": 0.1,
        "valid_every": 20,
        "save_every": 20,
        "average": 1,
        "max_extra": 5,
    }


@pytest.mark.parametrize("model", ["public", "firefox", "two vocabularies"])
def test_it_learns_and_keeps_its_vocabulary(model, settings, tmp_path):
    if model != "public":
        firefox(tmp_path / "in", two=model != "firefox")
        shutil.rmtree("public")
        import_model("in", "public", say=quiet)
    train(Settings(**settings))
    with open("tuned/log.jsonl") as log:
        losses = [entry["loss"] for entry in map(json.loads, log) if "loss" in entry]
    assert losses[-1] < 0.9 * losses[0]
    before, after = read_model("public"), read_model("tuned")
    assert after.subwords.contents() == before.subwords.contents()
    assert before.config == after.config
    found = Translator.load("tuned").translate(["the dog sleeps", ""], max_extra=5)
    assert found[0][0].text and not found[1][0].text


def test_it_goes_back_to_transformers(settings, tmp_path):
    """Fine-tuned with transformers' arithmetic, it is exported without a difference."""
    train(Settings(**settings | {"steps": 5}))
    said = []
    export_model("tuned", tmp_path / "hf", say=said.append)
    assert not any("eps" in line for line in said)
    import_model(tmp_path / "hf", tmp_path / "back", "float32", say=quiet)
    assert load_model(tmp_path / "back")[0].config == load_model("tuned")[0].config
