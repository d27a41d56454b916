"""The frame of the lessons: which command line runs lesson 09 and which its trainer."""

import ast
import base64
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest
from paths import ROOT

import minitf
from minitf import functions as F
from minitf import transformer
from minitf.course import experiments, figures, lesson
from minitf.course.architecture import figure_1


@pytest.fixture(autouse=True)
def as_before():
    """Leave the lines of claims as they were: `begin` changes them for a process."""
    yield
    lesson.checking._report = lesson._print_claim
    sys.excepthook = sys.__excepthook__


@pytest.fixture
def begin(monkeypatch):
    """Return a function of a command line: (what `begin` returned, the calls of the trainer)."""
    for name in ("use", "threadpool_limits"):
        monkeypatch.setattr(lesson, name, lambda *_: None)

    def start(*arguments):
        monkeypatch.setattr(sys, "argv", ["lesson.py", *arguments])
        handed = []
        try:
            quick = lesson.begin("09_train_wmt", trainer=lambda *given: handed.append(given) or 7)
        except SystemExit as end:
            assert end.code == 7  # the trainer's exit code
            quick = None
        return quick, handed

    return start


@pytest.mark.parametrize(
    ("arguments", "quick"),
    [
        ((), False),
        (("--figures", "here"), False),
        (("--quick",), True),
        (("--quick", "--figures", "here"), True),
    ],
)
def test_without_a_trainers_option_it_is_the_lesson(begin, arguments, quick):
    assert begin(*arguments) == (quick, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--corpus", "toy", "--out", "runs/a"),
        ("--quick", "--out=runs/a"),
        ("--backend", "cupy", "--resume"),
        ("--help",),
        ("-h",),
        ("--figure", "here"),  # no such option: the trainer says so
    ],
)
def test_any_other_option_means_the_trainer(begin, arguments):
    assert begin(*arguments) == (None, [(list(arguments),)])


def test_other_lessons_know_no_trainer(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["01_attention.py", "--quick"])
    with pytest.raises(SystemExit, match="2"):
        lesson.begin("01_attention")
    assert "unknown option: --quick" in capsys.readouterr().err


def test_the_training_has_a_folder_of_its_own_and_gives_its_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []

    def trainer(arguments):
        seen.append(arguments)
        Path(arguments[-1]).mkdir(parents=True)
        (Path(arguments[-1]) / "results.json").write_text(json.dumps({"step": 3}))
        return 0

    monkeypatch.setattr(lesson._run, "trainer", trainer)
    assert lesson.train("--quick --steps 3") == {"step": 3}
    assert seen[0][:4] == ["--quick", "--steps", "3", "--out"] and Path(seen[0][4]).parent == Path(
        "runs"
    )
    monkeypatch.setattr(lesson._run, "trainer", lambda arguments: 130)
    with pytest.raises(SystemExit, match="130"):
        lesson.train("--quick")


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [("raise KeyboardInterrupt", 130, ""), ("1 / 0", 1, "ZeroDivisionError: division by zero")],
)
def test_a_lesson_ends_quietly_after_ctrl_c_only(tmp_path, ending, code, said):
    path = tmp_path / "00_lesson.py"
    path.write_text(f"from minitf.course.lesson import begin\nbegin('00_lesson')\n{ending}\n")
    command = [sys.executable, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code and bool(done.stderr) == bool(said) and said in done.stderr


# Figures and results ------------------------------------------------------------------------------


def picture_of(html):
    """Return the bytes of the only image of a cell's output, which shows it without a file."""
    address = re.fullmatch(r'<img src="data:image/svg\+xml;base64,([\w+/=]+)">', html)
    picture = base64.b64decode(address[1])
    root = ElementTree.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"width", "viewBox"} <= set(root.keys())
    return picture


@pytest.mark.parametrize(
    ("name", "picture", "options", "start"),
    [
        ("a.png", figures.dots, {"values": {"a": 1.0}, "x": "x"}, b"\x89PNG"),
        ("a.svg", figure_1, {"here": ["encoder"]}, b"<svg"),
    ],
)  # fmt: skip
def test_a_figure_is_written_and_a_notebook_shows_it(
    tmp_path, monkeypatch, capsys, name, picture, options, start
):
    shown = []
    display = types.ModuleType("IPython.display")
    display.Image = lambda path, width: Path(path).read_bytes()
    display.HTML = picture_of
    display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(lesson._run, "figures", tmp_path / "new" / "figures")
    path = tmp_path / "new" / "figures" / name
    for notebook in (False, True):
        monkeypatch.setattr(lesson, "_notebook", lambda notebook=notebook: notebook)
        lesson.draw(picture, name, **options)
        assert path.read_bytes().startswith(start) and path.stat().st_size < 45_000
        assert capsys.readouterr().out == f"    figure {path}\n"
        assert shown == [path.read_bytes()] * notebook


