import os
import re
import signal

# Products of small matrices are slower on several threads. NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
import strict
from lesson_files import LESSONS, introduced, tree_of

from minitf import backend
from minitf.errors import UserError
from minitf.files.arrays import save_arrays
from minitf.text import Words

for scheme in ("http", "https"):  # no test reaches the internet, nor does a process that it starts
    os.environ[f"{scheme}_proxy"] = "http://127.0.0.1:9"
os.environ["no_proxy"] = "127.0.0.1"

# Which lesson teaches what a file tests. In the files of tables, a row belongs to the lesson of
# the name in it.
TABLES = ("test_gradients", "test_docs", "test_parity", "test_nn")
LESSON_OF = {
    **dict.fromkeys(("test_tensor", "test_check"), "02"),
    **dict.fromkeys(("test_dropout",), "04"),
    **dict.fromkeys(("test_transformer", "test_config"), "06"),
    **dict.fromkeys(("test_loss", "test_optim", "test_learning"), "07"),
    **dict.fromkeys(("test_decode", "test_beam", "test_evaluation"), "08"),
    **dict.fromkeys(
        ("test_text", "test_toy", "test_corpora", "test_dataset", "test_train", "test_resume"), "09"
    ),
    **dict.fromkeys(
        (
            "test_checkpoint",
            "test_updater",
            "test_distributed",
            "test_mpirun",
        ),
        "09",
    ),
    **dict.fromkeys(("test_settings", "test_log", "test_update", "test_recorded_run"), "09"),
    **dict.fromkeys(("test_fetch", "test_downloads", "test_tokenized"), "09"),
    **dict.fromkeys(("test_lesson",), "09"),
    **dict.fromkeys(("test_not_finite", "test_planning", "test_mistakes", "test_campaigns"), "09"),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


STAND_INS = {"strict": strict.module, "kernels": strict.with_kernels}


@pytest.fixture(
    params=[
        *("numpy", "strict"),
        pytest.param("kernels", marks=pytest.mark.slow),
        pytest.param("cupy", marks=pytest.mark.gpu),
    ]
)
def library(request):
    """Run a test on NumPy, on the strict stand-in for GPU arrays, on that with fused kernels, and
    on a GPU if any.
    """
    with backend.using(STAND_INS.get(request.param, request.param)):
        yield request.param


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "encoder.weight": rng.standard_normal((5, 7)).astype(np.float32),
        "encoder.bias": np.zeros(7, np.float16),
        "step": np.array(12),
        "order": np.asfortranarray(rng.integers(0, 9, (2, 3, 4), dtype=np.int32)),
        "exact": rng.standard_normal(3),
        "empty": np.zeros((0, 4), np.float32),
        "bytes": np.arange(5, dtype=np.uint8),
    }


@pytest.fixture
def saved(tmp_path, arrays):
    save_arrays(tmp_path / "step.safetensors", arrays, {"step": 12})
    return tmp_path / "step.safetensors"


@pytest.fixture
def words():
    return Words.train(["the dog sees the cat"])


def pytest_configure():
    """Let signals arrive that some tests send: with `&` and `nohup` a shell has them ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    """Mark each test with its lessons; leave out what was not asked for, and skip what
    cannot run here.
    """
    _mark_lessons(items)
    left_out = [mark for mark in ("slow", "gpu") if not _asked_for(mark, config)]
    deselected = {item for item in items if _kind_of(item) in left_out}
    config.hook.pytest_deselected(items=[item for item in items if item in deselected])
    items[:] = [item for item in items if item not in deselected]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and (missing := _why_no_gpu()):
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=missing))


def _kind_of(item):
    """Return gpu or slow, or None. What is slow on the simulator of a GPU is not so on a GPU."""
    return next((mark for mark in ("gpu", "slow") if item.get_closest_marker(mark)), None)


def _mark_lessons(items):
    """Mark each test with the lesson that it belongs to, so that a class can run
    pytest -m lesson04.
    """
    teachers = {
        name.split(".")[1]: path.stem[:2] for path in LESSONS for name in introduced(tree_of(path))
    }
    for item in items:
        variant = getattr(item, "callspec", None)
        words = set(re.findall(r"\w+", variant.id)) if variant else set()
        lessons = {word[:2] for word in words if re.match(r"0[1-9]_", word)}
        lessons |= {teachers[word] for word in words & teachers.keys() if item.path.stem in TABLES}
        lessons.add(LESSON_OF.get(item.path.stem))
        for lesson in lessons - {None}:
            item.add_marker(f"lesson{lesson}")


def _asked_for(mark, config):
    """Whether -m has the word, as in  pytest -m "lesson04 and slow",  or each test is named, as
    in  file.py::test.
    """
    return re.search(rf"\b{mark}\b", config.option.markexpr) or all(
        "::" in name for name in config.args
    )


def _why_no_gpu():
    """Return why CuPy cannot be used on this machine, or None if it can."""
    try:
        with backend.using("cupy"):
            return None
    except UserError as error:
        return str(error)
