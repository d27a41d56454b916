"""The campaigns of campaigns.py in short; in full they take minutes, and are run by hand."""

import campaigns
import pytest
from damage import campaign
from runs import prepare_folder


@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 20), marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("names", [("subwords",), ("words",), ("run",)], ids=str)
def test_damaged_files_are_refused_or_used(tmp_path, monkeypatch, names, seeds):
    prepare_folder(tmp_path, monkeypatch)
    result = campaign(seeds, names)
    assert not result["failed"]
    assert result["refused"] + result["used"] == 10 and result["refused"] > 2


def test_files_that_were_neither_refused_nor_used(tmp_path, monkeypatch):
    """Two billion pairs to be made; a run without its text; complaints of SentencePiece
    that are no text.
    """
    prepare_folder(tmp_path, monkeypatch)
    result = campaign([2533, 2642, 4116, 4233])
    assert not result["failed"] and result["refused"] + result["used"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, count, words",
    [
        ("resume", 1, "bit-identical"),
        ("kills", 4, "none lost"),
        ("stops", 2, "saved, exit code 0, went on"),
        ("models", 200, "no pickle, no crash"),
        ("lines", 300, "300 out, in order"),
        ("mistakes", 8, "8 bad inputs"),
    ],
)
def test_a_campaign_in_short(name, count, words):
    assert words in campaigns.run(
        name, seed=1, count=count, **({"steps": 6} if name == "resume" else {})
    )
