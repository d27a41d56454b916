"""Write the course as a website, which opens from a disk: the folder `book`, or FOLDER.

    python lessons/book.py [FOLDER]

    --lesson 01     write only this lesson's page, in seconds
    --slides        write a deck of slides for each lesson, too, in FOLDER/slides
    --repository URL    where the files are that the book names and has not

The lessons are run, and each page shows what its lesson printed, proved and drew. A lesson
that did not change since the last time is not run again. Open book/index.html.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from posixpath import normpath

from notebooks import notebook

from minitf.errors import UserError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PARTS = HERE / "book_parts"
LESSONS = sorted(HERE.glob("0[1-9]_*.py"))
# The other pages: the file in the repository, and its name in the outline.
TEXTS = {
    "lessons/README.md": "How to learn and teach with it",
    "lessons/DEBUGGING.md": "It does not learn",
    "lessons/DIFFERENCES.md": "Where minitf differs from the paper",
    "lessons/SINCE-2017.md": "What changed since 2017",
    "lessons/REPRODUCE.md": "Reproducing the paper's tables",
    "lessons/OFFLINE.md": "Teaching without internet access",
    "README.md": "The project",
}
COPIED = (".png", ".svg", ".html")  # what a page may link to: it is copied beside the page
MOST_SLIDES = 25
MINUTES = 30  # after which a lesson that still runs has failed


class Book:
    """A folder of pages: those of some lessons, and those that are no lessons.

    repository: the address of the files that the book has not, or "".
    """

    def __init__(self, folder, lessons, repository=""):
        import jinja2

        self.folder, self.lessons, self.repository = folder, lessons, repository.rstrip("/")
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(PARTS), trim_blocks=True, lstrip_blocks=True
        )
        self.pages = {
            f"lessons/{path.name}": f"{path.stem}.html"
            for path in LESSONS
            if path in lessons or (folder / f"{path.stem}.html").exists()
        }
        for name in TEXTS:
            self.pages[name] = f"{page_name(name)}.html"
        self.index = []  # of the search: a section a row

    def write(self, slides):
        """Write the pages of the lessons, and all other pages."""
        (self.folder / "figures").mkdir(parents=True, exist_ok=True)
        for name in ("book.css", "book.js"):
            shutil.copy(PARTS / name, self.folder)
        executed = executed_cells(self.lessons, self.folder)
        for lesson in self.lessons:
            self.write_lesson(lesson, executed[lesson], slides)
        for source in TEXTS:
            markdown = (ROOT / source).read_text(encoding="utf-8")
            self.write_page(source, self.text_of(source).html(markdown))
        self.write_page("", self.front())
        rows = json.dumps(self.index, ensure_ascii=False, separators=(",", ":"))
        save(self.folder / "search.js", f"const SECTIONS = {rows};\n")

    def text_of(self, source):
        """Return the converter of a file's markdown, which knows where its links lead."""
        from book_parts.markup import Text

        return Text(lambda address: self.address(address, source))

    def address(self, address, source):
        """Return where an address in a file of the repository leads in the book, or None."""
        if re.match(r"[a-z]+:|#", address):
            return address
        path, mark, anchor = address.partition("#")
        path = normpath(f"{Path(source).parent.as_posix()}/{path}")
        if path in self.pages:
            return self.pages[path] + mark + anchor
        name = Path(path).name
        drawn = Path("figures", name).with_suffix(".svg")
        if path.startswith("lessons/figures/") and (self.folder / drawn).exists():
            return drawn.as_posix()
        if path.endswith(COPIED) and (ROOT / path).is_file():
            shutil.copy(ROOT / path, self.folder / "figures" / name)
            return f"figures/{name}"
        return f"{self.repository}/blob/HEAD/{path}" if self.repository else None

    def write_lesson(self, lesson, cells, slides):
        """Write a lesson's page and its notebook, and its slides if wanted."""
        import nbformat

        source = f"lessons/{lesson.name}"
        body = self.lesson_body(cells, source)
        save(self.folder / f"{lesson.stem}.ipynb", nbformat.writes(notebook(lesson)))
        if slides:
            self.write_slides(lesson, body)
        deck = f"slides/{lesson.stem}.html"
        beside = self.templates.get_template("beside.html").render(
            notebook=f"{lesson.stem}.ipynb", slides=(self.folder / deck).exists() and deck
        )
        self.write_page(source, body.replace("</h1>\n", f"</h1>\n{beside}", 1))

    def lesson_body(self, cells, source):
        """Return the HTML of a lesson's cells; what stands below "Your turn" is exercises."""
        from book_parts.cells import code_cell, exercises, outputs_of

        text, body = self.text_of(source), []
        turn = next(n for n, each in enumerate(cells) if each.source.startswith("## Your turn"))
        for cell in cells[: turn + 1]:
            if cell.cell_type == "markdown":
                body.append(text.html(cell.source))
            else:
                body.append(code_cell(cell.source, outputs_of(cell)))
        lesson = "".join(body)
        asked = "\n\n\n".join(cell.source for cell in cells[turn + 1 :])
        return lesson + exercises(asked, text, lambda hint: with_links(hint, lesson))

    def front(self):
        """Return the first page: what the course is, and its lessons."""
        lessons = []
        for path in LESSONS:
            if f"lessons/{path.name}" not in self.pages:
                continue
            opening = path.read_text(encoding="utf-8").split('"""', 2)[1]
            title, _, first = opening.strip().split("\n\n")[0].partition("\n")
            paragraph = opening.strip().split("\n\n")[1]
            lessons.append(
                {
                    "page": f"{path.stem}.html",
                    "title": title.removeprefix("# "),
                    "opening": self.text_of(f"lessons/{path.name}").html(paragraph),
                }
            )
        picture = self.address("figures/01_translation.png", "lessons/01_attention.py")
        return self.templates.get_template("front.html").render(lessons=lessons, picture=picture)

    def write_page(self, source, body):
        """Write a page, and note its sections for the search."""
        from book_parts.markup import plain, sections

        names = {f"lessons/{path.name}": title_of(path) for path in LESSONS} | TEXTS
        order = ["", *self.pages]
        at = order.index(source)
        page = self.pages.get(source, "index.html")
        title = names.get(source, "Attention Is All You Need, from scratch")
        outline = [(anchor, heading) for anchor, heading, _ in sections(body) if anchor]
        neighbours = [
            {"page": self.pages.get(name, "index.html"), "title": names.get(name, "The book")}
            if 0 <= n < len(order)
            else None
            for n, name in ((n, order[n] if 0 <= n < len(order) else "") for n in (at - 1, at + 1))
        ]
        html = self.templates.get_template("page.html").render(
            title=title,
            body=body,
            page=page,
            outline=outline,
            pages=[(self.pages[name], names[name]) for name in self.pages],
            before=neighbours[0],
            after=neighbours[1],
        )
        save(self.folder / page, html)
        for anchor, heading, inside in sections(body):
            self.index.append([page, title, anchor, plain(heading), plain(inside)])

    def write_slides(self, lesson, body):
        """Write a deck in one file: a lesson's questions, formulas and figures."""
        from book_parts.slides import slides_of

        (self.folder / "slides").mkdir(exist_ok=True)
        html = self.templates.get_template("slides.html").render(
            title=title_of(lesson), slides=slides_of(body, self.folder, MOST_SLIDES)
        )
        save(self.folder / "slides" / f"{lesson.stem}.html", html)