def test_the_results_of_an_experiment_are_kept_with_how_they_were_made(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(experiments, "FOLDER", tmp_path / "lessons" / "results")
    (tmp_path / "lessons").mkdir()
    path = experiments.write("warmup", {"loss": [1.5, 0.5]})
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "lessons" / "07_training.py")])
    found = lesson.kept("warmup")
    run = found.pop("run")
    assert found == {"loss": [1.5, 0.5]}
    assert run["command"] == "python -m minitf.course.experiments.warmup"
    assert run["seconds"] > 0 and run["versions"]["minitf"] == minitf.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", run["date"]) and run["processor"]
    assert str(tmp_path) not in path.read_text()  # no path of this machine
    with pytest.raises(SystemExit, match="2"):
        lesson.kept("cooldown")
    said = capsys.readouterr().err
    assert "cooldown.json is missing: run  python -m minitf.course.experiments.cooldown " in said


def test_a_lesson_reads_its_own_files_and_not_those_of_the_current_folder(
    tmp_path, monkeypatch, capsys
):
    for name in ("results", "figures", "toy-model"):  # of another project
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert lesson.kept("warmup") and lesson.toy_model()
    monkeypatch.setattr(lesson, "__file__", str(tmp_path / "site" / "minitf" / "lesson.py"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "lesson.py")])
    for missing in (lambda: lesson.kept("warmup"), lesson.toy_model):
        with pytest.raises(SystemExit, match="2"):
            missing()
        said = capsys.readouterr().err
        assert "is missing: run " in said and said.count("\n") == 1


CLAIMS = """from minitf.check import claim, same
from minitf.course.lesson import begin, finish
begin("00_lesson")
# ## Why one?
claim("one", True, 1)
same("two", 2.0, 2.0 + 2**-40)
print("between")
# ## Why two?
def three():
    claim("three is a claim with a long name, as many have, and a long measure", 3 > TWO,
          [3.0, 2.0, "and many other things that say why it holds, and for whom"])
TWO = 2
three()
finish("It is so.")
"""


def run_claims(tmp_path, text, *options):
    path = tmp_path / "00_lesson.py"
    path.write_text(text)
    command = [sys.executable, str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)


@pytest.mark.parametrize(("options", "names"), [([], []), (["-v"], ["one", "two", "three"])])
def test_claims_are_counted_and_with_v_each_has_a_line_of_80_columns(tmp_path, options, names):
    said = run_claims(tmp_path, CLAIMS, *options).stdout.splitlines()
    assert [line.split()[1] for line in said if line.startswith("ok  ")] == names
    assert said[-3] == "" and said[-2].startswith("lesson 00_lesson: 3 claims hold, 0 figures, ")
    assert said[-1] == "It is so." and "between" in said and max(map(len, said)) <= 80


@pytest.mark.parametrize("options", [[], ["-v"]])
def test_a_false_claim_is_told_in_a_paragraph_without_the_librarys_own_lines(tmp_path, options):
    done = run_claims(tmp_path, CLAIMS.replace("TWO = 2", "TWO = 4"), *options)
    told = done.stderr.splitlines()
    assert done.returncode == 1 and told[0] == "Line 10 of 00_lesson.py is false:"
    assert told[1].startswith('    claim("three is') and told[2].startswith("          [3.0, 2.0")
    assert told[3].startswith("false claim: three is") and len(told) <= 6
    assert "between" in done.stdout and "claims hold" not in done.stdout


LESSON = """
from minitf.course.lesson import begin, finish
begin("00_mini")
for i in range(100_000):
    print(i)
finish("It ends.")
"""
SHEET = """
from minitf.course.lesson import check_exercises
def one(): "Write it."
def check_one(): assert one() == 1
check_exercises(globals())
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["-c", LESSON], 141),  # its claims were not all checked
        pytest.param(["-c", SHEET], 1, marks=pytest.mark.slow),
        pytest.param(["-m", "minitf", "toy", "5000"], 0, marks=pytest.mark.slow),
        pytest.param([str(ROOT / "lessons" / "debugging.py"), "--help"], 0, marks=pytest.mark.slow),
    ],
)
def test_a_program_whose_reader_has_enough_ends_quietly(command, code):
    """As in ... | head."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, *command], stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.parametrize("shown", [F.layer_norm, transformer.DecoderLayer])
def test_show_prints_the_same_program_with_short_docstrings(shown, capsys):
    lesson.show(shown)
    said, source = capsys.readouterr().out, textwrap.dedent(inspect.getsource(shown))
    assert len(said) < len(source)
    trees = [ast.parse(text) for text in (said, source)]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body[0] = ast.Pass()
    assert ast.dump(trees[0]) == ast.dump(trees[1])
