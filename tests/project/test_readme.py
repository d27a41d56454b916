"""Every code block of the READMEs is run: Python prints the answers it promises, commands work."""

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys

import pytest
from paths import ROOT

from minitf.data.corpora import NAMES
from minitf.training.settings import parse
from minitf.translation import Translator

PAGES = [
    ROOT / place
    for place in (
        "README.md",
        "minitf/README.md",
        "lessons/README.md",
        "lessons/REPRODUCE.md",
        "lessons/DIFFERENCES.md",
        "lessons/SINCE-2017.md",
        "examples/README.md",
        "examples/PARSE.md",
        "examples/benchmarks/README.md",
    )
]
LOOP = ROOT / "examples" / "train_reverse.py"  # the loop to which the manual leads


def blocks(page, language):
    """Return the code blocks of a language, without their indentation."""
    text = page.read_text(encoding="utf-8")
    return [
        block
        for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if kind == language
    ]


def answers(block):
    """Return the lines that a block promises to print.

    They follow `# ` after a statement, or on lines without one.
    """
    found = []
    for line in block.splitlines():
        comment = re.match(r"^(.*?)\s*# (.*)$", line)
        if comment and (
            "print(" in comment[1] or "grad_check(" in comment[1] or not comment[1].strip()
        ):
            found.append(comment[2].strip())
    return found


def pattern(said):
    """Return a regular expression in which `...` matches anything, and spaces match any spaces."""
    parts = [r"\s+".join(re.escape(word) for word in part.split()) for part in said.split("...")]
    return r"\s*.*?\s*".join(parts)


@pytest.mark.parametrize(
    ("page", "block"),
    [
        *((page, block) for page in PAGES for block in blocks(page, "python")),
        pytest.param(LOOP, LOOP.read_text(encoding="utf-8"), marks=pytest.mark.slow),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_python_block_prints_what_it_says(page, block, monkeypatch):
    monkeypatch.chdir(ROOT)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, str(page), "exec"), {})
    (ROOT / "layer.safetensors").unlink(missing_ok=True)  # which a block writes
    said = answers(block)
    printed = " ".join(out.getvalue().split())
    assert re.fullmatch(r"\s*".join(pattern(line) for line in said), printed), (
        f"printed: {printed}\nsaid: {said}"
    )


def test_the_limits_are_real():
    """The bundled model's mistakes in its card are real, and so is the manual's translation."""
    model = ROOT / "examples" / "models" / "en-de"
    translator = Translator.load(model)
    card, manual = (
        " ".join((folder / "README.md").read_text(encoding="utf-8").split())
        for folder in (model, ROOT / "examples")
    )
    for source in ("The walrus is on the ice.", "The parliament passed the bill."):
        ((best,),) = translator.translate([source])
        assert f'"{source}" becomes "{best.text}"' in card
    story = (ROOT / "examples" / "story.txt").read_text(encoding="utf-8").split("\n\n")
    ((best,),) = translator.translate([" ".join(story[1].split())])
    assert f'its second becomes "{best.text}"' in manual


def _commands():
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.sub(r"\s+#\s.*$", "", line.strip())
                if command and not command.startswith("#"):
                    yield command


def _is_quick(command):
    """Return whether the command is run by default: of those that translate or parse, two are."""
    if "parse.py" in command:
        return "--pretty" in command
    return "translate.py" not in command or "--nbest" in command


PO = 'msgid "A cat"\nmsgstr ""\n'


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[] if _is_quick(each) else pytest.mark.slow) for each in _commands()],
)
def test_command(command, tmp_path):
    """Commands that translate are run, trainings are parsed; set-up commands are .ci/run's."""
    words = shlex.split(command)
    if words[:3] == ["pip", "install", "-e"]:
        declared = (ROOT / "setup.cfg").read_text(encoding="utf-8")
        extras = re.search(r"\[(.*)\]", words[3])
        for name in extras[1].split(",") if extras else ():
            assert re.search(rf"^{name} =", declared, re.MULTILINE)
    elif trainer := {"train", "lessons/09_train_wmt.py"} & set(words):
        arguments = words[words.index(trainer.pop()) + 1 :]
        if arguments[:1] == ["--score"]:
            assert len(arguments) == 3
        else:
            parse(arguments)
    elif words[0] == "pytest":
        assert all((ROOT / word).exists() for word in words[1:] if word.startswith("tests/"))
    elif words[:4] == ["python", "-m", "minitf", "data"]:
        assert set(words[4:]) <= set(NAMES)
    elif words[:2] == ["python", "examples/parse.py"] and "--score" not in words:
        arguments = [word for word in words if word not in ("--model", "runs/parser")]
        printed = " ".join(printed_by(shlex.join(arguments), tmp_path).split())
        manual = (ROOT / "examples" / "PARSE.md").read_text(encoding="utf-8")
        assert printed in " ".join(manual.split())
        assert not (tmp_path / "tree.png").exists() or "--draw" in words
    elif "examples/translate.py" in command:
        given = {
            "test.en": "Tom sees.\n" * 3,
            "README.md": "# A cat\n",
            "messages.po": PO,
            "page": "A",
        }
        for name, text in given.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        as_if_trained = re.sub("runs/(toy|mine|ko)", f"{ROOT}/lessons/toy-model", command)
        output = printed_by(re.sub("curl -s \\S+", "cat page", as_if_trained), tmp_path)
        if "--output" in words:
            output = (tmp_path / words[words.index("--output") + 1]).read_text(encoding="utf-8")
        if "test.en" in words or "--paragraphs" in words:
            assert output.count("\n") == 3, "two paragraphs, an empty line between; or test.en"
        assert output.strip()
    else:
        assert words[0] == "python" and (ROOT / words[1]).exists(), f"nothing tests {command!r}"


def printed_by(command, folder):
    """Run a command of the shell in another folder; return what it prints."""
    command = command.replace("python ", f"{shlex.quote(sys.executable)} ")
    done = subprocess.run(
        command.replace("examples/", f"{ROOT}/examples/"), shell=True, cwd=folder, check=False,
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_size_of_the_engine_is_what_the_readme_says():
    """The files of the map's first table: lines of code, and the lines that explain them."""
    text = (ROOT / "minitf" / "README.md").read_text(encoding="utf-8")
    files = re.findall(r"^\| `(\w+\.py)` \|", text.partition("## The folders")[0], re.MULTILINE)
    assert len(files) == 11
    code, explained = map(sum, zip(*(lines_of(ROOT / "minitf" / f) for f in files), strict=True))
    whole = sum(lines_of(path)[0] for path in (ROOT / "minitf").rglob("*.py"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{round(code, -2):,} lines of code" in readme, (code, explained)
    assert f"another {round(explained, -2):,}" in readme, (code, explained)
    assert f"package, {round(whole - code, -3):,} lines of code" in readme, (code, whole)


def lines_of(path):
    """Return the numbers of lines of a file: code, and docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    said = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                said |= set(range(first.lineno, first.end_lineno + 1))
    code = explained = 0
    for number, line in enumerate(source.splitlines(), 1):
        explains = number in said or line.strip().startswith("#")
        explained += explains
        code += bool(line.strip()) and not explains  # an empty line is neither
    return code, explained