def executed_cells(lessons, folder):
    """Return {lesson: its cells with their outputs}; run the lessons that changed, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        # The longest first, as they are at the course's end.
        found = {each: pool.submit(executed, each, folder) for each in reversed(lessons)}
    return {lesson: found[lesson].result() for lesson in lessons}


def executed(lesson, folder):
    """Return a lesson's cells with their outputs: those of the last time if no code changed."""
    import jupytext
    import nbclient
    import nbformat
    from book_parts.cells import PRELUDE
    from exercise import SCAFFOLDING

    cells = [
        cell for cell in jupytext.read(lesson).cells if not cell.source.startswith(SCAFFOLDING)
    ]
    programs = [cell for cell in cells if cell.cell_type == "code"]
    digest = hashlib.sha256("\n".join([PRELUDE, *(each.source for each in programs)]).encode())
    for file in sorted((ROOT / "minitf").rglob("*.py")):
        digest.update(file.read_bytes())
    kept = folder / ".executed" / f"{lesson.stem}-{digest.hexdigest()[:16]}.ipynb"
    if kept.exists():
        for cell, before in zip(programs, nbformat.read(kept, 4).cells, strict=True):
            cell.outputs = before.outputs
        return cells
    print(f"running {lesson.name}", flush=True)
    figures = str((folder / "figures").resolve())
    first = nbformat.v4.new_code_cell(f"{PRELUDE}\nprepare({figures!r})\ndel prepare")
    client = nbclient.NotebookClient(
        nbformat.v4.new_notebook(cells=[first, *programs]),
        timeout=60 * MINUTES,
        resources={"metadata": {"path": str(ROOT)}},
        extra_arguments=["--log-level=ERROR"],
    )
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        raise UserError(f"{lesson.name} ended with {error.ename}: {error.evalue}") from error
    kept.parent.mkdir(exist_ok=True)
    for old in kept.parent.glob(f"{lesson.stem}-*"):
        old.unlink()
    nbformat.write(nbformat.v4.new_notebook(cells=programs), kept)
    return cells


def with_links(hint, page):
    """Link the titles of sections that a hint names in quotation marks."""
    from book_parts.markup import plain, sections

    for anchor, heading, _ in sections(page):
        if anchor:
            name = re.escape(plain(heading)).replace("'", "(?:'|&#x27;)")
            hint = re.sub(
                f"(&quot;)({name})(&quot;)",
                lambda found, anchor=anchor: f'<a href="#{anchor}">{found[2]}</a>',
                hint,
            )
    return hint


def page_name(source):
    """Return the name of a text's page: that of its file, or of the folder of a README."""
    path = Path(source)
    if path.stem != "README":
        return path.stem.lower()
    return "course" if path.parent.name else "project"


def title_of(lesson):
    """Return the title of a lesson's file."""
    return re.search(r"^\"\"\"# (.+)", lesson.read_text(encoding="utf-8"), re.MULTILINE)[1]


def save(path, text):
    path.write_text(text, encoding="utf-8")


def main(arguments):
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default="book", help=argparse.SUPPRESS)
    parser.add_argument("--lesson", metavar="NN", help=argparse.SUPPRESS)
    parser.add_argument("--slides", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--repository", metavar="URL", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    lessons = [path for path in LESSONS if options.lesson in (None, path.stem[:2])]
    if not lessons:
        return refuse(f"there is no lesson {options.lesson}: give a number such as 04")
    try:
        book = Book(Path(options.folder), lessons, options.repository)
        book.write(options.slides)
    except ImportError as error:
        return refuse(f'{error.name} is missing: pip install -e ".[book]"')
    except UserError as error:
        return refuse(error)
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}: choose another folder")
    page = f"{lessons[0].stem}.html" if options.lesson else "index.html"
    print(f"wrote {book.folder}: open {book.folder / page} in a browser")
    return 0


def refuse(message):
    """Print a line on a mistake of the user; return the exit code."""
    print(f"book.py: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
