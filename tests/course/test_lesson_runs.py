"""The lessons run from an empty folder, offline, and each must notice a broken library."""

import ast
import importlib.util
import re

import pytest
from lesson_files import LESSONS, ROOT, prose_of
from lesson_programs import is_noticed, mutants, plant, run
from paths import SUPPORT


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_proves_itself(lesson, tmp_path):
    done = run(lesson, tmp_path, "--verbose")
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr
    last = re.fullmatch(
        rf"lesson {lesson.stem}: (\d+) claims hold, (\d+) figures, [\d.]+ s\.",
        done.stdout.rpartition("\nlesson ")[2].splitlines()[0].join(["lesson ", ""]),
    )
    proved = [line for line in done.stdout.splitlines() if line.startswith("ok  ")]
    assert int(last[1]) == len(proved) >= 8
    figures = sorted((tmp_path / "empty" / "figures").iterdir())
    assert len(figures) == int(last[2]) >= 1
    committed = (ROOT / "lessons" / "figures").glob(f"{lesson.stem[:2]}_*")
    assert {path.name for path in figures} == {path.name for path in committed}
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["figures"]
    prose = prose_of(lesson)
    code = [
        line
        for line in lesson.read_text(encoding="utf-8").splitlines()
        if line.removeprefix("#").strip() not in prose
    ]
    proof = "\n".join([*done.stdout.splitlines(), *code])
    missing = [
        number
        for line in prose
        if not line.startswith("**Now yours: pieces")
        for number in numbers(line)
        if number not in proof and number.replace(",", "") not in proof
    ]
    assert not missing, f"the text says {missing}, which nothing prints or asserts"


def numbers(line):
    """Return the numbers in a line of prose: decimals, and those from ten on.

    Not the numbers of sections and lessons, nor years, subscripts, powers and names of files.
    """
    named = r"`[^`]*`|\b(section|lesson|table|eq\.|equation|et al\.,?|version)s? [\d.]+"
    named += r"|\b(in|since|before|of) (19|20)\d\d\b"
    line = re.sub(named, "", line, flags=re.IGNORECASE)
    line = re.sub(r"\]\(figures/.*?\)", "", line)
    line = re.sub(r"[\d.]*[_^]\{[^{}]*\}", "", line).replace("{,}", ",")
    found = re.findall(r"(?<![\w.^/-])\d[\d,]*(?:\.\d+)?(?![\w^])", line)
    return [
        n
        for n in (number.rstrip(",") for number in found)
        if "." in n or float(n.replace(",", "")) >= 10
    ]


# Lesson 07 trains for minutes there: tests/engine/test_learning.py does so for three steps.
QUICK = [path for path in LESSONS if path.stem != "07_training"]


@pytest.mark.slow
@pytest.mark.parametrize("lesson", QUICK, ids=lambda path: path.stem)
def test_a_lesson_holds_on_a_gpu_as_far_as_the_stand_in_tells(lesson, tmp_path):
    """On a real GPU: examples/benchmarks/gpu_check.py course."""
    done = run(SUPPORT / "on_the_stand_in.py", tmp_path, str(lesson))
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr
    assert f"\nlesson {lesson.stem}: " in done.stdout


@pytest.mark.lesson02
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--figures", f"{__file__}/slides"), "choose another folder with --figures"),
        (("--backend", "cupy"), "use --backend numpy"),
        (("--backend", "torch"), "unknown backend 'torch'"),
    ],
)
def test_what_the_reader_can_mend_is_said_in_one_line(options, reason, tmp_path):
    if options[1] == "cupy" and importlib.util.find_spec("cupy"):
        pytest.skip("CuPy is installed")
    done = run(LESSONS[1], tmp_path, *options)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert reason in done.stderr.splitlines()[-1]


MUTANTS = mutants()
# All of them take long: `campaigns.py mutants` runs them.
OFTEN = [name for number, name in enumerate(MUTANTS) if number % 18 == 0]


def test_the_mistakes_follow_the_code():
    # Not in what the course says about a student's file, which has the same lines.
    files = set((ROOT / "minitf").rglob("*.py")) - set((ROOT / "minitf" / "course").rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    for name, (_, right, wrong) in MUTANTS.items():
        found = [text for text in texts if right in text]
        assert sum(text.count(right) for text in found) == 1, name
        ast.parse(found[0].replace(right, wrong))


@pytest.mark.slow
@pytest.mark.lesson01
def test_the_guide_breaks_the_library_and_says_what_the_lesson_prints(tmp_path):
    guide = " ".join((ROOT / "lessons" / "README.md").read_text(encoding="utf-8").split())
    right, file, wrong = re.search(r"replace `([^`]+)` in `([^`]+)` by `([^`]+)`", guide).groups()
    assert right in (ROOT / file).read_text(encoding="utf-8")
    done = run(LESSONS[0], tmp_path, package=plant((None, right, wrong), tmp_path / "mutant"))
    promised = re.search(r"It stops at the line `(.*?), \.\.\.`", guide)[1]
    assert is_noticed(done) and promised in " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=getattr(pytest.mark, f"lesson{MUTANTS[name][0]}")) for name in OFTEN],
)
def test_a_broken_library_is_noticed(name, tmp_path):
    number, _, _ = MUTANTS[name]
    lesson = next(path for path in LESSONS if path.stem.startswith(number))
    done = run(lesson, tmp_path, package=plant(MUTANTS[name], tmp_path / "mutant"))
    assert is_noticed(done), f"lesson {number} did not notice {name}: {done.stderr}"
