"""What learning platforms make of a class's files: each one is graded, or named with a reason."""

import csv
import io
import json
import runpy
import zipfile

import pytest
from lesson_files import LESSONS, ROOT

EXERCISE = runpy.run_path(str(ROOT / "lessons" / "exercise.py"))
GLOBALS = EXERCISE["main"].__globals__
SHEET = EXERCISE["sheet"](LESSONS[3])
RESULT = {"lesson": LESSONS[3].stem, "exercises": [], "points": 0, "max_points": 9, "notes": []}
CELL = {"cell_type": "code", "source": ["def tent():\n", "    return 1"]}


def notebook(*cells, **others):
    return json.dumps({"cells": cells, **others}).encode()


def data_of(leaf):
    """Return the bytes of a file: a leaf is these, (these, what is expected), or a zip's tree."""
    return zipped(leaf) if isinstance(leaf, dict) else leaf[0] if isinstance(leaf, tuple) else leaf


def zipped(tree):
    """Return a zip of {path: leaf}; the path of a folder ends with /."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, leaf in tree.items():
            archive.writestr(path, data_of(leaf) or b"")
    return file.getvalue()


def locked(data):
    """Return a zip of one file that says that it has a password."""
    at = data.index(b"PK\1\2") + 8
    return data[:6] + b"\1" + data[7:at] + b"\1" + data[at + 1 :]


PY, NB, PDF = SHEET.encode(), notebook(CELL), b"%PDF-1.7\n\0\xff"
ONE = b"import numpy as np\n\ndef tent():\n    return 1\n"
OTHER = EXERCISE["sheet"](LESSONS[4]).encode()
OLD = [{"cell_type": "heading", "source": "4"}, {"cell_type": "code", "input": ONE.decode()}]
NB3 = json.dumps({"worksheets": [{"cells": OLD}], "nbformat": 3}).encode()
WEB = b"<!DOCTYPE html>\n<h1>Lesson 04. Layers</h1>\n<pre>def tent():</pre>"
DOCX = zipped({"[Content_Types].xml": b"<x/>", "word/document.xml": b"<x/>"})
ZIP = zipped({"my_04_layers.py": PY})
NO, HIDDEN, EMPTY = "file, no answers to a lesson", "hidden, made by a program", "!an empty "
# {what made it: {path: (content, whose it is after "=", or why it is not graded)}}; a zip is a
# dict. "!" before a reason: it is on the terminal as well, because nobody may miss that file.
FOLDERS = {
    "Moodle": {"Anna Ek_11_assignsubmission_file_/a.py": (PY, "=Anna Ek_11_assignsubmission_file_"),
               "Ben Ho_12_assignsubmission_file_/a.pdf": (PDF, "!" + NO)},
    "Moodle, no folders": {"A_1_f.py": (PY, "=A_1_f"), "B_2_onlinetext_.html": (WEB, "!" + NO)},
    "Moodle, one zip": {"Task-7.zip": {"Anna_11_file_/a.ipynb": (NB, "=Anna_11_file_"),
                                       "Ben_12_file_/": (None, EMPTY + "folder"),
                                       "Eva_13_file_/b.docx": (DOCX, "!a document of an office")}},
    "Moodle, zips in it": {"all.zip": {"Anna_11_/a.zip": {"x/my_04_layers.py": (PY, "=Anna_11_")},
                                       "Ben_12_/b.zip": {"my.pdf": (PDF, "!" + NO)}}},
    "Moodle, zip a student": {"anna/a.zip": {"src/a.py": (ONE, "=anna"), "src/a.png": (PDF, NO)},
                              "ben/b.zip": {"b.pdf": (PDF, "!" + NO)}},
    "Canvas": {"submissions.zip": {"ekanna_1_2_my_04_layers.py": (PY, "=ekanna_1_2_my_04_layers"),
                                   "hoben_LATE_3_4_notes.txt": (b"I was ill.", "!" + NO)}},
    "Canvas, again": {"ek_1_2_a-1.py": (PY, "=ek_1_2_a-1"), "h_5_6_a.zip": {"a": (PY, "=h_5_6_a")}},
    "Blackboard": {"T_aek_2026_a.zip": {"a.py": (PY, "=T_aek_2026_a")},
                   "T_aek_2026.txt": (b"Name: Anna Ek", "!" + NO)},
    "Blackboard, zip": {"book_7.zip": {"Task_aek_attempt_1_a.ipynb": (NB, "=Task_aek_attempt_1_a"),
                                       "Task_bho_attempt_1.txt": (b"There is no file", "!" + NO)}},
    "Teams": {"Submitted files/Anna Ek/Task/Version 1/a.py": (PY, "=Anna Ek"),
              "Submitted files/Ben Ho/Task/": (None, EMPTY + "folder")},
    "Teams, a link": {"Submitted files/Anna/Task/Version 2/a.py": (PY, "=Anna"),
                      "Submitted files/Ben/Task/a.url": (b"[x]\nURL=y", "!" + NO)},
    "Classroom": {"hw-anna/a.py": (PY, "=hw-anna"), "hw-anna/.git/": (None, HIDDEN),
                  "hw-anna/.github/workflows/c.yml": (b"on: x", HIDDEN),
                  "hw-anna/README.md": (b"# Exercises. Lesson 04. Layers", NO)},
    "Classroom, nothing done": {"hw-ben/README.md": (b"# Hi there", "!" + NO),
                                "hw-ben/.git/HEAD": (b"x", "!" + HIDDEN)},
    "Classroom, src": {"hw/src/a.py": (PY, "=hw"), "hw/b.py": (b"x = 1", "neither its title")},
    "Classroom, other": {"hw-eva/main.py": (b"print('hello')", "!neither its title")},
    "mail": {"anna@example.org/a.py.txt": (PY, "=anna@example.org"),
             "ben@example.org/noname": (PY, "=ben@example.org"),
             "eva@example.org/winmail.dat": (b"\x78\x9f\x3e\x22\0", "!" + NO)},
    "mail, saved whole": {"anna.eml": (b"From: anna@example.org\n\nHere it is.", "!" + NO)},
    "mail, by name": {"anna.py.txt": (PY, "=anna"), "ben.ipynb.txt": (NB, "=ben")},
    "browser": {"dora/01_attention.ipynb.txt": (NB, "=dora"), "ben/my.py.txt": (ONE, "=ben")},
    "browser, JSON": {"d/04_layers.json": (NB, "=d"), "ben/data.json": (b'{"a": 1}', "!" + NO)},
    "browser, again": {"my_04_layers (2).py": (ONE, "=my_04_layers"), "x (1).ipynb": (NB, "=x")},
    "Drive": {"Copy of anna.py": (ONE, "=anna"), "ben - Copy.py": (ONE, "=ben"),
              "eva_copy.ipynb": (NB, "=eva"), "fay.gdoc": (b'{"url": "x"}', "!" + NO)},
    "Colab": {"anna/Copy of 04_layers.ipynb": (NB, "=anna"), "ben/a": (b"colab.example", "!" + NO)},
    "a cloud's link": {"anna/my_04_layers.webloc": (b"<?xml version='1.0'?><a/>", "!" + NO)},
    "printed": {"anna/04_layers.html": (WEB, "!" + NO), "ben/04_layers.pdf": (PDF, "!" + NO)},
    "exported": {"anna/04_layers.md": (b"# Lesson 04. Layers\n\n```python\n" + ONE, "!" + NO)},
    "photographs": {"anna/1.heic": (b"\0\0\0\x18ftyp", "!" + NO), "b/A.PY": (ONE, "=b")},
    "an editor": {"anna/my_04_layers.py~": (PY, "=anna"), "anna/.my.py.swp": (b"b0", HIDDEN)},
    "Jupyter": {"anna/a.ipynb": (NB, "=anna"), "anna/.ipynb_checkpoints/a.ipynb": (NB, HIDDEN)},
    "nbformat 3": {"anna/a.ipynb": (NB3, "=anna")},
    "no source": {"b.ipynb": (notebook({"cell_type": "raw"}, CELL | {"source": None}, CELL), "=b")},
    "text field": {"ekanna_1_text.html": (WEB, "!" + NO), "b.py": (PY, "=b")},
    "a damaged one": {"a/a.ipynb": (NB[:-9], "!this is no notebook"), "a/b.py": (PY, "=a")},
    "Windows": {"anna/a.py": (SHEET.encode("utf-16"), "=anna"), "anna/Thumbs.db": (PDF, NO),
                "ben/b.py": (SHEET.encode("utf-8-sig"), "=ben")},
    "macOS": {"a.zip": {"a/a.py": (PY, "=a"), "__MACOSX/a/._a.py": (b"\0\5", HIDDEN)},
              "b.py": (PY, "=b"), ".DS_Store": (b"\0\0", HIDDEN)},
    "7-Zip": {"a/a.7z": (b"7z\xbc\xaf\x27", "!" + NO), "b/b.tar.gz": (b"\x1f\x8b", "!" + NO)},
    "damaged": {"anna/a.zip": (ZIP[:-30], "!a zip that cannot be read"),
                "ben/b.zip": (zipped({}), EMPTY + "zip"), "eva/a.py": (b"", EMPTY + "file"),
                "fay/": (None, EMPTY + "folder")},
    "a password": {"b/a.zip/my_04_layers.py": (None, "!it cannot"), "b/a.zip": (locked(ZIP), "")},
    "a zip in a zip in a zip": {"a/a.zip": {"b.zip": {"c.zip": {}}},
                                "a/a.zip/b.zip/c.zip": (None, "!a zip in a zip in a zip")},
    "two lessons": {"anna/04_layers.py": (OTHER, "!its name is of lesson 04_layers"),
                    "ben/x.py": (OTHER + ONE, "=ben")},
}  # fmt: skip


def expectations(tree, above=""):
    """Return {name: what is expected} of a tree: what is hidden has the name of its folder."""
    found = {}
    for path, thing in tree.items():
        parts = f"{above}{path}".rstrip("/").split("/")
        if isinstance(thing, dict):
            found |= expectations(thing, f"{above}{path}/")
        elif thing[1]:
            first = next((n for n, part in enumerate(parts) if part[0] == "." or "__M" in part), 99)
            found["/".join(parts[: first + 1])] = thing[1]
    return found


def write(folder, tree):
    for path, leaf in tree.items():
        place, data = folder / path, data_of(leaf)
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        elif data is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)


@pytest.fixture(name="graded")
def graded_fixture(monkeypatch, tmp_path):
    """Return a function that grades a class, without its answers; see its last line."""

    def lesson_alone(name, content):
        return RESULT | {"lesson": EXERCISE["of_lesson"](name, content)[2].stem}

    def graded():
        code, found = EXERCISE["main"](["--class", str(tmp_path)]), {}
        for path in (tmp_path / "grades").glob("*.csv"):
            with path.open(encoding="utf-8-sig", newline="") as file:
                for row in csv.DictReader(file):
                    found[row["file"]] = row.get("reason") or f"={row['student']}"
        others = json.loads((tmp_path / "grades" / "not-graded.json").read_text(encoding="utf-8"))
        assert others == {name: reason for name, reason in found.items() if reason[0] != "="}
        return code, found  # {name: "=" and the student, or why it was not graded}

    monkeypatch.setitem(GLOBALS, "graded_apart", lesson_alone)
    return graded


@pytest.mark.parametrize("made_by", FOLDERS)
def test_each_entry_of_a_class_is_graded_or_named(made_by, tmp_path, graded, capsys):
    tree = FOLDERS[made_by]
    write(tmp_path, tree)
    code, found = graded()
    out, err = capsys.readouterr()
    expected = expectations(tree)
    assert found.keys() == expected.keys()
    for name, what in expected.items():
        reason = what.removeprefix("!")
        assert found[name] == what if what[0] == "=" else reason in found[name], name
        told = [line for line in err.splitlines() if f"/{name}: " in line and reason in line]
        assert len(told) == (what[0] == "!"), (name, err)
        assert what[0] != "!" or name[-30:] in out
    assert code == (2 if any(what[0] == "!" for what in expected.values()) else 0)


def test_no_zip_leads_out_of_the_class_or_takes_its_memory(tmp_path, graded, monkeypatch, capsys):
    """Names that lead out, twice the same name, and zips that become a thousand times larger."""
    large = b"#" * (EXERCISE["LARGEST"] + 1)
    for name, most in {"MOST_INSIDE": len(large), "MOST": 2 * len(large)}.items():
        monkeypatch.setitem(GLOBALS, name, most)
    write(tmp_path, dict.fromkeys((f"venv/{number}.py" for number in range(30)), b"x = 1"))
    write(tmp_path, {"a.zip": dict.fromkeys(("../../x.py", "/etc/x.py", "C:\\x.py"), PY)})
    write(tmp_path, {"b.zip": {"b.zip": {"1": large, "2": large}, "c.py": large}, "d.py": large})
    write(tmp_path, {"f.zip": dict.fromkeys("123", large), "g.py": large[: 2**20] + b"#"})
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive, pytest.warns(UserWarning):
        archive.writestr("e.py", PY)
        archive.writestr("e.py", ONE)
    code, found = graded()
    short = {name: reason[:16] for name, reason in found.items() if "venv" not in name}
    assert short == dict.fromkeys(["a.zip/_/_/x.py", "a.zip/etc/x.py", "a.zip/C_/x.py"], "=a") | {
        "b.zip/b.zip": "a zip of too man", "b.zip/c.py": "a file of more t",
        "d.py": "a file of more t", "e.zip/e.py": "=e", "e.zip/e.py~": "=e",
        "f.zip": "a zip of too man", "g.py": "code of more tha",
    }  # fmt: skip
    assert not [*tmp_path.parent.glob("x.py*")] and len([*tmp_path.rglob("x.py.json")]) == 3
    assert "venv: 25 more: see grades/not-graded.csv" in capsys.readouterr().err and code == 2
