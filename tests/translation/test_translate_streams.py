"""translate.py and its surroundings: files, pictures, pipes, terminals, environment."""

import contextlib
import errno
import functools
import importlib
import io
import json
import os
import select
import shutil
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from command import QUICK, ROOT, Command, Stream, is_refused, lines_of
from tiny_translator import make_subwords, save

from minitf import cli
from minitf.commands import input as reading
from minitf.commands import translate
from minitf.translation import Translation, Translator

pty = None if sys.platform == "win32" else importlib.import_module("pty")
termios = pty and importlib.import_module("termios")
needs_terminal = pytest.mark.skipif(pty is None, reason="needs a pseudo-terminal")
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
BUNDLED = ROOT / "examples" / "models" / "en-de"


# Files --------------------------------------------------------------------------------------------


def test_output_file_is_whole_or_absent(run, tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    expected = run(*QUICK, "the dog", "a bird")[1]
    assert run(*QUICK, "--output", path, "the dog", "a bird") == (0, "", "")
    assert path.read_text() == expected
    assert run("--output", path, "--model", "no/such/folder", "the dog")[0] == 2
    monkeypatch.setattr(
        "minitf.translation.translator.Translator.translate", lambda *_, **__: 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        run("--output", path, "a bird")
    assert path.read_text() == expected and list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /dev/stdout")
@pytest.mark.parametrize("stream", ["stdout", slow("stderr")])
def test_a_file_that_a_descriptor_leads_to_keeps_what_it_has(run, tmp_path, stream):
    """translate.py --output /dev/stdout >> log.txt adds to the log."""
    path = tmp_path / "log.txt"
    path.write_text("one\n")
    with open(path, "ab") as log:
        process = run.start(*QUICK, "--output", f"/dev/{stream}", "the dog", **{stream: log})
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert path.read_text() == "one\n" + run(*QUICK, "the dog")[1]


def test_an_output_without_a_name_is_refused_before_anything_is_translated(run):
    assert is_refused(run("--output", "", "the dog"), "--output needs the name of a file")


def test_an_empty_file_is_noticed(run, tmp_path):
    path = tmp_path / "unsaved.txt"
    path.touch()
    code, out, err = run(*QUICK, "--input", path)
    assert (code, out) == (0, "") and err.endswith("unsaved.txt is empty\n")


def test_the_output_is_not_read_as_input(run, tmp_path):
    """translate.py --input a.txt >> a.txt would never end."""
    path = tmp_path / "a.txt"
    path.write_text("the dog\n" * 3)
    with open(path, "ab") as end:
        process = run.start(*QUICK, "--input", path, stdout=end)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 2 and b"write it to another file" in error
    assert path.read_text() == "the dog\n" * 3


def test_a_notebook_has_no_binary_output(run, monkeypatch):
    expected, said = run(*QUICK, "the dog")[1], io.StringIO()
    monkeypatch.setattr(sys, "stdout", said)
    assert translate.main([*QUICK, "--model", run.model, "the dog"]) == 0
    assert said.getvalue() == expected


def test_output_keeps_links_permissions_and_devices(run, tmp_path):
    path, link = tmp_path / "out.txt", tmp_path / "link.txt"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    assert run(*QUICK, "--output", link, "the dog")[0] == 0
    assert (
        link.is_symlink()
        and path.read_text() != "old"
        and stat.S_IMODE(path.stat().st_mode) == 0o640
    )
    before = path.read_bytes()
    for same in (path, link):  # what was to be translated would be lost
        assert (
            run(*QUICK, "--input", path, "--output", same)[0] == 2 and path.read_bytes() == before
        )
    assert run(*QUICK, "--output", os.devnull, "the dog") == (0, "", "")
    assert not Path(os.devnull).is_file()
    assert run(*QUICK, "--input", "-", "--output", "-", stdin=b"the dog") == run(*QUICK, "the dog")


def test_ctrl_c_says_what_became_of_the_output(run, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    path = tmp_path / "out.txt"
    path.write_text("old")
    monkeypatch.setattr("minitf.translation.translator.Translator.translate", interrupted)
    assert run("a bird") == (130, "", "")
    lost = "translate.py: check line 1: bytes that are not UTF-8 are lost\n"
    assert run(stdin=b"a \xff b\xc3\xa4rd\n") == (130, "", lost)
    said = f"translate.py: stopped: nothing was written to {path}\n"
    assert run("--output", path, "a bird") == (130, "", said)
    assert run("--output", path, "a bird", stderr=Stream(terminal=True)) == (130, "", "\n" + said)
    assert run("--output", os.devnull, "a bird") == (130, "", "")  # some may have come through
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="kill ends a process at once there")
@pytest.mark.parametrize("number", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.slow)])
def test_no_half_written_file_is_left_by_a_kill(run, tmp_path, number):
    # A signal between the opening of a file and its `with` block leaves the file to Python.
    python = ["-W", "ignore::ResourceWarning"]
    process = run.start(*QUICK, "--output", tmp_path / "out.txt", python=python)
    while not list(tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(getattr(signal, number))
    assert process.wait(timeout=60) == 128 + getattr(signal, number)
    assert list(tmp_path.iterdir()) == [] and process.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="kill ends a process at once there")
