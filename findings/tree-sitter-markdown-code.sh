#!/usr/bin/env bash
# Code that contains two backticks ends at them.
#
# One would guess: code ends at a run of backticks as long as the one that opened it, as CommonMark says; longer and
#   shorter runs inside are code.
# What is true: tree-sitter-markdown 0.5.4 passes over shorter runs only. A longer run closes the code, so in
#   `` `x``y` and **bold** and `z` `` text and code change places up to the next odd backtick; in CommonMark (here
#   markdown-it-py 4.0.0) x``y and z are code.
# Why it matters: pages about Markdown, TeX (``quoted'') or reStructuredText have such code. A highlighter colours the
#   prose, and a program that translates text and keeps code does the opposite of both.
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
for text, expected, by_commonmark in [
    ("`x``y` and **bold** and `z`", ["`x``", "` and **bold** and `"], ["x``y", "z"]),
    ("Type ` ``` ` first.", ["` ```"], ["```"]),
    ("Type `` ` `` first.", ["`` ` ``"], ["`"]),
]:
    nodes = parser.parse(text.encode()).root_node.named_children
    found = [node.text.decode() for node in nodes]
    assert all(node.type == "code_span" for node in nodes), "other nodes are found now"
    (block,) = markdown_it.MarkdownIt("commonmark").parseInline(text)
    rendered = [token.content for token in block.children if token.type == "code_inline"]
    print(f"{text}: tree-sitter {found}, CommonMark {rendered}")
    assert (found, rendered) == (expected, by_commonmark), "this has changed"
PY
