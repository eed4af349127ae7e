"""Whose generated code is: said in docs/licence.md, in README and in the code; the page travels with the package."""

import tomllib

import pytest

from tests.docs.blocks import ROOT


def words(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_licence_page_and_readme_say_that_generated_code_is_the_users() -> None:
    assert "They belong to whoever ran dlc" in words("docs/licence.md")
    assert "dlc generates from your model belong to you" in words("README.md")
    assert "docs/licence.md" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license-files"]


@pytest.mark.parametrize("name", ["mnist.h", "mnist.c"])
def test_generated_files_say_it_too(name: str) -> None:
    from dlc_backend_c.backend import C

    from dlc import Report, Spec
    from tests.backend_c.models import plan_of, small_net

    backend = C.from_spec(Spec.parse("c{prefix=mnist cpu=generic lib=none}"))
    content = backend.emit(plan_of(small_net()), Report()).files[name]
    assert isinstance(content, bytes)
    assert b"belongs to whoever ran dlc" in content[:2000]


def test_every_package_has_the_licence_and_authors() -> None:
    for project in (ROOT, *(p.parent for p in ROOT.glob("plugins/*/pyproject.toml"))):
        found = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        assert found["authors"] == [{"name": "dlc developers"}]
        assert "LICENSE" in found["license-files"]
        assert (project / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
