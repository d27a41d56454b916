"""Each folder imports only from those in this table, and heavy packages only in their homes."""

import ast
import functools
import re
import subprocess
import sys

import pytest
from paths import ENGINE, PACKAGE, ROOT

import minitf

# To the engine belongs `beyond`, of which transformer.py builds the SSRU.
CORE = {"errors", "backend", "forms", "engine"}
ALLOWED = {
    "errors": set(),
    "atomic": {"errors"},
    "backend": {"errors"},
    "forms": {"errors", "backend"},
    "engine": {"errors", "backend", "forms"},
    "common": CORE,
    "cpu": {*CORE, "common"},
    "gpu": {*CORE, "common"},
    "cli": {"errors"},
    "plot": set(),
    "text": {"errors", "atomic"},
    "documents": {"errors", "text"},
    "data": {"errors", "atomic", "text", "cli"},
    "files": {"errors", "atomic", "backend", "text"},
    "translation": {*CORE, "atomic", "text", "files", "cpu", "page"},
    "page": {*CORE, "atomic", "text", "files", "common"},
    "__init__": {*CORE, "translation"},  # the Translator, when it is asked for
}
ALLOWED["public"] = ALLOWED["translation"] | {"translation", "data", "cli"}
ALLOWED["commands"] = ALLOWED["public"] | {"public", "plot", "documents"}
ALLOWED["parsing"] = ALLOWED["commands"] | {"commands"}
ALLOWED["training"] = set(ALLOWED)
ALLOWED["course"] = set(ALLOWED)
ALLOWED["__main__"] = set(ALLOWED)  # of any folder; nothing imports it
HOMES = {  # a folder, or a file of it
    "cupy": {"gpu"},
    "cupyx": {"gpu"},
    "cupy_backends": {"gpu"},
    "matplotlib": {"plot", "course"},
    "sentencepiece": {"text"},
    "tree_sitter": {"documents"},
    "tree_sitter_markdown": {"documents"},
    "safetensors": {"files"},
    "sacrebleu": {"training.evaluation"},
    "mpi4py": {"training.distributed"},
    "sacremoses": {"training.evaluation"},
    "threadpoolctl": {"cpu", "translation", "training.distributed", "course"},
}
# Not while `import minitf` runs.
LAZY = {"cupy", "matplotlib", "mpi4py", "sentencepiece", "safetensors", "sacrebleu", "sacremoses"}
LAZY |= {"tree_sitter", "tree_sitter_markdown"}
UPWARD = {("forms", "cpu"), ("forms", "gpu")}  # by name: the only imports of what is higher
FILES = sorted(PACKAGE.rglob("*.py"))
CODE = [
    path
    for folder in ("minitf", "lessons", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def name_of(path):
    return str(path.relative_to(PACKAGE if path in FILES else ROOT).with_suffix("")).replace(
        "/", "."
    )


def folder_of(name):
    """Return the folder of a file or of a name in it (both without `minitf.`).

    That is its folder, the engine, or the file itself, as each __main__.
    """
    if name.split(".")[-1] == "__main__":
        return "__main__"
    first = name.split(".")[0]
    known = (first and (PACKAGE / first).exists()) or (PACKAGE / f"{first}.py").exists()
    return "engine" if first in (*ENGINE, "beyond") else first if known else "__init__"


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path):
    """Return (module, whether at the top of the file) of each import, in functions too.

    In f"minitf.{folder}", which only forms.py has, the folder is "cpu" or "gpu".
    """
    tree, found = tree_of(path), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node in tree.body) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"imports are absolute, also in {path}"
            found += [(f"{node.module}.{alias.name}", node in tree.body) for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            name = ast.unparse(node.args[0]).strip("f'")
            if name == "minitf.{xp._folder}":
                found += [("minitf.cpu", False), ("minitf.gpu", False)]
            else:  # the backend loads NumPy or CuPy by a name that it has checked
                assert "minitf" not in name and name_of(path) == "backend", f"{path}: {name}"
    return found


def arrows():
    """Return the pairs (file, file of the package that it imports), for imports anywhere in it."""
    names = {name_of(path).removesuffix(".__init__") for path in FILES}
    found = set()
    for path in FILES:
        name = name_of(path).removesuffix(".__init__")
        for module, _ in imports(path):
            other = module.removeprefix("minitf.")
            other = other if other in names else other.rpartition(".")[0]
            if module.startswith("minitf.") and other in names and other != name:
                found.add((name, other))
    return found


def circle(pairs):
    """Return what is left of arrows if those that lead nowhere are taken away, again and again."""
    ends, pairs = set(), set(pairs)
    while ends != (ends := {start for start, _ in pairs}):
        pairs = {(start, end) for start, end in pairs if end in ends}
    return pairs


def test_no_import_leads_in_a_circle_or_upward():
    found = arrows()
    assert found >= UPWARD
    assert not circle(found - UPWARD), "a circle of files"
    between = {tuple(map(folder_of, pair)) for pair in found - UPWARD}
    between = {(start, end) for start, end in between if start != end and start != "__main__"}
    assert not circle(between), "some folder imports another, and that one imports it"


def test_every_file_has_a_line_in_the_table():
    assert {folder_of(name_of(path)) for path in FILES} == set(ALLOWED)


def test_a_folder_imports_only_those_of_its_line():
    for path in FILES:
        name, folder = name_of(path), folder_of(name_of(path))
        allowed = ALLOWED[folder] | {folder}
        for module, _ in imports(path):
            if module.split(".")[0] == "minitf":
                other = folder_of(module.removeprefix("minitf").removeprefix("."))
                assert other in allowed or (name, other) in UPWARD, f"{name} imports {module}"


def test_of_what_is_beyond_the_paper_the_engine_has_the_ssru_alone():
    pairs = {pair for pair in arrows() if pair[0] in ENGINE and pair[1].startswith("beyond")}
    assert pairs == {("transformer", "beyond.ssru")}


def test_heavy_packages_have_one_home():
    for path in FILES:
        name, folder = name_of(path), folder_of(name_of(path))
        for module, top in imports(path):
            package = module.split(".")[0]
            if package in HOMES:
                assert {name, folder} & HOMES[package], f"{name} imports {package}"
                assert folder == "gpu" or not (top and package in LAZY), (
                    f"{name} imports {package} at the top"
                )


def test_imports_are_at_the_top_of_a_file_or_in_a_function():
    for path in FILES:
        body = tree_of(path).body
        first = next(
            (i for i, node in enumerate(body) if isinstance(node, ast.FunctionDef | ast.ClassDef)),
            len(body),
        )
        late = [node for node in body[first:] if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not late, name_of(path)


def test_the_package_imports_nothing_from_beside_it():
    imported = {module.split(".")[0] for path in FILES for module, _ in imports(path)}
    assert not imported & {"lessons", "examples", "tests"}


def test_the_first_line_of_each_file_says_what_it_is():
    for path in FILES:
        line = (ast.get_docstring(tree_of(path)) or "").partition("\n")[0]
        assert re.fullmatch(r".{12,}[.?]", line), f"{path}: its first line must say what it is"


def test_the_map_lists_the_engine_in_the_order_of_its_imports():
    text = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## The folders")[0]
    order = re.findall(r"^\| `(\w+)\.py`", text, re.MULTILINE)
    assert set(order) == set(ENGINE)
    for n, name in enumerate(order):
        needed = {
            module.split(".")[1]
            for module, _ in imports(PACKAGE / f"{name}.py")
            if module.startswith("minitf.")
        }
        assert needed & set(ENGINE) <= set(order[:n]), name


def loaded_by(code):
    command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    return set(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )


def test_import_minitf_loads_the_engine_alone():
    loaded = loaded_by("import minitf")
    assert not LAZY & loaded
    names = [name.removeprefix("minitf.") for name in loaded if name.startswith("minitf.")]
    folders = set(map(folder_of, names))
    assert "engine" in folders and folders <= CORE


def test_the_translator_is_loaded_when_it_is_asked_for():
    loaded = loaded_by("import minitf; minitf.Translator; from minitf import Translator")
    assert "minitf.translation.translator" in loaded and not LAZY & loaded
    with pytest.raises(AttributeError, match="module 'minitf' has no attribute 'Translators'"):
        minitf.Translators  # noqa: B018


def test_the_translator_starts_without_what_one_sentence_does_not_need():
    slow = {"numpy.random", "concurrent.futures", "logging", "zipfile"}  # 5 to 20 ms each
    assert not (slow | LAZY) & loaded_by("import minitf.commands.translate")


def test_a_function_fits_one_screen():
    functions = (
        (path, node)
        for path in CODE
        for outer in tree_of(path).body
        for node in (outer.body if isinstance(outer, ast.ClassDef) else [outer])
        if isinstance(node, ast.FunctionDef)
    )
    for path, node in functions:
        code = node.end_lineno - (
            node.body[1].lineno if ast.get_docstring(node) and len(node.body) > 1 else node.lineno
        )
        assert code <= 60, f"{node.name} in {name_of(path)} has {code} lines"
