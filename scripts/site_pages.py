"""What the site has beside ``docs/``: README as its first page, and the files that pages link to (a hook of MkDocs).

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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """README becomes the first page; examples lie beside the pages, as they are."""
    home = (ROOT / "README.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=home))
    for path in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.name}", content=path.read_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links out of ``docs/``: examples are part of the site, records are not and become plain words."""
    markdown = markdown.replace("](../examples/", "](examples/")
    return re.sub(r"\[([^\]]+)\]\(\.\./results[^)]*\)", r"\1", markdown)
