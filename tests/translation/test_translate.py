"""translate.py: lines in are lines out, whatever their bytes; mistakes end in one line."""

import errno
import inspect
import io
import json
import random
import re
import subprocess
import sys
from types import SimpleNamespace

import command
import pytest
from command import CONTROL, QUICK, SCRIPT, is_refused, is_well, lines_of
from odd_lines import ODD, random_line

from minitf.commands import input as reading
from minitf.commands.output import render
from minitf.errors import UserError
from minitf.translation import Translation, Translator
from minitf.translation.writing import CUT_SENTENCE


def assert_alike(output, expected):
    """Assert equal texts, and scores that are equal except for their last digits.

    These depend on the rest of the batch.
    """
    score = re.compile(r"-?\d+\.\d+")
    assert score.sub("", output) == score.sub("", expected)
    found, wanted = (list(map(float, score.findall(text))) for text in (output, expected))
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-4)


UTF_8 = "ü ".encode() * 5000  # so much of it that the rest is damage, and no other encoding


# One line in, one line out ------------------------------------------------------------------------


def test_any_line_gives_one_line(run):
    content = b"\n".join(ODD.values())
    code, out, err = run(*QUICK, stdin=content)
    assert is_well(code, err, content)
    found = dict(zip(ODD, lines_of(out), strict=True))
    assert not CONTROL.search(out)
    assert found["empty"] == found["space"] == found["NUL"] == ""
    assert len(set(found.values())) > len(ODD) / 2
    code, alone, _ = run(*QUICK, stdin=b"the dog")
    assert found["byte order mark"] == alone.removesuffix("\n") != ""


@pytest.mark.parametrize("n, length", [(40, 2), pytest.param(10_000, 5, marks=pytest.mark.slow)])
def test_lines_in_are_lines_out(run, n, length):
    rng = random.Random(7)
    lines = [random_line(rng) for _ in range(n)]
    content = b"\n".join([*lines, UTF_8]) + rng.choice([b"\n", b""])
    code, out, err = run("--beam", "2", "--max-extra", length, stdin=content)
    assert is_well(code, err, content)
    assert len(lines_of(out)) == n + 1
    assert not CONTROL.search(out)


def test_lines_of_a_file_come_out_in_order(run, tmp_path):
    """More lines than one batch: each translation is that of its own line."""
    words = ["the dog", "a bird", "ein Vogel", "we sing", "old house", ""]
    lines = [words[i * i % 6] for i in range(reading.BATCH_LINES + 40)]
    (tmp_path / "in.txt").write_bytes("\r\n".join(lines).encode())
    code, out, err = run(*QUICK, "--input", tmp_path / "in.txt")
    assert (code, err) == (0, "")
    alone = {word: run(*QUICK, word)[1].removesuffix("\n") for word in words}
    assert lines_of(out) == [alone[line] for line in lines]
    assert len(set(alone.values())) > 4


def test_tabs_separate_texts_as_lines_do(run):
    dog, bird = (run(*QUICK, each)[1].removesuffix("\n") for each in ("the dog", "a bird"))
    assert run(*QUICK, stdin=b"the dog\t12\ta bird\t\n")[1] == f"{dog}\t12\t{bird}\t\n"
    best = run("--max-extra", "3", "--nbest", "2", stdin=b"the dog\ta bird\n")[1].split(" ||| ")
    assert best[1].count("\t") == 1


def test_final_line_feed_makes_no_line(run):
    counts = {
        b"": 0,
        b"\n": 1,
        b"a": 1,
        b"a\n": 1,
        b"a\n\n": 2,
        b"\n\na": 3,
        b"\r\n": 1,
        b"a\rb\x0bc": 2,  # as old Macs wrote lines
        b"a\rb\r": 2,
        b"a\rb\n": 1,
        b"a\nb\rc": 2,
    }
    assert {content: len(lines_of(run(*QUICK, stdin=content)[1])) for content in counts} == counts


