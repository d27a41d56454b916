"""BLEU counted by hand, sacreBLEU and paper-style BLEU on real outputs, and bad input."""

import importlib.util
import json
import math
import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from models import small_model

from minitf.commands.output import render
from minitf.data.corpora import Pairs
from minitf.errors import UserError
from minitf.text import BOS, EOS, Words
from minitf.training import commandline
from minitf.training.evaluation import (
    Validator,
    bleu,
    paper_bleu,
    perplexity,
    score_files,
    tokenizer_of,
)
from minitf.training.signals import StopRequest
from minitf.translation.reading import Translation

needs_moses = pytest.mark.skipif(
    importlib.util.find_spec("sacremoses") is None,
    reason="pip install -e '.[dev]' brings sacremoses",
)

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
    """The formula, for text with spaces between its tokens; no smoothing."""
    lengths = [sum(len(line.split()) for line in lines) for lines in (hypotheses, references)]
    precisions = []
    for n in (1, 2, 3, 4):
        found = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            left, right = (
                Counter(zip(*(line.split()[i:] for i in range(n)), strict=False))
                for line in (hypothesis, reference)
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
    score, precisions, penalty, hypothesis_length, reference_length = bleu_by_hand(
        hypotheses, REFERENCES
    )
    result = bleu(hypotheses, REFERENCES, tokenize=tokenize)
    assert result.score == pytest.approx(score, rel=1e-12) and 40 < score < 70
    assert result.precisions == pytest.approx(precisions, rel=1e-12)
    assert result.brevity_penalty == pytest.approx(penalty, rel=1e-12)
    assert (penalty < 1) == bool(words_cut_off)
    assert (result.hypothesis_length, result.reference_length) == (
        hypothesis_length,
        reference_length,
    )


def test_13a_cuts_punctuation_off_and_none_does_not():
    raw = [line.replace(" .", ".") for line in REFERENCES]
    assert bleu(raw, REFERENCES).score == pytest.approx(100)
    assert bleu(raw, REFERENCES, tokenize="none").score < 90


def test_nothing_is_printed(capfd):
    bleu(["It is so ."] * 200, ["It is so ."] * 200)  # sacreBLEU would warn of tokenised text
    assert capfd.readouterr() == ("", "")


def test_bad_input_is_refused():
    with pytest.raises(UserError, match="3 translations but 2 references"):
        bleu(HYPOTHESES, REFERENCES[:2])
    with pytest.raises(UserError, match="nothing to score"):
        bleu([], [])
    with pytest.raises(UserError, match=r"'moses'.*13a"):
        bleu(HYPOTHESES, REFERENCES, tokenize="moses")


# The paper's way ----------------------------------------------------------------------------------

OURS = [
    "Die E-Mail-Adresse der U-Bahn-Station steht im Netz.",
    "„Ja“, sagt sie, „das Drei-Liter-Auto fährt.“",
]
GOOD = [
    "Die E-Mail-Adresse des U-Bahn-Hofs steht im Netz.",
    "„Nein“, sagt sie, „das Zwei-Liter-Auto fährt nicht.“",
]


@needs_moses
def test_paper_bleu_is_bleu_of_moses_tokens_with_split_compounds():
    cut = [
        (
            "Die E ##AT##-##AT## Mail ##AT##-##AT## Adresse {} U ##AT##-##AT## Bahn ##AT##-##AT## "
            "{} steht im Netz ."
        ),
        "„ {} “ , sagt sie , „ das {} ##AT##-##AT## Liter ##AT##-##AT## Auto fährt {}. “",
    ]
    ours = [cut[0].format("der", "Station"), cut[1].format("Ja", "Drei", "")]
    good = [cut[0].format("des", "Hofs"), cut[1].format("Nein", "Zwei", "nicht ")]
    result = paper_bleu(OURS, GOOD)
    assert result.score == pytest.approx(bleu_by_hand(ours, good)[0], rel=1e-12)
    assert result.score > bleu(OURS, GOOD).score + 5
    assert "tok:moses-de|compounds:split|smooth:none|sacremoses:" in result.signature
    # The score must not be called BLEU.
    assert result.text.startswith(f"paper-style BLEU|{result.signature} = {result.score:.2f} ")


@needs_moses
def test_paper_bleu_smooths_nothing_and_splits_no_french_compounds():
    ours, good = ["Das ist ein Haus."], ["Das war ein Haus am See."]
    # They have no trigram in common.
    assert paper_bleu(ours, good).score == 0 < bleu(ours, good).score
    french = paper_bleu(["Est-ce un porte-avions ?"], ["Est-ce un porte-avions ?"], "fr")
    assert french.hypothesis_length == 4 and "moses-fr|compounds:whole" in french.signature


def test_paper_bleu_refuses_other_languages(monkeypatch):
    with pytest.raises(
        UserError, match=r"German and French only, .* does not end in \.de or \.fr; if"
    ):
        paper_bleu(OURS, GOOD, "en")
    with pytest.raises(UserError, match="2 translations but 1 reference:"):
        paper_bleu(OURS, GOOD[:1])
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UserError, match="pip install sacremoses"):
        paper_bleu(OURS, GOOD)


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@needs_moses
def test_two_files_are_scored_both_ways(tmp_path, capsys):
    files = [
        str(write(tmp_path / name, lines)) for name, lines in (("out", OURS), ("test.de", GOOD))
    ]
    assert commandline.main(["--score", *files]) == 0
    assert capsys.readouterr().out.splitlines() == [
        bleu(OURS, GOOD).text,
        paper_bleu(OURS, GOOD).text,
    ]


