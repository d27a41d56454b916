#!/usr/bin/env bash
# BLEU does not see an escaped quotation mark.
#
# One would guess: a system that writes `&quot;no&quot;` where the reference has `"no"` loses points, so a fault
#   in undoing a tokeniser's escapes shows in the score.
# What is true: 13a, the default tokeniser of sacreBLEU 2.5.1, undoes &quot; &amp; &lt; &gt; itself, as NIST's script did: the
#   score is 100. It does not undo &apos; and &#39;. The tokeniser "intl" undoes none.
# Why it matters: translations with entities in them, which no reader would accept, have perfect scores. Look
#   for "&" in the output before you trust the score.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q sacrebleu==2.5.1
"$folder/venv/bin/python" - <<'PY'
from sacrebleu.metrics import BLEU

reference = 'He said "no" and left R&D at five o\'clock.'
escaped = "He said &quot;no&quot; and left R&amp;D at five o'clock."
apostrophe = reference.replace("'", "&apos;")
scores = {}
for tokenizer in ("13a", "intl"):
    bleu = BLEU(tokenize=tokenizer)
    scores[tokenizer] = [
        round(bleu.corpus_score([text], [[reference]]).score) for text in (escaped, apostrophe)
    ]
    print(tokenizer, "with &quot; and &amp;:", scores[tokenizer][0], "with &apos;:", scores[tokenizer][1])
assert scores["13a"][0] == 100 and scores["13a"][1] < 90, "13a has changed"
assert scores["intl"][0] < 60, "intl has changed"
PY
