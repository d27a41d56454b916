"""Forms with one mistake each: holding them to their equations has to notice every one."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import form_cases
import pytest
import test_forms as checks

import minitf
from minitf import decode, forms, loss, optim, transformer
from minitf import functions as F
from minitf.errors import UserError

MUTANTS = {  # (the op whose rows and cases notice it, the file): (correct text, wrong text)
    (F.linear, "cpu/functions"): [
        ("    if b is not None:\n        y += b\n", ""),
        ("else column_sums(gy)", "else column_sums(gy) / max(2, len(gy))"),
    ],
    (F.layer_norm, "cpu/functions"): [
        ("normal) / size + eps", "normal) / max(1, size - 1) + eps"),
        ("        removed += (gy @ g)[..., None] / size\n", ""),
        ("return normal * g", "return normal"),
    ],
    (F.attention, "cpu/sums"): [
        ("np.vecdot(x, y)", "np.vecdot(x, x)"),
        ("range(0, shape[axis], n)", "range(0, max(1, shape[axis] - 1), n)"),
    ],
    (transformer.feed_forward_network, "common/layers"): [
        ("    return dropout.rate if dropout.training else 0.0", "    return dropout.rate"),
    ],
    (transformer.multi_head_attention, "common/layers"): [
        ("and vars(type(layer)).keys().isdisjoint(vars(layer))", ""),
        ('        and not getattr(layer, "keep_weights", False)\n', ""),
    ],
    (F.embedding, "cpu/functions"): [
        ("        return g_table, None\n", "        return None, None\n")
    ],
    (F.embedding, "cpu/sums"): [
        ("ordered[1:] != ordered", "ordered[1:] > 1 + ordered"),
        ("reduceat(rows[order]", "reduceat(rows"),
    ],
    (F.attention, "cpu/attention"): [
        ("    scores *= 1 / math.sqrt(query.shape[-1])\n", ""),
        ("            g_weights *= 1 / math.sqrt(q.shape[-1])\n", ""),
        ("dropped(gy[tile] @ swap(v[keys]), tile)", "gy[tile] @ swap(v[keys])"),
        ("start == 0)", "start >= 0)"),
        ("stored[i] if stored", "stored[0] if stored"),
        ("sums + (sums == 0)", "sums"),
        ("scores.max(axis=-1", "scores.min(axis=-1"),
        (" | np.isneginf(largest)", ""),
        ("scores.max() < LARGE", "True"),
        ("scores.min() > -LARGE", "True"),
        ("abs(largest) < LARGE", "abs(largest) < 10**6"),
    ],
    (loss.projected_cross_entropy, "cpu/loss"): [
        ("as_rows(gx)[rows]", "as_rows(gx)[: len(rows)]"),
        ("as_rows(x_data)[rows]", "as_rows(x_data)[: len(rows)]"),
        ("smoothing >= 0.5", "smoothing > 9"),
        (
            "wrong = loss.probability_of_others(smoothing, size)\n    rows",
            "wrong = loss.probability_of_others(smoothing, size + 1)\n    rows",
        ),
        ("-= rest\n", "-= rest + wrong\n"),
        ("start + size)", "start + size - 1)"),
        ("ids[chunk]", "ids[: len(chunk_hidden)]"),
        ("g_weight[block], start == 0)", "g_weight[block], True)"),
        ("total_nll + nlls", "nlls"),
        ("np.multiply(g_weight, scale,", "np.multiply(g_weight, 1,"),
        ("            logits += b\n", "            pass\n"),
        ("g_bias += column", "g_bias = column"),
        ("        p[impossible] = 0  # as their q is\n", ""),
        ("size - np.count_nonzero(impossible, axis=1)", "size"),
    ],
    (optim.adam_update, "cpu/functions"): [
        ("eps * root\n        np", "eps\n        np"),
        (" / (1 - beta_1**t)", ""),
        ("scratch = gradient * (1 - beta_1)", "scratch = gradient\n        scratch *= 1 - beta_1"),
        ("blocks(x.shape))", "blocks(x.shape)[: 2])"),
    ],
    (optim.adam_update, "cpu/threads"): [("items[i::count]", "items[i :: count + 1]")],
    (decode.fast_decoding, "cpu/packed"): [
        ("[:n_rows, :f]", "[:n_rows, -f:]"),
        ("range(0, n, few)", "range(0, n - few, few)"),
        ("[:n_rows, :f]", "[:, :f]"),
    ],
    (decode.fast_decoding, "common/decoder"): [
        ("self.capacity)[rows]", "self.capacity)[rows - rows % self.width]"),
        ("before.swapaxes(1, 2)[places].swapaxes(1, 2)", "before[:, :, : self.length]"),
        ("] = np.eye(self.width, dtype=bool)", "] = True"),
        ("        x *= math.sqrt(x.shape[1])\n", ""),
        ("texts.shape[1] - 1)", "0)"),
        ("            y += self.bias\n", "            pass\n"),
        ("bias=self.output[1]", "bias=None"),
        ('self.post = routines, model.config.norm == "post"', "self.post = routines, True"),
        ("        if self.decoding.norm:\n", "        if False:\n"),
        ("own_mask = self.routines.mask(self._with_newest(), x.dtype)", "self._with_newest()"),
        ("self.routines.mask(mask[:, 0], memory.dtype)", "None"),
        ("*self.source_caches, self.source_masks)", "self.source_masks)"),
        ("array[to] = array[of]", "pass"),
        ("self.layout.length - self.layout.width", "self.layout.capacity - self.layout.width"),
        ("self.source_caches[i]", "self.source_caches[0]"),
        ("(source.key, source.value)", "(source.value, source.key)"),
    ],
    (decode.fast_decoding, "cpu/decode"): [
        ("queries /= math.sqrt(size)", "queries /= 1"),
        ("size * layer.eps", "layer.eps"),
        ('if activation == "relu" else', "if True else"),
    ],
    (decode.continuations, "common/beams"): [
        ("np.lexsort((-values,", "np.lexsort((-tokens, -values,"),
        ("totals.ravel()[rows]", "totals.ravel()[rows // width * width]"),
    ],
    (decode.logsumexp, "cpu/decode"): [("ones)) + shifts", "ones))")],
    (F.linear, "gpu/functions"): [("    if b is not None:\n        y += b\n", "")],
    (transformer.add_and_norm, "gpu/functions"): [
        ("as_array(x).shape != added_data.shape", "False")
    ],
    (loss.projected_cross_entropy, "gpu/loss"): [
        ("smoothing >= 0.5", "smoothing > 9"),
        ("            logits += b\n", "            pass\n"),
        ("g_bias += fused", "g_bias = fused"),
        ("start + CHUNK_ROWS)", "start + CHUNK_ROWS - 1)"),
        ("add_product(gradient.T, chunk_hidden, g_weight)", "pass"),
    ],
    (transformer.multi_head_attention, "gpu/functions"): [
        (" if attention.training else 0.0", ""),
        ("array[i * n : (i + 1) * n]", "array[:n]"),
        ("not is_own(attention, transformer.MultiHeadAttention)", "False"),
        ("is_own(layer, nn.Linear) and layer.bias is None", "layer.bias is None"),
        ("is_own(layer, nn.Linear) and layer.bias is None", "is_own(layer, nn.Linear)"),
    ],
    (decode.fast_decoding, "gpu/decode"): [
        ("fused.add_norm(x, added, *settings)", "fused.layer_norm(added, *settings)"),
        ('activation == "relu" and inner', "inner"),
        ("best // size, found", "0 * best, found"),
    ],
    (F.dropout, "gpu/fused"): [("first_row * math.prod(shape[1:])", "0")],
    (transformer.feed_forward_network, "gpu/functions"): [
        ("len(inner_bias)), rate_of(dropout)", "len(inner_bias)), 0.0"),
        (" or activation is not functions.relu", ""),
        ("own = is_own(inner, nn.Linear) and", "own ="),
    ],
}
EACH = [(op, file, *texts) for (op, file), pairs in MUTANTS.items() for texts in pairs]


class Mutant(SourceFileLoader):
    """Loads a module of which one text is another."""

    def __init__(self, name, path, old, new):
        super().__init__(name, str(path))
        self.text = path.read_text(encoding="utf-8").replace(old, new)

    def get_code(self, fullname):
        return compile(self.text, self.path, "exec")


def folders_of(op, file):
    """Return the folders whose forms notice a mutant: its own, of `common` NumPy's, or both."""
    if file == "common/layers":
        return [folder for folder in checks.LIBRARY if op in forms._forms[folder]]
    return [file.split("/")[0].replace("common", "cpu")]


