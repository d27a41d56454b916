"""Settings: every one arrives, a resumed run keeps those it had, and what follows from the text."""

import dataclasses
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from minitf.config import Config
from minitf.errors import UserError
from minitf.optim import warmup_rate
from minitf.training.planning import check_model, cooldown_start, fill_in, learning_rate
from minitf.training.settings import RECIPES, Settings, flag, merge, model_changes, parse

OTHERS = {
    "corpus": "multi30k",
    "out": "runs/other",
    "preset": "small",
    "set": ["d_ff=12", "norm=pre"],
    "vocabulary_size": 77,
    "subwords": "none",
    "max_length": 30,
    "batch_tokens": 99,
    "accumulate": 2,
    "learning_rate": 0.5,
    "warmup_steps": 7,
    "cooldown": 0.25,
    "clip": 1.5,
    "steps": 8,
    "minutes": 0.1,
    "valid_every": 3,
    "save_every": 7,
    "log_every": 9,
    "patience": 0,
    "average": 6,
    "beam": 1,
    "alpha": 1.2,
    "max_extra": 0,
    "seed": 11,
    "replicas": 3,
    "backend": "numpy",
    "precision": "bfloat16",
}


def words(values):
    for name, value in values.items():
        for each in value if name == "set" else [value]:
            yield from (f"--{name.replace('_', '-')}", str(each))


def test_every_setting_arrives():
    found, given = parse(list(words(OTHERS)))
    assert dataclasses.asdict(found) == dataclasses.asdict(Settings(**OTHERS))
    assert given == OTHERS.keys()
    rest = {field.name for field in dataclasses.fields(Settings)} - OTHERS.keys()
    assert rest == {"train", "valid", "add", "start_from", "resume", "plan"}
    found, given = parse(shlex.split("--train a b --valid c d --add f g --start-from e"))
    assert (found.train, found.valid, found.start_from) == (["a", "b"], ["c", "d"], "e")
    assert found.add == ["f", "g"]
    assert parse(["--resume"])[0].resume and not parse([])[0].resume


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_set_of_defaults(name):
    changes = ["--cooldown", "0", "--set", "dropout=0.4", "--corpus", "multi30k"]
    found, given = parse(["--recipe", name, *changes])
    recipe = RECIPES[name]
    changed = {"cooldown": 0.0, "set": [*recipe["set"], "dropout=0.4"], "corpus": "multi30k"}
    assert found == Settings(**recipe | changed)
    assert given == {"cooldown", "set", "corpus"}
    assert model_changes(found.set)["dropout"] == 0.4
    for other in (["--start-from", "there"], ["--resume"]):
        with pytest.raises(UserError, match=f"leave out {other[0]}"):
            parse(["--recipe", name, *other])


def test_recipes_by_name():
    assert parse(["--quick", "--steps", "5"]) == parse(["--recipe", "quick", "--steps", "5"])
    assert parse(["--recipe", "parsing"])[0].corpus == "craft-words"
    with pytest.raises(UserError, match="small-data"):
        parse(["--recipe", "large-data"])


def test_the_paper_is_the_default():
    """For a text of the size of WMT 2014, in the paper's batches and in those of a laptop."""
    for epoch in (5_000, 33_000):
        found, _ = fill_in(parse([])[0], epoch)
        assert (found.learning_rate, found.warmup_steps, found.clip) == (1.0, 4000, 0)
        assert (found.steps, found.valid_every, found.patience) == (100_000, 1000, 10)
        assert (found.average, found.beam, found.alpha, found.max_extra) == (5, 4, 0.6, 50)


