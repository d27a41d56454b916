"""The trainer's command: the files of a run, its numbers, and its one-line errors."""

import functools
import json
import shlex
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import strict
from runs import PACE, SMALL, at_step, prepare_folder, run, write_text
from saved_files import weights_in

from minitf import backend
from minitf.files.arrays import load_arrays
from minitf.files.models import read_model
from minitf.training import commandline
from minitf.training.evaluation import Validator
from minitf.training.settings import parse
from minitf.training.update import Updater
from minitf.transformer import Transformer
from minitf.translation import Translator


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


# The files of a run -------------------------------------------------------------------------------


def test_the_files_of_a_run(folder, monkeypatch, capsys):
    monkeypatch.undo()  # with curves
    monkeypatch.chdir(folder)
    assert run("here", "--learning-rate", "0.5", "--beam", "2") == 0
    said = capsys.readouterr().out
    names = {path.name for path in Path("here").iterdir()}
    weights = {"weights-00000008.safetensors", "weights-00000012.safetensors"}
    model = {weights_in("here").name, "words.txt", "config.json"}
    assert names == model | weights | {
        "checkpoint.safetensors",
        "log.jsonl",
        "curves.png",
        "results.json",
        "valid.out",
    }
    assert Path("here/curves.png").read_bytes()[:4] == b"\x89PNG"

    entries = [json.loads(line) for line in Path("here/log.jsonl").read_text().splitlines()]
    steps = [entry for entry in entries if "loss" in entry]
    assert [entry["step"] for entry in steps] == list(range(1, 14))
    assert [entry["step"] for entry in entries if "valid_bleu" in entry] == [4, 8, 12, 13]
    wanted = (
        "step epoch loss perplexity tokens_per_second learning_rate gradient_norm seconds_left time"
    )
    assert steps[0].keys() == set(wanted.split())
    # The peak: step = warmup_steps.
    assert steps[7]["learning_rate"] == pytest.approx(0.5 * 16**-0.5 * 8**-0.5)
    assert steps[0]["loss"] > steps[-1]["loss"]
    left = [entry["seconds_left"] for entry in steps]
    assert left[0] is None, "not known yet"
    assert min(left[1:-1]) > 0 and left[-1] == 0
    assert sum(line.startswith("step ") for line in said.splitlines()) == len(entries)

    results = json.loads(Path("here/results.json").read_text())
    assert " --train train.en train.de --valid " in results["command"]
    assert results["tests"]["valid"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:none")
    assert (
        results["tests"]["valid"]["sentences"]
        == len(Path("here/valid.out").read_text().splitlines())
        == 5
    )
    assert {"python", "numpy", "sacrebleu"} <= results["versions"].keys()
    assert results["valid"]["averaged"]["perplexity"] != results["valid"]["last"]["perplexity"]
    assert results["valid"]["last"]["perplexity"] == entries[-1]["valid_perplexity"]
    assert results["seconds"] > 0 and results["step"] == 13


def assert_the_mean_of(*steps):
    for name, array in read_model("here")[0].items():
        files = [load_arrays(f"here/weights-{step:08d}.safetensors")[0][name] for step in steps]
        # The model is stored in float16.
        assert np.allclose(array, np.mean(files, axis=0, dtype=np.float64), rtol=1e-3), name


def test_the_model_is_the_average_of_the_last_weights(folder, monkeypatch):
    # It might keep the last weights instead.
    monkeypatch.setattr(
        commandline, "finish", lambda *_: {"valid": {"bleu": 50.0, "perplexity": 9.0}}
    )
    assert run("here", "--steps", "12", "--average", "3") == 0
    assert len(list(Path("here").glob("weights-*"))) == 3
    assert_the_mean_of(4, 8, 12)
    card = json.loads(Path("here/config.json").read_text())
    assert (card["step"], card["averaged"], card["max_subwords"]) == (
        12,
        3,
        Translator.load("here").max_subwords,
    )


def test_checkpoints_between_validations_are_averaged_as_well(folder, monkeypatch):
    monkeypatch.setattr(
        commandline, "finish", lambda *_: {"valid": {"bleu": 50.0, "perplexity": 9.0}}
    )
    assert (
        run("here", "--steps", "12", "--average", "4", "--valid-every", "100", "--save-every", "3")
        == 0
    )
    assert sorted(path.stem[-2:] for path in Path("here").glob("weights-*")) == [
        "03",
        "06",
        "09",
        "12",
    ]
    assert json.loads(Path("here/config.json").read_text())["averaged"] == 4
    # Step 12 counts once, though it was saved before it was validated.
    assert_the_mean_of(3, 6, 9, 12)


def test_between_validations_the_model_is_not_written(folder, monkeypatch):
    """To average large weights takes longer than an update. Only the first are written at once."""
    at_step(monkeypatch, 7, lambda: signal.raise_signal(signal.SIGTERM))
    assert run("here", "--valid-every", "100", "--save-every", "2") == 0
    assert sorted(path.stem[-2:] for path in Path("here").glob("weights-*")) == ["04", "06"]
    assert json.loads(Path("here/config.json").read_text())["step"] == 2


def test_the_settings_of_decoding_arrive(folder, monkeypatch):
    """Greedy for a validation, the beam for a test; no long line is cut, as it is for a user."""
    calls, translate = [], Translator.translate

    def watch(self, lines, search, **more):
        alpha = [search.alpha] if search.beam > 1 else []
        sizes = self.max_unsplit, self.max_subwords
        calls.append((*sizes, search.beam, search.max_extra, *alpha))
        return translate(self, lines, search, **more)

    monkeypatch.setattr(Translator, "translate", watch)
    arguments = "--steps 1 --valid-every 1 --beam 3 --alpha 0.9 --max-extra 4 --max-length 120"
    assert run("here", *arguments.split()) == 0
    assert calls == [(120, 120, 1, 4), (120, 120, 1, 4), (120, 120, 3, 4, 0.9)]


@pytest.mark.parametrize(
    ("better", "average"), [("average", (9, 1.0)), ("last", (8, 0.5)), ("last", (9.1, 1.004))]
)
def test_the_model_is_the_better_of_the_average_and_the_last(better, average, folder, monkeypatch):
    """Between BLEU that is printed alike, such as 0.00, the lower perplexity decides."""
    found = iter([*3 * [(9, 1.0)], average])  # perplexity and BLEU of three validations before it

    def made_up(*_):
        value, bleu = next(found)
        return value, SimpleNamespace(score=bleu, signature="made up", reference_length=99)

    tested = []
    monkeypatch.setattr(Validator, "measure", made_up)
    monkeypatch.setattr(
        commandline, "_test", lambda _, translator, *more: tested.append(translator.model.state())
    )
    assert run("here", "--steps", "12", "--average", "3") == 0
    last, _ = load_arrays("here/weights-00000012.safetensors")
    same = [
        np.array_equal(array, last[name].astype(np.float16))
        for name, array in read_model("here")[0].items()
    ]
    assert all(same) == (better == "last")
    assert json.loads(Path("here/config.json").read_text())["averaged"] == (
        1 if better == "last" else 3
    )
    for name, array in read_model("here")[0].items():
        assert np.array_equal(tested[0][name], array), "what is scored is what is in the folder"


def test_chosen_settings_are_logged_stored_and_kept(folder, capsys):
    texts = [
        *shlex.split("--train train.en train.de --valid valid.en valid.de --batch-tokens 60"),
        *SMALL,
    ]
    assert commandline.main([*texts, "--out", "here", "--steps", "3"]) == 0
    said = (
        "chosen   --warmup-steps 1 --learning-rate 0.0158 --valid-every 50, for a text with "
        "7 updates per epoch"
    )
    assert capsys.readouterr().out.count(said) == 1
    write_text("train", 600, seed=1)  # ten times the text, but the settings stay
    assert commandline.main(["--resume", "--out", "here", "--steps", "4"]) == 0
    assert "chosen" not in capsys.readouterr().out
    stored = load_arrays("here/checkpoint.safetensors")[1]["settings"]
    found = [stored[name] for name in ("warmup_steps", "learning_rate", "valid_every")]
    assert found == [1, 0.0158, 50]
    tuned = commandline.build(parse([*texts[:8], "--start-from", "here", "--out", "there"])[0])
    assert (tuned.settings.steps, tuned.settings.warmup_steps) == (
        5 * len(tuned.cursor.plan),
        5 * len(tuned.cursor.plan) // 10,
    )


def test_starting_from_another_model(folder, capsys):
    assert run("first") == 0
    arrays, config, subwords, _ = read_model("first")
    write_text("train", 30, seed=7)
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de")
    more = ["--start-from", "first", "--out", "second", "--steps", "1", "--learning-rate", "1e-9"]
    assert commandline.main([*texts, *more, "--set", "dropout=0.3"]) == 0
    after, new_config, new_subwords, _ = read_model("second")
    assert new_subwords.contents() == subwords.contents()
    assert new_config == config | {"dropout": 0.3}
    for name, array in arrays.items():
        assert np.allclose(array, after[name], atol=2e-3), name
    capsys.readouterr()
    other = ["--start-from", "first", "--out", "third", "--set", "d_ff=8"]
    assert commandline.main([*texts, *other]) == 2
    said = capsys.readouterr()
    assert ": first: " in said.err
    assert "corpus" not in said.out, "the text, which may be long, is not read in vain"


def test_a_recurrent_decoder_is_trained_resumed_and_tuned(folder):
    """A run that is stopped and resumed is bit for bit the one that was not."""
    assert run("whole", "--set", "decoder=ssru", "--set", "dropout=0.2") == 0
    assert run("parts", "--set", "decoder=ssru", "--set", "dropout=0.2", "--steps", "5") == 0
    assert run("parts", "--resume", "--steps", "13", text=False) == 0
    whole, parts = (read_model(name).arrays for name in ("whole", "parts"))
    assert all(array.tobytes() == parts[name].tobytes() for name, array in whole.items())
    assert "decoder.layers.0.self_attention.forget.bias" in whole
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de")
    assert commandline.main([*texts, *shlex.split("--start-from whole --out on --steps 1")]) == 0
    assert Translator.load("on").model.config.decoder == "ssru"


@pytest.mark.parametrize(("learned", "now"), [("trees", "trees"), ("es", "de"), ("de", "de")])
def test_the_languages_of_a_tuned_model(folder, capsys, learned, now):
    """Those of its base, so that a parser stays one, unless the names of the files tell others."""
    assert run("first", "--steps", "1") == 0
    path = Path("first/config.json")
    notes = json.loads(path.read_text()) | {"source_language": "en", "target_language": learned}
    path.write_text(json.dumps(notes))
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de")
    assert commandline.main([*texts, *shlex.split("--start-from first --out next --steps 1")]) == 0
    assert commandline.main(shlex.split("--resume --out next --steps 2")) == 0
    found = json.loads(Path("next/config.json").read_text())
    assert (found["step"], found["source_language"], found["target_language"]) == (2, "en", now)
    notice = "notice   --train is en to de, the model en to es: a model of en to de fits better"
    assert capsys.readouterr().out.count(notice) == (learned == "es")


def test_a_tuned_model_keeps_the_notes_of_its_base(folder):
    """It still reads long lines whole, and names whose work it is; also after it is resumed."""
    assert run("first", "--steps", "1") == 0
    path = Path("first/config.json")
    kept = {
        "max_subwords": 200,
        "max_unsplit": 150,
        "source": "opus",
        "licence": "CC-BY 4.0",
        "credit": "us",
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | kept | {"computed_like": "marian"}))
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de")
    assert commandline.main([*texts, *shlex.split("--start-from first --out next --steps 1")]) == 0
    line = "the cat. " * 70  # 140 words; no line of the text has more than 12
    for steps in (1, 2):
        if steps == 2:
            assert commandline.main(shlex.split("--resume --out next --steps 2")) == 0
        found = json.loads(Path("next/config.json").read_text())
        assert found["step"] == steps and {name: found.get(name) for name in kept} == kept
        assert "computed_like" not in found
        assert len(Translator.load("next").parts(line)) == 1