def plant(monkeypatch, folder, file, old, new):
    """Import the forms of a folder again, and one of the modules that they use as a mutant."""
    name = f"minitf.{file.replace('/', '.')}"
    loader = Mutant(name, Path(minitf.__file__).parent / f"{file}.py", old, new)

    class Finder:
        @staticmethod
        def find_spec(wanted, path=None, target=None):
            return (
                importlib.util.spec_from_file_location(name, loader.path, loader=loader)
                if wanted == name
                else None
            )

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    monkeypatch.setattr(minitf, folder, getattr(minitf, folder))
    monkeypatch.setitem(forms._forms, folder, {})
    for module in list(sys.modules):
        if module.startswith((f"minitf.{folder}", "minitf.common")):
            monkeypatch.delitem(sys.modules, module)
    importlib.import_module(f"minitf.{folder}")
    # Else the modules would decode.
    monkeypatch.setattr(decode, "has_logits_of_modules", lambda *_: True)


def hold_all(op, folder):
    """Compare an op with its equation on every row and case, with tiles of all sizes."""
    rows = [row for row in checks.ROWS if row.function is op]
    cases = [case for case in checks.CASES if op in case.ops and folder in case.folders]
    for sizes in form_cases.TILES if folder == "cpu" else ["small tiles"]:
        with pytest.MonkeyPatch.context() as patch:
            form_cases.lower(patch, sizes)
            for row in rows:
                checks.hold(row, folder, "float32")
                if folder == "cpu":
                    checks.hold(row, folder, "float64")
                    checks.hold_apart(row, "cpu", "float64")
            for case in cases:
                checks.hold_case(case, folder, "float64" if folder == "cpu" else "float32")


def test_the_mistakes_follow_the_code():
    for _, file, right, _ in EACH:
        text = (Path(minitf.__file__).parent / f"{file}.py").read_text(encoding="utf-8")
        assert text.count(right) == 1, f"{right!r} is {text.count(right)} times in {file}.py"


@pytest.mark.slow
@pytest.mark.parametrize(("op", "file", "right", "wrong"), EACH)
def test_a_mutant_is_noticed(op, file, right, wrong):
    for folder in folders_of(op, file):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, folder, file, right, wrong)
            # An array of another shape is noticed as well; and NaN, which decoding refuses: a
            # mutant that reads what it has not written may find it in that memory.
            with pytest.raises((AssertionError, ValueError, TypeError, UserError)):
                hold_all(op, folder)
