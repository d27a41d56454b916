"""The trainings of the bundled models on other texts, tiny, on the stand-in for GPU arrays."""

import json
import os
import shutil
import subprocess

import pytest
from paths import EXAMPLES, ROOT, SUPPORT
from tiny_translator import make_subwords, save

PAIRS = [
    ("Tom lives in Boston.", "Tom lebt in Boston."),
    ("Mary has 3 dogs.", "Mary hat 3 Hunde."),
    ("Tom and Mary saw 25 birds.", "Tom und Mary sahen 25 Vögel."),
    ("It is late.", "Es ist spät."),
]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("setsid"), reason="the program needs bash and setsid")
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("sources", ["whole", "without-back", "without-made", "without-phrases"]),
        ("anew", ["anew"]),
    ],
)
def test_the_trainings_run_to_their_end(task, expected, tmp_path):
    for part in ("train", "val", "test"):
        for language, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
            path = tmp_path / "data" / "tatoeba-en-de" / f"{part}.{language}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "mono").write_text("Das ist gut.\n", encoding="utf-8")
    (tmp_path / "back").write_text("That is good.\n", encoding="utf-8")
    save(tmp_path / "teacher", make_subwords(), {"max_subwords": 20})
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT, SUPPORT / "stand_in"))),
        "MINITF_DATA": str(tmp_path / "data"),
        "MINITF_BACKEND": "cupy",
        "MINITF_FORMS": "off",
        "TEACHERS": str(tmp_path / "teacher"),
        "QUICK": "1",
    }
    out = tmp_path / "out"
    command = [EXAMPLES / "models" / "trainings.sh", task, "en-de"]
    done = subprocess.run(
        [*command, tmp_path / "mono", tmp_path / "back", out],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    logs = "".join(path.read_text()[-1500:] for path in out.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    assert sorted(line.split(":")[0] for line in done.stdout.splitlines()) == expected, logs
    for name in expected:
        assert json.loads((out / name / "results.json").read_text()), logs
    pairs = {name: len(text.read_text("utf-8").splitlines()) for name, text in texts(out).items()}
    if task == "sources":
        assert pairs["text-without-back"] == pairs["text"] - 1
        assert pairs["text-without-phrases"] == len(PAIRS)  # which know too few words of MONO
    else:
        assert pairs["text-anew"] == pairs["text"] + 3
        written = (out / "text-anew" / "written").read_text("utf-8").splitlines()
        assert (out / "text-anew" / "train.de").read_text("utf-8").splitlines()[-3:] == written


def texts(out):
    """Return the sources of each text that was trained on, {folder: path}."""
    return {path.parent.name: path for path in out.glob("text*/train.en")}
