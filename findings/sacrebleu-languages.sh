#!/usr/bin/env bash
# sacreBLEU picks a tokeniser for "zh", and none for "zh-CN" or Thai.
#
# One would guess: with `trg_lang` set, sacreBLEU cuts a language without spaces in a fitting way, or says that it
#   cannot.
# What is true: sacreBLEU 2.5.1 knows exactly zh, ja and ko. For zh-CN, zho, th, km, lo and my it takes 13a without a word, which
#   cuts at spaces, so a sentence is one word and an almost right translation has 0. ja and ko raise a RuntimeError that names
#   the extra to install.
# Why it matters: the score of a Thai or "zh-CN" system is 0.0 whatever it writes, and early stopping by it keeps any
#   model. Pass the tokeniser yourself (`zh`, `char`, a spm of flores), and read it in the signature.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q sacrebleu==2.5.1
"$folder/venv/bin/python" - <<'PY'
from sacrebleu.metrics import BLEU

texts = {
    "zh": ("我们明天去北京看朋友。", "我们明天要去北京看朋友。"),
    "th": ("พรุ่งนี้เราจะไปเยี่ยมเพื่อน", "พรุ่งนี้เราจะไปเยี่ยมเพื่อนๆ"),
}
for language, text, tokenizer, at_least in [
    ("zh", "zh", "zh", 70),
    ("zh-CN", "zh", "13a", 0),
    ("zho", "zh", "13a", 0),
    ("th", "th", "13a", 0),
]:
    bleu = BLEU(trg_lang=language)
    hypothesis, reference = texts[text]
    score = bleu.corpus_score([hypothesis], [[reference]]).score
    print(f"{language}: {score:.1f}, {bleu.get_signature()}")
    assert f"tok:{tokenizer}" in str(bleu.get_signature()), "the choice has changed"
    assert score > at_least if at_least else score == 0, "the score has changed"
assert BLEU(tokenize="char").corpus_score([texts["th"][0]], [[texts["th"][1]]]).score > 80
PY
