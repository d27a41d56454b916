"""examples/models/judge.py and the fixed lists by which models are judged."""

import csv
import re
import sys
from unittest import mock

import numpy as np
import pytest
from paths import EXAMPLES

from minitf.data import corpora
from minitf.errors import UserError

sys.path.insert(0, str(EXAMPLES / "models"))

import judge

JUDGEMENTS = sorted(judge.JUDGED.glob("??-??-*.tsv"))
TEXT = (judge.JUDGED / "README.md").read_text(encoding="utf-8")


def read_rows(path):
    """Return the rows of a file with tabs between its columns, a dictionary each."""
    return list(csv.DictReader(corpora.read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("path", JUDGEMENTS, ids=lambda path: path.stem)
def test_every_sentence_is_judged_and_every_fault_has_a_reason(path):
    rows, sentences = read_rows(path), read_rows(judge.JUDGED / f"hundred.{path.name[:2]}.tsv")
    assert [row["sentence"] for row in rows] == [row["sentence"] for row in sentences]
    assert len({row["sentence"] for row in rows}) == 100
    for row in rows:
        answers = row["meaning"], row["grammar"]
        assert set(answers) <= {"yes", "no"}
        assert bool(row["reason"]) == ("no" in answers), row["sentence"]
    good = sum(row["meaning"] == row["grammar"] == "yes" for row in rows)
    (told,) = re.findall(rf"`{path.name}`[^`]*?(\d+)\s+of its hundred", TEXT)
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
    direction = f"{language}-{'de' if language == 'en' else 'en'}"
    card = (judge.JUDGED.parent / direction / "README.md").read_text(encoding="utf-8")
    for column in (3, 5):
        grades = [int(row[column]) for row in rows]
        mean, bad = f"{np.mean(grades):.2f}", sum(grade <= 2 for grade in grades)
        assert mean in TEXT and f"with {bad}" in TEXT
    assert f"| {mean} |" in card and re.search(rf"[|;] {bad} ?[|;]", card), "of today's model"


@pytest.mark.parametrize(("language", "other"), [("en", "German"), ("de", "English")])
def test_the_odd_lines_are_what_their_kind_says(language, other):
    rows = read_rows(judge.JUDGED / f"odd.{language}.tsv")
    for kind, holds in (
        ("no end mark", lambda line: line[-1].isalpha()),
        ("capitals", str.isupper),
        (f"already {other}", bool),
    ):
        lines = [row["sentence"] for row in rows if row["kind"] == kind]
        assert len(lines) == 15 and all(map(holds, lines))


def test_what_is_scored_and_what_is_printed(monkeypatch, capsys):
    """The direction decides which side is translated; the harder lines are those of the list."""
    english, german = [f"line {i} of it" for i in range(976)], [f"Zeile {i}" for i in range(976)]
    harder = [int(n) - 1 for n in (judge.JUDGED / "harder.txt").read_text().split()]
    assert len({*harder} & {*range(976)}) == len(harder) == 400
    corpus = mock.Mock(tests={"test": judge.corpora.Pairs(english, german)})
    monkeypatch.setattr(judge.corpora, "load", lambda name: corpus)
    read = mock.Mock(notes={"source_language": "de", "target_language": "en"})
    monkeypatch.setattr(judge, "read_model", lambda folder: read)
    given = []

    def translations(folder, lines):
        given.append(list(lines))
        return [english[i] if i in harder else "no" for i in range(len(lines))]

    monkeypatch.setattr(judge, "translations", translations)
    judge.score("model")
    printed = capsys.readouterr().out.splitlines()
    assert given == [german]
    assert [line.split(":")[0] for line in printed] == [
        *["the whole test, 976 sentences"] * 2, *["its harder lines, 400 sentences"] * 2
    ]  # fmt: skip
    assert ["= 100.00" in line for line in printed] == [False, False, True, True]
    (whole,) = judge._parts(["a"] * 975)
    assert whole == ("the whole test", range(975)), "a newer collection may lack a line"


@pytest.mark.parametrize("languages", [(None, None), ("fr", "en"), ("en", "trees-with-words")])
def test_models_of_other_languages_are_refused(languages, monkeypatch):
    notes = dict(zip(("source_language", "target_language"), languages, strict=True))
    monkeypatch.setattr(judge, "read_model", lambda folder: mock.Mock(notes=notes))
    said = f"model translates from {languages[0]} to {languages[1]}: only translators from en to de"
    with pytest.raises(UserError, match=said):
        judge.score("model")


def test_spans_are_counted_where_they_arrive_whole(monkeypatch, capsys):
    """A translator that loses every 7 brings what has none; the same spans are drawn each time."""
    monkeypatch.setattr(judge, "languages_of", lambda folder: ("en", "de"))
    translator = mock.Mock()
    translator.translate = lambda lines: [[mock.Mock(text=s.replace("7", ""))] for s in lines]
    monkeypatch.setattr(judge.Translator, "load", lambda folder: translator)
    judge.spans("model")
    printed = capsys.readouterr().out
    rows = dict(re.findall(r"\| ([^|]+) \| `.*` \| (\d+) \|", printed))
    assert rows.keys() == judge.VALUES.keys()
    assert rows["emoji"] == rows["file name"] == "100"
    assert 0 < int(rows["number with points or commas"]) < 100
    judge.spans("model")
    assert capsys.readouterr().out == printed
