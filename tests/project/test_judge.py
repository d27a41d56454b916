"""examples/models/judge.py and the fixed lists by which models are judged."""

import doctest
import os
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from paths import EXAMPLES

from minitf.errors import UserError

sys.path.insert(0, str(EXAMPLES / "models"))

import judge
from judge import rows_of

COMMON = {
    "English": {"the", "is", "are", "you", "to", "i", "we", "my", "it", "a", "he", "she"},
    "German": {"der", "die", "das", "ist", "du", "ich", "wir", "mein", "ein", "er", "sie"},
}
JUDGEMENTS = sorted(judge.JUDGED.glob("??-??-*.tsv"))


@pytest.mark.parametrize("language", ["en", "de"])
def test_there_are_a_hundred_different_sentences(language):
    rows = rows_of(judge.JUDGED / f"hundred.{language}.tsv")
    assert len({row["sentence"] for row in rows}) == len(rows) == 100
    assert len({row["kind"] for row in rows}) == 10
    assert all(row["sentence"].strip() == row["sentence"] != "" for row in rows)


@pytest.mark.parametrize("path", JUDGEMENTS, ids=lambda path: path.stem)
def test_every_sentence_is_judged_and_every_fault_has_a_reason(path):
    rows = rows_of(path)
    language = path.name[:2]
    sentences = rows_of(judge.JUDGED / f"hundred.{language}.tsv")
    assert [(row["kind"], row["sentence"]) for row in rows] == [
        (row["kind"], row["sentence"]) for row in sentences
    ]
    for row in rows:
        answers = row["meaning"], row["grammar"]
        assert set(answers) <= {"yes", "no"}
        assert bool(row["reason"]) == ("no" in answers), row["sentence"]
    good = sum(row["meaning"] == row["grammar"] == "yes" for row in rows)
    text = (judge.JUDGED / "README.md").read_text(encoding="utf-8")
    (told,) = re.findall(rf"`{path.name}`[^`]*?(\d+)\s+of its hundred", text)
    assert int(told) == good


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize(("name", "each"), [("sixty", 10), ("fresh", 25)])
def test_what_is_said_of_the_graded_sentences_is_in_their_file(name, each, language):
    lines = (judge.JUDGED / f"{name}.{language}.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    kinds = "chat", "shopping", "travel", "work mail", "kitchen", "instructions"
    assert [row[0] for row in rows] == [kind for kind in kinds for _ in range(each)]
    assert len({row[1] for row in rows}) == len(rows)
    for _, _, before, old, today, new, reason in rows:
        assert {old, new} <= set("12345") and before and today != before
        assert today != "same" or old == new
        assert bool(reason) == ({old, new} != {"5"})
    before, today = ([int(row[column]) for row in rows] for column in (3, 5))
    direction = f"{language}-{'de' if language == 'en' else 'en'}"
    card = (judge.JUDGED.parent / direction / "README.md").read_text(encoding="utf-8")
    text = (judge.JUDGED / "README.md").read_text(encoding="utf-8")
    for grades in (today, before):
        mean, bad = f"{np.mean(grades):.2f}", sum(grade <= 2 for grade in grades)
        assert re.search(rf"\| \**{mean}\** \|", card), mean
        assert re.search(rf"[|;] \**{bad}\** ?[|;]", card), bad
        assert mean in text and f"with {bad}" in text


@pytest.mark.parametrize(("language", "other"), [("en", "German"), ("de", "English")])
def test_the_odd_lines_are_what_their_kind_says(language, other):
    rows = rows_of(judge.JUDGED / f"odd.{language}.tsv")
    for kind in ("no end mark", "capitals", f"already {other}"):
        assert sum(row["kind"] == kind for row in rows) == 15
    for row in rows:
        if row["kind"] == "no end mark":
            assert row["sentence"][-1].isalpha()
        if row["kind"] == "capitals":
            assert row["sentence"].isupper()
    for kind in ("no end mark", f"already {other}"):
        lines = [set(row["sentence"].lower().split()) for row in rows if row["kind"] == kind]
        written = "already" in kind
        for name, common in COMMON.items():
            share = sum(bool(words & common) for words in lines)
            assert (share >= 8) == ((name == other) == written), (kind, name, share)


def test_the_harder_lines_are_400_lines_of_the_test():
    numbers = [int(line) for line in (judge.JUDGED / "harder.txt").read_text().split()]
    assert numbers == sorted(set(numbers)) and len(numbers) == judge.HARDER
    assert numbers[0] >= 1 and numbers[-1] <= 976


def test_the_example_of_harder_lines():
    assert doctest.testmod(judge) == (0, 2)


def test_judgements_side_by_side(monkeypatch, capsys, tmp_path):
    old = judge.JUDGED / "en-de-0.3.tsv"
    monkeypatch.setattr(sys, "argv", ["judge.py", "table", str(old), str(old)])
    assert judge.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 102
    assert len({line.count("|") - line.count(r"\|") for line in lines}) == 1
    faults = sum("(*" in line for line in lines)
    assert faults == sum("no" in (row["meaning"], row["grammar"]) for row in rows_of(old))
    other = tmp_path / "other.tsv"
    other.write_text("sentence\ttranslation\tmeaning\tgrammar\nb\tc\tyes\tyes\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["judge.py", "table", str(old), str(other)])
    assert judge.main() == 2
    assert "not about the same sentences" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["score"],
        ["compare", "a"],
        ["table"],
        ["odd", "a", "b"],
        ["harder", "model"],
        ["nothing", "model"],
    ],
)
def test_wrong_arguments_are_refused(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["judge.py", *arguments])
    assert judge.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("judge.py: ") and said.count("\n") == 1