def test_arguments_are_lines(run):
    code, out, err = run(
        "--beam", "1", "the dog", "--max-extra", "3", "", "a bird\nthe dog\n", "x\u2028y", "\udcff"
    )
    assert is_well(code, err, b"\xff")
    found = lines_of(out)
    assert len(found) == 6 and found[0] == found[3] != found[2] and found[1] == ""
    after_dashes = run(*QUICK, "--", "-5 dogs", "--input", stdin=b"not read\n")[1]
    assert after_dashes == run(*QUICK, stdin=b"-5 dogs\n--input")[1]


def test_reads_of_any_size_give_the_same_lines(monkeypatch):
    """Lines arrive in slices, and the pipe is empty for a moment."""

    class Trickle(io.BytesIO):
        def read(self, size):
            return super().read(rng.randrange(1, 9)) if rng.random() < 0.99 else None

    rng = random.Random(3)
    monkeypatch.setattr(reading, "BATCH_LINES", 7)
    monkeypatch.setattr(reading, "BATCH_BYTES", 50)
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.001)
    content = b"\n".join(rng.randbytes(rng.randrange(20)).replace(b"\n", b"") for _ in range(200))
    batches = list(reading.read_batches(Trickle(content)))
    assert [line for batch in batches for line in batch] == content.split(b"\n")
    assert all(len(batch) <= 7 and sum(map(len, batch[:-1])) < 50 for batch in batches)


@pytest.mark.slow
def test_ten_thousand_words_in_a_line(run):
    line = b"the dog saw a bird, and we sing; " * 1250
    code, out, err = run("--beam", "1", "--max-extra", "0", stdin=line + b"\nthe dog\n")
    assert (code, err) == (0, f"translate.py: check line 1: {CUT_SENTENCE}\n")
    long, short = lines_of(out)
    assert len(long) > 20 * len(short) > 0


def test_equal_lines_are_translated_once(run, monkeypatch):
    words = ["the dog", "a bird", "", "we sing", "old house"]
    lines = [words[i * i % 5] for i in range(30)]
    expected = [run(*QUICK, word)[1] for word in words]
    assert len(set(expected)) > 3
    seen, read = [], Translator._read
    monkeypatch.setattr(
        Translator, "_read", lambda self, new, *more: seen.extend(new) or read(self, new, *more)
    )
    assert run(*QUICK, *lines) == (0, "".join(expected[words.index(line)] for line in lines), "")
    assert seen == list(dict.fromkeys(lines))


def test_n_best_widens_the_beam(run):
    source = ("--max-extra", "2", "the dog")
    assert (
        run("--nbest", "6", *source)
        == run("--nbest", "6", "--beam", "6", *source)
        != run("--nbest", "4", *source)
    )
    assert run("--nbest", "2", *source) == run("--nbest", "2", "--beam", "4", *source)


# Paragraphs ---------------------------------------------------------------------------------------

LETTER = (
    b"\xc3\xbc\xc3\xbc the dog saw\r\n  a bird.\r\n"
    b" \t\r\n\r\nwe sing\n\xe3\x80\x80\nin the \xff house\x85,\n"
    b"you do not"
)
UNWRAPPED = (
    b"\xc3\xbc\xc3\xbc the dog saw a bird.\n\n\nwe sing\n\nin the \xff house\x85, you do not\n"
)


@pytest.mark.parametrize(
    "options", [(), ("--scores",), ("--nbest", "2", "--beam", "2"), ("--format", "json")]
)
def test_wrapped_lines_are_translated_as_one(run, options):
    """Numbers, scores and sources are those of the paragraphs."""
    code, out, err = run("--max-extra", "3", "--paragraphs", *options, stdin=LETTER)
    assert is_well(code, err, LETTER)
    assert_alike(out, run("--max-extra", "3", *options, stdin=UNWRAPPED)[1])
    assert lines_of(out) != lines_of(run("--max-extra", "3", *options, stdin=LETTER)[1])
    if not options:
        assert [bool(line) for line in lines_of(out)] == [True, False, False, True, False, True]