# (steps, warmup_steps, learning_rate, valid_every) by the updates in an epoch
@pytest.mark.parametrize(
    "arguments, epoch, expected",
    [
        ("", 0.3, (1000, 100, 0.158, 50)),
        ("", 60.5, (2420, 242, 0.246, 60)),
        ("", 300, (12_000, 1200, 0.548, 300)),
        ("", 1500, (60_000, 4000, 1, 1000)),
        ("--start-from x", 7, (100, 10, 0.0125, 50)),
        ("--start-from x", 90, (450, 45, 0.0265, 90)),
        ("--start-from x", 50_000, (100_000, 50, 0.028, 1000)),
        ("--steps 5", 300, (5, 1, 0.0158, 300)),
        ("--steps 500000", 300, (500_000, 4000, 1, 300)),
        ("--minutes 90", 300, (100_000, 1200, 0.548, 300)),  # the minutes are what ends it
        ("--warmup-steps 1000", 300, (12_000, 1000, 0.5, 300)),
        ("--steps 12000 --warmup-steps 16000", 300, (12_000, 16_000, 1, 300)),
        ("--learning-rate 0.1 --start-from x", 300, (1500, 50, 0.1, 300)),
        ("--steps 7 --warmup-steps 8 --learning-rate 9 --valid-every 6", 300, (7, 8, 9, 6)),
        ("--warmup-steps 400", 30, (1200, 400, 0.316, 50)),
        ("--warmup-steps 401", 30, (1200, 120, 0.173, 50)),  # over a third of the steps
        ("--warmup-steps 401 --steps 1200", 30, (1200, 401, 0.317, 50)),
        ("--warmup-steps 401 --minutes 5", 30, (100_000, 401, 0.317, 50)),
    ],
)
def test_what_is_not_given_follows_from_the_size_of_the_text(arguments, epoch, expected):
    settings, given = parse(arguments.split())
    found, chosen = fill_in(settings, epoch)
    assert (found.steps, found.warmup_steps, found.learning_rate, found.valid_every) == expected
    # It is said as it would be typed.
    again, given_now = parse([*arguments.split(), *chosen.split()])
    assert again == found and given <= given_now
    assert fill_in(found, 10 * epoch) == (found, "")
    peak = found.learning_rate * found.warmup_steps**-0.5
    if "--learning-rate" not in arguments:
        assert peak <= 1.002 * 4000**-0.5


@pytest.mark.parametrize(
    "assignment, changes",
    [
        ("d_model=128", {"d_model": 128}),
        ("dropout=0", {"dropout": 0.0}),
        ("d_k=16", {"d_k": 16}),
        ("tie=False", {"tie": False}),
        ("norm=pre", {"norm": "pre"}),
        ("positions=learned", {"positions": "learned"}),
        ("attention_bias=true", {"attention_bias": True}),
        ("activation=swish", {"activation": "swish"}),
        ("decoder=ssru", {"decoder": "ssru"}),
        ("n_decoder_layers=2", {"n_decoder_layers": 2}),
        ("suppressed_ids=1,50000", {"suppressed_ids": (1, 50000)}),
        ("suppressed_ids=1", {"suppressed_ids": (1,)}),
        ("suppressed_ids=", {"suppressed_ids": ()}),
    ],
)
def test_model_changes(assignment, changes):
    found = model_changes([assignment])
    assert found == changes
    assert [type(value) for value in found.values()] == [type(value) for value in changes.values()]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("train", (Path("a"), "b"), ["a", "b"]),
        ("out", Path("o"), "o"),
        ("steps", np.int64(5), 5),
        ("steps", "1e5", 100_000),
        ("seed", 2**60 + 1, 2**60 + 1),
        ("clip", 1, 1.0),
        ("resume", "False", False),
        ("train", [1, 2], None),
        ("train", ["a"], None),
        ("steps", "soon", None),
        ("steps", 1.5, None),
        ("resume", "no", None),
        ("out", None, None),
        ("clip", None, None),
        ("clip", 10**400, None),
    ],
)
def test_a_value_of_a_python_program_is_one_that_a_checkpoint_stores(name, value, kept):
    """Or it is refused."""
    if kept is not None:
        found = getattr(Settings(**{name: value}), name)
        assert found == kept and type(found) is type(kept)
        return
    with pytest.raises(UserError, match=f"--{name} (must be|needs) "):
        Settings(**{name: value})


# A resumed run ------------------------------------------------------------------------------------


