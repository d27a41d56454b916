"""Write the exercise sheet of a lesson into the current folder, or grade filled ones.

    python lessons/exercise.py 04                     writes my_04_layers.py
    python lessons/exercise.py --json my_04_layers.py       or a filled notebook
    python lessons/exercise.py --class FOLDER [04]    grades all files in it
    python lessons/exercise.py --github 04            writes a GitHub Classroom starter
    python lessons/exercise.py --gradescope 04        writes a Gradescope autograder

The sheet is the section "Your turn" of the lesson, with the imports that it needs, the
points of each exercise, and a last line that checks the answers.

--json prints one object, and nothing else, for a program that grades:

    {"lesson": "04_layers",
     "exercises": [{"number": 5, "name": "rms_norm", "state": "right", "message": "",
                    "hint": "", "points": 3, "max_points": 3, "seconds": 0.1}, ...],
     "right": 1, "total": 5, "points": 3, "max_points": 9, "notes": []}

"state" is "right", "wrong" or "to do"; "message" says where a wrong answer goes wrong;
"notes" says what was skipped, such as a magic of a notebook. With the name of an
exercise behind the file, only that one is graded.
The checks are those of the lesson, whatever the sheet has. They compare results, not
methods. What a sheet prints is left out; an exercise may take 60 seconds. The exit code
is 0 if all answers are right, 1 if not, and 2, without JSON, if there is no such file
or it belongs to no lesson.
--class grades what is in the folder and in zips, whatever its name. It prints a table,
names on stderr what it could not grade (the exit code is then 2), and writes CSV and
JSON of both into the folder "grades" inside it.
--results 04 FOLDER prints the results.json of one submission, for Gradescope.
The answers run with your rights: grade unknown sheets in a container.
"""

import ast
import functools
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

from minitf.cli import amount, exit_code, say
from minitf.course import gradebook
from minitf.course.answering import SHEET, limit_memory
from minitf.course.building import is_python
from minitf.course.grading import POINTS, exercises, grade
from minitf.errors import UserError
from minitf.files.arrays import exists

MARK = "# ## Your turn"
MINUTES, MEMORY = 10, 12 * 2**30  # of the grading of one file in a class; bytes
GRADES = "grades"  # the folder of what --class writes, inside that of the class
FEW = 5  # of the files of a student that are not graded, on the terminal
# The first line of a lesson's last cell, which is not for its reader.
SCAFFOLDING = "# For the tests:"
LAST = '\n\nif __name__ == "__main__":\n    check_exercises(globals())\n'


def sheet(lesson):
    """Return the text of the exercise sheet of a lesson file."""
    source = lesson.read_text(encoding="utf-8")
    lines = source.splitlines()
    start = lines.index(MARK) - 1  # the line above begins the cell
    end = next(n for n, line in enumerate(lines) if line.startswith(SCAFFOLDING)) - 1
    part = "\n".join(lines[start:end]).rstrip()
    title = ast.get_docstring(ast.parse(source)).splitlines()[0].removeprefix("# ")
    imports = [
        *imports_of(source, set(re.findall(r"\w+", part))),
        "from minitf.course.lesson import check_exercises",
    ]
    text = f'"""Exercises. {title}"""\n\n' + "\n".join(imports) + f"\n\n{part}\n{LAST}"
    return with_points(text)


def with_points(source):
    """Return code with the points of each exercise in a comment above it."""

    def marked(head):
        return f"# {amount(POINTS[head[1]], 'point')}\n{head[0]}"

    names = "|".join(POINTS)
    return re.sub(rf"^def ({names})\(", marked, source, flags=re.MULTILINE)


def imports_of(source, words):
    """Return the imports of a lesson whose names are among these words.

    The words are those of the code and of the text, which may ask for more functions.
    """
    imports = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [
                name for name in node.names if (name.asname or name.name) in words
            ]
            if node.names:
                imports.append(ast.unparse(node))
    return imports


def main(arguments):
    """Run the command line; return the exit code."""
    return exit_code("exercise.py", lambda: run(arguments))


