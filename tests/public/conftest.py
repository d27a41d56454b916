import pytest

from minitf.public import importing
from minitf.translation import placeholders


@pytest.fixture(autouse=True)
def no_trial_of_placeholders(monkeypatch):
    """Leave out the translations that show which words an imported model copies.

    They are nine tenths of an import; a random model copies none.
    """
    for module in (placeholders, importing):
        monkeypatch.setattr(module, "copied_placeholders", lambda *_: [])
