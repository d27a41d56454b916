"""The house has floors: a file imports only from lower ones, and heavy packages only where they belong."""

import ast
import subprocess
import sys

import pytest
from paths import PACKAGE, ROOT

FLOORS = {
    "backend": 0,
    "gpu": 0,
    "toy_grammar": 0,
    "progress": 0,
    "warps": 1,
    "kernels": 1,
    "products": 1,
    "fused": 1,
    "tensor": 1,
    "config": 1,
    "dropout": 1,
    "text": 1,
    "toy": 1,
    "download": 1,
    "processes": 1,
    "functions": 2,
    "variations": 2,
    "check": 2,
    "augment": 2,
    "recipes": 2,
    "corpora": 3,
    "nn": 3,
    "loss": 3,
    "transformer": 4,
    "optim": 4,
    "encoded": 4,
    "decode": 5,
    "strips": 5,
    "checkpoint": 5,
    "probe": 2,
    "evaluate": 6,
    "sampling": 6,
    "translator": 7,
    "translate": 8,
    "parallel": 6,
    "ranks": 6,
    "settings": 6,
    "dataset": 6,
    "runlog": 6,
    "runfolder": 6,
    "signals": 0,
    "planning": 6,
    "lesson": 8,
    "trainer": 8,
    "train": 9,
    "__init__": 10,
    "__main__": 10,
}
SIDE = {"plot", "slides"}  # take arrays, import nothing of the package
# A run draws its own curves, a translation its attention; both kinds of pictures are saved alike.
EXTRA = {("runlog", "plot"), ("translate", "plot"), ("slides", "plot")}
# What a GPU does is one floor in four files.
EXTRA |= {
    ("fused", "dropout"),
    ("kernels", "warps"),
    ("products", "kernels"),
    ("fused", "products"),
    ("fused", "kernels"),
    ("fused", "warps"),
}
HOMES = {
    "cupy": {"gpu"},
    "cupyx": {"gpu"},
    "cupy_backends": {"gpu"},
    "matplotlib": {"plot", "slides"},
    "sentencepiece": {"text"},
    "sacrebleu": {"evaluate"},
    "mpi4py": {"ranks"},
    "sacremoses": {"evaluate", "recipes"},
    "threadpoolctl": {"lesson", "parallel", "probe", "ranks", "translator"},
}
LAZY = {"cupy", "matplotlib", "mpi4py", "sentencepiece", "sacrebleu", "sacremoses"}  # not while `import minitf` runs
FILES = sorted(PACKAGE.glob("*.py"))


def _imports(tree):
    """Give (module, name or None, whether at the top of the file) for each import."""
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.Import):
            yield from ((alias.name, None, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module, alias.name, top) for alias in node.names)


def _own_edges(tree):
    for module, name, _ in _imports(tree):
        if module == "minitf":
            yield name if (PACKAGE / f"{name}.py").exists() else "__init__"
        elif module.startswith("minitf."):
            yield module.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_imports_only_from_lower_floors(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for target in _own_edges(tree):
        if (path.stem, target) in EXTRA:
            continue
        assert path.stem not in SIDE, f"{path.stem} imports {target}, but takes only arrays"
        assert target in FLOORS, f"{path.stem} imports {target}, which has no floor"
        assert FLOORS[target] < FLOORS[path.stem], f"{path.stem} imports {target}, which is not below it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_heavy_packages_have_one_home(path):
    for module, _, top in _imports(ast.parse(path.read_text(encoding="utf-8"))):
        package = module.split(".")[0]
        if package in HOMES:
            assert path.stem in HOMES[package], f"{path.stem} imports {package}"
            # backend.py imports gpu.py itself only where there is CuPy.
            assert path.stem == "gpu" or not (top and package in LAZY), f"{path.stem} imports {package} at the top"


def test_every_file_has_a_floor():
    assert {path.stem for path in FILES} == set(FLOORS) | SIDE


@pytest.mark.parametrize("folder", ["lessons", "examples"])
def test_nothing_imports_lessons_or_examples(folder):
    for path in FILES:
        assert all(
            module.split(".")[0] != folder for module, _, _ in _imports(ast.parse(path.read_text(encoding="utf-8")))
        )


def test_import_minitf_loads_nothing_heavy():
    code = "import sys, minitf; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not LAZY & set(loaded.split())


@pytest.mark.parametrize(
    "path",
    [p for folder in ("minitf", "lessons", "examples", "tests") for p in sorted((ROOT / folder).glob("*.py"))],
    ids=lambda p: p.name,
)
def test_a_function_fits_one_screen(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            code = node.end_lineno - (
                node.body[1].lineno if ast.get_docstring(node) and len(node.body) > 1 else node.lineno
            )
            assert code <= 50, f"{node.name} has {code} lines"