def test_lines_of_a_script_without_blanks_are_joined_without(run):
    text = "我喜欢\n你。\nOK.\n".encode()
    out = run(*QUICK, "--paragraphs", "--format", "json", stdin=text)[1]
    assert json.loads(out)["source"] == "我喜欢你。 OK."


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        ("He needs infor-\nmation.", "He needs information."),
        ("Die Straßen-\r\nbahn kommt.", "Die Straßenbahn kommt."),
        ("Die Strecke Nord-\nSüd", "Die Strecke Nord-Süd"),
        ("Haus- \nund Garten-\narbeit", "Haus- und Gartenarbeit"),
        ("It is - well -\nold: 19-\ntwenty", "It is - well - old: 19- twenty"),
    ],
)
def test_a_word_that_is_hyphenated_at_the_end_of_a_line_is_joined(run, lines, joined):
    out = run(*QUICK, "--paragraphs", "--format", "json", stdin=lines.encode())[1]
    assert json.loads(out)["source"] == joined


def test_endless_paragraph_is_cut_at_the_end_of_a_line(run, monkeypatch):
    """A text without any empty line is not kept in memory."""
    monkeypatch.setattr(reading, "BATCH_BYTES", 30)
    lines = ["the dog saw a bird."] * 5
    code, out, err = run("--paragraphs", "--format", "json", *QUICK, *lines)
    assert (code, err) == (0, "")
    sources = [json.loads(line)["source"] for line in lines_of(out)]
    assert sources == [" ".join(lines[:2]), " ".join(lines[:2]), lines[0]]


# Formats ------------------------------------------------------------------------------------------


def test_json_holds_everything(run):
    source = b"the dog \x1b\xff \xc2\x85 \xe2\x80\xa8.\r\n\n"
    code, out, err = run(
        "--format", "json", "--beam", "3", "--nbest", "2", "--max-extra", "3", stdin=source
    )
    assert is_well(code, err, source) and not CONTROL.search(out)
    record, empty = map(json.loads, lines_of(out))
    assert record["source"] == "the dog \x1b\ufffd \x85 \u2028."
    assert set(record) == {"source", "translation", "score", "log_probability", "nbest"}
    best, second = record["nbest"]
    assert best == {key: record[key] for key in ("translation", "score", "log_probability")}
    assert best["score"] >= second["score"] > best["log_probability"]
    assert (empty["translation"], empty["score"]) == ("", 0)


def test_sampled_lines_depend_on_the_seed_and_their_number(run, monkeypatch):
    """The number of lines in a batch changes nothing."""
    lines = ["the dog", "a bird", "the dog", "", "we sing\tthe dog"] * 3
    text, settings, texts = "\n".join(lines).encode(), ["--sample", "--max-extra", "5"], {}
    for size, seed in ((500, "1"), (4, "1"), (500, "2")):
        monkeypatch.setattr(reading, "BATCH_LINES", size)
        draw = [*settings, "--top-k", "99", "--temperature", "0.9", "--seed", seed]
        code, out, err = run(*draw, stdin=text)
        assert (code, err) == (0, "")
        texts[size, seed] = lines_of(out)
    assert texts[500, "1"] == texts[4, "1"] != texts[500, "2"]
    assert len(texts[4, "1"]) == len(lines) and len(set(texts[4, "1"])) > 6
    greedy = run(*QUICK, "--max-extra", "5", stdin=text)
    assert run(*settings, "--temperature", "0", stdin=text) == greedy


