"""Levels of the cache from the command line: who names them, who is trusted to, and what a user sees."""

import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from dlc.cli.workspace import Workspace
from tests.cache.faulty import FaultyServer, serving
from tests.cli.conftest import Dlc
from tests.cli.models import small

BUILD = ("build", "small.onnx", "-o", "out")


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def directory() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def forget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Go on as on another machine, with a cache and an output directory of its own."""
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / name))
    shutil.rmtree("out", ignore_errors=True)


def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path("out").iterdir()}


def test_a_second_machine_hits_everywhere(
    dlc: Dlc, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dlc(*BUILD, "-q", "--cache-levels", f"disk,{server.url}#rw").code == ExitCode.OK
    made = files()
    stats = dlc("cache", "stats", "--json").document["total"]["levels"]
    assert [(level["level"], level["bytes_written"] > 0) for level in stats] == [(server.url, True)]
    for name, mode in (("second", "rw"), ("third", "require")):
        forget(monkeypatch, tmp_path, name)
        done = dlc(*BUILD, "--json", "--cache", mode, "--cache-levels", server.url).document
        assert {step["cached"] for step in done["steps"]} == {True}
        assert files() == made
    forget(monkeypatch, tmp_path, "second")
    asked = len(server.asked)
    assert dlc(*BUILD, "-q", "--cache", "require", "--cache-levels", server.url).code == ExitCode.OK
    assert len(server.asked) == asked  # what came once is here
    text = dlc("cache", "stats").out
    assert f"{server.url}: " in text
    assert "downloaded" in text


def test_a_server_in_trouble_fails_no_build(
    dlc: Dlc, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dlc(*BUILD, "-q", "--cache-levels", f"{server.url}#rw").code == ExitCode.OK
    made = files()
    server.fault = lambda method, path: "wrong bytes" if method == "GET" else "507"
    forget(monkeypatch, tmp_path, "second")
    done = dlc(*BUILD, "-q", "--cache-levels", f"{server.url}#rw")
    assert done.code == ExitCode.OK
    assert done.err.count("warning[") == 1
    assert files() == made


def test_what_the_cache_has_whole_is_built_with_right_levels_only(dlc: Dlc, server: FaultyServer) -> None:
    assert dlc(*BUILD, "-q").code == ExitCode.OK
    wrong = dlc(*BUILD, "-q", "--cache-levels", "ftp://cache.example")
    assert wrong.code == ExitCode.USAGE
    assert "error[bad-option]: cache.levels" in wrong.err
    Path("dlc.toml").write_text(f'[cache]\nlevels = ["{server.url}"]\n')
    foreign = dlc(*BUILD, "-q")
    assert foreign.code == ExitCode.USAGE
    assert "error[untrusted]: cache.levels" in foreign.err


def test_a_file_that_is_not_trusted_names_no_level(dlc: Dlc, server: FaultyServer) -> None:
    Path("dlc.toml").write_text(f'[cache]\nlevels = ["disk", "{server.url}#rw"]\n')
    for command in (BUILD, ("cache", "why", "small.onnx"), ("run", "small.onnx"), ("plan", "small.onnx")):
        refused = dlc(*command)
        assert refused.code == ExitCode.USAGE
        assert "error[untrusted]: cache.levels" in refused.err
        assert "dlc.toml:2" in refused.err
    assert dlc("cache", "stats").code == ExitCode.OK  # it asks no level
    assert not server.asked
    why = ("cache", "why", "small.onnx")
    assert dlc(*why, "--cache-levels", "disk").code == ExitCode.OK  # the user's word replaces it
    assert not server.asked
    told = dlc("trust")
    assert f"cache.levels={server.url}#rw  (dlc.toml:2)" in told.out
    assert dlc(*why).code == ExitCode.OK
    assert server.asked


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_a_terminal_is_asked(answer: str, dlc: Dlc, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    Path("dlc.toml").write_text(f'[cache]\nlevels = ["{server.url}"]\n')
    monkeypatch.setattr(sys, "stdin", Typed(answer))
    monkeypatch.setattr("dlc.cli.trusting.is_interactive", lambda: True)
    asked = dlc("cache", "why", "small.onnx")
    assert asked.err.count("Trust ") == 1
    assert asked.code == (ExitCode.OK if answer == "y\n" else ExitCode.USAGE)
    assert bool(server.asked) == (answer == "y\n")


def test_doctor_asks_every_level(dlc: Dlc, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as gone:
        pass
    monkeypatch.setenv("DLC_CACHE_LEVELS", f"{server.url}#rw,{gone.url}")
    found = {check["name"]: check for check in dlc("doctor", "--json").document["checks"]}
    assert found[f"cache level {server.url}"]["state"] == "ok"
    assert found[f"cache level {gone.url}"]["state"] == "warning"
    assert "refused" in found[f"cache level {gone.url}"]["text"]


def asked_with(dlc: Dlc, server: FaultyServer, levels: str) -> set[str | None]:
    server.asked.clear()
    assert dlc("cache", "why", "small.onnx", "--cache-levels", levels).code == ExitCode.OK
    assert server.asked
    return {headers.get("Authorization") for _, _, headers in server.asked}


def test_credentials_come_from_the_environment(
    dlc: Dlc, server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = server.url.split("/")[2]
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ci password s3cret\nmachine other login x password y\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "absent"))
    assert asked_with(dlc, server, server.url) == {None}
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert asked_with(dlc, server, server.url) == {"Basic Y2k6czNjcmV0"}
    monkeypatch.setenv("DLC_CACHE_TOKEN", f"other=zzz, {host}=t0ken")
    assert asked_with(dlc, server, server.url) == {"Bearer t0ken"}
    assert asked_with(dlc, server, server.url.replace("//", "//u:p@")) == {"Basic dTpw"}
    monkeypatch.setenv("DLC_CACHE_TOKEN", "t0ken")
    refused = dlc("cache", "why", "small.onnx", "--cache-levels", server.url)
    assert refused.code == ExitCode.USAGE
    assert "HOST=TOKEN" in refused.err
    assert "t0ken" not in refused.err


def test_credentials_in_a_file_are_refused(dlc: Dlc) -> None:
    Path("dlc.toml").write_text('[cache]\nlevels = ["https://ci:s3cret@cache.example/"]\n')
    for command in ((*BUILD, "--trust-config"), ("trust",)):
        refused = dlc(*command)
        assert refused.code == ExitCode.USAGE
        assert "dlc.toml:2" in refused.err
        assert "DLC_CACHE_LEVELS" in refused.err
        assert "s3cret" not in refused.err + refused.out


def test_credentials_are_in_no_report_of_a_crash(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("broken")

    monkeypatch.setattr(Workspace, "open", broken)
    assert dlc(*BUILD, "--stop-after", "lower", "--cache-levels", "http://ci:s3cret@127.0.0.1:9/x").code == ExitCode.BUG
    (crash,) = Path().glob("dlc-crash-*")
    assert "--cache-levels http://127.0.0.1:9/x" in crash.read_text()


@pytest.mark.parametrize(
    ("levels", "word"), [("ftp://u:s3cret@x/", "ftp://x/"), ("https://x/#wr", "#wr"), ("https://x/,disk", "disk")]
)
def test_what_is_no_level_is_said_with_its_place(dlc: Dlc, levels: str, word: str) -> None:
    refused = dlc(*BUILD, "--cache-levels", levels)
    assert refused.code == ExitCode.USAGE
    assert word in refused.err
    assert "--cache-levels" in refused.err
    assert "s3cret" not in refused.err


@pytest.mark.parametrize("setting", ["upload-time = -1", "level-timeout = 0", "level-timeout = 1e9"])
def test_times_have_bounds(setting: str, dlc: Dlc) -> None:
    Path("dlc.toml").write_text(f"[cache]\n{setting}\n")
    refused = dlc(*BUILD, "--cache-levels", "http://127.0.0.1:9/")
    assert refused.code == ExitCode.USAGE
    assert f"cache.{setting.split(maxsplit=1)[0]} is " in refused.err
