import pytest

from minitf.data import fetch
from minitf.public import importing
from minitf.translation import placeholders


@pytest.fixture(autouse=True)
def a_machine(monkeypatch, tmp_path):
    """Give each test a data folder of its own, and no proxy or mirror; downloads do not wait.

    Leave out the translations that show which words an imported model copies: they are nine tenths
    of an import, and a random model copies none.
    """
    for module in (placeholders, importing):
        monkeypatch.setattr(module, "copied_placeholders", lambda *_: [])
    monkeypatch.setattr(fetch, "WAIT", 0)
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies of its first use
    monkeypatch.setenv("MINITF_DATA", str(tmp_path / "data"))
    for name in ("http_proxy", "https_proxy", "no_proxy", "HF_ENDPOINT", "MINITF_FIREFOX"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