@pytest.mark.slow
def test_a_difference_is_told_from_chance(monkeypatch, capsys):
    text = "the cat sees a dog and the dog sees a cat in the old town of my friend"
    lines = [text[i % 30 :] for i in range(976)]
    wrong = [f"no {line} at all" for line in lines]
    said = {"wrong": wrong, "right": lines}
    for name, first in (("even", 0), ("odd", 1)):  # each is right in every second line
        said[name] = [(lines, wrong)[(i + first) % 2][i] for i in range(976)]
    monkeypatch.setattr(judge, "_test", lambda folder: judge.corpora.Pairs(lines, lines))
    monkeypatch.setattr(
        judge.Translator,
        "load",
        lambda folder: mock.Mock(translate=lambda _: [[mock.Mock(text=t)] for t in said[folder]]),
    )
    monkeypatch.setattr(judge, "_languages", lambda folder: ("en", "de"))
    judge.compare("wrong", "right")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4 and all(line.endswith("-> 100.00, p = 0.001") for line in printed)
    assert printed[0].startswith("the whole test, 976 sentences: BLEU ")
    assert printed[3].startswith("its harder lines, 400 sentences: CHRF ")
    judge.compare("even", "odd")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4 and all(float(line.split("p = ")[1]) > 0.1 for line in printed), (
        printed
    )
    judge.compare("even", "even")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4 and all(line.endswith("p = 1.000") for line in printed)
    languages = {"even": ("en", "de"), "odd": ("de", "en")}
    monkeypatch.setattr(judge, "_languages", languages.get)
    with pytest.raises(UserError, match="even and odd do not translate between the same languages"):
        judge.compare("even", "odd")


def test_what_is_scored_and_what_is_printed(monkeypatch, capsys):
    """The direction decides which side is translated; the harder lines are those of the list."""
    english, german = [f"line {i} of it" for i in range(976)], [f"Zeile {i}" for i in range(976)]
    harder = [int(n) - 1 for n in (judge.JUDGED / "harder.txt").read_text().split()]
    corpus = mock.Mock(tests={"test": judge.corpora.Pairs(english, german)})
    monkeypatch.setattr(judge.corpora, "load", lambda name: corpus)
    read = mock.Mock(notes={"source_language": "de", "target_language": "en"})
    monkeypatch.setattr(judge, "read_model", lambda folder: read)
    given = []

    def translate(lines):
        given.append(list(lines))
        texts = [english[i] if i in harder else "no" for i in range(len(lines))]
        return [[mock.Mock(text=text)] for text in texts]

    monkeypatch.setattr(judge.Translator, "load", lambda folder: mock.Mock(translate=translate))
    judge.score("model")
    printed = capsys.readouterr().out.splitlines()
    assert given == [german]
    assert [line.split(":")[0] for line in printed] == [
        *["the whole test, 976 sentences"] * 2, *["its harder lines, 400 sentences"] * 2
    ]  # fmt: skip
    assert ["= 100.00" in line for line in printed] == [False, False, True, True]
    judge.odd("model")
    printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    rows = judge.rows_of(judge.JUDGED / "odd.de.tsv")
    assert printed[0] == ["kind", "sentence", "translation"]
    assert [line[:2] for line in printed[1:]] == [[r["kind"], r["sentence"]] for r in rows]


def test_a_test_that_lacks_a_line_has_no_harder_lines(capsys):
    (whole,) = judge._parts(["a"] * 975)
    assert whole == ("the whole test", range(975))
    assert (
        capsys.readouterr().err == "judge.py: no harder lines: this test has 975 lines, not 976\n"
    )


