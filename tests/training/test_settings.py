"""The command line: every setting arrives, and a resumed run keeps the settings it had."""

import dataclasses
import shlex
from pathlib import Path

import numpy as np
import pytest

from minitf.config import Config
from minitf.errors import UserError
from minitf.training.options import QUICK, RECIPES, model_changes, parse, resumed, resumed_model
from minitf.training.planning import check_model
from minitf.training.schedule import fill_in
from minitf.training.settings import Settings, kind_of

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


def test_without_arguments_the_defaults():
    assert parse([]) == (Settings(), set())


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_set_of_defaults(name):
    corpus = {"parsing": "craft-words"}.get(name, "multi30k")
    changes = ["--cooldown", "0", "--set", "dropout=0.4", "--corpus", corpus]
    found, given = parse(["--recipe", name, *changes])
    recipe = RECIPES[name]
    changed = {"cooldown": 0.0, "set": [*recipe["set"], "dropout=0.4"], "corpus": corpus}
    assert found == Settings(**recipe | changed)
    assert given == {"cooldown", "set", "corpus"}
    assert model_changes(found.set)["dropout"] == 0.4
    paper = Settings()
    for option in recipe.keys() - {"set"}:
        assert recipe[option] != getattr(paper, option), "each leaves the paper's way"
    for other in (["--quick"], ["--start-from", "there"]):
        with pytest.raises(UserError, match=f"--recipe is for a new model.*{other[0]}"):
            parse(["--recipe", name, *other])
    with pytest.raises(UserError, match="small-data"):
        parse(["--recipe", "large-data"])


def test_the_recipe_for_trees_needs_trees():
    with pytest.raises(UserError, match="add --corpus craft-words"):
        parse(["--recipe", "parsing", "--out", "runs/p"])
    assert parse(["--recipe", "parsing", "--train", "a", "b", "--valid", "c", "d"])[0].train


def test_with_a_cooldown_another_number_of_steps_is_another_course():
    for cooldown, changes in ((0.0, {}), (0.3, {"steps": (100, 200)})):
        before = Settings(steps=100, warmup_steps=5, valid_every=5, cooldown=cooldown)
        found = resumed(Settings(steps=200), {"steps"}, before)
        assert (found[0].steps, found[1]) == (200, changes)


def test_quick_is_a_set_of_defaults():
    found, given = parse(["--quick", "--steps", "5"])
    assert found == Settings(**QUICK | {"steps": 5})
    assert given == {"steps"}  # so on --resume the rest of --quick changes nothing
    assert parse(["--quick", "--corpus", "multi30k"])[0].corpus == "multi30k"
    assert parse(["--quick", "--start-from", "there"])[0].preset == "tiny"


def test_quick_keeps_its_own_model_settings_beside_those_given():
    settings, _ = parse(["--quick", "--set", "norm=pre"])
    assert model_changes(settings.set) == model_changes(QUICK["set"]) | {"norm": "pre"}


def test_a_resumed_run_remembers_every_model_setting():
    first, _ = parse(["--set", "n_layers=1", "--set", "dropout=0.1", "--out", "here"])
    again, given = parse(["--resume", "--set", "dropout=0.2", "--out", "here"])
    settings, _ = resumed(again, given, first)
    assert model_changes(settings.set) == {"n_layers": 1, "dropout": 0.2}


@pytest.mark.parametrize("corpus", [[], ["--corpus", "toy"]])
def test_resuming_takes_no_validation_text_for_a_named_corpus(corpus):
    first, _ = parse(["--corpus", "toy", "--out", "here"])
    again, given = parse(["--resume", "--valid", "a", "b", "--out", "here", *corpus])
    with pytest.raises(UserError, match="--valid is only used with --train: leave it out"):
        resumed(again, given, first)


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
    ],
)
def test_what_is_not_given_follows_from_the_size_of_the_text(arguments, epoch, expected):
    settings, given = parse(arguments.split())
    found, chosen = fill_in(settings, epoch)
    assert (found.steps, found.warmup_steps, found.learning_rate, found.valid_every) == expected
    # It is said as it would be typed.
    again, given_now = parse([*arguments.split(), *chosen.split()])
    assert again == found and len(given_now) == len(given) + len(chosen.split()) // 2
    assert fill_in(found, 10 * epoch) == (found, "")
    peak = found.learning_rate * found.warmup_steps**-0.5
    if "--learning-rate" not in arguments:
        assert peak <= 1.002 * 4000**-0.5


@pytest.mark.parametrize("steps", ["1e5", "100000", "100_000", "1.0e+5"])
def test_a_whole_number_may_be_written_short(steps):
    found, _ = parse(["--steps", steps])
    assert found.steps == 100_000 and type(found.steps) is int


def test_a_mistake_is_one_line_and_no_exit():
    with pytest.raises(UserError, match=r"unknown option: --nonsense \(--help"):
        parse(["--nonsense"])


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


def test_every_field_of_the_model_can_be_set_but_those_that_follow_from_the_text():
    fields = {field.name for field in dataclasses.fields(Config)}
    assert fields - {"vocabulary_size", "pad_id", "unk_id", "bos_id", "eos_id"} == {
        name for name in fields if settable(name)
    }


