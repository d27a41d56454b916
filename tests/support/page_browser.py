"""A page of minitf/page in headless Chromium, with a script that reports about it."""

import base64
import contextlib
import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIETLY = ("--no-first-run", "--disable-background-networking", "--disable-component-update")
PATIENCE = 60  # seconds; on a busy machine the browser may hang as it starts


def report_of(
    page: Path,
    script: str,
    *options: str,
    running: bool = False,
    frame: int = 0,
) -> tuple:
    """Open a page in a browser; return what the script returns, and the console's messages.

    script: the body of an async function. The page's policy allows it in addition to the page's own
    program, and nothing else.
    running: open the page when the browser has been running for a second.
    frame: show the page in a frame of so many pixels, which may be narrower than any window.
    """
    script = f"(async () => {{\n{script}\n}})().then((found) =>\n"
    script += "  console.log(`reported ${JSON.stringify(found)}`));\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = page.read_text(encoding="utf-8").replace(
        "script-src ", f"script-src 'sha256-{digest}' ", 1
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copy, start = Path(folder, "page.html"), Path(folder, "start.html")
        copy.write_text(f"{text}<script>{script}</script>", encoding="utf-8")
        start.write_text(
            f'<iframe src="page.html" style="width:{frame}px; border:0"></iframe>'
            if frame
            else '<meta http-equiv="refresh" content="1;url=page.html">'
        )
        address = start.as_uri() if running or frame else copy.as_uri()
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *QUIETLY]
        command += ["--enable-logging=stderr", "--remote-debugging-port=0", *options]
        for profile in ("first", "second"):
            with contextlib.suppress(TimeoutError):
                return _read([*command, f"--user-data-dir={folder}/{profile}", address], PATIENCE)
    raise TimeoutError(f"Chromium did not report about {page}")


def _read(command, seconds):
    """Return the report and the console's messages before it; TimeoutError without a report."""
    messages = []
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace"
    ) as run:
        timer = threading.Timer(seconds, run.kill)
        timer.start()
        try:
            for line in run.stderr:
                _, reported, report = line.partition('"reported ')
                if reported:
                    return json.JSONDecoder().raw_decode(report)[0], messages
                if "CONSOLE" in line:
                    messages.append(line)
        finally:
            timer.cancel()
            run.terminate()
            run.stderr.close()
    raise TimeoutError