@pytest.mark.parametrize(
    "languages", [(None, None), ("fr", "en"), ("en", "trees-with-words"), ("en", "en")]
)
def test_models_of_other_languages_are_refused(languages, monkeypatch):
    notes = dict(zip(("source_language", "target_language"), languages, strict=True))
    monkeypatch.setattr(judge, "read_model", lambda folder: mock.Mock(notes=notes))
    said = f"model translates from {languages[0]} to {languages[1]}: only translators from en to de"
    for command in (judge.hundred, judge.score):
        with pytest.raises(UserError, match=said):
            command("model")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a\tDog.\tHund.\t\tyes\t", "line 3: answer meaning and grammar with yes or no"),
        ("a\tDog.\tHund.\tNo\tyes\tx", "line 3: answer meaning and grammar with yes or no"),
        ("a\tDog.\tHund.", "line 3: answer meaning and grammar with yes or no"),
        ("a\tDog.\tHund.\tno\tyes\t", "line 3: give the reason for the no"),
    ],
)
def test_what_is_not_judged_is_not_taken_for_right(row, said, tmp_path, monkeypatch, capsys):
    path = tmp_path / "en-de.tsv"
    head = "kind\tsentence\ttranslation\tmeaning\tgrammar\treason"
    path.write_text(f"{head}\na\tCat.\tKatze.\tyes\tyes\t\n{row}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["judge.py", "table", str(path)])
    assert judge.main() == 2
    assert capsys.readouterr().err == f"judge.py: {path}, {said}\n"


def judgement(path, *lines, head="sentence\ttranslation\tmeaning\tgrammar"):
    path.write_text("\n".join([head, *lines, ""]), encoding="utf-8")
    return str(path)


def test_a_table_of_unusual_judgements(tmp_path, monkeypatch, capsys):
    """A bar, a byte order mark, carriage returns, empty lines, a long cell, no last line feed."""
    long = "z" * 200_000
    text = f"\ufeffsentence\ttranslation\tmeaning\tgrammar\r\n\r\na|b\t{long}\tyes\tyes"
    (tmp_path / "odd.tsv").write_bytes(text.encode())
    monkeypatch.setattr(sys, "argv", ["judge.py", "table", str(tmp_path / "odd.tsv")])
    assert judge.main() == 0
    assert capsys.readouterr().out == f"| sentence | odd |\n|---|---|\n| a\\|b | {long} |\n"
    path = judgement(tmp_path / "space.tsv", "", "", "a\tb\tyes\tperhaps")
    with pytest.raises(UserError, match="line 4: answer meaning and grammar"):
        judge.judgements(path)
    head = "sentence\tmeaning\tgrammar\ttranslation"
    path = judgement(tmp_path / "short.tsv", "a\tyes\tyes\tb", "c\tyes\tyes", head=head)
    with pytest.raises(UserError, match="line 3: has too few cells"):
        judge.judgements(path)


@pytest.mark.parametrize("lines", [["x\tyes\tyes\t"], []])
def test_a_file_without_judgements(lines, tmp_path, monkeypatch, capsys):
    path = judgement(tmp_path / "a.tsv", *lines, head="sentence\tmeaning\tgrammar\treason")
    monkeypatch.setattr(sys, "argv", ["judge.py", "table", path])
    assert judge.main() == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "has no judgements: fill in the columns " in err


def test_what_a_spreadsheet_takes_for_a_formula_is_told(monkeypatch, capsys):
    rows = [{"kind": "k", "sentence": s} for s in ("One.", "=2", "Three.")]
    texts = ("Eins.", "zwei", "+49 30")
    found = [[mock.Mock(text=text)] for text in texts]
    monkeypatch.setattr(judge, "rows_of", lambda path: rows)
    monkeypatch.setattr(judge, "_languages", lambda folder: ("en", "de"))
    loaded = mock.Mock(translate=lambda _: found)
    monkeypatch.setattr(judge.Translator, "load", lambda folder: loaded)
    judge.hundred("model")
    out, err = capsys.readouterr()
    assert out.splitlines()[2:] == ["k\t=2\tzwei", "k\tThree.\t+49 30"]
    assert [line.split(":")[1] for line in err.splitlines()] == [
        *(" line 3 looks like a formula", " line 4 looks like a formula")
    ]


def judged(*arguments, **options):
    command = [sys.executable, judge.__file__, "table", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, check=False, **options)


@pytest.mark.slow
def test_the_output_is_utf_8_on_every_system():
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = judged(JUDGEMENTS[0], env=environment, stdout=subprocess.PIPE)
    assert done.returncode == 0 and "ß" in done.stdout.decode()


@pytest.mark.slow
def test_an_output_that_nobody_reads_or_that_is_full():
    reading, writing = os.pipe()
    os.close(reading)
    done = judged(JUDGEMENTS[0], stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            done = judged(JUDGEMENTS[0], stdout=full)
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1
        assert b"judge.py: the disk of the output is full" in done.stderr


def test_a_file_that_is_not_utf_8(tmp_path):
    path = tmp_path / "latin.tsv"
    path.write_bytes("kind\tsentence\na\tgrün\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.tsv is not UTF-8"):
        judge.rows_of(path)


def test_a_folder_without_a_model_is_told_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["judge.py", "hundred", str(tmp_path)])
    assert judge.main() == 2
    assert capsys.readouterr().err.startswith(f"judge.py: {tmp_path} is not the folder of a")
