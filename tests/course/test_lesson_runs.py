"""The lessons run from an empty folder, offline, and each must notice a broken library."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
from lesson_files import LESSONS, ROOT, prose_of
from paths import SUPPORT

OFFLINE = (
    "import socket\ndef refuse(*_): raise OSError('a lesson needs no network')\n"
    "socket.socket.connect = refuse\n"
)


def run(lesson, folder, *options, package=ROOT):
    """Run a lesson in an empty folder, offline, with the minitf package of the folder `package`."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(OFFLINE)
    (folder / "empty").mkdir()
    path = os.pathsep.join([str(folder / "site"), str(package)])
    return subprocess.run(
        [sys.executable, "-W", "error", str(lesson), *options],
        cwd=folder / "empty",
        env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_proves_itself(lesson, tmp_path):
    done = run(lesson, tmp_path)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr
    last = re.fullmatch(
        rf"lesson {lesson.stem}: (\d+) claims hold, (\d+) figures, [\d.]+ s\. .+",
        done.stdout.splitlines()[-1],
    )
    assert int(last[1]) == len(re.findall(r"^ok  ", done.stdout, re.MULTILINE)) >= 8
    figures = sorted((tmp_path / "empty" / "figures").iterdir())
    assert len(figures) == int(last[2]) >= 1
    assert all(
        figure.name.startswith(lesson.stem[:2]) and figure.suffix == ".png" for figure in figures
    )
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["figures"]
    prose = prose_of(lesson)
    headings = [line.removeprefix("## ") for line in prose if line.startswith("## ")]
    # But "Your turn"
    assert [line for line in done.stdout.splitlines() if line in headings] == headings[:-1]
    code = [
        line
        for line in lesson.read_text(encoding="utf-8").splitlines()
        if line.removeprefix("#").strip() not in prose
    ]
    proof = "\n".join(line for line in [*done.stdout.splitlines(), *code] if line not in headings)
    missing = [number for line in prose for number in numbers(line) if number not in proof]
    assert not missing, f"the text says {missing}, which nothing prints or asserts"


def numbers(line):
    """Return the numbers in a line of prose: decimals, and those from ten on, but not sections."""
    named = r"`[^`]*`|\b(section|lesson|table|eq\.|equation|et al\.,?|version)s? [\d.]+"
    line = re.sub(named, "", line, flags=re.IGNORECASE)
    found = re.findall(r"(?<![\w.^/-])\d[\d,]*(?:\.\d+)?(?![\w^])", line)
    return [
        n
        for n in (number.rstrip(",") for number in found)
        if "." in n or float(n.replace(",", "")) >= 10
    ]


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS[:6] + LESSONS[7:], ids=lambda path: path.stem)
def test_a_lesson_holds_on_a_gpu_as_far_as_the_stand_in_tells(lesson, tmp_path):
    """Lesson 07 is left out because it trains, which takes minutes.

    On a real GPU: examples/benchmarks/gpu_check.py --parts course.
    """
    done = run(SUPPORT / "on_the_stand_in.py", tmp_path, str(lesson))
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr
    assert f"lesson {lesson.stem}: " in done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.lesson01
def test_figures_go_where_they_are_wanted(tmp_path):
    done = run(LESSONS[0], tmp_path, "--figures", "slides/here")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "empty" / "slides" / "here").glob("*.png"))) >= 3


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


