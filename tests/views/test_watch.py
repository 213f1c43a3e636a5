"""The watch server answers its two addresses, to this machine alone, and nothing changes by asking."""

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Places, Standing
from dvdrl.runs import policies
from dvdrl.views.watch import make_server
from written_runs import numbers, write_numbers, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_numbers(tmp_path / "run", numbers([1, 2]))


@pytest.fixture
def server(run: Path) -> Iterator[ThreadingHTTPServer]:
    with make_server([run], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: ThreadingHTTPServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    result = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return result


def test_it_is_on_loopback(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_data_are_those_of_the_run_and_newer_ones_when_there_are(server: ThreadingHTTPServer, run: Path) -> None:
    status, headers, content = ask(server, "/data.json")
    assert status == 200
    assert json.loads(content)["runs"][0]["last"]["iteration"] == 2
    assert ask(server, "/data.json", **{"If-None-Match": headers["ETag"]})[0] == 304
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(numbers([3])[0]) + "\n")
    status, headers, content = ask(server, "/data.json", **{"If-None-Match": headers["ETag"]})
    assert status == 200
    assert json.loads(content)["runs"][0]["last"]["iteration"] == 3


def test_it_may_be_started_before_the_run(tmp_path: Path) -> None:
    with make_server([tmp_path / "runs"], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        status, _, content = ask(server, "/")
        assert status == 200
        assert f"There is no run in {tmp_path}/runs yet".encode() in content
        assert b'http-equiv="refresh"' in content
        assert ask(server, "/data.json")[0] == 500
        for seed in (0, 1):
            write_numbers(tmp_path / "runs" / "both" / f"seed-{seed}", numbers([1, 2 + seed]))
        assert b"There is no run in" not in ask(server, "/")[2]
        data = json.loads(ask(server, "/data.json")[2])
        assert [each["last"]["iteration"] for each in data["runs"]] == [2, 3]
        server.shutdown()
        thread.join()


def test_what_is_known_of_members_is_followed_too(server: ThreadingHTTPServer, run: Path, tmp_path: Path) -> None:
    # Policies are written after the line of an iteration, so that the page may have been made between the two.
    _, headers, content = ask(server, "/data.json")
    assert json.loads(content)["runs"][0]["niches"] is None
    one, ones = np.ones(1, np.float32), np.ones(3, np.float32)
    standing = Standing(ones, ones > 0, Places(ones, ones[:, None], ("x",), one, one))
    population = write_run(tmp_path / "other", MLP((6, 4, 2)))
    policies.save(run / "policies", replace(population, standing=standing))
    status, _, content = ask(server, "/data.json", **{"If-None-Match": headers["ETag"]})
    assert status == 200
    assert json.loads(content)["runs"][0]["niches"]["coordinates"] == ["x"]


@pytest.mark.parametrize(
    "path",
    [
        *("/config.json", "/metrics.jsonl", "/../config.json", "/..%2fconfig.json", "/%2e%2e/%2e%2e/etc/passwd"),
        *("//etc/passwd", "/data.json/../config.json", "/data.json?x=1", "/./", "http://127.0.0.1/etc/passwd", "*"),
    ],
)
def test_there_is_nothing_else(server: ThreadingHTTPServer, path: str) -> None:
    status, _, content = ask(server, path)
    assert status == 404
    assert content == b"nothing here but / and /data.json\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"])
def test_it_can_only_be_read(server: ThreadingHTTPServer, run: Path, method: str) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert ask(server, "/", method)[0] == 501
    ask(server, "/")
    ask(server, "/data.json")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "localhost@evil"]
)
def test_other_names_are_turned_away(server: ThreadingHTTPServer, host: str) -> None:
    assert ask(server, "/data.json", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost:9000", "[::1]:80"])
def test_this_machines_own_names_are_answered(server: ThreadingHTTPServer, host: str) -> None:
    # The port is not looked at: through an SSH tunnel it is another.
    assert ask(server, "/data.json", Host=host)[0] == 200


def test_answers_cannot_be_framed_or_guessed_at(server: ThreadingHTTPServer) -> None:
    _, headers, content = ask(server, "/")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert b"connect-src 'self'" in content


def test_a_page_follows_its_run(server: ThreadingHTTPServer, run: Path, open_page: Any) -> None:
    page = open_page(f"http://127.0.0.1:{server.server_port}/", network=True)
    assert page.page.locator("[data-value=iteration]").inner_text() == "2"
    page.page.locator("#returns-chart .legend button").first.click()
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(numbers([3])[0]) + "\n")
    page.wait_for("document.querySelector('[data-value=iteration]').textContent === '3'")
    assert page.page.locator("output").inner_text() == "iteration 3"
    # What was switched off stays so.
    assert page.page.locator("#returns-chart .legend button").first.get_attribute("aria-pressed") == "false"
    assert page.errors == []


def test_a_broken_file_is_said_and_the_server_goes_on(server: ThreadingHTTPServer, run: Path) -> None:
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("no JSON\n")
    status, _, content = ask(server, "/data.json")
    assert status == 500
    assert b"metrics.jsonl" in content
    (run / "metrics.jsonl").write_text(whole)
    assert ask(server, "/data.json")[0] == 200


def test_what_cannot_be_served_is_said_at_once(server: ThreadingHTTPServer, run: Path) -> None:
    with pytest.raises(DvdrlError, match="cannot listen on port"):
        make_server([run], server.server_port)
    with pytest.raises(DvdrlError, match="port: expected 0 to 65535"):
        make_server([run], 70_000)
    with pytest.raises(DvdrlError, match="no run directory given"):
        make_server([], 0)
