"""What the site has beside ``docs/``: pages of the root, and the files that pages link to (a hook of MkDocs).

Pages stay plain Markdown whose links work in a checkout; here those links are turned to where a reader of the site
finds the same thing. A new kind of link outside of ``docs/`` fails the strict build until it is named below.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
PICTURE = re.compile(r"(!\[[^\]]*\]\((?:\.\./)*)\.\./(results/[^)]+)\)")
RECORD = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+results[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """README becomes the first page; examples and the records' pictures lie beside the pages, as they are."""
    for name, place in ROOT_PAGES.items():
        text = (ROOT / name).read_text().replace("](docs/", "](").replace("](README.md", "](index.md")
        files.append(File.generated(config, place, content=text))
    for path in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.name}", content=path.read_text()))
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    for name in sorted({picture for text in pages for _, picture in PICTURE.findall(text)}):
        files.append(File.generated(config, name, content=(ROOT / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of ``docs/``: examples and pictures are part of the site, records are not and become plain words."""
    markdown = PICTURE.sub(r"\1\2)", markdown.replace("](../examples/", "](examples/"))
    return RECORD.sub(r"\1", markdown)
