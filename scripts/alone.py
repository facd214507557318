"""Run the tests of one package in an environment without the other packages of this clone.

    python scripts/alone.py                     each package, one after the other
    python scripts/alone.py shioenv-model
    python scripts/alone.py shioenv-model -k tasks

The environment, kept in `.alone/PACKAGE`, has the package, its declared dependencies (packages of
this clone from the clone), and of the development tools those that the package's tests import. So a
dependency that is not declared fails here. Further arguments are pytest's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
"""Requirements of every package's tests."""

DISTRIBUTED = ("-n", str((os.cpu_count() or 1) + 1), "--dist", "loadgroup")
"""As in `make test`. A given option replaces one of these."""

NEEDED = {
    "shioenv": (
        "capstone", "ipykernel", "jsonpatch", "nbconvert", "openai", "pyseccomp", "ray", "tomli-w",
    ),
    "shioenv-agents": ("datasets", "openai", "pyseccomp"),
    "shioenv-backends": ("ray",),
    "shioenv-eval": (
        *("altair", "bashkit", "datasets", "jinja2", "openai", "pyarrow", "scipy", "selenium"),
        "vl-convert-python",
    ),
    "shioenv-model": ("huggingface-hub", "scikit-learn"),
    "shioenv-paper": ("altair", "jinja2", "pyarrow", "scipy", "vl-convert-python"),
    "shioenv-serve": ("openai",),
}  # fmt: skip
"""Further requirements of a package's tests, by the names of the development tools."""


def declared(directory: Path) -> dict[str, Any]:
    """Return the contents of a package's pyproject.toml."""
    return tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))


def with_dependencies(package: str) -> list[str]:
    """Return the package and the packages of this clone that it needs, itself first."""
    found = [package]
    for name in found:
        for one in declared(ROOT / "packages" / name)["project"]["dependencies"]:
            needed, equal, _ = one.partition("==")
            if equal and needed.startswith("shioenv") and needed not in found:
                found.append(needed)
    return found


def tools(package: str) -> list[str]:
    """Return the requirements of the development tools that the package's tests need."""
    group: list[str] = declared(ROOT)["dependency-groups"]["dev"]
    by_name = {one.partition(">")[0].partition("=")[0]: one for one in group}
    return [by_name[name] for name in (*TOOLS, *NEEDED[package])]


def environment(package: str) -> Path:
    """Return the environment's directory, rebuilt where a pyproject.toml or this file changed."""
    home = ROOT / ".alone" / package
    packages = with_dependencies(package)
    made, files = home / ".made", [ROOT, *(ROOT / "packages" / name for name in packages)]
    made_from = [Path(__file__), *(place / "pyproject.toml" for place in files)]
    last = max(file.stat().st_mtime for file in made_from)
    if not made.exists() or made.stat().st_mtime < last:
        print(f"making {home} (pip)", flush=True)
        venv.create(home, with_pip=True, clear=True)
        editable = [word for name in packages for word in ("-e", f"packages/{name}")]
        pip = [str(home / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, "-q", *editable, *tools(package)], cwd=ROOT, check=True)
        made.touch()
    return home


def main() -> int:
    """Return the first exit status of pytest that is not 0; 2 for an unknown package."""
    package, options = sys.argv[1:2], sys.argv[2:]
    if not NEEDED.keys() >= set(package):
        print(f"alone: no package {package[0]}; there are {', '.join(NEEDED)}", file=sys.stderr)
        return 2
    failed = 0
    for name in package or NEEDED:
        print(f"== {name}", flush=True)
        command = [environment(name) / "bin/python", "-m", "pytest", "-q", *DISTRIBUTED, *options]
        tests = [] if any(Path(word).exists() for word in options) else [f"packages/{name}/tests"]
        failed = subprocess.run([*command, *tests], cwd=ROOT, check=False).returncode or failed
    return failed


if __name__ == "__main__":
    sys.exit(main())