def run(arguments):
    """Do what the arguments ask for; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    option, *rest = arguments or ["sheet"]
    graders = {
        "--json": grade_file,
        "--class": grade_class,
        "--results": grade_for_gradescope,
    }
    if option in graders:
        if sys.flags.optimize:
            raise UserError(
                "-O and PYTHONOPTIMIZE take the checks away: grade without them"
            )
        return graders[option](rest)
    words = rest if option in WRITERS else arguments
    unknown = [word for word in words if word.startswith("-")]
    if {*graders, *WRITERS} & set(unknown):
        raise UserError(f"put {unknown[0]} first")
    if unknown:
        raise UserError(f"unknown option {unknown[0]}: --help lists them")
    if len(words) != 1:
        raise UserError("give the number of one lesson, such as 04")
    return write(option if option in WRITERS else "sheet", lesson_of(words[0]))


# Sheets and starters ----------------------------------------------------------------

WRITERS = {
    "sheet": ("my_{}.py", "fill in the bodies, then run  python {}"),
    "--github": (
        "classroom_{}",
        "push it as a template repository, and make an assignment of it",
    ),
    "--gradescope": (
        "gradescope_{}.zip",
        "upload it as the autograder of a programming assignment",
    ),
}


def write(kind, lesson):
    """Write the sheet of a lesson, or what is made of it; return the exit code."""
    name, use = WRITERS[kind]
    path = Path(name.format(lesson.stem))
    if path.exists():
        raise UserError(f"{path} already exists: rename it if you want a new one")
    try:
        if kind == "--gradescope":
            gradebook.gradescope_zip(path, lesson)
        elif kind == "--github":
            gradebook.github_starter(path, lesson, sheet(lesson))
        else:
            path.write_text(sheet(lesson), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}: run this in a folder of yours"
        ) from error
    print(f"wrote {path}: {use.format(path)}")
    return 0


def lesson_of(number):
    """Return the file of the lesson with this number; raise UserError for another."""
    for path in lessons():
        if re.fullmatch(r"\d{1,2}", number) and int(path.stem[:2]) == int(number):
            return path
    raise UserError(f"there is no lesson {number}: give a number such as 04")


def lessons():
    """Return the files of all lessons that have exercises."""
    paths = sorted(Path(__file__).parent.glob("0*_*.py"))
    return [path for path in paths if MARK in path.read_text(encoding="utf-8")]


# Grading ----------------------------------------------------------------------------


def grade_file(arguments):
    """Print what is right in a sheet or notebook, as JSON; return the exit code."""
    if not arguments or len(arguments) > 2:
        raise UserError("give one filled sheet, such as  --json my_04_layers.py")
    path = Path(arguments[0])
    try:
        # A sheet may import a file beside it. In a class, that would be another's.
        only, content = arguments[1:], path.read_bytes()
        result = graded(path.name, content, only=only, beside=path.parent)
    except (UserError, OSError) as error:
        message = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: {message}") from error
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0 if result["right"] == result["total"] else 1


def grade_class(arguments):
    """Grade what is in a folder, and name what is not graded; return the exit code."""
    if not arguments or len(arguments) > 2:
        raise UserError("give one folder, such as  --class answers")
    folder = Path(arguments[0])
    expected = lesson_of(arguments[1]) if arguments[1:] else None
    grades = folder / GRADES
    if exists(folder) and grades.exists() and not grades.is_dir():
        raise UserError(f"{grades} is a file: rename it, the grades go there")
    results, others, reasons, refused = {}, {}, {}, set()
    for path, content in submitted(folder):
        name = printable(path)
        try:
            of_lesson(path, content, expected)
            results[name] = graded_apart(path, content)
        except OtherLesson as error:
            others[name] = str(error)
        except UserError as error:
            reasons[name] = printable(error)
            if not isinstance(error, NoAnswers):
                refused.add(name)
    students = students_of([*results, *others, *reasons])
    known = {students[name] for name in [*results, *others]}
    # Beside answers, what is none is only in the files: nobody misses it.
    lost = {
        name: reason
        for name, reason in reasons.items()
        if name in refused
        or not (students[name] in known or HIDDEN.match(students[name]))
    }
    by_lesson = {}
    for name, result in sorted(results.items(), key=lambda item: item[1]["lesson"]):
        by_lesson.setdefault(result["lesson"], {})[name] = result
    try:
        gradebook.write_class(grades, by_lesson, reasons | others, students)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error
    for own in by_lesson.values():
        print(gradebook.table(own), end="\n\n")
    shown = few_of_each(lost, students)
    if lost:
        width = gradebook.NAME
        print(f"{'not graded':{width}} what it is")
        for name, reason in shown.items():
            short = name if len(name) <= width else f"…{name[1 - width :]}"
            print(f"{short:{width}} {reason.partition(': ')[0]}"[: gradebook.WIDTH])
        print()
    if others:
        print(f"left out: {len(others)} of other lessons")
    if len(reasons) > len(lost):
        print(f"left out beside answers: {len(reasons) - len(lost)}")
    print(f"- wrong, . to do; points, messages, hints, and what was left out: {grades}")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root and "MINITF_GRADE_AS" not in os.environ:
        print("You are root, whose memory answers reach: set MINITF_GRADE_AS=nobody")
    for name, reason in shown.items():
        say(f"not graded: {folder / name}: {reason}")
    return 2 if lost else 0


def few_of_each(lost, students):
    """Return the first reasons of each student, and for the rest how many."""
    kept, counts = {}, Counter()
    for name, reason in lost.items():
        counts[students[name]] += 1
        if counts[students[name]] <= FEW:
            kept[name] = reason
    more = {each: count - FEW for each, count in counts.items() if count > FEW}
    where = f"see {GRADES}/not-graded.csv"
    return kept | {f"{each}: {n} more": where for each, n in more.items()}


def graded_apart(name, content):
    """Return the grading of a file by a process of its own, with limits.

    So a file that ends its grading, or takes all time or memory, spoils no other. It
    gets a folder of its own: in a class, beside it would be another's answers.
    """
    with tempfile.TemporaryDirectory() as folder:
        # The end of its name, without the signs that some systems do not have in names.
        copy = Path(folder, re.sub(r"[^\w.() -]", "_", name.rpartition("/")[2])[-60:])
        copy.write_bytes(content)
        command = [sys.executable, __file__, "--json", str(copy)]
        # The checks compute with what an answer returns.
        limit = None if os.name == "nt" else functools.partial(limit_memory, MEMORY)
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=60 * MINUTES,
                check=False,
                preexec_fn=limit,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"no end after {MINUTES} minutes: read it") from None
    if done.returncode == 2:
        message = done.stderr.decode("utf-8", "replace").strip()
        raise UserError(message.removeprefix(f"exercise.py: {copy}: "))
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        code = done.returncode
        message = f"it ended its own grading (exit code {code}): read it"
        raise UserError(message) from error


def printable(name):
    """Return a name, or a message with names, that any terminal and file can show.

    Other characters become numbers, such as %0A: different names stay different.
    """
    signs = (c if c.isprintable() else f"%{ord(c):02X}" for c in str(name))
    return "".join(signs)


def grade_for_gradescope(arguments):
    """Print the results.json of a submission; return the exit code."""
    if len(arguments) != 2:
        raise UserError("give a lesson and a folder, such as  --results 04 submission")
    expected, folder = lesson_of(arguments[0]), Path(arguments[1])
    answers, reasons = {}, []
    try:
        for name, content in submitted(folder):
            try:
                of_lesson(name, content)
                answers[name] = content
            except UserError as error:
                reasons.append(f"{name}: {error}")
        if len(answers) > 1:
            raise UserError("hand in one file: there are " + ", ".join(answers))
        if not answers:
            raise UserError("; ".join(reasons))
        (answer,) = answers.items()
        result = graded(*answer, expected)
    except UserError as error:
        result = {"points": 0, "exercises": [], "notes": [str(error)]}
    result = gradebook.for_gradescope(result)
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return 0


def submitted(folder):
    """Yield (name, content or why there is none) of all that is in a folder."""
    if not (exists(folder) and folder.is_dir()):
        message = f"{folder} is a file: put it into a folder, and give that"
        raise UserError(
            message if folder.is_file() else f"{folder}: there is no such folder"
        )
    found = False
    for name, content in entries(folder):
        if name.partition("/")[0] != GRADES:
            found = True
            yield name, content
    if not found:
        raise UserError(f"{folder}: there is no Python file and no notebook in it")


class OtherLesson(UserError):
    """A sheet of another lesson than the one that is graded."""


class NoAnswers(UserError):
    """What is no answer to any lesson, as far as one can see, such as a picture."""


def of_lesson(name, content, expected=None):
    """Return the text of a file, its cells (None: it is no notebook), and its lesson.

    Raises OtherLesson if it is not of the lesson expected, NoAnswers if it is of none,
    UserError if it cannot be read or if one cannot say of which it is.
    """
    ending = ending_of(name)
    if isinstance(content, str):
        no_answer = not ending or content == OF_A_PROGRAM
        raise (NoAnswers if no_answer else UserError)(content)
    text = text_of(content)
    cells = cells_of(text)
    if cells is None and ending == "ipynb":
        raise UserError("this is no notebook: ask for it again")
    read = [("code", text)] if cells is None else cells
    try:
        # Markdown may have pictures in it.
        if sum(len(source) for kind, source in read if kind == "code") > LONGEST_CODE:
            message = f"code of more than {LONGEST_CODE >> 20} MB: {ASK}"
            raise (UserError if ending else NoAnswers)(message)
        if cells is None and not ending and not is_python(text):
            raise NoAnswers
        lesson = lesson_in(name, read)
    except NoAnswers:
        if ending:
            raise
        kind = PurePosixPath(name).suffix or "nameless"
        message = f"a {kind} file, no answers to a lesson: {ASK}"
        raise NoAnswers(message) from None
    if expected and lesson != expected:
        raise OtherLesson(f"it is of lesson {lesson.stem}, not of {expected.stem}")
    return text, cells, lesson


def graded(name, content, expected=None, only=(), beside=None):
    """Return the grading of a file; raise UserError if it belongs to no lesson."""
    text, cells, lesson = of_lesson(name, content, expected)
    empty = sheet(lesson)
    names = exercises(empty)
    for each in only:
        if each not in names:
            raise UserError(f"lesson {lesson.stem} has no exercise {each}")
    given = [[SHEET, text, False]]
    if cells is not None:
        given = run_of(cells, lesson, names)
    return grade(lesson.stem, empty, given, only=only, beside=beside)


# What was handed in -----------------------------------------------------------------

# Learning platforms and mail programs pack, nest and rename what students hand in. So
# one rule: an entry is read, and its content decides what it is, or it is named with a
# reason. Nothing is unpacked onto the disk, so no name leads out of a zip.

LARGEST = 2**25  # bytes of a file
MOST = 2**32  # bytes in a zip, with those in the zips in it
MOST_INSIDE = 2**28  # bytes in a zip that is in another
MEMBERS, LONGEST = 10_000, 500  # of a zip; characters of a member's name
DEPTH = 2  # a zip of all, with a zip of each
LONGEST_CODE = 2**20  # characters of a sheet, or of the code cells of a notebook

ASK = "ask for the .py or .ipynb file, or a zip of it"
OF_A_PROGRAM = "hidden, made by a program for itself: nothing to do"
# The path of what is hidden, such as .git and __MACOSX: no answer has such a name.
HIDDEN = re.compile(r"(?:[^/]+/)*?(?:\.|__)[^/]*")
# The last of these endings, as in my_01_attention.py.txt and my_01_attention.py~.
ENDING = re.compile(r"(.*)\.(py|ipynb|zip)\b", re.IGNORECASE | re.DOTALL)
COPY = re.compile(r"^copy of | \(\d+\)|[ _-]+copy\b", re.IGNORECASE)


def entries(folder):
    """Yield the name and the content of all below a folder, or a text: why it has none.

    A name is a path from the folder on, with "/", and goes on inside a zip.
    """
    found, errors = {}, []
    for place, folders, files in os.walk(folder, onerror=errors.append):
        for path in (Path(place, name) for name in [*folders, *files]):
            is_folder = path.is_dir() and not path.is_symlink()
            found[path.relative_to(folder).as_posix() + "/" * is_folder] = path
    unread = {Path(error.filename): f"{error.strerror}: {ASK}" for error in errors}
    for name, path in visible_entries(found):
        if isinstance(path, str):
            yield name, unread.get(folder / name, path)
        elif path.is_symlink() or not path.is_file():
            yield name, f"a link or a device, which is not read: {ASK}"
        else:
            try:
                with path.open("rb") as file:
                    yield from content_of(name, file, SimpleNamespace(left=MOST))
            except OSError as error:
                yield name, f"{error.strerror}: {ASK}"


def visible_entries(found):
    """Yield (name, thing) of {name: thing} in order, or a text: why it is not read.

    The name of a folder ends with "/". What is in one is named itself, unless hidden.
    """
    hidden_ones = set()
    parents = {parent for name in found for parent in PurePosixPath(name).parents}
    for name in sorted(found):
        if hidden := HIDDEN.match(name):
            if hidden[0] not in hidden_ones:
                yield hidden[0], OF_A_PROGRAM
            hidden_ones.add(hidden[0])
        elif not name.endswith("/"):
            yield name, found[name]
        elif PurePosixPath(name) not in parents:
            yield name.rstrip("/"), f"an empty folder: {ASK}"


def content_of(name, file, budget, depth=0):
    """Yield the name and content of a file, or of what is in a zip.

    budget: its `left` is how many bytes may still be read from the outermost zip.
    """
    data = file.read(LARGEST + 1)
    is_zip = data.startswith(b"PK")
    if not data:
        yield name, f"an empty file: {ASK}"
    elif len(data) > LARGEST and (depth or not is_zip):
        yield name, f"a file of more than {LARGEST >> 20} MB: {ASK}"
    elif not is_zip:
        yield name, data
    elif depth == DEPTH:
        yield name, f"a zip in a zip in a zip: {ASK}"
    else:
        try:
            with zipfile.ZipFile(file) as archive:
                yield from members_of(name, archive, budget, depth)
        except Exception as error:  # a damaged zip may raise anything
            yield name, f"a zip that cannot be read ({error}): {ASK}"


def members_of(name, archive, budget, depth):
    """Yield the names and contents of what is in a zip, as `content_of` does."""
    found = {}
    for info in archive.infolist():
        path = str(PurePosixPath(info.filename.replace("\\", "/"))).strip("/")
        member = re.sub(r'\.\.|[<>:"|?*]', "_", path)[-LONGEST:]  # for any system
        while member in found or f"{member}/" in found:  # twice the same name
            member += "~"
        found[member + "/" * info.is_dir()] = info
    size = sum(min(info.file_size, LARGEST + 1) for info in found.values())
    most = min(budget.left, MOST_INSIDE) if depth else budget.left
    if not found:
        yield name, f"an empty zip: {ASK}"
    elif {"[Content_Types].xml", "mimetype"} & found.keys():
        yield name, f"a document of an office program: {ASK}"
    elif len(found) > MEMBERS or size > most:
        yield name, f"a zip of too many or too large files: {ASK}"
    else:
        budget.left -= size
        for member, info in visible_entries(found):
            below = f"{name}/{member}"
            if isinstance(info, str):
                yield below, info
                continue
            try:
                with archive.open(info) as file:
                    data = file.read(LARGEST + 1)
            except Exception as error:  # damaged, or with a password
                yield below, f"it cannot be read ({error}): {ASK}"
            else:
                yield from content_of(below, io.BytesIO(data), budget, depth + 1)


def ending_of(name):
    """Return which of "py", "ipynb" and "zip" a file's name has; "" for none."""
    found = ENDING.match(PurePosixPath(name).name)
    return found[2].lower() if found else ""


