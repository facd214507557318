"""Compile the C programs of every package in place, as an editable install does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Run the hook of each package with C programs; stop at the first failure."""
    for hook in sorted(ROOT.glob("packages/*/hatch_build.py")):
        status = subprocess.run([sys.executable, str(hook)], check=False).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