@pytest.mark.slow
def test_a_tuned_model_reads_the_longest_lines_of_its_text_or_of_its_base(folder):
    assert run("first", "--steps", "1") == 0
    path = Path("first/config.json")
    notes = json.loads(path.read_text())
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de")
    path.write_text(json.dumps(notes | {"max_subwords": 1}))
    assert commandline.main([*texts, *shlex.split("--start-from first --out next --steps 1")]) == 0
    found = json.loads(Path("next/config.json").read_text())
    assert found["max_subwords"] == notes["max_subwords"] and "max_unsplit" not in found


def test_words_cut_by_bpe_are_joined(folder):
    for name in ("train", "valid"):
        for language in ("en", "de"):
            path = Path(f"{name}.{language}")
            path.write_text(
                path.read_text().replace("house", "ho@@ use").replace("esuoh", "es@@ uoh")
            )
    assert "@@" in Path("valid.de").read_text()
    settings, _ = parse(
        [*shlex.split("--train train.en train.de --valid valid.en valid.de --out here"), *SMALL]
    )
    built = commandline.build(settings)
    lines = Path("valid.de").read_text().splitlines()
    assert built.validator.score(
        [line.replace("@@ ", "") for line in lines], lines
    ).score == pytest.approx(100)
    assert built.validator.score(lines, lines).score < 100


