"""Packs of a sharded corpus: deterministic, content-addressed, size-capped tar.zst files.

Importing this package or its reader needs only ``zstandard``; nothing here imports dagster.
"""

__version__ = "0.1.0"
