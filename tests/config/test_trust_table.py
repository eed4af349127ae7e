"""Every setting that reads, writes, deletes or runs something, and what it needs before it does: a row, a test."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.own_places import user_cache
from dlc.cache.directory import prepare
from dlc.cache.own_key import UserKey
from dlc.cache.signing import write_key
from dlc.cli.credentials import with_credentials
from dlc.cli.options import CacheOptions
from dlc.cli.workspace import cache_policy, configuration
from dlc.config.config import Config
from dlc.config.file import load_config, nobody
from dlc.config.keys import KEYS, VARIABLES, KeyDoc, Variable
from dlc.config.trust import is_trusted
from dlc.driver.pipeline import resolve_steps
from dlc.plugins.discovery import list_plugins, load_registry
from dlc.plugins.entry import Kind
from dlc.spec import Spec
from dlc.spec.configurable import UNTRUSTED

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
CHECKED: dict[str, Callable[[Config], object]] = {
    "cache.dir": lambda config: config.cache_dir,
    "cache.levels": lambda config: config.cache_levels,
    "cache.trusted-keys": lambda config: config.trusted_keys,
    "build.budget": lambda config: config.budget,
}
"""How values are taken that need trust as a whole."""


def config_of(tmp_path: Path, key: str, value: str, *, trusted: bool) -> Config:
    """That of a file which sets one key."""
    table, _, name = key.replace("NAME", "own").rpartition(".")
    (tmp_path / "dlc.toml").write_text(f"[{table}]\n{name} = {value}\n", encoding="utf-8")
    return load_config(tmp_path, trusts=(lambda _file, _text: True) if trusted else nobody)


def is_refused(use: Callable[[], object]) -> bool:
    """Whether a use is refused for want of trust."""
    try:
        use()
    except DlcError as problem:
        if any(d.code == UNTRUSTED for d in problem.diagnostics):
            assert problem.exit_code == ExitCode.USAGE
            return True
        raise
    return False


@pytest.mark.parametrize("doc", KEYS, ids=lambda doc: doc.key)
def test_each_key(doc: KeyDoc, tmp_path: Path) -> None:
    assert doc.example, "every key has an example"
    assert not doc.does or set(doc.does) <= {"reads", "writes", "deletes", "runs"}
    # Whatever says what is run, or where dlc writes and removes, needs trust of some kind.
    if "runs" in doc.does or ("deletes" in doc.does and doc.kind is Path):
        assert doc.trust != "none"
    key = doc.key.replace("NAME", "own")
    take = CHECKED.get(doc.key, lambda config: config[key].value)
    assert (doc.key in CHECKED) == (doc.trust in ("file", "elsewhere"))
    mistrusted, trusted = (config_of(tmp_path, doc.key, doc.example, trusted=t) for t in (False, True))
    assert not is_refused(lambda: take(trusted))
    assert is_refused(lambda: take(mistrusted)) == (doc.trust in ("file", "elsewhere"))
    assert mistrusted[key].value == trusted[key].value


def test_a_checkout_of_dlc_trusts_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's first command, for a user who has neither said anything nor built before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = load_config(ROOT, trusts=is_trusted).cache_dir
    assert directory is not None
    for name in (".gitignore", "README.md"):
        (tmp_path / "cache").mkdir(exist_ok=True)
        (tmp_path / "cache" / name).write_bytes((ROOT / "cache" / name).read_bytes())
    assert prepare(tmp_path / directory.relative_to(ROOT), readonly=False) is None
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    elsewhere = load_config(tmp_path, trusts=is_trusted)
    assert is_refused(lambda: elsewhere.cache_dir)


def test_a_directory_of_a_cache_in_that_of_the_user_needs_no_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    inside = user_cache() / "project"
    assert config_of(tmp_path, "cache.dir", f'"{inside}"', trusted=False).cache_dir == inside
    for outside in (user_cache().parent, user_cache() / ".." / "other", Path("/tmp"), Path("~"), tmp_path / "cache"):
        config = config_of(tmp_path, "cache.dir", f'"{outside}"', trusted=False)
        assert is_refused(lambda config=config: config.cache_dir)
    user_cache().mkdir(parents=True, exist_ok=True)
    (user_cache() / "link").symlink_to(tmp_path)
    config = config_of(tmp_path, "cache.dir", f'"{user_cache() / "link" / "cache"}"', trusted=False)
    assert is_refused(lambda: config.cache_dir)


def running() -> list[tuple[Kind, str, str]]:
    """(kind, name, option) of every option that sets what is run."""
    tables = load_registry().tables
    kinds: tuple[Kind, ...] = ("backends", "passes")
    return [
        (kind, name, o.key)
        for kind in kinds
        for name, entry in sorted(tables[kind].items())
        for o in entry.declaration().options
        if o.runs
    ]


def test_options_that_run_something_are_known() -> None:
    assert {("backends", "c", "cc"), ("backends", "c", "flags"), ("backends", "c", "machine")} <= set(running())


@pytest.mark.parametrize(("kind", "name", "option"), running())
def test_each_option_that_runs_something(kind: Kind, name: str, option: str, tmp_path: Path) -> None:
    registry, text = load_registry(), f'"{name}{{{option}=x}}"'
    for trusted in (False, True):
        if kind == "backends":
            spec: Any = config_of(tmp_path, "target.NAME.backend", text, trusted=trusted)["target.own.backend"].value
            use = lambda spec=spec: registry.backend(spec)  # noqa: E731
        else:
            steps: Any = config_of(tmp_path, "pipeline.NAME", text, trusted=trusted)["pipeline.own"].value
            use = lambda steps=steps: resolve_steps(registry, steps)  # noqa: E731
        assert is_refused(use) == (not trusted)
    assert not is_refused(lambda: registry.backend(Spec.parse(text.strip('"'), "--target")))


def levels(config: Config) -> str:
    return with_credentials(config.cache_levels).levels[0].authorization


USED: dict[str, tuple[str, Callable[[Config], bool]]] = {
    "DLC_PLUGINS_DISABLE": (
        "kernel",
        lambda config: "kernel" in {p.name for p in list_plugins() if p.state == "blocked"},
    ),
    "DLC_CACHE": ("ro", lambda config: config.cache_mode == "ro"),
    "DLC_CACHE_DIR": ("elsewhere", lambda config: config.cache_dir == Path("elsewhere")),
    "DLC_CACHE_LEVELS": ("https://a.example/c", lambda config: len(config.cache_levels.levels) == 1),
    "DLC_CACHE_TOKEN": ("a.example=abc", lambda config: levels(config) == "Bearer abc"),
    "DLC_CACHE_KEY": (
        "a text that is long enough",
        lambda config: (
            (own := cache_policy(config).own) is not None
            and own.get() == UserKey("a text that is long enough").get() != UserKey("another text, as long").get()
        ),
    ),
    "DLC_CACHE_TRUSTED_KEYS": (PUBLIC, lambda config: config.trusted_keys == (PUBLIC,)),
    "DLC_CACHE_SIGNED_SINCE": ("2026-11-26", lambda config: config.signed_since == "2026-11-26"),
    "DLC_CACHE_SIGNING_KEY": ("key", lambda config: cache_policy(config).signer is not None),
}
"""A value of each variable, and what it leads to without any trust."""


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_each_variable(variable: Variable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_key(tmp_path / "key")
    text, leads = USED[variable.name]
    if variable.name == "DLC_CACHE_TOKEN":
        monkeypatch.setenv("DLC_CACHE_LEVELS", "https://a.example/c")
    monkeypatch.setenv(variable.name, text)
    assert variable.trust == "user" and leads(configuration(CacheOptions()))
    monkeypatch.delenv(variable.name)
    if variable.name not in ("DLC_CACHE_TOKEN", "DLC_CACHE_LEVELS"):
        assert not leads(configuration(CacheOptions()))


def test_no_other_variable_is_read() -> None:
    source = [*(ROOT / "dlc").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    named = {n for path in source for n in re.findall(r'"(DLC_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    assert {v.name for v in VARIABLES} == {n for n in named if n.startswith(("DLC_CACHE", "DLC_PLUGINS"))}
