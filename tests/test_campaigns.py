"""The campaigns of campaigns.py in short; in full they take minutes, and are run by hand."""

import campaigns
import pytest
from damage import campaign
from runs import prepare_folder


@pytest.mark.parametrize("names", [("subwords",), ("words",), ("run",)], ids=str)
def test_damaged_files_are_refused_or_used(tmp_path, monkeypatch, names):
    prepare_folder(tmp_path, monkeypatch)
    result = campaign(seed=0, count=20, names=names)
    assert not result["failed"]
    assert result["refused"] + result["used"] == 20 and result["refused"] > 5


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
    assert words in campaigns.run(name, seed=1, count=count, **({"steps": 6} if name == "resume" else {}))
