"""Levels on servers that others wrote: bazel's layout on nginx with WebDAV, Redis, and buckets as moto serves them."""

import http.client
import logging
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dlc.base.cache_levels import Levels, parse_levels
from dlc.cache import Cache, CacheMode, Key, open_cache
from dlc.cache.remotes import probe
from dlc.cli.frame import run
from tests.cli.models import small
from tests.tools import found, program

KEY = Key.of(step="fuse{max-ops=8}", code="dlc 0.1.0 91be", input="graph 3f2a")
OUTPUTS = {"c": b"int x;", "o": bytes(range(256)) * 40_000, "empty": b""}
"""One of them is beyond what is read at once, and what nginx takes unless it is told."""
NGINX = Path(__file__).parents[2] / "docs" / "cache-levels.md"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command: list[str], port: int) -> Generator[subprocess.Popen[bytes]]:
    """A server that listens on a port of this machine."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(200):
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, command
                time.sleep(0.02)
            yield process
        finally:
            process.terminate()


@contextmanager
def nginx(place: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The server block of the documentation, with our port and directory."""
    del monkeypatch
    port = free_port()
    block = NGINX.read_text(encoding="utf-8").partition("```nginx\n")[2].partition("```")[0]
    assert "listen 8080;" in block
    block = block.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("/var/cache/dlc", str(place / "kept"))
    temporary = "".join(
        f"{kind}_temp_path {place / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (place / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {place / 'pid'}; error_log {place / 'log'};\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{block}}}\n"
    )
    (place / "kept").mkdir()
    with running([program("nginx") or "", "-c", str(place / "nginx.conf")], port):
        yield f"http://127.0.0.1:{port}/dlc"


@contextmanager
def redis(place: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    del monkeypatch
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place), "--requirepass", "s3cret"]
    with running(["redis-server", *options], port):
        yield f"redis://:s3cret@127.0.0.1:{port}/1"


@contextmanager
def bucket(place: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    del place
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "s3cret"),
            ("AWS_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", "/dlc-cache")
        assert connection.getresponse().status == 200
        connection.close()
        yield "s3://dlc-cache/team"
    finally:
        server.stop()


SERVERS = {"nginx": nginx, "redis-server": redis, "bucket": bucket}


@pytest.fixture(params=[*found("nginx", "redis-server"), "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    place = tmp_path / "server"
    place.mkdir()
    with SERVERS[request.param](place, monkeypatch) as found:
        yield found


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Cache]:
    """The cache of one machine."""

    def open_in(home: str, url: str, mode: CacheMode = "rw") -> Cache:
        return open_cache(tmp_path / home, mode, levels=Levels(parse_levels([url])))

    return open_in


def test_two_machines_share_a_server(url: str, opened: Callable[..., Cache], tmp_path: Path) -> None:
    with opened("a", f"{url}#rw") as cache:
        made = cache.save(KEY, OUTPUTS, {"ms": "12.5"})
    assert cache.warnings == ()
    shutil.rmtree(tmp_path / "a")
    for mode in ("require", "rw"):
        with opened("b", url, mode) as cache:
            assert cache.lookup(KEY) == made
            assert {name: cache.read(digest) for name, digest in made.outputs} == OUTPUTS
            assert cache.lookup(Key.of(step="fuse{}")) is None if mode == "rw" else True
        assert cache.warnings == ()
        (level,) = cache.counts.levels
        assert (level.hits, level.failures) == (1, 0)
    with opened("b", url) as cache:
        assert cache.lookup(KEY) == made
        assert cache.counts.levels == ()


@pytest.mark.uses("nginx", "redis-server")
def test_builds_on_two_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One machine fills all the servers at once; for each of them, another one has nothing else."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dlc.toml").write_text("")
    (tmp_path / "small.onnx").write_bytes(small().SerializeToString())

    def build(home: str, levels: str, mode: str) -> dict[str, bytes]:
        flags = ["--cache-dir", str(tmp_path / home), "--cache-levels", levels, "--cache", mode]
        assert run(["build", "small.onnx", "-t", "c{flags=-O0}", "-o", home + "-out", "-q", *flags]) == 0
        assert "warning" not in capsys.readouterr().err
        return {path.name: path.read_bytes() for path in (tmp_path / f"{home}-out").iterdir()}

    with ExitStack() as stack:
        urls: list[str] = []
        for number, server in enumerate((*found("nginx", "redis-server"), "bucket")):
            place = tmp_path / f"server{number}"
            place.mkdir()
            urls.append(stack.enter_context(SERVERS[server](place, monkeypatch)))
        made = build("first", ",".join(f"{url}#rw" for url in urls), "rw")
        for number, url in enumerate(urls):
            assert build(f"home{number}", url, "require") == made


def test_whether_a_server_answers(url: str) -> None:
    (level,) = parse_levels([url])
    assert probe(level, 5.0) is None


@pytest.mark.parametrize("kind", found("redis-server"))
def test_a_password_that_is_wrong(
    kind: str, opened: Callable[..., Cache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SERVERS[kind](tmp_path, monkeypatch) as url, opened("a", url.replace("s3cret", "wr0ng") + "#rw") as cache:
        assert cache.lookup(KEY) is None
        cache.save(KEY, OUTPUTS, {})
    (warning,) = cache.warnings
    assert "wr0ng" not in str(warning)
    assert "refused" in warning.notes[0]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:9/0", "s3://dlc-cache/team"])
def test_a_server_that_is_not_there(url: str, opened: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    with opened("a", f"{url}#rw") as cache:
        for k in range(6):
            assert cache.lookup(Key.of(step=f"step{k}")) is None
        cache.save(KEY, OUTPUTS, {})
    (warning,) = cache.warnings
    assert "connection failed" in warning.notes[0]
    assert "s3cret" not in str(warning)


@pytest.mark.parametrize(("url", "extra"), [("redis://127.0.0.1:9/0", "redis"), ("gs://bucket", "remote")])
def test_a_package_that_is_missing_is_named(
    url: str, extra: str, opened: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("redis", "obstore", "dlc.cache.remote_redis", "dlc.cache.remote_buckets"):
        monkeypatch.setitem(sys.modules, module, None)
        if module.startswith("dlc"):
            monkeypatch.delitem(sys.modules, module)
    with opened("a", f"{url}#rw") as cache:
        assert cache.lookup(KEY) is None
        cache.save(KEY, OUTPUTS, {})
    (warning,) = cache.warnings
    assert warning.help == f'pip install "dlc[{extra}]"'
