"""Runs on the Hugging Face Hub, with the optional package huggingface_hub."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from cppo.errors import UsageError


def pull(repository: str) -> Path:
    """Download ``user/name`` (or find it in the cache) and return its folder."""
    return Path(library().snapshot_download(repository))


def library() -> ModuleType:
    try:
        import huggingface_hub  # pyright: ignore[reportMissingImports]  (optional)
    except ImportError:
        raise UsageError("the Hugging Face Hub needs a package: pip install 'cppo[hub]'") from None
    return huggingface_hub