def test_a_kill_in_the_middle_of_an_import_is_no_traceback(run, tmp_path, monkeypatch):
    """An extension module that is being imported turns SystemExit into ImportError."""

    def importing(*_, **__):
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit as stop:
            raise ImportError("initialization failed") from stop

    monkeypatch.setattr("minitf.translation.translator.Translator.translate", importing)
    code = 128 + signal.SIGTERM
    assert run("--output", tmp_path / "out.txt", "a bird") == (code, "", "")
    assert list(tmp_path.iterdir()) == []


# Pictures -----------------------------------------------------------------------------------------


def test_attention_is_drawn_for_the_first_sentence(run, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("minitf.plot.attention_maps", lambda *arguments: drawn.append(arguments))
    code, out, err = run(*QUICK, "--attention", tmp_path / "a.png", "", "the dog", "a bird")
    assert (code, len(lines_of(out))) == (0, 3)
    told = f"translate.py: {tmp_path / 'a.png'} shows the first line of the text only\n"
    assert err == told
    text = b"the dog\n\na bird\n\nthe dog"  # a paragraph is a batch
    assert run(*QUICK, "--attention", tmp_path / "a.png", "--paragraphs", stdin=text)[2] == told
    ((weights, rows, columns, path, title, caption, names, words), _) = drawn
    assert weights.shape == (2, len(rows), len(columns)) and path == str(tmp_path / "a.png")
    assert "".join(columns[:-1]).replace("▁", " ").strip() == "the dog" and title == "the dog"
    assert "decoder to source, layer 2 of 2" in caption and names == ("output", "input") and words
    line = "the dog saw a bird. " * 9
    choice = ("--attention-kind", "encoder", "--layer", "1", "--attention-subwords")
    err = run(*QUICK, "--attention", "a.png", *choice, line)[2]
    assert err.count("is translated in parts") == 1
    _, rows, columns, _, title, caption, names, words = drawn[-1]
    assert rows == columns and names == ("input", "input") and not words
    assert "encoder self-attention, layer 1 of 2" in caption and title and line.startswith(title)


def test_a_picture_names_the_languages_and_counts_the_layers_of_its_stack(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("minitf.plot.attention_maps", lambda *given: drawn.append(given[5:7]))
    notes = {"source_language": "en", "target_language": "de"}
    folder = save(tmp_path / "deep", make_subwords(), notes, n_layers=3, n_decoder_layers=1)
    for kind in ("source", "encoder", "decoder"):
        arguments = ("--attention", "a.png", "--attention-kind", kind, "the dog")
        assert Command(folder)(*arguments)[0] == 0
    layers = [caption.split("layer ")[1][:6] for caption, _ in drawn]
    assert layers == ["1 of 1", "3 of 3", "1 of 1"]
    read, written = "English input", "German output"
    assert [names for _, names in drawn] == [(written, read), (read,) * 2, (written,) * 2]


def test_the_name_of_a_file_is_translated_with_a_hint(run, tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("the dog\n", encoding="utf-8")
    code, out, err = run(*QUICK, letter)
    assert (code, out.count("\n")) == (0, 1)
    assert err.startswith(f"{letter} is also a file: --input {letter} reads it\n")


def test_forgotten_quotes_get_a_hint(run):
    code, out, err = run(*QUICK, "where", "is", "the", "dog?")
    assert (code, out.count("\n")) == (0, 4)
    assert err == "4 single words, each taken as a line: put a sentence in quotes\n"
    for quoted in (["dog"], ["dog", "the bird"], ["Go!", "Stop."]):
        assert run(*QUICK, *quoted)[2] == ""


ENCODED = {  # the bytes of a text that is refused: what the message says
    "Grüße".encode("latin-1"): "not UTF-8 but probably cp1252: ",
    "“Grüße”".encode("cp1252"): "iconv -f cp1252 -t utf-8",
    "the dog\na bird\n".encode("utf-16-le"): "is not text, or in an unknown encoding",
    bytes(range(256)): "is not text, or in an unknown encoding: save it as plain text, in UTF-8",
    b"PK\x03\x04\x14\x06": "is a Word, LibreOffice or zip file: save it as plain text, in UTF-8",
}


@pytest.mark.parametrize("content", ENCODED)
def test_a_text_in_another_encoding_is_refused_with_the_command_that_converts_it(
    run, tmp_path, content
):
    path = tmp_path / "a text"
    path.write_bytes(b"the dog\n" * (reading.BATCH_LINES if content[-1] == 0xE9 else 0) + content)
    assert is_refused(run(*QUICK, "--input", path), ENCODED[content])
    assert is_refused(run(*QUICK, stdin=content), ENCODED[content])


def test_a_file_is_refused_before_anything_is_translated(run, tmp_path):
    """By all of its bytes: the first thousand lines are ASCII, a later one decides for Windows."""
    path = tmp_path / "a text"
    path.write_bytes(b"the dog\n" * 1000 + b"gr\xfcn\n" * 50 + b"\x93No\x94\n")
    code, out, err = run(*QUICK, "--input", path)
    assert (code, out) == (2, "") and f"-f cp1252 -t utf-8 '{path}' > NEW_FILE\n" in err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_the_mark_at_its_beginning_tells_how_a_text_is_encoded(run, tmp_path, encoding):
    text, path = "the dog\r\na bird: üö\n", tmp_path / "marked"
    marked = text if encoding in ("utf-16", "utf-32") else f"\ufeff{text}"
    path.write_bytes(marked.encode(encoding))
    expected = run(*QUICK, *text.split("\r\n"))
    assert expected[0] == 0 and run(*QUICK, "--input", path) == expected
    assert run(*QUICK, stdin=path.read_bytes()) == expected
    path.write_bytes(path.read_bytes()[:-1])  # its last character is half there
    code, out, err = run(*QUICK, "--input", path)
    assert (code, out.count("\n")) == (0, 2) and "line 2: bytes that are not UTF-8 are lost" in err


def test_what_was_lost_is_said_at_the_end_with_the_numbers_of_its_lines(run, tmp_path):
    path = tmp_path / "damaged"
    lines = [b"the dog"] * 2000
    for i in (499, 999, 1998):
        lines[i] = b"the \xff dog"
    lines[5] = "the \x93dog\x94".encode()
    path.write_bytes(b"\n".join(lines))
    code, out, err = run(*QUICK, "--input", path)
    assert (code, out.count("\n"), err.count("\n")) == (0, 2000, 1)
    assert "lines 500, 1,000 and 1,999: bytes that are not UTF-8 are lost" in err
    assert (
        "; line 6: control characters are lost" in f"; {err.removeprefix('translate.py: check ')}"
    )
    code, _, err = run(*QUICK, "caf\udce9")
    assert (code, err) == (0, "translate.py: check line 1: bytes that are not UTF-8 are lost\n")


def test_a_model_that_writes_nothing_yet_says_so(run, monkeypatch):
    def nothing(self, lines, *_, **__):
        return [[Translation("", -1.0, -1.0)] for _ in lines]

    monkeypatch.setattr(Translator, "translate", nothing)
    said = "translate.py: the model writes nothing. It may need more training\n"
    assert run("the dog", "the bird") == (0, "\n\n", said)
    assert run("", " ", "\x01") == (0, "\n\n\n", ""), "there was nothing to translate"


def test_a_missing_model_names_those_that_are_there(model, tmp_path, capsys):
    """A folder beside them that is damaged does not matter, and a parser does not translate."""
    shutil.copytree(model, tmp_path / "good")
    shutil.copytree(model, tmp_path / "parser")
    notes = json.loads((tmp_path / "parser" / "config.json").read_text())
    (tmp_path / "parser" / "config.json").write_text(
        json.dumps(notes | {"target_language": "trees"})
    )
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    assert translate.main(["--model", "none", "Hi."], model=tmp_path / "good") == 2
    said = capsys.readouterr().err
    assert said.startswith("translate.py: none: no such folder: choose ") and "parser" not in said
    assert f"{os.path.relpath(tmp_path / 'good')}, the folder of a model that the trainer" in said


def test_a_file_that_may_not_be_read(run, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(reading, "open", refuse, raising=False)
    said = "secret.txt: cannot be read (Permission denied): give yourself permission to read it"
    assert is_refused(run("--input", "secret.txt"), said)


@pytest.mark.parametrize("language", ["trees", "trees-with-words"])
def test_a_parser_is_refused(run, tmp_path, language):
    model = save(tmp_path / "parser", make_subwords(), {"target_language": language})
    assert is_refused(run("--model", model, "the dog"), "a parser: use parse.py")


def test_picture_is_written(run, tmp_path):
    assert run(*QUICK, "--attention", tmp_path / "a.png", "the dog")[::2] == (0, "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_picture_of_no_text(run, tmp_path):
    code, out, err = run("--attention", tmp_path / "a.png", "", " ")
    assert (code, out) == (2, "\n\n") and "give a sentence" in err  # no line is lost for it


# Pipes and terminals ------------------------------------------------------------------------------


def test_pipe_is_answered_line_by_line_and_ctrl_c_is_quiet(run):
    process = run.start(*QUICK)
    for line in (b"the dog\n", b"\n", b"a bi", b"rd\n"):
        process.stdin.write(line)
        process.stdin.flush()
        if line.endswith(b"\n"):
            assert select.select([process.stdout], [], [], 60)[0], "the answer waits for more input"
            assert process.stdout.readline().endswith(b"\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert process.stdout.read() == process.stderr.read() == b""


def test_paragraph_is_answered_when_its_empty_line_has_come(run):
    process = run.start(*QUICK, "--paragraphs")
    for piece, answers in (
        (b"the dog\nsaw", 0),
        (b" a bird\n", 0),
        (b"\n", 2),
        (b"\nwe sing\n\n", 3),
    ):
        process.stdin.write(piece)
        process.stdin.flush()
        assert answers or not select.select([process.stdout], [], [], 0.3)[0], (
            "answered before its end"
        )
        found = b""
        while found.count(b"\n") < answers:
            assert select.select([process.stdout], [], [], 60)[0], "the answer waits for more input"
            found += os.read(process.stdout.fileno(), 1000)
        assert found.count(b"\n") == answers
    out, err = process.communicate(b"the\nend", timeout=60)
    assert (process.returncode, out.count(b"\n"), err) == (0, 1, b"")


def test_closed_pipe_is_no_error(run, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"the dog\n" * 1100)
    process = run.start("--beam", "1", "--max-extra", "0", "--input", tmp_path / "in.txt")
    assert process.stdout.readline().endswith(b"\n")
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(timeout=60) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_full_disk_is_explained(run):
    with open("/dev/full", "wb") as full:
        process = run.start(*QUICK, "the dog", stdout=full)
        message = process.stderr.read().decode()
    assert process.wait(timeout=60) == 2
    assert (
        message.startswith("translate.py: standard output: cannot be written")
        and message.count("\n") == 1
    )
    assert "free some space" in message
    code, out, error = run(*QUICK, "--output", "/dev/full", "the dog")
    assert (code, out, error.count("\n")) == (2, "", 1) and "/dev/full: cannot be written" in error


class Screen:
    """translate.py at a terminal, to which the named streams are connected."""

    def __init__(self, run, *arguments, streams=("stdin", "stdout", "stderr"), **options):
        self.master, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 60))
        self.process = run.start(*arguments, **dict.fromkeys(streams, terminal), **options)
        os.close(terminal)
        self.shown = b""

    def type(self, keys):
        os.write(self.master, keys)

    def until(self, end):
        """Read up to some bytes; returns the text that came."""
        start = len(self.shown)
        while end not in self.shown[start:]:
            assert select.select([self.master], [], [], 60)[0], (end, self.shown)
            self.shown += os.read(self.master, 1000)
        return self.shown[start:].decode(errors="replace")

    def ends(self, code):
        """Wait for the end with this exit code; returns all text that was shown."""
        assert self.process.wait(timeout=60) == code
        with contextlib.suppress(OSError):  # which Linux raises where nobody writes any more
            while more := os.read(self.master, 1000):
                self.shown += more
        os.close(self.master)
        return self.shown.decode(errors="replace").replace("\r\n", "\n")


@needs_terminal
def test_terminal_is_greeted_and_prompted(run):
    screen = Screen(run, *QUICK, streams=("stdin", "stderr"))
    assert screen.until(b"> ") == "model tiny; one sentence per line, Ctrl-D ends\r\n> "
    screen.type(b"the dog\n")
    assert screen.process.stdout.readline().endswith(b"\n")
    screen.type(b"\x04")
    assert screen.ends(0).endswith("> \n")


@needs_terminal
def test_typed_lines_can_be_edited_and_called_back(run):
    pytest.importorskip("readline")
    left, up = b"\x1b[D", b"\x1b[A"
    # Xterm would be told when a paste may come.
    screen = Screen(run, *QUICK, environment={"TERM": "dumb"})
    screen.until(b"> ")
    for keys, line in (
        (b"te dog" + 5 * left + b"h\n", b"the dog"),
        (up + b" x\n", b"the dog x"),
        # No character begins with FF. A byte that begins one is inserted when the next is typed.
        (b"caf\xff \xc3\xa9\n", b"caf\xff \xc3\xa9"),
        (b"\n", b""),
    ):
        screen.type(keys)
        expected = run(*QUICK, stdin=line + b"\n")[1]
        assert screen.until(b"\n> ").endswith("\r\n" + expected.replace("\n", "\r\n") + "> ")
    screen.type(b"\x04")
    screen.ends(0)


@pytest.mark.slow
def test_bar_is_drawn_on_a_terminal_only(run, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "BAR_AFTER", 0)
    monkeypatch.setattr(cli, "EVERY", 0)
    (tmp_path / "in.txt").write_text("".join(f"the dog saw {i}\n" for i in range(600)))
    arguments = ("--beam", "1", "--max-extra", "0", "--input", tmp_path / "in.txt")
    code, out, screen = run(*arguments, stderr=Stream(terminal=True))
    assert code == 0 and out.count("\n") == 600
    assert "100%" in screen and "left" in screen and "\n" not in screen
    assert screen.rstrip("\r").endswith(" ")  # wiped away
    assert run(*arguments) == (0, out, "")
    content = (tmp_path / "in.txt").read_bytes()
    code, again, screen = run(*arguments[:-2], stdin=content, stderr=Stream(terminal=True))
    assert (code, again) == (0, out) and f"bytes translated: {len(content):,}" in screen


# Pictures and models ------------------------------------------------------------------------------


def test_a_picture_replaces_neither_the_text_nor_its_translation(run, tmp_path):
    path = tmp_path / "a.html"
    path.write_text("the dog\n")
    for option in ("--input", "--output"):
        text = ["--format-in", "plain"] if option == "--input" else ["the dog"]
        code, _, error = run(*QUICK, option, path, "--attention", path, *text)
        assert code == 2 and "--attention names the file of --input or --output" in error, option
    assert path.read_text() == "the dog\n"
    assert "needs the name of a file" in run(*QUICK, "--attention", "", "the dog")[2]


def test_the_greeting_names_the_languages(capsys):
    reading.greet("runs/a", {"source_language": "ko", "target_language": "vi"}, "a line")
    reading.greet("runs/a", {"source_language": "ko", "target_language": "xx"})
    known, unknown = capsys.readouterr().err.split("\n")[:2]
    assert known.startswith("Korean to Vietnamese, model a; a line, Ctrl-")
    assert unknown.startswith("Korean to xx, model a; one sentence per line, ")


@pytest.mark.parametrize("model", ["x" * 300, "y/" * 3000])
def test_a_model_of_an_impossible_name(run, model):
    code, _, error = run(*QUICK, "--model", model, "the dog")
    assert code == 2 and len(error.splitlines()) == 1
