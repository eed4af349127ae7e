"""README.md as the description of the package on an index, where paths of the repository lead nowhere.

hatchling runs this whenever it makes metadata. Links and pictures become absolute by `files` and `pictures` in
`[tool.hatch.metadata.hooks.custom]` of pyproject.toml; while these are empty, links become text and pictures are left
out.
"""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE: Final = r"^```.*?^```$"
_LINK: Final = r"(?P<picture>!?)\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<path>[^)\s]+)\)"
_MARK: Final = re.compile(r"^<!--.*?-->\n+", re.MULTILINE)
_TOKEN: Final = re.compile(f"{_CODE}|{_LINK}", re.MULTILINE | re.DOTALL)
_NO_LINKS: Final = "\nThe pages and examples that are named here are in the source distribution.\n"


class IndexReadme(MetadataHookInterface):
    """Fills the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description to `metadata`."""
        config: dict[str, str] = self.config  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        readme = for_index(text, config["files"], config["pictures"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def for_index(text: str, files: str, pictures: str) -> str:
    """The page without links that are relative to a file; those to a heading of the page stay.

    Args:
        text: Markdown.
        files: Beginning of the address of a file, without the last slash; "": a link becomes its text.
        pictures: The same of a picture; "": pictures are left out.
    """

    def absolute(found: re.Match[str]) -> str:
        path: str | None = found["path"]
        if path is None or path.startswith("#") or "://" in path:
            return found[0]
        if found["picture"]:
            return f"![{found['text']}]({pictures}/{path})" if pictures else ""
        return f"[{found['text']}]({files}/{path})" if files else found["text"]

    return _TOKEN.sub(absolute, _MARK.sub("", text)) + ("" if files else _NO_LINKS)
