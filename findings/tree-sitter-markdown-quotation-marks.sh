#!/usr/bin/env bash
# Bold text beside typographic quotation marks is not CommonMark's.
#
# One would guess: whether `**` opens or closes bold text is decided by CommonMark's rule of flanking, where any
#   punctuation of Unicode counts, so all parsers agree on `**„Zitat“**und`.
# What is true: tree-sitter-markdown 0.5.4 counts ASCII punctuation alone. It sees bold text where CommonMark (here
#   markdown-it-py 4.0.0) sees two literal asterisks, in German, French and any text with “ ” or « ».
# Why it matters: an editor that highlights and a page that is rendered disagree, and a program that edits by the
#   first parser moves or removes asterisks that the reader of the page sees as text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tree-sitter==0.26.0 tree-sitter-markdown==0.5.4 markdown-it-py==4.0.0
"$folder/venv/bin/python" - <<'PY'
import markdown_it
import tree_sitter
import tree_sitter_markdown

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_markdown.inline_language()))
for text, here, by_commonmark in [
    ("**„Zitat“**und mehr", True, False),
    ("**«mot»**s", True, False),
    ('**"quote"**and more', False, False),
    ("**Zitat** und mehr", True, True),
]:
    nodes = parser.parse(text.encode()).root_node.named_children
    bold = any(node.type == "strong_emphasis" for node in nodes)
    rendered = "<strong>" in markdown_it.MarkdownIt("commonmark").render(text)
    print(f"{text}: tree-sitter {bold}, CommonMark {rendered}")
    assert (bold, rendered) == (here, by_commonmark), "this has changed"
PY
