#!/usr/bin/env bash
# Two prices in a line of Markdown are one formula.
#
# One would guess: a parser for Markdown leaves "It costs $5 here and $6 there." plain text, as CommonMark and
#   GitHub do.
# What is true: the inline grammar of tree-sitter-markdown 0.5.4 reads a dollar sign to the next one as a
#   `latex_block`, with no rule about spaces or digits beside the signs; the wheel is built with that extension.
# Why it matters: a program that translates or indexes text and leaves formulas alone loses "5 here and " in
#   silence. Test the text of a `latex_block`: Pandoc's rule (no space inside the signs, no digit after the last) is one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tree-sitter==0.26.0 tree-sitter-markdown==0.5.4
"$folder/venv/bin/python" - <<'PY'
import tree_sitter
import tree_sitter_markdown

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_markdown.inline_language()))
for text, expected in [
    (b"It costs $5 here and $6 there.", [("latex_block", b"$5 here and $")]),
    (b"Pay $5 or $10.", [("latex_block", b"$5 or $")]),
    (b"The energy $E$ is large.", [("latex_block", b"$E$")]),
    (b"It costs $5.", []),
]:
    children = parser.parse(text).root_node.named_children
    found = [(node.type, node.text) for node in children]
    print(text.decode(), "->", found)
    assert found == expected, "this has changed"
PY
