#!/usr/bin/env bash
# The four digits of a \u escape are text to tree-sitter's JSON.
#
# One would guess: in a JSON string every escape is one node `escape_sequence`, so `string_content` nodes are
#   what a person wrote and may be replaced.
# What is true: tree-sitter-json 0.24.8 ends the node of a `\u00e9` after the letter u; "00e9" begins the next
#   `string_content`, joined with the words behind it. Escapes of one letter (`\n`, `\"`) are whole.
# Why it matters: a tool that changes the text nodes of a file of strings writes invalid JSON, or another letter,
#   as soon as the file has an escaped accent or emoji. Decode the range of the whole string instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tree-sitter==0.26.0 tree-sitter-json==0.24.8
"$folder/venv/bin/python" - <<'PY'
import tree_sitter
import tree_sitter_json

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_json.language()))
for text, expected in [
    (rb'"caf\u00e9 open"', ["caf", r"\u", "00e9 open"]),
    (rb'"smile \ud83d\ude00"', ["smile ", r"\u", "d83d", r"\u", "de00"]),
    (rb'"two\nlines"', ["two", r"\n", "lines"]),
]:
    string = parser.parse(text).root_node.named_children[0]
    found = [node.text.decode() for node in string.named_children]
    print(text.decode(), "->", found)
    assert found == expected, "this has changed"
PY
