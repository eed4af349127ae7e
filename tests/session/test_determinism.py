"""Equal requests give equal bytes, whoever builds, where, when, and whatever the cache does."""

import os
from pathlib import Path

import pytest

from tests.session.building import SMALL, build, contents, conv_net, environment, save


def circumstances(name: str, place: Path) -> tuple[dict[str, str], list[str], int]:
    """Environment, flags and umask of one build; no two are alike in anything that could leak into a file."""
    home = place / f"home of {name}"
    (home / "tmp").mkdir(parents=True)
    who = f"{name}-of-trillian"
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "USER": who, "LOGNAME": who, "HOSTNAME": who}
    match name:
        case "first":
            return {**own, "PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"}, ["--cache", "off", "-j", "1"], 0o022
        case "second":
            times = {"TZ": "Pacific/Kiritimati", "SOURCE_DATE_EPOCH": "1000000000"}
            return {**own, **times, "PYTHONHASHSEED": "77", "LC_ALL": "C.UTF-8"}, ["-j", "2"], 0o077
        case "again":
            return {**own, "PYTHONHASHSEED": "5", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}, [], 0o002
        case _:
            return {**own, "PYTHONHASHSEED": "random", "CPATH": "/nowhere", "CFLAGS": "-O0"}, ["--cache", "refresh"], 0


@pytest.mark.parametrize("target", ["c", "c{lib=static weights=text cpu=generic}"])
def test_two_builds_give_the_same_bytes(target: str, tmp_path: Path) -> None:
    model = conv_net(SMALL)
    found: dict[str, dict[str, bytes]] = {}
    umask = os.umask(0o022)
    try:
        for name in ("first", "second", "again", "anew"):
            env, flags, mask = circumstances(name, tmp_path)
            place = tmp_path / f"work {name}"
            save(model, place / "net.onnx")
            os.umask(mask)
            cache = tmp_path / ("shared cache" if name in ("second", "again") else f"cache of {name}")
            document = build(
                "net.onnx", "-t", target, "-o", "out", "--cache-dir", cache, *flags, cwd=place, env=environment(**env)
            )
            assert all(s["cached"] for s in document["steps"]) == (name == "again")
            found[name] = contents(place / "out")
            assert not list(Path(env["TMPDIR"]).iterdir())
    finally:
        os.umask(umask)
    for name, files in found.items():
        assert files.keys() == found["first"].keys()
        assert [n for n in files if files[n] != found["first"][n]] == [], name  # the library included
    leaks = (str(tmp_path).encode(), b"trillian", b"Kiritimati")
    assert [n for n, data in found["second"].items() if any(leak in data for leak in leaks)] == []