def test_n_best_lines_have_the_number_of_their_line(run, monkeypatch):
    monkeypatch.setattr(reading, "BATCH_LINES", 2)
    code, out, err = run("--nbest", "3", "--max-extra", "3", "the dog", "", "a bird")
    assert (code, err) == (0, "")
    rows = [line.split(" ||| ") for line in lines_of(out)]
    assert [row[0] for row in rows] == ["0"] * 3 + ["1"] + ["2"] * 3
    assert rows[3] == ["1", "", "0.0000"]
    scores = [float(row[-1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    assert rows[0][1] == run("--max-extra", "3", "the dog")[1].removesuffix("\n")


def test_the_fields_of_the_n_best_can_be_told_apart(run, monkeypatch):
    def echo(self, lines, *_, **__):
        return [[Translation(line, -1.0, -1.0)] * 2 for line in lines]

    monkeypatch.setattr(Translator, "translate", echo)
    out = run("--nbest", "2", "a ||| b", "a | b")[1]
    texts = ["a &#124;&#124;&#124; b"] * 2 + ["a | b"] * 2
    assert [line.split(" ||| ")[1:] for line in lines_of(out)] == [[x, "-1.0000"] for x in texts]


def test_scores_come_before_the_translation(run):
    plain = run("--max-extra", "3", "the dog", "")[1]
    code, out, err = run("--max-extra", "3", "--scores", "the dog", "")
    scores, texts = zip(*(line.split("\t") for line in lines_of(out)), strict=True)
    assert lines_of(plain) == list(texts) and float(scores[0]) < 0 == float(scores[1])
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("method", "more", "expected"),
    [
        ("translate", "--beam 3", {"beam": 3}),
        ("translate", "--beam 3 --nbest 2", {"beam": 3, "n_best": 2}),
        ("sample", "--sample --temperature 0.5 --seed 9", {"temperature": 0.5, "seed": 9}),
        ("explain", "--beam 3 --attention a.html", {"beam": 3}),
        ("attention", "--beam 3 --attention a.png --layer 1", {"beam": 3, "layer": 1}),
        ("attention", "--like marian --attention a.png", {"like": "marian"}),
        ("translate", "--like marian", {"like": "marian"}),
    ],
)
def test_the_options_reach_the_translator(run, monkeypatch, method, more, expected):
    real, seen = getattr(Translator, method), []

    def stub(*given, **named):
        bound = inspect.signature(real).bind(*given, **named).arguments
        seen.append(vars(bound["search"]) | bound | bound.get("changes", {}))
        raise UserError("seen")

    monkeypatch.setattr(Translator, method, stub)
    assert run("--alpha", "1.5", "--max-extra", "7", *more.split(), "the dog")[0] == 2
    expected = expected | {"alpha": 1.5, "max_extra": 7}
    assert {name: seen[0][name] for name in expected} == expected


# Mistakes (more of them are in mistakes.py) -------------------------------------------------------


def test_closed_streams_and_missing_packages(run, monkeypatch):
    assert is_refused(run(stdin=None), "TEXT")
    hide = (
        f"import runpy, sys; sys.modules['sentencepiece'] = None; runpy.run_path({str(SCRIPT)!r}, "
        "run_name='__main__')"
    )
    for missing in ("numpy", "sentencepiece"):
        words = [sys.executable, "-c", hide.replace("sentencepiece", missing), "the dog"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert is_refused(
            (done.returncode, done.stdout, done.stderr),
            f"{missing} is not installed: activate the environment, or run  pip install",
        )
    with monkeypatch.context() as patch:
        patch.setattr(command, "load", lambda *_, **__: bytearray(1 << 62))
        assert is_refused(run("the dog"), "--beam")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "it broke"), MemoryError("out of memory")])
def test_input_that_breaks_off_is_not_taken_for_the_end(run, monkeypatch, error):
    class Broken(io.BytesIO):
        def read(self, size):
            if data := super().read(size):
                return data
            raise error

    monkeypatch.setattr(io, "BytesIO", Broken)
    code, out, err = run(*QUICK, stdin=b"the dog\nthe")
    assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)
    assert error.args[-1] in err


def test_help_fits_a_terminal(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("--help")
    assert (code, err) == (0, "") and "|||" in out and "json" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_is_one_line_for_every_program():
    """Many take more than a line feed for the end of a line."""
    line = "a\u2028b\u2029c\x85d\x0ce\x1ff"
    found = render([line], 0, [[Translation("x", -1.0, -1.0)]], SimpleNamespace(format="json"))
    assert len(found.splitlines()) == 1 and json.loads(found)["source"] == line
