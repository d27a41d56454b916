"""A server on this machine that does what servers do wrong, for the tests of downloading."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """answer: takes the handler of a request. requests: (path, Range header or "") of
    all that came.
    """

    daemon_threads = True

    def __init__(self, answer, port=0):
        self.answer, self.requests = answer, []
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, address):
        """A client that hangs up is no error."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Range", "")))
        self.server.answer(self)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def serving(answer, port=0):
    server = Server(answer, port)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(handler, content, ranges=True, at_most=None, claim=None):
    """Answer as a good server does, or not.

    ranges: whether it sends a part when asked for one. at_most: bytes after which it hangs up.
    claim: the length that it says.
    """
    asked = handler.headers.get("Range")
    start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and ranges else 0
    if start and start >= len(content):
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(content)}")
        handler.end_headers()
        return
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.send_header("Content-Length", str(len(content) - start if claim is None else claim))
    handler.end_headers()
    handler.wfile.write(content[start:][:at_most])


def reply_of(files, handler, **how):
    """Answer with the file of {end of its path: content} that is asked for, as `reply`, or 404."""
    for name, content in files.items():
        if handler.path.endswith(name):
            return reply(handler, content, **how)
    return handler.send_error(404)
