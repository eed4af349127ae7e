"""Large objects: a result and the cache share one file, which is verified like every other."""

from pathlib import Path

import pytest

from dlc import Artifact, Signature
from dlc.cache import Cache, Key, open_cache
from dlc.files.hashing import OwnedFile
from dlc.files.linking import LINK_ABOVE, link_or_copy
from dlc.runtime.install import install, install_stored, remember_installed

KEY = Key.of(step="emit")
NAME = "weights.bin"
CONTENT = bytes(range(256)) * (LINK_ABOVE // 256 + 1)


def made(cache: Cache) -> OwnedFile:
    """A temporary file where the cache wants it."""
    file = OwnedFile.create(NAME, cache.scratch(len(CONTENT)))
    file.write_bytes(CONTENT)
    return file


def built(cache: Cache, out: Path) -> str:
    """Save and install a large file as a build does; its digest."""
    file = made(cache)
    digest = cache.save(KEY, {NAME: file}, {}).output(NAME)
    install(Artifact("t", {NAME: file}, NAME, Signature((), ())), out)
    file.discard()
    return digest


def test_the_temporary_file_becomes_the_object_and_the_result(tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        digest = built(cache, tmp_path / "out")
        result = (tmp_path / "out" / NAME).stat()
        assert cache.file(digest) == tmp_path / "c" / "objects" / digest[:2] / digest[2:]
        assert (tmp_path / "c" / "objects" / digest[:2] / digest[2:]).samefile(tmp_path / "out" / NAME)
        assert result.st_nlink == 2 and not result.st_mode & 0o222
        assert not list((tmp_path / "c" / "tmp").iterdir())
        view = cache.view(digest)
        assert view == CONTENT and cache.read(digest) == CONTENT


def test_what_is_stored_gets_a_second_name_where_it_is_installed(tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        digest = built(cache, tmp_path / "out")
        install_stored(cache, {NAME: digest}, tmp_path / "other")
        assert (tmp_path / "other" / NAME).samefile(tmp_path / "out" / NAME)
    with open_cache(tmp_path / "c", "ro") as cache:  # which changes nothing of the object
        install_stored(cache, {NAME: digest}, tmp_path / "third")
        assert (tmp_path / "third" / NAME).stat().st_nlink == 1
        assert (tmp_path / "third" / NAME).read_bytes() == CONTENT


def test_what_was_changed_through_its_second_name_is_found(tmp_path: Path) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        digest = built(cache, tmp_path / "out")
    result = tmp_path / "out" / NAME
    result.chmod(0o644)
    with result.open("r+b") as file:
        file.write(b"!")
    with open_cache(tmp_path / "c", "rw") as cache:
        assert cache.file(digest) is None
        assert not cache.export(digest, tmp_path / "copy")
        assert cache.view(digest) is None
        assert [warning.code for warning in cache.warnings] == ["cache-damaged-entry"]
        built(cache, tmp_path / "out")
        assert cache.read(digest) == CONTENT


def unread(path: Path, algorithm: str) -> str:
    pytest.fail(f"{path} is read")


def test_an_installed_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_cache(tmp_path / "c", "rw") as cache:
        digest = built(cache, tmp_path / "out")
        (tmp_path / "out" / "manifest.json").write_bytes(b"{}")
        manifest = cache.file_sha256(tmp_path / "out" / "manifest.json")
        remember_installed(cache, {NAME: digest, "manifest.json": manifest}, tmp_path / "out")
        monkeypatch.setattr("dlc.cache.files.settled_digest", unread)
        assert cache.file_sha256(tmp_path / "out" / NAME) == digest


def test_without_links_there_are_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    with open_cache(tmp_path / "c", "rw") as cache:
        digest = built(cache, tmp_path / "out")
        assert cache.read(digest) == CONTENT
        assert cache.export(digest, tmp_path / "copy") and (tmp_path / "copy").read_bytes() == CONTENT
    assert (tmp_path / "out" / NAME).read_bytes() == CONTENT and (tmp_path / "out" / NAME).stat().st_nlink == 1


def test_small_files_are_copied(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"small")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "a").samefile(tmp_path / "b") and (tmp_path / "b").read_bytes() == b"small"


def test_what_a_result_shares_takes_no_room_of_the_limit(tmp_path: Path) -> None:
    def more(cache: Cache, number: int) -> None:
        cache.save(Key.of(step=f"more{number}"), {"small": bytes([number]) * 100_000}, {})  # which makes `close` look

    limit = LINK_ABOVE // 2
    with open_cache(tmp_path / "c", "rw", size_limit=limit) as cache:
        digest = built(cache, tmp_path / "out")
        assert cache.warnings == ()
    with open_cache(tmp_path / "c", "rw", size_limit=limit) as cache:
        more(cache, 1)
    with open_cache(tmp_path / "c", "rw", size_limit=limit) as cache:
        assert cache.lookup(KEY) and cache.statistics().size > limit
    (tmp_path / "out" / NAME).unlink()
    with open_cache(tmp_path / "c", "rw", size_limit=limit) as cache:
        more(cache, 2)
    with open_cache(tmp_path / "c", "rw") as cache:
        assert not cache.store.has(digest) and cache.statistics().size < limit


def test_who_trims_means_all_files_of_the_cache(tmp_path: Path) -> None:
    """A cache that travels without the results takes their bytes along."""
    with open_cache(tmp_path / "c", "rw") as cache:
        digest = built(cache, tmp_path / "out")
    with open_cache(tmp_path / "c", "rw") as cache:
        assert cache.trim(LINK_ABOVE // 2).freed >= len(CONTENT)
        assert not cache.store.has(digest)
    assert (tmp_path / "out" / NAME).read_bytes() == CONTENT
