"""The campaigns of campaigns.py in short; in full they take minutes, and are run by hand."""

from pathlib import Path

import campaigns
import damage
import pytest
from runs import prepare_folder


@pytest.mark.parametrize("name", ["subwords", "words", "run"])
@pytest.mark.slow
def test_damaged_files_are_refused_or_used(tmp_path, monkeypatch, name):
    prepare_folder(tmp_path, monkeypatch)
    result = damage.campaign(range(10), (name,))
    assert not result["failed"]
    assert result["refused"] + result["used"] == 10 and result["refused"] > 2


@pytest.mark.parametrize("position", [1021, 3350])
def test_subwords_that_were_neither_refused_nor_used(tmp_path, monkeypatch, position):
    """SentencePiece complains in bytes that are not UTF-8."""
    monkeypatch.chdir(tmp_path)
    damage.make(["subwords"])
    path = Path("subwords/subwords.model")
    content = bytearray(path.read_bytes())
    content[position] ^= 128
    path.write_bytes(content)
    damage.hash_again(path.parent, path.name)
    assert damage.measured(path.parent)[0] == "refused"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, count, words",
    [
        ("resume", 1, "bit-identical"),
        ("kills", 4, "none lost"),
        ("stops", 2, "saved, exit code 0, went on"),
        ("models", 200, "no pickle, no crash"),
        ("public", 200, "no crash, at most twice"),
        ("lines", 300, "300 out, in order"),
        ("trees", 300, "300 trees out, each over its words"),
    ],
)
def test_a_campaign_in_short(name, count, words):
    assert words in campaigns.run(
        name, seed=1, count=count, **({"steps": 6} if name == "resume" else {})
    )
