"""DEBUGGING.md: each symptom is what the page prints, and the check that it names tells."""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout

import pytest
from lesson_files import load
from paths import ROOT
from threadpoolctl import threadpool_limits

PAGE = (ROOT / "lessons" / "DEBUGGING.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?%?")
# A number of the page may differ by this share and this much, a percentage by so many points:
# other processors round differently, and 300 updates amplify that.
SHARE, OFFSET, POINTS = 0.1, 0.05, 6


@pytest.fixture(scope="module")
def program():
    return load(ROOT / "lessons" / "debugging.py")


def sections():
    """{name: (text of the section, printed lines)}, in the page's order."""
    found = {}
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE):
        for name, block in re.findall(
            r"^    python lessons/debugging\.py (\w+)\n\n```text\n(.*?)\n```", part, re.S | re.M
        ):
            assert name not in found, f"{name} has two sections"
            found[name] = (part, block.splitlines())
    return found


def test_every_symptom_has_its_section_and_the_other_way_round(program):
    assert list(sections()) == list(program.SYMPTOMS)
    assert len(sections()) >= 14  # twelve symptoms, the five checks, and their table


def test_each_row_of_the_table_leads_to_a_section_and_none_is_forgotten():
    links = re.findall(r"^\| .* \| .* \| \[(\d+)\]\(#([\w-]+)\) \|$", PAGE, re.MULTILINE)
    headings = re.findall(r"^## (\d+)\. (.+)$", PAGE, re.MULTILINE)
    slugs = [
        (number, re.sub(r"[^\w -]", "", f"{number} {title}").lower().replace(" ", "-"))
        for number, title in headings
    ]
    assert links == slugs
    assert [int(number) for number, _ in headings] == list(range(1, len(headings) + 1))


@pytest.mark.parametrize("name", [name for name in sections() if "check" not in name])
def test_each_section_says_cause_check_and_remedy(name):
    text, _ = sections()[name]
    assert all(f"- **{word}.**" in text for word in ("Cause", "Check"))
    assert "- **Remedy.**" in text


@pytest.mark.slow
def test_every_command_of_the_page_exists():
    programs = ["examples/translate.py", "lessons/09_train_wmt.py"]
    known = "".join(
        subprocess.run(
            [sys.executable, ROOT / program, "--help"], capture_output=True, text=True, check=True
        ).stdout
        for program in programs
    )
    options = set(re.findall(r"(?<![\w|-])--[a-z][a-z-]+", PAGE))
    assert len(options) > 9 and {option for option in options if f"{option} " not in known} == set()
    scripts = {command.split()[1] for command in commands()}
    assert scripts == {"lessons/debugging.py", *programs}


@pytest.mark.slow
def test_the_commands_do_what_they_are_for(tmp_path):
    """The others, with the name of a symptom, are run inside this process below."""
    (tmp_path / "output.txt").write_text("Das Haus ist klein .\n")
    (tmp_path / "test.de").write_text("Das Haus ist klein.\n")
    typed = [command for command in commands() if "lessons/debugging.py" not in command]
    typed.append("python lessons/debugging.py nan")
    printed = "".join(type_command(command, tmp_path) for command in typed)
    assert (tmp_path / "map.png").exists()
    assert "looks tokenised" in printed and "trainer: the gradient of" in printed


def type_command(command, folder):
    _, script, *words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, ROOT / script, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def commands():
    """The commands of the page: lines of four spaces, and those in backquotes."""
    return re.findall(r"(?:^    |`)(python [^`\n]+)", PAGE, re.MULTILINE)


def means(losses):
    return [sum(losses[i - 10 : i]) / 10 for i in range(10, len(losses) + 1, 10)]


# Lines of these have texts or curves of models that learn nothing, which any rounding changes: here
# is what their sections claim of them. Of all others, the page's numbers are compared.
UNSTABLE = {
    "frequencies": lambda got: (
        abs(got["last"] - got["entropy"]) < 0.25 and got["gap"] < 0.3 < 0.6 < got["right_gap"]
    ),
    "after_warmup": lambda got: (
        means(got["losses"])[-1] > max(1.9, min(means(got["losses"])) + 0.1)
        and means(got["right"])[-1] < 1.2
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(sections()))
def test_a_symptom_is_what_the_page_says(name, program):
    with redirect_stdout(io.StringIO()) as out, threadpool_limits(1, "blas"):
        got = program.SYMPTOMS[name]()
    printed, page = out.getvalue().splitlines(), sections()[name][1]
    assert len(printed) == len(page)
    if name in UNSTABLE:
        assert UNSTABLE[name](got), got
    else:
        for line, quoted in zip(printed, page, strict=True):
            assert alike(line, quoted), f"{name}: the page says {quoted!r}, but it is {line!r}"


def alike(line, quoted):
    """Whether two lines are equal up to their numbers, and these up to SHARE and OFFSET."""
    if "written:" in line:  # a letter of a wrong answer may change
        line, quoted = line.partition("written:")[0], quoted.partition("written:")[0]
    # So may one word of the eight that a model with a mistake should write: other processors.
    line, quoted = (re.sub(r"[\d.]+% \*", "*", text) for text in (line, quoted))
    if NUMBER.sub("0", line).split() != NUMBER.sub("0", quoted).split():
        return False
    pairs = zip(NUMBER.findall(line), NUMBER.findall(quoted), strict=True)
    return all(near(a, b) for a, b in pairs)


def near(a, b):
    if b.endswith("%"):
        return abs(float(a.strip("%")) - float(b.strip("%"))) <= POINTS
    return abs(float(a) - float(b)) <= SHARE * abs(float(b)) + OFFSET
