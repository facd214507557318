"""Check the supervisor for undefined behavior of C while every conformance test runs.

    python soak/sanitizers.py
    python soak/sanitizers.py -k terminal

Compiles a copy of the package, its supervisor with AddressSanitizer and UndefinedBehaviorSanitizer
(a finding ends it, and with it the sandbox), and runs the conformance tests with that copy; further
arguments are pytest's. The fork server's part of the sources is in the supervisor too; the library
inside bash, which runs on the system's C library, is compiled as always.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SANITIZED = [
    "-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all", "-static-libasan", "-static-libubsan",
    "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=0",
]  # fmt: skip
"""Without static linking. The C library's own checks would hide those of the sanitizers."""


def compile_sanitized(copy: Path) -> None:
    """Compile the helpers of a copy of this checkout."""
    package = copy / "packages" / "shioenv"
    spec = importlib.util.spec_from_file_location("hatch_build", package / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    sources, flags = build.PROGRAMS["shioenv-sandbox"]
    dynamic = ["-pie" if flag == "-static-pie" else flag for flag in flags]
    build.PROGRAMS["shioenv-sandbox"] = (sources, [*dynamic, *SANITIZED])
    build.build.compile_package(package, build.NativeBuildHook)


def main() -> int:
    """Run the tests and return pytest's status."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "shioenv"
        kept = shutil.ignore_patterns("__pycache__", "bin", ".*")
        for name in ("packages/shioenv", "tests", "soak", "scripts"):
            shutil.copytree(ROOT / name, copy / name, ignore=kept)
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, copy / name)
        compile_sanitized(copy)
        found = os.environ | {
            "PYTHONPATH": str(copy / "packages/shioenv/src"),
            # a supervisor ends by being killed, so memory that it had not freed is no leak
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "packages/shioenv/tests/conformance",
            *sys.argv[1:],
        ]
        return subprocess.run(command, cwd=copy, env=found, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