def test_tokenised_text_is_noticed(tmp_path):
    plain = [line.replace(" .", ".") for line in REFERENCES]
    files = write(tmp_path / "out", REFERENCES), write(tmp_path / "test.txt", plain)
    assert score_files(*files).splitlines()[2:] == [
        (
            f"notice: {files[0]} looks tokenised, but both scores are defined for plain text: "
            "detokenise it first"
        )
    ]
    one_of_three = write(tmp_path / "one", [*plain[:2], REFERENCES[2]])
    assert len(score_files(one_of_three, files[1]).splitlines()) == 2, "one line may well end so"


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [("test.zh", "zh"), ("test.ja", "char"), ("test.km", "char"), ("test.de", "13a")],
)
def test_the_language_of_the_references_decides_how_text_is_cut(
    tmp_path, monkeypatch, name, tokenizer
):
    """Where no spaces are between words, a sentence would be one token, and BLEU always 0."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no MeCab
    ours, good = ["我喜欢在公园里看书。"], ["我喜欢在公园里读书。"]
    files = write(tmp_path / "out", ours), write(tmp_path / name, good)
    said = score_files(*files).splitlines()[0]
    assert f"|tok:{tokenizer}|" in said and said == bleu(ours, good, tokenize=tokenizer).text
    assert (bleu(ours, good, tokenize=tokenizer).score > 40) == (tokenizer != "13a")
    corpus = SimpleNamespace(target_language=name[-2:], tokenised=False)
    dataset = SimpleNamespace(corpus=corpus, references=list)
    assert Validator(dataset, None, StopRequest()).score(ours, good).text == said


def test_japanese_is_cut_by_mecab_where_it_is_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert tokenizer_of("ja") == "ja-mecab"


@pytest.mark.parametrize("options", [{"format": "json"}, {"format": "text", "nbest": 2}])
def test_only_plain_translations_are_scored(tmp_path, options):
    """The lines are those that translate.py writes."""
    each = Translation("Das ist gut.", -5.0, -1.0)
    lines = render(["That is good."], 1, [[each, each]], SimpleNamespace(**options))
    (tmp_path / "out").write_text(lines, encoding="utf-8")
    with pytest.raises(UserError, match="out has lines of --format json or --nbest: translate wit"):
        score_files(tmp_path / "out", write(tmp_path / "test.de", ["Das ist gut."]))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--score", "out", "missing.de"], "missing.de cannot be read"),
        (["--score", "out"], "--score: expected 2 arguments"),
        (["--score", "out", "test.de", "--out", "runs"], "leave the other options out"),
    ],
)
def test_bad_files_are_reported_in_one_line(arguments, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(Path("out"), OURS)
    assert commandline.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and reason in err


@needs_moses
@pytest.mark.parametrize("corpus", ["wmt14-en-de", "tatoeba-en-de"])
def test_a_run_on_a_corpus_of_the_paper_has_its_paper_bleu_too(corpus, tmp_path):
    said = []
    corpus_read = SimpleNamespace(name=corpus, target_language="de", tokenised=False)
    dataset = SimpleNamespace(corpus=corpus_read, references=list)
    settings = SimpleNamespace(beam=4, alpha=0.6, max_extra=50)
    trainer = SimpleNamespace(
        settings=settings,
        dataset=dataset,
        log=SimpleNamespace(say=said.append),
        folder=SimpleNamespace(path=tmp_path),
        validator=Validator(dataset, settings, StopRequest()),
    )
    translator = SimpleNamespace(
        translate=lambda source, *_, **__: [[SimpleNamespace(text=line)] for line in OURS]
    )
    found = commandline._test(trainer, translator, "newstest2014", Pairs(["", ""], GOOD))
    assert (
        said[1] == f"newstest2014: {bleu(OURS, GOOD).text}"
        and found["bleu"] == bleu(OURS, GOOD).score
    )
    assert (tmp_path / "newstest2014.out").read_text().splitlines() == OURS
    if corpus == "wmt14-en-de":
        assert found["paper_style"]["bleu"] == paper_bleu(OURS, GOOD).score
        assert said[2] == f"newstest2014: {paper_bleu(OURS, GOOD).text}"
    else:
        assert "paper_style" not in found and len(said) == 2


# Perplexity ---------------------------------------------------------------------------------------


def perplexity_by_hand(model, subwords, pairs):
    """Each sentence alone, with its end mark, from the model's logits; no smoothing or dropout."""
    total = n = 0
    for source, target in zip(
        subwords.encode(pairs.source), subwords.encode(pairs.target), strict=True
    ):
        z = model.eval()(np.array([[*source, EOS]]), np.array([[BOS, *target]])).numpy()[0]
        ln_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
        found = ln_p[np.arange(len(z)), [*target, EOS]]
        found = found[found > -np.inf]
        total, n = total - found.sum(), n + len(found)
    return math.exp(total / n)