def own_name(name):
    """Return a file's name without its endings and the marks of a copy."""
    found = ENDING.match(name)
    return COPY.sub("", found[1] if found else PurePosixPath(name).stem).strip()


def students_of(names):
    """Return {name: whose it is}: of the first folder or file below that of the class.

    A zip, or a folder with only folders in it, that has all there is, is of the class.
    """
    paths = {name: PurePosixPath(name).parts for name in names}
    handed_in = [parts for name, parts in paths.items() if not HIDDEN.match(name)]
    columns = zip(*(parts[:-1] for parts in handed_in), strict=False)
    shared = list(itertools.takewhile(lambda column: len(set(column)) == 1, columns))
    only_folders = all(len(parts) > len(shared) + 1 for parts in handed_in)
    is_of_class = shared and (only_folders or ending_of(shared[0][0]) == "zip")
    start = len(shared) if is_of_class else 0
    found = {}
    for name, parts in paths.items():
        first = parts[min(start, len(parts) - 1)]
        is_file = len(parts) <= start + 1 or ending_of(first) == "zip"
        found[name] = own_name(first) if is_file else first
    return found


def text_of(content):
    """Return the text of a file: in UTF-8, or in UTF-16, as some editors write it."""
    return content.decode(json.detect_encoding(content), errors="replace")