def test_resuming_takes_what_was_and_what_is_given():
    before = Settings(**OTHERS, start_from="there")
    given = "--resume --out elsewhere --steps 99 --batch-tokens 50 --learning-rate 0.5 --seed 11"
    merged, changes = merge(*parse([*given.split(), "--set", "norm=pre"]), before)
    new = {"resume": True, "out": "elsewhere", "steps": 99, "batch_tokens": 50}
    assert merged == dataclasses.replace(before, **new)
    assert changes == {"--batch-tokens": (99, 50), "--steps": (8, 99)}
    again = [word for word in words(OTHERS) if word not in ("--preset", "small")]
    assert merge(*parse([*again, "--start-from", "there", "--resume"]), before)[1] == {}


@pytest.mark.parametrize(
    "given",
    ["--preset small", "--vocabulary-size 5", "--subwords none", "--start-from x", "--seed 3"]
    + ["--max-length 9", "--set dropout=0.3"],
)
def test_resuming_cannot_change_what_the_weights_depend_on(given):
    with pytest.raises(UserError, match=f"--resume cannot change {given.split()[0]} .*--start-fro"):
        merge(*parse(["--resume", *given.split()]), Settings())


def test_the_manual_says_what_resuming_cannot_change():
    text = Path(__file__).parents[2].joinpath("examples", "README.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"(?s)on which the weights depend:(.*?)\.\n", text)
    fields = dataclasses.fields(Settings)
    fixed = [flag(f.name) for f in fields if f.metadata["resume"] == "cannot"]
    assert re.findall("--[a-z-]+", sentence) == [*fixed, "--recipe", "--quick"]


def test_resuming_with_other_texts():
    before = Settings(train=["a", "b"], valid=["c", "d"], add=["e", "f"], steps=7)
    merged, _ = merge(*parse(shlex.split("--resume --corpus multi30k")), before)
    assert (merged.corpus, merged.train, merged.valid) == ("multi30k", None, None)
    assert merged.add == ["e", "f"]
    with pytest.raises(UserError, match="--valid is only used with --train: leave it out"):
        merge(*parse(shlex.split("--resume --valid a b")), Settings())


def test_a_model_must_fit_its_text():
    config = Config.preset("tiny", 100, positions="learned", max_length=64)
    check_model(Settings(max_length=63), config, 100)
    with pytest.raises(
        UserError, match=r"--max-length 64 .* use --max-length 63 or --set max_length=65"
    ):
        check_model(Settings(max_length=64), config, 100)
    check_model(Settings(max_length=64), config.replace(positions="sinusoid"), 100)
    with pytest.raises(UserError, match="99 subwords, but the model knows 100"):
        check_model(Settings(max_length=9), config, 99)
    with pytest.raises(UserError, match=r"knows 100 \(0 to 3 are special, there \(3, 1, 2, 0\)\)"):
        check_model(Settings(max_length=9), config.replace(pad_id=3, eos_id=0), 100)


def test_help_explains_every_setting(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"], "some_lesson.py")
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("usage: some_lesson.py")
    assert "3 if --minutes or --patience ended the run before its steps were done" in said
    for field in dataclasses.fields(Settings):
        text = field.metadata["help"]
        assert f"--{field.name.replace('_', '-')} " in said
        assert len(text.split()) > 2 and " ".join(text.split()[:6]) in said, field.name


# The learning rate --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "cooldown", "length"),
    [(8, 0.5, 4), (11, 0.25, 3), (9, 0.25, 2), (3, 1.0, 3), (7, 0.0, 0), (100, 0.004, 0)],
)
def test_the_cooldown_is_the_nearest_number_of_steps_and_falls_to_its_last(steps, cooldown, length):
    run = SimpleNamespace(steps=steps, warmup_steps=3, learning_rate=0.7, cooldown=cooldown)
    factors = [
        learning_rate(run, 5, step) / warmup_rate(step, 5, 3, 0.7) for step in range(1, steps + 3)
    ]
    falling = [(length - i) / (length + 1) for i in range(length)]
    last = falling[-1] if falling else 1
    assert factors == pytest.approx([1] * (steps - length) + falling + [last, last])
    assert cooldown_start(run) == steps - length
