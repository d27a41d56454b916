#!/usr/bin/env bash
# Reading a .po file with polib and saving it changes lines that nobody edited.
#
# One would guess: `polib.pofile(path).save()` without an edit writes the file that was read, since .po files live in
#   version control and the format allows it.
# What is true: polib 1.2.0 sorts known fields of the header, moves obsolete entries (#~) to the end, wraps every line at 78
#   columns (`wrapwidth=0` avoids that alone), and writes the line ends of the system.
# Why it matters: a tool that fills in one translation hands back a diff of the whole file, which translators refuse
#   to review. Use polib to find out which entries need a text, and splice it in at their `linenum`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q polib==1.2.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import pathlib

import polib

SOURCE = r'''msgid ""
msgstr ""
"Language: de\n"
"X-Generator: by hand\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#~ msgid "old"
#~ msgstr "alt"

msgid "This line is longer than seventy-eight characters, as messages of programs often are."
msgstr ""
'''
pathlib.Path("a.po").write_text(SOURCE, encoding="utf-8", newline="\r\n")
for width in (78, 0):
    polib.pofile("a.po", wrapwidth=width).save("b.po")
    after = pathlib.Path("b.po").read_bytes().decode().split("\n")
    print(*after, sep="\n")
    assert not any(line.endswith("\r") for line in after), "the line ends are kept now"
    plural, generator = (after.index(next(x for x in after if word in x)) for word in ("Plural", "X-Gen"))
    assert plural < generator, "the order of the header is kept now"
    assert after.index('#~ msgid "old"') > after.index('msgid ""', 1), "obsolete entries stay now"
    assert any(line.startswith('"This line') for line in after) == (width == 78), "wrapping changed"
PY
