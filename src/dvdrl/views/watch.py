"""The report as a page that follows its runs: a server on loopback with two addresses.

`/` is the page and `/data.json` its data. No part of a request is used as a file name. The server answers only GET, and
only requests that use this machine's own names. This prevents DNS rebinding, where a foreign name points at 127.0.0.1.
"""

import contextlib
import hashlib
import html
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dvdrl.errors import DvdrlError, printable
from dvdrl.runs.directory import runs_below
from dvdrl.views.report import gather, make_page, to_json

HOST = "127.0.0.1"
MOST_CONNECTIONS = 32
LONGEST_CONNECTION = 60.0
"""Seconds, after which a connection ends, whatever has come of it."""
_OUR_NAMES = {"127.0.0.1", "localhost", "::1"}


def serve(directories: Sequence[Path], port: int) -> None:
    """Serve until interrupted."""
    with make_server(directories, port) as server:
        waiting = "" if _runs(directories) else f"; {', '.join(map(str, directories))} has no run yet"
        print(printable(f"http://{HOST}:{server.server_port}/  (stop with Ctrl-C{waiting})"), flush=True)
        server.serve_forever()


def make_server(directories: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """The server, bound but not running yet.

    Runs may begin later: until there is one, the page says that it waits.

    Raises:
        DvdrlError: no directory is given, a run cannot be read, or the port is not available.
    """
    if not directories:
        raise DvdrlError("no run directory given")
    if runs := _runs(directories):
        gather(runs, videos=False)  # report unreadable files now
    watched = _Watched(directories)

    class Handler(_Handler):
        source = watched

    if not 0 <= port <= 65535:
        raise DvdrlError(f"port: expected 0 to 65535, got {port}")
    try:
        return _Server((HOST, port), Handler)
    except OSError as error:
        raise DvdrlError(f"cannot listen on port {port}: {error.strerror}; --port chooses another") from error


class _Server(ThreadingHTTPServer):
    """A thread for each connection, up to `MOST_CONNECTIONS`; then the oldest one is ended for a new one.

    So whoever asks is answered at once, however many others are slow or say nothing.
    """

    request_queue_size = 128

    def __init__(self, *arguments: Any):
        self._since: dict[Any, float] = {}
        """When each connection began, the oldest first."""
        self._changing = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a connection."""
        with self._changing:
            if len(self._since) >= MOST_CONNECTIONS:
                self._end(next(iter(self._since)))
            self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End the connections that have taken too long; called every half second."""
        with self._changing:
            for request, begun in list(self._since.items()):
                if time.monotonic() - begun > LONGEST_CONNECTION:
                    self._end(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        with self._changing:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that are gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _end(self, request: Any) -> None:
        del self._since[request]
        with contextlib.suppress(OSError):  # its thread then finds that nothing more comes, or can be sent
            request.shutdown(socket.SHUT_RDWR)


def _runs(directories: Sequence[Path]) -> list[Path]:
    """The runs that there are by now."""
    return list(dict.fromkeys(run for directory in directories for run in runs_below(directory)))


class _Watched:
    """The page and the data of runs. They are made again when a file has changed, however often they are asked for."""

    def __init__(self, directories: Sequence[Path]):
        self._directories = directories
        self._runs: list[Path] = []
        self._lock = threading.Lock()
        self._made: dict[bool, tuple[list[Any], bytes]] = {}

    def page(self) -> bytes:
        """The page, with the videos; before there are runs, one that asks again."""

        def make() -> bytes:
            if not self._runs:
                return _waiting(self._directories).encode(errors="replace")
            return make_page(gather(self._runs, videos=True), watch=True).encode(errors="replace")

        return self._latest(True, make)

    def data(self) -> tuple[bytes, str]:
        """The JSON and its version."""

        def make() -> bytes:
            if not self._runs:
                raise DvdrlError("there is no run yet")
            return to_json(gather(self._runs, videos=False)).encode()

        data = self._latest(False, make)
        return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'

    def _latest(self, videos: bool, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            self._runs = _runs(self._directories)
            read = [
                run / name for run in self._runs for name in ("config.json", "metrics.jsonl", "policies/policies.json")
            ]
            if videos:
                read += [path for run in self._runs for path in sorted((run / "videos").glob("*.mp4"))]
            seen = [(path, *_change(path)) for path in read]
            if videos not in self._made or self._made[videos][0] != seen:
                self._made[videos] = seen, make()
            return self._made[videos][1]


def _waiting(directories: Sequence[Path]) -> str:
    names = html.escape(", ".join(map(str, directories)))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
        f"<title>dvdrl</title></head><body><p>There is no run in {names} yet. This page waits for it.</p></body></html>"
    )


def _name(host: str) -> str | None:
    """The name in a Host header, without the port; None if the header is invalid."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _change(path: Path) -> tuple[int, int]:
    try:
        about = path.stat(follow_symlinks=False)
    except OSError:
        return 0, 0
    return about.st_mtime_ns, about.st_size


class _Handler(BaseHTTPRequestHandler):
    """Answers the two addresses."""

    source: _Watched
    server_version, sys_version = "dvdrl", ""
    timeout = 10.0
    """Seconds without a byte, after which a connection ends."""

    def do_GET(self) -> None:
        """Answer one request."""
        if _name(self.headers.get("Host", "")) not in _OUR_NAMES:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"ask for localhost\n")
            return
        try:
            if self.path == "/":
                self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.source.page())
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