PAIRS = Pairs(["a b c d", "c", "", "b a"], ["d c", "a b c d b a", "d", ""])


@pytest.mark.parametrize("batch_tokens", [1, 7, 12, 4096])
def test_perplexity_does_not_depend_on_the_batches(batch_tokens):
    words = Words.train(["a b c d"])
    model = small_model(vocabulary_size=len(words), dropout=0.5, label_smoothing=0.3)
    expected = perplexity_by_hand(model, words, PAIRS)
    model.train().encoder.eval()
    before = [module.training for module in model.modules()]
    assert perplexity(model, words, PAIRS, batch_tokens) == pytest.approx(expected, rel=1e-10)
    assert [module.training for module in model.modules()] == before


def test_perplexity_leaves_out_tokens_that_the_model_cannot_write():
    words = Words.train(["a b c d"])
    never = words.encode(["a"])[0]
    model = small_model(vocabulary_size=len(words), suppressed_ids=never)
    assert len(never) == 1
    expected = perplexity_by_hand(model, words, PAIRS)
    assert perplexity(model, words, PAIRS) == pytest.approx(expected, rel=1e-10)


def lines_of(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


needs_data = pytest.mark.skipif(
    "MINITF_DATA" not in os.environ, reason="set MINITF_DATA to score real outputs"
)
slow_ones = (
    pytest.param(name, marks=pytest.mark.slow) for name in ("sennrich2016", "bpe2char", "char2char")
)
systems = pytest.mark.parametrize("system", ["bpe2bpe", *slow_ones])


@pytest.mark.slow
@needs_data
@systems
def test_real_outputs_score_as_sacrebleu_says(system):
    data = Path(os.environ["MINITF_DATA"])
    expected = json.loads((data / "bleu-check" / "expected.json").read_bytes())[system]
    hypotheses = lines_of(data / "bleu-check" / f"{system}.newstest2014.detok.de")
    references = lines_of(data / "newstest2014" / "en-de" / "test.de")
    result = bleu(hypotheses, references)
    assert result.score == pytest.approx(expected["bleu"], abs=1e-4)
    assert result.precisions == pytest.approx(expected["precisions"], abs=1e-4)
    assert result.brevity_penalty == pytest.approx(expected["bp"], abs=1e-4)
    assert (result.hypothesis_length, result.reference_length) == (
        expected["sys_len"],
        expected["ref_len"],
    )
    assert result.signature.rpartition("|")[0] == expected["signature"].rpartition("|")[0]
    if system == "sennrich2016":
        assert bleu(hypotheses, references, lowercase=True).score == pytest.approx(
            expected["bleu_lc"], abs=1e-4
        )


@pytest.mark.slow
@needs_moses
@needs_data
@systems
def test_real_outputs_have_the_published_paper_bleu(system):
    """The reference length, 64,496, is the one that fairseq prints for newstest2014."""
    data = Path(os.environ["MINITF_DATA"])
    expected = json.loads((data / "bleu-check" / "expected.json").read_bytes())[system][
        "paper_style"
    ]
    hypotheses = lines_of(data / "bleu-check" / f"{system}.newstest2014.detok.de")
    result = paper_bleu(hypotheses, lines_of(data / "newstest2014" / "en-de" / "test.de"))
    assert result.score == pytest.approx(expected["bleu"], abs=6e-5)
    assert (result.hypothesis_length, result.reference_length) == (expected["sys_len"], 64496)
