"""BLEU: equal to the formula counted by hand, and to sacreBLEU on real outputs; bad input is refused."""

import json
import math
import os
from collections import Counter
from pathlib import Path

import pytest

from minitf.backend import UserError
from minitf.evaluate import bleu

REFERENCES = [
    "The dog sees the small cat .",
    "I do not know where she lives .",
    "The children play in the garden .",
]
HYPOTHESES = [
    "The dog sees a small cat .",
    "I do not know where she is .",
    "Children play in the big garden .",
]


def bleu_by_hand(hypotheses, references):
    """The formula, over text that has blanks between its tokens; no smoothing."""
    lengths = [sum(len(line.split()) for line in lines) for lines in (hypotheses, references)]
    precisions = []
    for n in (1, 2, 3, 4):
        found = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            left, right = (
                Counter(zip(*(line.split()[i:] for i in range(n)), strict=False)) for line in (hypothesis, reference)
            )
            found += (left & right).total()
            total += left.total()
        precisions.append(100 * found / total)
    penalty = min(1, math.exp(1 - lengths[1] / lengths[0]))
    return penalty * math.prod(precisions) ** 0.25, precisions, penalty, *lengths


@pytest.mark.parametrize("tokenize", ["none", "13a"])
@pytest.mark.parametrize("words_cut_off", [0, 3])
def test_bleu_is_the_formula(tokenize, words_cut_off):
    hypotheses = [
        *HYPOTHESES[:2],
        HYPOTHESES[2].rsplit(maxsplit=words_cut_off)[0] if words_cut_off else HYPOTHESES[2],
    ]
    score, precisions, penalty, hypothesis_length, reference_length = bleu_by_hand(hypotheses, REFERENCES)
    result = bleu(hypotheses, REFERENCES, tokenize=tokenize)
    assert result.score == pytest.approx(score, rel=1e-12) and 40 < score < 70
    assert result.precisions == pytest.approx(precisions, rel=1e-12)
    assert result.brevity_penalty == pytest.approx(penalty, rel=1e-12)
    assert (penalty < 1) == bool(words_cut_off)
    assert (result.hypothesis_length, result.reference_length) == (hypothesis_length, reference_length)


def test_the_ends_of_the_scale():
    assert bleu(REFERENCES, REFERENCES).score == pytest.approx(100)
    assert bleu(["", "", ""], REFERENCES).score == 0
    assert bleu(["x", "y", "z"], REFERENCES).score == 0


def test_13a_cuts_punctuation_off_and_none_does_not():
    raw = [line.replace(" .", ".") for line in REFERENCES]
    assert bleu(raw, REFERENCES).score == pytest.approx(100)
    assert bleu(raw, REFERENCES, tokenize="none").score < 90


def test_case_counts_unless_told():
    lower = [line.lower() for line in REFERENCES]
    assert bleu(lower, REFERENCES).score < 99
    result = bleu(lower, REFERENCES, lowercase=True)
    assert result.score == pytest.approx(100)
    assert "case:lc" in result.signature


def test_signature_and_text_say_how():
    result = bleu(HYPOTHESES, REFERENCES)
    assert result.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert result.text.startswith(f"BLEU|{result.signature} = {result.score:.2f} ")
    assert "hyp_len" in result.text and "\n" not in result.text
    assert "tok:none" in bleu(HYPOTHESES, REFERENCES, tokenize="none").signature


def test_iterators_will_do():
    assert bleu(iter(HYPOTHESES), (line for line in REFERENCES)) == bleu(HYPOTHESES, REFERENCES)


def test_nothing_is_printed(capfd):
    bleu(["It is so ."] * 200, ["It is so ."] * 200)  # sacreBLEU would warn of tokenized text
    assert capfd.readouterr() == ("", "")


def test_bad_input_is_refused():
    with pytest.raises(UserError, match="3 translations but 2 references"):
        bleu(HYPOTHESES, REFERENCES[:2])
    with pytest.raises(UserError, match="nothing to score"):
        bleu([], [])
    with pytest.raises(UserError, match=r"'moses'.*13a"):
        bleu(HYPOTHESES, REFERENCES, tokenize="moses")
    with pytest.raises(TypeError):
        bleu("The dog", "The dog")


def lines_of(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


@pytest.mark.skipif("MINITF_DATA" not in os.environ, reason="set MINITF_DATA to score real outputs")
@pytest.mark.parametrize(
    "system",
    [
        "bpe2bpe",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("sennrich2016", "bpe2char", "char2char")),
    ],
)
def test_real_outputs_score_as_sacrebleu_says(system):
    data = Path(os.environ["MINITF_DATA"])
    expected = json.loads((data / "bleu-check" / "expected.json").read_bytes())[system]
    hypotheses = lines_of(data / "bleu-check" / f"{system}.newstest2014.detok.de")
    references = lines_of(data / "newstest2014" / "en-de" / "test.de")
    result = bleu(hypotheses, references)
    assert result.score == pytest.approx(expected["bleu"], abs=1e-4)
    assert result.precisions == pytest.approx(expected["precisions"], abs=1e-4)
    assert result.brevity_penalty == pytest.approx(expected["bp"], abs=1e-4)
    assert (result.hypothesis_length, result.reference_length) == (expected["sys_len"], expected["ref_len"])
    assert result.signature.rpartition("|")[0] == expected["signature"].rpartition("|")[0]
    if system == "sennrich2016":
        assert bleu(hypotheses, references, lowercase=True).score == pytest.approx(expected["bleu_lc"], abs=1e-4)