@pytest.mark.parametrize("reads", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_validation_reads_lines_as_the_model_will(folder, monkeypatch, reads):
    """As the public model from which it is tuned, resumed or not: capitals, and placeholders."""
    assert run("first") == 0
    notes = json.loads(Path("first/config.json").read_text())
    assert notes["reads_capitals"] is False
    as_public = {"reads_capitals": reads, "placeholders": ["Xa", "Xb"]}
    Path("first/config.json").write_text(json.dumps(notes | as_public))
    found, measure = [], Validator.measure

    def look(self, translator):
        found.append((translator.reads_capitals, *translator.placeholders))
        return measure(self, translator)

    monkeypatch.setattr(Validator, "measure", look)
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de")
    tuned = shlex.split("--start-from first --out tuned --valid-every 1 --average 2 --max-extra 2")
    assert commandline.main([*texts, *tuned, "--steps", "2"]) == 0
    assert commandline.main(shlex.split("--resume --out tuned --steps 3")) == 0
    assert len(found) > 4 and set(found) == {(reads, "Xa", "Xb")}
    tuned = Translator.load("tuned")
    assert tuned.reads_capitals is reads and tuned.placeholders == ["Xa", "Xb"]


def test_a_validation_draws_no_dropout(folder):
    """Not even where a method of the model itself was replaced: its copy for decoding has it."""
    trainer, encode, seen = small_trainer(), Transformer.encode, []
    replaced = functools.partial(encode, trainer.model.train())
    trainer.model.encode = lambda *given: seen.append(trainer.model.training) or replaced(*given)
    trainer._measure()
    assert len(seen) > 1 and not any(seen)
    assert trainer.model.training


# Numbers ------------------------------------------------------------------------------------------


def small_trainer(*chosen):
    """A trainer of a small model, at the usual pace or with these options."""
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de --out here")
    return commandline.build(parse([*texts, *SMALL, *(chosen or PACE)])[0])


@pytest.fixture
def small(folder):
    return small_trainer()


@pytest.mark.parametrize(
    "stand_in", ["module", pytest.param("with_kernels", marks=pytest.mark.slow)]
)
def test_an_update_on_gpu_like_arrays(folder, stand_in):
    settings, _ = parse(
        [
            *shlex.split("--train train.en train.de --valid valid.en valid.de --out here"),
            *SMALL,
            *PACE,
        ]
    )
    mine = commandline.build(settings)
    expected = [mine.update() for _ in range(2)]
    with backend.using(getattr(strict, stand_in)):
        settings.out = "there"
        theirs = commandline.build(settings)
        found = [theirs.update() for _ in range(2)]
        theirs.folder.path.mkdir()
        theirs.validate()
        assert all(
            type(array) is np.ndarray
            for array in load_arrays("there/checkpoint.safetensors")[0].values()
        )
    assert np.allclose([[float(x) for x in row] for row in found], expected, rtol=1e-5)


def test_the_largest_batch_comes_first(small, monkeypatch):
    tried = []
    backward = Updater.backward

    def watch(self, batch, n_tokens, step):
        tried.append(batch)
        return backward(self, batch, n_tokens, step)

    monkeypatch.setattr(Updater, "backward", watch)
    before = small.model.state()
    for batch in small.largest_batches():
        small.updater.try_batch(batch)
    assert all(np.array_equal(array, before[name]) for name, array in small.model.state().items())
    assert all(parameter.grad is None for parameter in small.model.parameters())
    batches = [small.dataset.batch(rows) for rows in small.cursor.plan]
    for need in (positions, scores):
        assert max(map(need, batches)) in map(need, tried)


def test_the_largest_slice_of_a_rank_is_tried(small):
    """One and a half of three batches: its slices are a whole one and half of one."""
    small.ranks, small.settings.accumulate = SimpleNamespace(rank=0, size=2), 3
    whole = [len(indices) for indices in small.dataset.largest(small.cursor.plan)]
    assert [len(batch.source) for batch in small.largest_batches()] == whole


def positions(batch):
    return batch.source.size + batch.target_in.size


def scores(batch):
    (rows, source), target = batch.source.shape, batch.target_in.shape[1]
    return rows * (source * source + target * target + source * target)  # of the three attentions


def test_out_of_memory_says_what_to_do(folder, monkeypatch, capsys):
    def backward(*arguments):
        raise MemoryError("Unable to allocate 7.3 TiB")

    monkeypatch.setattr(Updater, "backward", backward)
    assert run("here") == 2
    assert (
        "out of memory after step 0: lower --batch-tokens, which is 60" in capsys.readouterr().err
    )
