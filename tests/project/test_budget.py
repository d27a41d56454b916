"""The budget: no part of the project grows without a user who needs it."""

import pytest
from paths import ROOT

# The most lines of Python, docstrings and comments included, in the files that a pattern finds.
# Anyone may lower a row; a commit that raises one names the user who needs it.
BUDGET = {
    "minitf/*.py": 5_080,
    "minitf/beyond/*.py": 443,
    "minitf/commands/*.py": 1_080,
    "minitf/course/**/*.py": 6_494,
    "minitf/common/*.py": 476,
    "minitf/cpu/*.py": 1_078,
    "minitf/data/**/*.py": 2_095,
    "minitf/documents/*.py": 983,
    "minitf/files/*.py": 491,
    "minitf/gpu/*.py": 2_110,
    "minitf/page/*.py": 425,
    "minitf/parsing/*.py": 720,
    "minitf/public/*.py": 1_838,
    "minitf/text/*.py": 1_495,
    "minitf/training/*.py": 2_715,
    "minitf/translation/*.py": 1_645,
    "examples/**/*.py": 4_480,
    "lessons/*.py": 14_645,
    "tests/**/*.py": 37_570,
}


@pytest.mark.parametrize("pattern", BUDGET)
def test_a_part_keeps_within_its_budget(pattern):
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in ROOT.glob(pattern))
    assert lines <= BUDGET[pattern], f"{pattern}: {lines:,} lines; take something away first"


def test_every_folder_has_its_row():
    folders = {path.parent.name for path in (ROOT / "minitf").glob("*/__init__.py")}
    assert folders == {pattern.split("/")[1] for pattern in BUDGET if "minitf/" in pattern} - {
        "*.py"
    }
