#!/usr/bin/env bash
# The text of a quoted paragraph contains the quote marks of its later lines.
#
# One would guess: the node `inline` of a paragraph is its text, so its bytes can go to the second parser, the
#   one for emphasis and links, as the two-grammar design of tree-sitter-markdown suggests.
# What is true (tree-sitter-markdown 0.5.4): `inline` is one range of the file. In a quote or a list it also spans
#   the "> " and the indentation of every later line, which are its children `block_continuation`. And in a closed
#   heading (`# Title #`) the closing signs belong to `inline`, too.
# Why it matters: a search, a word count or a translation finds ">" inside sentences, and emphasis over two lines
#   is cut. Cut the children `block_continuation` out, or give the second parser the rest as `included_ranges`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tree-sitter==0.26.0 tree-sitter-markdown==0.5.4
"$folder/venv/bin/python" - <<'PY'
import tree_sitter
import tree_sitter_markdown

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_markdown.language()))


def inlines(node):
    found = [node] if node.type == "inline" else []
    return found + [one for child in node.children for one in inlines(child)]


for text, expected, continuations in [
    (b"> The house\n> is old.\n", b"The house\n> is old.", [b"> "]),
    (b"- The house\n  is old.\n", b"The house\n  is old.", [b"  "]),
    (b"# Title #\n", b"Title #", []),
]:
    (node,) = inlines(parser.parse(text).root_node)
    between = [child.text for child in node.children if child.type == "block_continuation"]
    print(text, "->", node.text, between)
    assert (node.text, between) == (expected, continuations), "this has changed"
PY
