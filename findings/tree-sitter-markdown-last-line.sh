#!/usr/bin/env bash
# The last line of a Markdown file means something else without its line end.
#
# One would guess: whether the last line ends in a line feed makes no difference to a parser, as in CommonMark, where
#   the end of the file ends a line.
# What is true: without it, tree-sitter-markdown 0.5.4 knows no underline of a heading, no rule (`***`) and no end of
#   front matter: they are words of a paragraph. A file of one heading (`# Title`) is an ERROR; a heading after other
#   blocks, a list, a table and a fence come out right.
# Why it matters: strings in a program, messages of a chat and cells of a notebook rarely end in a line feed, and
#   editors, which add one, hide it. Give the parser one line feed more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tree-sitter==0.26.0 tree-sitter-markdown==0.5.4 markdown-it-py==4.0.0
"$folder/venv/bin/python" - <<'PY'
import markdown_it
import tree_sitter
import tree_sitter_markdown

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_markdown.language()))


def types(text):
    root = parser.parse(text.encode()).root_node
    sections = [node for node in root.named_children if node.type == "section"]
    blocks = [node for section in sections for node in section.named_children]
    return [node.type for node in [root, *blocks] if node.type != "document"]


for text, without, commonmark in [
    ("Title\n=====", ["paragraph"], "<h1>"),
    ("Text.\n\n***", ["paragraph", "paragraph"], "<hr />"),
    ("# Title", ["ERROR"], "<h1>"),
    ("Text.\n\n# Title", ["paragraph", "atx_heading"], "<h1>"),
]:
    print(repr(text), types(text), "with a line feed:", types(text + "\n"))
    assert types(text) == without, "this has changed"
    assert commonmark in markdown_it.MarkdownIt("commonmark").render(text)
(front,) = parser.parse(b"---\ntitle: x\n---\n").root_node.named_children
assert front.type == "minus_metadata"
assert types("---\ntitle: x\n---") == ["thematic_break", "paragraph"], "this has changed"
PY
