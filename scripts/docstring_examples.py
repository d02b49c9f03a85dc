"""Doctests in docstrings shown as code on the site (an extension of Griffe, which reads docstrings for it)."""

from __future__ import annotations

import re
from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Fence each run of lines from ``>>>`` to the next blank line; Markdown would take ``>`` for a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring and ">>>" in obj.docstring.value:
            text = re.sub(r"(?ms)^(>>> .*?)(?=\n\s*\n|\Z)", r"```pycon\n\1\n```", obj.docstring.value)
            obj.docstring.value = text
