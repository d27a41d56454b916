#!/usr/bin/env bash
# A link whose text has brackets is no link, and its address is text.
#
# One would guess: `[[1]](#notes)` and `[the guide [PDF]](guide.pdf)` are links to tree-sitter-markdown, since
#   CommonMark allows brackets in pairs in the text of a link.
# What is true: any `[...]` is a `shortcut_link` to tree-sitter-markdown 0.5.4, whether it has a definition or not, and
#   no link may be in a link: "[1]" alone is one, and `(guide.pdf)` is text. Images and code in the text, and brackets
#   after a backslash, do no harm.
# Why it matters: a checker of links never sees these, and a translator changes their addresses. Look for `](` outside
#   of the links that were found.
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
for text, expected, address in [
    ("As in [[1]](#notes).", ("shortcut_link", b"[1]"), "#notes"),
    ("See [the guide [PDF]](guide.pdf).", ("shortcut_link", b"[PDF]"), "guide.pdf"),
    (r"As in [\[1\]](#notes).", ("inline_link", rb"[\[1\]](#notes)"), "#notes"),
    ("[![Logo](a.png)](b.html)", ("inline_link", b"[![Logo](a.png)](b.html)"), "b.html"),
]:
    (node,) = parser.parse(text.encode()).root_node.named_children
    rendered = markdown_it.MarkdownIt("commonmark").renderInline(text)
    print(f"{text}: tree-sitter {node.type} {node.text.decode()}, CommonMark {rendered}")
    assert (node.type, node.text) == expected, "this has changed"
    assert f'<a href="{address}">' in rendered, "CommonMark's parser has changed"
PY
