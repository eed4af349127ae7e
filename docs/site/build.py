"""Pages of docs/, generated reference pages and links between them, to HTML by mkdocs in strict mode."""

import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.site import api, hooks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "overview.md"}
"""Pages of the checkout's top level → their names on the site."""
GENERATED = {"Python interface": "api", "Hooks": "hooks"}
"""Title in the navigation → directory of generated pages with an index."""
_IMAGE = re.compile(r"(?P<head>!\[[^\]]*\]\()(?P<target>[^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")

_FENCED = re.compile(r"(^`{3,}.*?^`{3,}[ \t]*$)", re.MULTILINE | re.DOTALL)


def build(output: Path) -> int:
    """Build the site into `output`, which is replaced; the number of the exit status."""
    from mkdocs.commands.build import build as run
    from mkdocs.config import load_config  # pyright: ignore[reportUnknownVariableType]
    from mkdocs.exceptions import Abort

    output = output.resolve()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(message)s")
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / "pages"
        navigation = stage(pages)
        config: Any = load_config(
            str(Path(__file__).with_name("mkdocs.yml")),
            docs_dir=str(pages),
            site_dir=str(output),
            nav=navigation,
            strict=True,
        )
        try:
            run(config)
        except Abort as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


def stage(pages: Path) -> list[Any]:
    """Write all pages as the site needs them; the navigation, in mkdocs' form."""
    pages.mkdir(parents=True)
    for path in sorted(DOCS.glob("*.md")):
        (pages / _name(path)).write_text(_page(path, pages), encoding="utf-8")
    for path in _others():
        copy = pages / path.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for name, target in TOP.items():
        (pages / target).write_text(_page(ROOT / name, pages), encoding="utf-8")
    for directory, made in (("api", api.pages()), ("hooks", hooks.pages(ROOT))):
        (pages / directory).mkdir()
        for name, text in made.items():
            (pages / directory / name).write_text(text, encoding="utf-8")
    return list(_navigation((DOCS / "README.md").read_text(encoding="utf-8"), pages))


def _others() -> list[Path]:
    """Pictures and data beside the pages."""
    own = Path(__file__).parent
    return [p for p in sorted(DOCS.rglob("*")) if p.is_file() and p.suffix != ".md" and own not in p.parents]


def _name(path: Path) -> str:
    return "index.md" if path.name == "README.md" else path.name


def _page(path: Path, pages: Path) -> str:
    """The text of a page, its links into the checkout changed to what the site has."""
    text = path.read_text(encoding="utf-8")
    parts = _FENCED.split(text)
    return "".join(part if k % 2 else _linked(part, path, pages) for k, part in enumerate(parts))


def _linked(text: str, page: Path, pages: Path) -> str:
    text = _IMAGE.sub(lambda m: f"{m['head']}{_picture(m['target'], page)})", text)
    return _LINK.sub(lambda m: _link(m, page, pages), text)


def _picture(target: str, page: Path) -> str:
    path = (page.parent / target).resolve()
    return path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else target


def _link(match: re.Match[str], page: Path, pages: Path) -> str:
    text, (target, _, anchor) = match["text"], match["target"].partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return match[0]
    path = (page.parent / target).resolve()
    if not path.is_relative_to(ROOT):
        return match[0]
    end = f"#{anchor}" if anchor else ""
    within = path.relative_to(ROOT)
    if path.parent == DOCS and path.suffix == ".md":
        return f"[{text}]({_name(path)}{end})"
    if str(within) in TOP:
        return f"[{text}]({TOP[str(within)]}{end})"
    if within.parts[0] in ("docs", "build"):
        return match[0]
    if path.is_file():
        # The file itself, so that the site needs no repository to be read beside it.
        copy = pages / "source" / f"{within}.txt"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        return f"[{text}](source/{within}.txt)"
    return f"{text} (`{within}`)" if path.is_dir() else match[0]


def _navigation(index: str, pages: Path) -> Iterator[Any]:
    """Sections of the index page with the pages that they link to."""
    yield {"Home": "index.md"}
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        rows: list[Any] = [{m["text"]: _target(m["target"])} for m in _LINK.finditer(body) if _is_page(m["target"])]
        if title.strip() == "Reference":
            for name, directory in GENERATED.items():
                below = sorted(p.name for p in (pages / directory).glob("*.md") if p.name != "index.md")
                rows.append({name: [f"{directory}/index.md", *(f"{directory}/{n}" for n in below)]})
        yield {title.strip(): rows}


def _target(target: str) -> str:
    name = target.removeprefix("../")
    return TOP.get(name, name) if target.startswith("../") else target


def _is_page(target: str) -> bool:
    return target.endswith(".md") and (target.removeprefix("../") in TOP or "/" not in target)
