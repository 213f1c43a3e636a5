"""The report as a page that follows its runs: a server on loopback with two addresses.

`/` is the page and `/data.json` its data. No part of a request is used as a file name. The server answers only GET, and
only requests that use this machine's own names. This prevents DNS rebinding, where a foreign name points at 127.0.0.1.
"""

import hashlib
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dvdrl.errors import DvdrlError
from dvdrl.runs.directory import runs_in
from dvdrl.views.report import gather, make_page, to_json

HOST = "127.0.0.1"
_OUR_NAMES = {"127.0.0.1", "localhost", "::1"}


def serve(directories: Sequence[Path], port: int) -> None:
    """Serve until interrupted."""
    with make_server(directories, port) as server:
        print(f"http://{HOST}:{server.server_port}/  (stop with Ctrl-C)", flush=True)
        server.serve_forever()


def make_server(directories: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """The server, bound but not running yet.

    Raises:
        DvdrlError: a directory holds no run, or the port is not available.
    """
    runs = runs_in(directories)
    gather(runs, videos=False)  # report unreadable files now
    watched = _Watched(runs)

    class Handler(_Handler):
        source = watched

    if not 0 <= port <= 65535:
        raise DvdrlError(f"port: expected 0 to 65535, got {port}")
    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise DvdrlError(f"cannot listen on port {port}: {error.strerror}; --port chooses another") from error


class _Watched:
    """The data of runs. They are gathered again when a file has changed."""

    def __init__(self, runs: Sequence[Path]):
        self.runs = runs
        self._lock = threading.Lock()
        self._seen: list[tuple[int, int]] | None = None
        self._data = b""

    def data(self) -> tuple[bytes, str]:
        """The JSON and its version."""
        with self._lock:
            seen = [_change(run / name) for run in self.runs for name in ("config.json", "metrics.jsonl")]
            if seen != self._seen:
                self._data = to_json(gather(self.runs, videos=False)).encode()
                self._seen = seen
            return self._data, f'"{hashlib.sha256(self._data).hexdigest()[:32]}"'


def _name(host: str) -> str | None:
    """The name in a Host header, without the port; None if the header is invalid."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _change(path: Path) -> tuple[int, int]:
    try:
        about = path.stat()
    except OSError:
        return 0, 0
    return about.st_mtime_ns, about.st_size


class _Handler(BaseHTTPRequestHandler):
    """Answers the two addresses."""

    source: _Watched
    server_version, sys_version = "dvdrl", ""

    def do_GET(self) -> None:
        """Answer one request."""
        if _name(self.headers.get("Host", "")) not in _OUR_NAMES:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"ask for localhost\n")
            return
        try:
            if self.path == "/":
                page = make_page(gather(self.source.runs, videos=True), watch=True)
                self._answer(HTTPStatus.OK, "text/html; charset=utf-8", page.encode())
            elif self.path == "/data.json":
                data, version = self.source.data()
                if self.headers.get("If-None-Match") == version:
                    self._answer(HTTPStatus.NOT_MODIFIED, "application/json", b"", ETag=version)
                else:
                    self._answer(HTTPStatus.OK, "application/json", data, ETag=version)
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"nothing here but / and /data.json\n")
        except ConnectionError:  # the browser did not wait for the answer
            self.close_connection = True
        except DvdrlError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", f"{error}\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a page sends a request every two seconds."""

    def _answer(self, status: HTTPStatus, kind: str, content: bytes, **headers: str) -> None:
        self.send_response(status)
        fixed = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in {**fixed, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
