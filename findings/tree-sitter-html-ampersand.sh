#!/usr/bin/env bash
# "Tom & Jerry" is an error in HTML's grammar, and the text is no text.
#
# One would guess: a lone ampersand, which HTML5 allows where no name of a character follows, is text to a parser
#   of HTML, and a tree without an error covers every word.
# What is true: tree-sitter-html 0.23.2 makes `& Jerry` an ERROR node, beside the `text` node "Tom"; "AT&T" is a text,
#   an `entity` "&T" that is none, and a text.
# Why it matters: whoever collects `text` nodes, to translate or to index a page, drops the words after the sign,
#   on pages that every browser shows. Take the ranges between tags, not the text nodes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tree-sitter==0.26.0 tree-sitter-html==0.23.2
"$folder/venv/bin/python" - <<'PY'
import tree_sitter
import tree_sitter_html

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_html.language()))
for page, expected in [
    (b"<p>Tom & Jerry</p>", [("text", b"Tom"), ("ERROR", b"& Jerry")]),
    (b"<p>AT&T is here</p>", [("text", b"AT"), ("entity", b"&T"), ("text", b"is here")]),
    (b"<p>Tom &amp; Jerry</p>", [("text", b"Tom"), ("entity", b"&amp;"), ("text", b"Jerry")]),
]:
    paragraph = parser.parse(page).root_node.named_children[0]
    found = [(node.type, node.text) for node in paragraph.named_children[1:-1]]
    print(page.decode(), "->", found)
    assert found == expected, "this has changed"
PY
