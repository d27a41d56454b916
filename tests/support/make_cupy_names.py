"""Write cupy_names.json: what a real CuPy has and which arguments it takes. strict.py
is made of it.

Needs CuPy but no GPU:  pip install cupy-cuda13x && python tests/support/make_cupy_names.py
"""

import inspect
import json
from pathlib import Path

import cupy
import numpy as np

NUMBER_TYPES = (np.generic, np.dtype, np.finfo, np.iinfo)
# Read in CuPy's sources: these fetch a number from the device, so the host waits for it.
SYNCHRONISING = [
    *("argpartition", "argwhere", "array_repr", "array_str", "bincount", "choose", "compress"),
    *(
        "delete",
        "diag_indices_from",
        "digitize",
        "extract",
        "flatnonzero",
        "histogram",
        "intersect1d",
    ),
    *(
        "item",
        "nanmax",
        "nanmin",
        "nonzero",
        "percentile",
        "piecewise",
        "place",
        "putmask",
        "quantile",
    ),
    *("setdiff1d", "setxor1d", "tobytes", "tolist", "tril_indices", "triu_indices", "trim_zeros"),
    *("union1d", "unique", "unravel_index"),
]


def signature(function):
    """The arguments as "(a, axis=None, *, dtype=None)", each default written None; "" for what
    is not called.

    Compiled functions carry theirs in the first line of the docstring, with C types
    before the names.
    """
    if not callable(function) or isinstance(function, type):
        return ""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        line = (function.__doc__ or "(*args, **kwargs)").splitlines()[0]
        return _from_text(line[line.index("(") + 1 : line.rindex(")")])
    pieces = []
    for parameter in parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
            piece.startswith("*") for piece in pieces
        ):
            pieces.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else "=None"
        pieces.append(stars + parameter.name + default)
    return "(" + ", ".join(pieces) + ")"


def _from_text(arguments):
    pieces = []
    for argument in filter(None, arguments.split(", ")):
        name, equals, _ = argument.partition("=")
        pieces.append(name.split()[-1] + ("=None" if equals else ""))
    return "(" + ", ".join(piece for piece in pieces if piece != "self") + ")"


def describe(holder):
    """The public names of a module or class: each is "ufunc", "constant", a signature, or
    "" (the rest).
    """
    names = {}
    for name in sorted(dir(holder)):
        value = getattr(holder, name)
        if not name.startswith("_") and not inspect.ismodule(value):
            number_type = isinstance(value, type) and issubclass(value, NUMBER_TYPES)
            constant = number_type or value is None or isinstance(value, float)
            ufunc = isinstance(value, cupy.ufunc)
            names[name] = "ufunc" if ufunc else "constant" if constant else signature(value)
    if "einsum" in names:
        names["einsum"] = "(*operands, dtype=None, optimize=None)"  # declared as **kwargs
    return names


def main():
    module = describe(cupy)
    ufuncs = [name for name, kind in module.items() if kind == "ufunc"]
    names = {
        "version": cupy.__version__,
        "cupy": module,
        "linalg": describe(cupy.linalg),
        "ndarray": describe(cupy.ndarray),
        "ndarray_special": sorted(name for name in dir(cupy.ndarray) if name.startswith("__")),
        "ufunc_methods": [
            name for name in describe(cupy.ufunc) if callable(getattr(cupy.ufunc, name))
        ],
        "synchronising": SYNCHRONISING,
        "ufunc_at": [name for name in ufuncs if getattr(cupy, name)._scatter_op],
    }
    path = Path(__file__).with_name("cupy_names.json")
    path.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(module)} names of CuPy {cupy.__version__}")


if __name__ == "__main__":
    main()