def settable(name):
    value = getattr(Config(100), name)
    written = ",".join(map(str, value)) if type(value) is tuple else value
    try:
        return model_changes([f"{name}={written}"]) == {name: value}
    except UserError:
        return False


def test_resuming_takes_what_was_and_what_is_given():
    others = OTHERS | {"cooldown": 0.0}
    before = Settings(**others)
    now, given = parse(
        shlex.split("--resume --out elsewhere --steps 99 --batch-tokens 50 --learning-rate 0.5")
    )
    merged, changes = resumed(now, given, before)
    expected = others | {"resume": True, "out": "elsewhere", "steps": 99, "batch_tokens": 50}
    assert merged == Settings(**expected)
    # More steps do not change the course, nor does the same rate.
    assert changes == {"batch_tokens": (99, 50)}


@pytest.mark.parametrize(
    ("name", "value"),
    [("accumulate", 2), ("batch_tokens", 9), ("clip", 1.0), ("cooldown", 0.5), ("max_length", 9)]
    + [("learning_rate", 0.5), ("warmup_steps", 9), ("seed", 7)]
    + [("precision", "tf32")],
)
def test_resuming_tells_what_changes_the_updates(name, value):
    assert resumed(Settings(**{name: value}), {name}, Settings())[1].keys() == {name}
    assert resumed(Settings(beam=2, steps=9), {"beam", "steps"}, Settings())[1] == {}


def test_the_largest_seed_is_one_that_a_signed_integer_holds():
    assert Settings(seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(UserError, match=f"--seed must be at most {2**63 - 1}, not {2**63}"):
        Settings(seed=2**63)


def test_resuming_with_the_same_command_changes_nothing():
    before = Settings(**OTHERS, start_from="there")
    arguments = [word for word in words(OTHERS) if word not in ("--preset", "small")]
    _, changes = resumed(*parse([*arguments, "--start-from", "there", "--resume"]), before)
    assert changes == {}


def test_resuming_on_another_corpus():
    before = Settings(train=["a", "b"], valid=["c", "d"], steps=7)
    merged, _ = resumed(*parse(shlex.split("--resume --corpus multi30k")), before)
    assert (merged.corpus, merged.train, merged.valid) == ("multi30k", None, None)


@pytest.mark.parametrize(
    "flag", ["--preset small", "--vocabulary-size 5", "--subwords none", "--start-from x"]
)
def test_resuming_cannot_change_what_the_weights_depend_on(flag):
    with pytest.raises(UserError, match=f"--resume cannot change {flag.split()[0]}"):
        resumed(*parse(["--resume", *flag.split()]), Settings())


def test_resuming_can_change_the_rates_of_the_model():
    config = Config.preset("tiny", 100)
    new, changes = resumed_model(config, ["dropout=0.3", "label_smoothing=0", "d_model=64"])
    assert new == config.replace(dropout=0.3, label_smoothing=0.0)
    assert changes == {"dropout": (0.1, 0.3), "label_smoothing": (0.1, 0.0)}
    for assignment in ("d_model=32", "norm=pre", "eps=0.1", "tie=false", "positions=learned"):
        with pytest.raises(UserError, match="--resume cannot change"):
            resumed_model(config, [assignment])


def test_resuming_with_a_recipe_changes_only_what_is_given():
    """The recipe's own --set made the model when the run began."""
    arguments = ["--resume", "--quick", "--set", "attention_dropout=0.2"]
    assert parse(arguments)[0].set == ["attention_dropout=0.2"]
    assert parse(arguments[1:])[0].set == [*QUICK["set"], "attention_dropout=0.2"]


@pytest.mark.parametrize("more", [["--resume"], ["--start-from", "there"]])
def test_sizes_of_a_model_that_exists_are_not_compared_with_those_of_a_preset(more):
    parse([*more, "--set", "n_heads=7"])
    with pytest.raises(UserError, match="n_heads"):
        parse(["--set", "n_heads=7"])
    with pytest.raises(UserError, match="dropout"):  # a rate is checked at once
        parse([*more, "--set", "dropout=2"])


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
        ("train", "st", None),
        ("train", [1, 2], None),
        ("train", ["a"], None),
        ("steps", "soon", None),
        ("steps", 1.5, None),
        ("resume", "no", None),
        ("out", None, None),
        ("out", "", None),
        ("set", "norm=pre", None),
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


def test_every_row_of_the_table_means_something():
    for field in dataclasses.fields(Settings):
        facts, kind = field.metadata, kind_of(field)
        assert facts["on_resume"] in ("taken", "noted", "refused", "added", "session"), field.name
        assert (facts["on_resume"] == "added") <= (kind is list)
        assert facts["files"] <= (kind is list) and (not facts["choices"] or kind is str)
        limited = (facts["least"], facts["most"]) != (0, 10**12)
        assert limited <= (kind in (int, float)), field.name


def test_added_pairs_are_kept_by_a_resumed_run():
    before = Settings(train=["a", "b"], valid=["c", "d"], add=["e", "f"])
    assert resumed(*parse(["--resume"]), before)[0].add == ["e", "f"]
    merged, changes = resumed(*parse(shlex.split("--resume --add g h")), before)
    assert (
        merged.add == ["g", "h"] and changes == {}
    )  # the hash of the pairs tells whether they are