# Mistakes that people have made: (lesson that must notice, correct text, wrong text). They are in
# equations, because lessons run on equations, or in a room that a lesson teaches. Each correct text
# occurs once in the package.
MUTANTS = {
    "a mask shifted by one": (
        "01",
        "np.tri(length, dtype=bool)",
        "np.tri(length, k=1, dtype=bool)",
    ),
    "no division by sqrt(d_k)": (
        "01",
        "swap(k) * scale, mask)  # (..., T, S)\n    keep",
        "swap(k), mask)\n    keep",
    ),
    "a zeroed softmax gradient": (
        *("02", "return y * (gy - (gy * y).sum(axis=axis, keepdims=True))", "return 0 * gy"),
    ),
    "heads taken apart in the wrong order": (
        *(
            "03",
            "self.n_heads, -1).transpose(0, 2, 1, 3)",
            "-1, self.n_heads).transpose(0, 3, 1, 2)",
        ),
    ),
    "a layer norm without its mean term": (
        "04",
        "(u - mean_u - normal * mean_un)",
        "(u - normal * mean_un)",
    ),
    "a sub-layer without its residual": (
        "04",
        "self.norm(x + self.dropout(sublayer(x)))",
        "self.norm(self.dropout(sublayer(x)))",
    ),
    "an add-and-norm without its sum": (
        "04",
        "layer_norm(x + dropout(added",
        "layer_norm(dropout(added",
    ),
    "a feed-forward network without ReLU": (
        "04",
        "self.dropout(activation(self.inner(x)))",
        "self.dropout(self.inner(x))",
    ),
    "a feed-forward op without ReLU": (
        "04",
        "dropout(activate(linear(x, w_1, b_1))",
        "dropout((linear(x, w_1, b_1))",
    ),
    "a dropout that does not keep the mean": (
        "04",
        "x * mask * factor",
        "x * mask",
    ),
    "a gradient of the last row that was looked up": (
        "05",
        "xp.add.at(g_table, ids, gy)",
        "g_table[ids] = gy",
    ),
    "a position table off by one": ("05", "np.arange(length)[", "np.arange(1, length + 1)["),
    "positions read one row too late": (
        "05",
        "_sinusoids_up_to(end, c, x.dtype)[start:]",
        "_sinusoids_up_to(end + 1, c, x.dtype)[start + 1 :]",
    ),
    "a missing sqrt(d_model)": (
        *("06", "self.embedding(source) * self.config.d_model**0.5", "self.embedding(source)"),
    ),
    "a missing sqrt(d_model) in the decoder": (
        *(
            "06",
            "self.target_embedding(target) * self.config.d_model**0.5",
            "self.target_embedding(target)",
        ),
    ),
    "a smoothing mass that does not add up": (
        *("07", "return smoothing / (size - 1) if", "return smoothing / size if"),
    ),
    "Adam without bias correction": ("07", "xp.sqrt(v / (1 - beta_2**t))", "xp.sqrt(v)"),
    "Adam without its other bias correction": ("07", "rate * (m / (1 - beta_1**t))", "rate * m"),
    "a beam without the length penalty": (
        *("08", "float(total) / length_penalty(length, self.alpha)", "float(total)"),
    ),
    "a cache that keeps the wrong beams": (
        *("08", "self.kept = [array[to_device(rows)] for", "self.kept = [array[: len(rows)] for"),
    ),
    "continuations of the wrong beam": (
        "08",
        "best % size, best // size, np",
        "best % size, best % width, np",
    ),
    "pieces that are no byte-pair encoding": ("09", 'model_type="bpe"', 'model_type="unigram"'),
    "batches of one pair too many": (
        *("09", 'batch_tokens, side="right")), 1)', 'batch_tokens, side="right")) + 1, 1)'),
    ),
    "gradients divided by the tokens of their slice": (
        *(
            "09",
            "rows.source, rows.target_in, rows.target_out, n_tokens",
            "rows.source, rows.target_in, rows.target_out",
        ),
    ),
    "an average that forgets all but the last checkpoint": (
        *("09", "sums[name] += array", "sums[name] = array.astype(np.float64)"),
    ),
    "hyphens that stay where they are": ("09", r"##AT##-##AT## \2", r"##AT##-##AT##\2"),
}


def test_the_mistakes_follow_the_code():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "minitf").rglob("*.py")]
    found = {
        name: sum(text.count(right) for text in texts) for name, (_, right, _) in MUTANTS.items()
    }
    assert {name: count for name, count in found.items() if count != 1} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=getattr(pytest.mark, f"lesson{mutant[0]}"))
        for name, mutant in MUTANTS.items()
    ],
)
def test_a_broken_library_is_noticed(name, tmp_path):
    number, right, wrong = MUTANTS[name]
    package = tmp_path / "mutant"
    shutil.copytree(
        ROOT / "minitf", package / "minitf", ignore=shutil.ignore_patterns("__pycache__")
    )
    sources = {
        path: path.read_text(encoding="utf-8") for path in (package / "minitf").rglob("*.py")
    }
    for path, text in sources.items():
        path.write_text(text.replace(right, wrong), encoding="utf-8")
    lesson = next(path for path in LESSONS if path.stem.startswith(number))
    done = run(lesson, tmp_path, package=package)
    assert done.returncode == 1, f"lesson {number} did not notice {name}"
    assert "AssertionError" in done.stderr.splitlines()[-1], done.stderr