def cells_of(text):
    """Return [(kind, source)] of the cells of a notebook, None if a text is none.

    A notebook of nbformat 3 has its cells in worksheets, and code as "input".
    """
    try:
        book = json.loads(text)
        return [
            (cell["cell_type"], "".join(cell.get("source") or cell.get("input") or ""))
            for sheet in book.get("worksheets", [book])
            for cell in sheet["cells"]
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


# The cells and the lesson -----------------------------------------------------------


def run_of(cells, lesson, names):
    """Return what is run of a notebook: [name, source, only definitions] for each cell.

    The lesson itself is not run again. Of its cells only imports, functions and classes
    count, which an answer may use; of the cells from "Your turn" on, and of those with
    an answer, everything.
    """
    title = MARK.removeprefix("# ")
    words = set(re.findall(r"\w+", "\n".join(source for _, source in cells)))
    imports = imports_of(lesson.read_text(encoding="utf-8"), words)
    found, turn = [["imports", "\n".join(imports), True]], False
    for number, (kind, source) in enumerate(cells, 1):
        turn = turn or (kind == "markdown" and source.startswith(title))
        if kind == "code":
            whole = turn or not defined(source).isdisjoint(names)
            found.append([f"cell {number}", source, not whole])
    return found


def defined(source):
    """Return the names that a source defines in its first column."""
    if not is_python(source):  # such as a cell with a magic
        pattern = r"^(?:def +|(?=\w+ *(?::[^=\n]*)?=[^=]))(\w+)"
        return set(re.findall(pattern, source, re.MULTILINE))
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(ast.unparse(target) for target in targets)
    return names


def lesson_in(name, cells):
    """Return the lesson of a sheet or notebook, by its title, name and answers."""
    text = "\n".join(source for _, source in cells)
    title = re.search(r'^(?:"""Exercises\. |# )Lesson (\d\d)\.', text, re.MULTILINE)
    file = PurePosixPath(name).name.lower() if ending_of(name) else ""
    all_lessons = lessons()
    by_title = [one for one in all_lessons if title and one.stem[:2] == title[1]]
    by_name = [one for one in all_lessons if one.stem in file]
    by_answers, by_one_answer = [], []
    names = {
        each for kind, source in cells if kind == "code" for each in defined(source)
    }
    for one in all_lessons:
        own = exercises(one.read_text(encoding="utf-8"))
        if 2 * len(names.intersection(own)) > len(own):
            by_answers.append(one)
        if re.search(rf"^def ({'|'.join(own)})\(", text, re.MULTILINE):
            by_one_answer.append(one)
    found = {
        "name is": by_name,
        "title is": by_title,
        "exercises are": [] if set(by_title) & set(by_answers) else by_answers,
    }
    found = {what: paths[0] for what, paths in found.items() if paths}
    # One answer alone counts where nothing else says more.
    for one in [] if found else by_one_answer:
        found[f"answer {len(found) + 1} is"] = one
    if not found:
        message = (
            "neither its title nor an answer names a lesson: is it the right file?"
        )
        raise NoAnswers(message)
    if len(set(found.values())) > 1:
        what = [f"its {what} of lesson {one.stem}" for what, one in found.items()]
        raise UserError(f"{', '.join(what)}: which one is it?")
    return next(iter(found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
