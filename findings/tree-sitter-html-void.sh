#!/usr/bin/env bash
# In tree-sitter's HTML the words after a <br> are inside it.
#
# One would guess: <br> and <img> are void elements, which have no content in HTML, so the text after them is their
#   sibling.
# What is true: in the tree of tree-sitter-html 0.23.2 a <br> contains the text and comments that follow it, up to
#   the next tag, and its range ends there.
# Why it matters: "skip this element" skips the sentence after it, "the text of this paragraph" read from its
#   own children stops at the first line break, and cutting out an <img> by its range deletes words.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tree-sitter==0.26.0 tree-sitter-html==0.23.2
"$folder/venv/bin/python" - <<'PY'
import tree_sitter
import tree_sitter_html

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_html.language()))
page = b'<p>one<br>two <b>three</b> <img src="x.png" alt="x"> four</p>'
paragraph = parser.parse(page).root_node.named_children[0]
found = [(node.type, node.text) for node in paragraph.named_children[1:-1]]
for row in found:
    print(row)
assert found == [
    ("text", b"one"),
    ("element", b"<br>two "),
    ("element", b"<b>three</b>"),
    ("element", b'<img src="x.png" alt="x"> four'),
], "this has changed"
PY
