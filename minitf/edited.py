"""Which files of equations have been edited: then no form may compute in their place.

A form is a program of its own, so it does not notice when somebody edits its equation. DIGESTS has
a digest of each file as the forms were last checked against it. If a file has another one, `forms`
leaves the work to the equations and says so.

Whoever edits an equation and its forms alike runs `tests/engine/test_edited.py`, which says what
to write into DIGESTS.
"""

import contextlib
import hashlib
import re
from pathlib import Path

__all__ = ["DIGESTS", "EQUATIONS", "digest_of", "edited"]

DIGESTS = {
    "decode.py": "e45cf947e9436edb",
    "dropout.py": "0c921895bb796793",
    "functions.py": "abeadb45474caae2",
    "loss.py": "e078ca53ce3cc3cd",
    "nn.py": "4552f992ab749d9d",
    "optim.py": "8a975c50c9748633",
    "tensor.py": "ee15b22aeebc537f",
    "transformer.py": "6cb289fae593dc37",
}
# The files whose edit may change what a model computes; the others train it or search with it.
EQUATIONS = {"functions.py", "nn.py", "tensor.py", "transformer.py"}
_DOCSTRING = re.compile(r'^ *r?""".*?"""$', re.DOTALL | re.MULTILINE)


def _edited_files() -> list[str]:
    """Return the names of the files of equations that do not have their digest."""
    folder, edited = Path(__file__).parent, []
    for name, digest in DIGESTS.items():
        with contextlib.suppress(OSError):  # installed without its source: nobody has edited it
            if digest_of((folder / name).read_text(encoding="utf-8")) != digest:
                edited.append(name)
    return edited


def digest_of(source: str) -> str:
    """Return a digest of a program, whatever its docstrings and its lines of comments say."""
    lines = _DOCSTRING.sub("", source).splitlines()
    code = [line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


# When minitf was imported: a file that is edited later belongs to the next import.
edited = _edited_files()
