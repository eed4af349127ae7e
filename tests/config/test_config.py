"""Layers, origins, and messages for what is wrong in a configuration file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.config.config import KEYS, default_config
from dlc.config.file import find_file, load_config
from dlc.config.toml_lines import line_of
from dlc.spec import Spec

GOOD = """\
# a comment
[pipeline]
train = [
  "fold-constants{max-bytes=1MiB}",
  "simplify",
]
host = ["train", "lower", "fuse{max-ops=8}"]
quick = "lower,order"

[target.host]
backend = "c{cc=clang flags=-O3,-march=native}"
pipeline = "host"

[cache]
dir = "cache"
size = "2GiB"

[plugins]
disable = ["old"]
ops = ["a.ops.yaml", "packs"]
"""


def write(directory: Path, text: str, name: str = "dlc.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_value_remembers_its_origin(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    config = load_config(tmp_path).with_flag("cache.size", "1GiB", "--cache-size")
    config = config.with_pipelines({"infer": ("lower", "core"), "quick": ("fuse", "core")})
    shown = {key: (value, origin) for key, value, origin in config.show()}
    assert shown == {
        "build.budget": ("", "default"),
        "cache.dir": (str(tmp_path / "cache"), "dlc.toml:15"),
        "cache.level-timeout": ("5.0", "default"),
        "cache.levels": ("", "default"),
        "cache.mode": ("rw", "default"),
        "cache.signed-since": ("", "default"),
        "cache.trusted-keys": ("", "default"),
        "cache.size": ("1GiB", "--cache-size"),
        "cache.upload-time": ("10.0", "default"),
        "pipeline.host": ("train,lower,fuse{max-ops=8}", "dlc.toml:7"),
        "pipeline.infer": ("lower", "plugin core"),
        "pipeline.quick": ("lower,order", "dlc.toml:8"),
        "pipeline.train": ("fold-constants{max-bytes=1MiB},simplify", "dlc.toml:3"),
        "plugins.disable": ("old", "dlc.toml:19"),
        "plugins.ops": (f"{tmp_path / 'a.ops.yaml'},{tmp_path / 'packs'}", "dlc.toml:20"),
        "target.host.backend": ("c{cc=clang flags=-O3,-march=native}", "dlc.toml:11"),
        "target.host.pipeline": ("host", "dlc.toml:12"),
    }
    assert config.cache_size == 1 << 30
    assert config.disabled == ("old",)
    assert config.named("target", "backend")["host"].value.name == "c"


def test_defaults_stand_without_a_file(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    assert config == default_config()
    assert (config.cache_dir, config.cache_size, config.cache_mode, config.disabled) == (None, 4 << 30, "rw", ())


def test_pyproject_holds_the_same_keys(tmp_path: Path) -> None:
    write(tmp_path, "[project]\nname = 'x'\n\n[tool.dlc.cache]\nmode = 'ro'\n", "pyproject.toml")
    config = load_config(tmp_path)
    assert config["cache.mode"].origin == "pyproject.toml:5"
    assert config.cache_mode == "ro"


def test_a_file_is_found_inside_the_repository_only(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    inner = tmp_path / "repository" / "a" / "b"
    inner.mkdir(parents=True)
    assert find_file(inner) is None
    (tmp_path / "repository" / ".git").mkdir()
    assert find_file(inner) is None, "what lies above the repository belongs to somebody else"
    project = write(tmp_path / "repository", "[tool.other]\n", "pyproject.toml")
    assert find_file(inner) is None
    project.write_text("[tool.dlc]\n", encoding="utf-8")
    assert find_file(inner) == project
    found = write(tmp_path / "repository", GOOD)
    assert find_file(inner) == found


WRONG = {
    "unknown-keys": '[pipelines]\nx = "a"\n[cache]\nsise = "1GiB"\n[target.host]\nbackend = "c"\nflags = "-O3"\n',
    "bad-values": '[cache]\nsize = "4Gib"\nmode = "rx"\ndir = 3\n[plugins]\ndisable = [["a"]]\n',
    "bad-specs": '[pipeline]\na = [\n  "lower",\n  "fuse{max-ops",\n]\n[target.x]\nbackend = "c{"\npipeline = {}\n',
    "not-a-table": 'cache = "x"\npipeline = 3\n',
    "syntax": "[cache]\nsize == 3\n",
    "control-characters": '[cache]\n"\\u202ekey\\n" = 1\n',
}


@pytest.mark.parametrize("name", WRONG)
def test_everything_wrong_is_said_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, WRONG[name])
    with pytest.raises(DlcError) as caught:
        load_config(Path(), Path("dlc.toml"))
    assert caught.value.exit_code == ExitCode.USAGE
    golden(f"{name}.txt", str(caught.value))


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "dlc.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DlcError, match="is not UTF-8 text"):
        load_config(tmp_path)
    with pytest.raises(DlcError, match="No such file"):
        load_config(tmp_path, tmp_path / "absent.toml")


def test_flags_are_checked_like_the_file() -> None:
    with pytest.raises(DlcError, match="--cache: unknown value") as caught:
        default_config().with_flag("cache.mode", "rx", "--cache")
    assert caught.value.exit_code == ExitCode.USAGE
    assert default_config().with_flag("plugins.disable", "a,b", "-p").disabled == ("a", "b")
    assert default_config().with_flag("cache.dir", "x", "--cache-dir").cache_dir == Path("x")
    set_by_flag = default_config().with_flag("target.t.backend", "c{threads=1}", "-t")
    assert set_by_flag["target.t.backend"].value == Spec("c", (("threads", "1"),))


@pytest.mark.parametrize(
    ("path", "item", "line"),
    [
        (("pipeline", "train"), "", 3),
        (("pipeline", "train"), "simplify", 5),
        (("target", "host", "pipeline"), "", 12),
        (("target", "host"), "", 10),
        (("absent",), "", 1),
    ],
)
def test_lines_of_keys(path: tuple[str, ...], item: str, line: int) -> None:
    assert line_of(GOOD, path, item) == line


def test_every_key_is_documented() -> None:
    assert all(doc.doc and not doc.doc.endswith(".") for doc in KEYS)
