"""Public models by name: fetched once from a hub, a mirror or a proxy, verified, and converted."""

import hashlib
from functools import partial

import pytest
from public_files import PUBLIC
from saved_files import quiet
from server import reply_of, serving

from minitf.commands import translate
from minitf.files.models import read_notes
from minitf.public import commandline, model_folder, remote
from minitf.training import Settings
from minitf.training.commandline import build

NAME = "Helsinki-NLP/opus-mt-en-de"
TEXTS = "train", "valid"
FILES = {
    path.name: path.read_bytes()
    for path in PUBLIC.iterdir()
    if path.name in (*remote.SMALL, "model.safetensors")
}
SHA256 = hashlib.sha256(FILES["model.safetensors"]).hexdigest()


@pytest.fixture(autouse=True)
def pinned(monkeypatch):
    monkeypatch.setitem(remote.PINNED, NAME, ("0123abcd", SHA256))


@pytest.fixture
def server(monkeypatch):
    files = dict(FILES)
    with serving(partial(reply_of, files)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url + "/")
        server.files = files
        yield server


def test_a_name_becomes_a_model_once(server, tmp_path):
    said = []
    folder = remote.download_and_convert(NAME, said.append)
    assert said[0] == f"model    {NAME}: about 300 MB; licence: {remote.OPUS}"
    n = len(server.requests)
    assert server.requests[0][0] == f"/{NAME}/resolve/0123abcd/config.json"
    assert remote.download_and_convert(NAME, said.append) == folder and len(server.requests) == n
    notes = read_notes(folder)
    assert notes["licence"] == remote.OPUS and notes["source"].endswith("/tree/0123abcd")
    assert (notes["source_language"], notes["target_language"]) == ("en", "de")


def test_the_licence_of_the_card_is_kept(server):
    server.files["README.md"] = b"---\nlicense: apache-2.0\n---\n"
    assert read_notes(remote.download_and_convert(NAME, quiet))["licence"] == "apache-2.0"


def test_translate_takes_the_name(server, capsys):
    assert translate.main(["--model", "opus-mt-en-de", "--max-extra", "2", "the dog"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "CC-BY 4.0" in err and "about 300 MB" in err


def test_fine_tuning_takes_the_name(server, tmp_path, capsys):
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        (tmp_path / name).write_text("the dog sleeps\n" * 5)
    texts = {name: [str(tmp_path / f"{name}.{end}") for end in ("en", "de")] for name in TEXTS}
    out = tmp_path / "tuned"
    build(Settings(**texts, start_from="opus-mt-en-de", out=str(out), batch_tokens=400))
    assert "CC-BY 4.0" in (said := capsys.readouterr().out) and "about 300 MB" in said
    n = len(server.requests)
    build(Settings(**texts, start_from=NAME, plan=True, batch_tokens=400))
    assert len(server.requests) == n and "CC-BY 4.0" not in capsys.readouterr().out


def test_translate_goes_nowhere_for_a_folder_that_is_missing(server, capsys):
    assert translate.main(["--model", "runs/mine", "the dog"]) == 2
    assert "runs/mine: no such folder" in capsys.readouterr().err and not server.requests


def test_the_command_writes_where_it_is_told(server, tmp_path):
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "README.md").read_text().count("CC-BY 4.0") == 1
    n = len(server.requests)
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 2  # not empty
    assert len(server.requests) == n


def test_weights_with_another_digest_are_refused(server, tmp_path, capsys):
    server.files["model.safetensors"] = FILES["model.safetensors"][:-1] + b"x"
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 2
    assert "is not the published file (sha256" in capsys.readouterr().err
    del server.files["model.safetensors"]  # none whose digest is unknown take their place
    server.files["pytorch_model.bin"] = (PUBLIC / "legacy.bin").read_bytes()
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_older_models_have_their_weights_in_another_file(server, tmp_path):
    del server.files["model.safetensors"]
    server.files["pytorch_model.bin"] = (PUBLIC / "legacy.bin").read_bytes()
    assert commandline.main(["somebody/a-model", str(tmp_path / "out")]) == 0
    n = len(server.requests)
    remote.download("somebody/a-model", quiet)
    assert {path for path, _ in server.requests[n:]} <= {"/somebody/a-model/resolve/main/README.md"}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("opus-mt-de-en", "Helsinki-NLP/opus-mt-de-en"),
        ("https://huggingface.co/Helsinki-NLP/opus-mt-de-en", "Helsinki-NLP/opus-mt-de-en"),
        ("https://huggingface.co/a/b-c/tree/main", "a/b-c"),
        ("huggingface.co/a/b?library=x", "a/b"),
        ("a/b", None),  # a folder, which is not there
        ("https://example.org/a/b", None),
    ],
)
def test_the_address_of_a_page_names_a_model(monkeypatch, given, name):
    monkeypatch.setattr(remote, "download_and_convert", lambda name, say: f"folder of {name}")
    assert model_folder(given) == (f"folder of {name}" if name else given)


def test_a_model_that_the_hub_does_not_have(server, tmp_path, capsys):
    server.files.clear()
    assert commandline.main(["somebody/no-model", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and "somebody/no-model is not a MarianMT model of the hub" in err
    assert "there is no folder somebody/no-model here" in out


@pytest.mark.parametrize("code", [401, 403])
def test_a_model_that_the_hub_keeps_to_itself_or_has_not(code, monkeypatch, tmp_path, capsys):
    """The hub gives this answer for an unknown repository, too."""
    with serving(lambda handler: handler.send_error(code)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        assert commandline.main(["somebody/no-model", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "try again later" not in err
    assert "no public model somebody/no-model, or it needs an account: check the name" in err


def test_offline_one_line_names_the_files_and_the_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    folder = tmp_path / "data" / "downloads" / "public" / "Helsinki-NLP--opus-mt-en-de"
    files = "config.json, vocab.json, source.spm, target.spm, model.safetensors"
    assert f"download {files} from http://127.0.0.1:" in err
    assert f"/{NAME}/tree/0123abcd into {folder}" in err and "HF_ENDPOINT" in err


def test_a_mirror_without_its_protocol_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "hf-mirror.com")
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "begin the address of a mirror with https://" in err
    assert commandline.main(["opus-mt-ä-fr", str(tmp_path / "out")]) == 2
    assert "not the name of a public model" in capsys.readouterr().err


def test_files_put_there_by_hand_need_no_network(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "data" / "downloads" / "public" / "Helsinki-NLP--opus-mt-en-de"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 0
    assert "README.md is not on this machine, and no connection to" in capsys.readouterr().out


def test_a_proxy_of_the_environment_is_used(server, monkeypatch, tmp_path):
    """The proxy gets the whole address, and answers for a hub that does not exist."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    assert commandline.main(["opus-mt-en-de", str(tmp_path / "out")]) == 0
    assert server.requests[0][0] == f"http://hub.invalid/{NAME}/resolve/0123abcd/config.json"
