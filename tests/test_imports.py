"""What importing costs: no dagster anywhere in pack_lib, and readers that need nothing but zstandard."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "pack_lib").rglob("*.py")
)


def test_no_module_of_pack_lib_imports_dagster() -> None:
    for path in (ROOT / "pack_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0].startswith(("dagster", "pipelines"))], path


@pytest.mark.parametrize(
    ("blocked", "modules"),
    [
        (("dagster",), [name for name in MODULES if not name.startswith("pack_lib.testing")]),
        (
            ("dagster", "duckdb", "pyarrow", "boto3", "click", "tqdm"),
            ["pack_lib.pack.reader", "pack_lib.verify", "pack_lib.hydrate", "pack_lib.repack", "pack_lib.stores"],
        ),
    ],
)
def test_modules_import_without(blocked: tuple[str, ...], modules: list[str]) -> None:
    """A module set to None in sys.modules raises ImportError on any import of it."""
    program = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
    program += "\n".join(f"import {name}" for name in modules)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
