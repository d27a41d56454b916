"""Public models by name: their files are downloaded, verified, and converted once.

OPUS-MT's are on a hub, `HF_ENDPOINT` or https://huggingface.co; firefox.py has Firefox's. A
proxy is used if the environment names one (`https_proxy`), as by any program with Python's urllib.
"""

from collections.abc import Callable
from pathlib import Path

from minitf.atomic import atomic_folder
from minitf.data import read_table
from minitf.data.corpora import data_folder
from minitf.data.fetch import NoConnection, NotAllowed, NotFound, Remote, fetch
from minitf.errors import UserError
from minitf.files.models import CONFIG
from minitf.public.firefox import download_firefox, site
from minitf.public.formats import languages_of_name
from minitf.public.hugging_face import MODELS, TORCH_WEIGHTS, VOCABULARY, WEIGHTS
from minitf.public.importing import import_model

HUB = "https://huggingface.co"
OPUS = "CC-BY 4.0 (https://creativecommons.org/licenses/by/4.0/)"
SMALL = (CONFIG, VOCABULARY, *MODELS)
CARD = "README.md"

# {name of a model: (commit, sha256 of its weights)} of the versions that are pinned.
PINNED = {name: pinned for name, *pinned in read_table(Path(__file__).parent, "pinned.txt")}


def download_and_convert(name: str, say: Callable[[str], object] = print) -> Path:
    """Return the folder of a public model in minitf's format; download and convert it once.

    Raises UserError if it cannot be had.
    """
    out = data_folder() / "models" / name.replace("/", "--")
    if not out.is_dir():
        source, notes = download(name, say)
        with atomic_folder(out) as folder:
            import_model(source, folder, "float16" if "/" in name else "int8", notes=notes, say=say)
        say(f"made     {out}")
    return out


def download(name: str, say: Callable[[str], object] = print) -> tuple[Path, dict]:
    """Return the folder with a model's files, and notes for its card; download what is missing.

    name: as `owner/model`; without an owner, one of Firefox's. Licence and size are said first.
    Raises UserError if a file cannot be had, differs from its digest, or if there is no connection:
    then with the files and the folder to put them into.
    """
    if "/" not in name:
        return download_firefox(name, say)
    commit, sha256 = PINNED.get(name, ("main", "-"))
    folder = data_folder() / "downloads" / "public" / name.replace("/", "--")
    base = site("HF_ENDPOINT", HUB)
    page, base = f"{base}/{name}/tree/{commit}", f"{base}/{name}/resolve/{commit}"
    files = ", ".join([*SMALL, WEIGHTS])
    if not all((folder / file).exists() for file in SMALL):
        about = "usually 35 to 600 MB; licence: see its card, which is downloaded too"
        say(f"model    {name}: {f'about 300 MB; licence: {OPUS}' if name in PINNED else about}")
    try:
        for file in SMALL:
            fetch(Remote(f"{base}/{file}"), folder / file, say)
        try:
            fetch(Remote(f"{base}/{CARD}"), folder / CARD, say)
        except NotFound:
            say(f"notice   there is no {CARD}: the licence is not known from it")
        except NoConnection as error:
            say(f"notice   {CARD} is not on this machine, and {error}: it may name another licence")
        _fetch_weights(base, folder, sha256, say)
    except NoConnection as error:
        raise UserError(
            f"{error}, and {name} is not complete on this machine: go online; or set HF_ENDPOINT "
            f"to the address of a mirror; or download {files} from {page} into {folder}"
        ) from None
    except NotFound as error:
        raise UserError(f"{name} is not a MarianMT model of the hub: {error}") from None
    except NotAllowed:  # the answer of the hub for a name that it does not know
        raise UserError(
            f"there is no public model {name}, or it needs an account: check the name at {page}; "
            f"with an account, download {files} into {folder}"
        ) from None
    notes = {"source": f"{HUB}/{name}"}
    if name in PINNED:
        notes = {"source": f"{HUB}/{name}/tree/{commit}", "licence": OPUS}
    return folder, notes | languages_of_name(name)


def _fetch_weights(base, folder, sha256, say):
    """Download the weights, in the older format if there is no other."""
    digest = f"sha256:{sha256}" if sha256 != "-" else ""
    try:
        if digest or not (folder / TORCH_WEIGHTS).exists():
            fetch(Remote(f"{base}/{WEIGHTS}", digest=digest), folder / WEIGHTS, say)
            return
    except NotFound:
        if digest:
            raise
    fetch(Remote(f"{base}/{TORCH_WEIGHTS}"), folder / TORCH_WEIGHTS, say)
