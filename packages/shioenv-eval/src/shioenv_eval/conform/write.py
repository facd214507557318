"""A comparison written into a directory: for programs, for continuous integration, for people."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from shioenv.files.durable import atomic_write, storage_errors
from shioenv_eval.conform.comparison import CaseComparison
from shioenv_eval.conform.junit import junit
from shioenv_eval.conform.page import page
from shioenv_eval.report.template import LIBRARIES

RESULTS, JUNIT, PAGE, SCRIPTS = "results.json", "junit.xml", "report.html", "findings"
"""The files of the directory, and the directory in it with a script for each finding."""


def write_comparison(comparison: CaseComparison, directory: Path) -> None:
    """Writes the files of a comparison, in place of those of an earlier one.

    The page is left out where the extra `report` is not installed. Errors: DatasetStorageError.
    """
    document = json.dumps(comparison.document, ensure_ascii=False, indent=1)
    scripts = directory / SCRIPTS
    with storage_errors(directory):
        scripts.mkdir(parents=True, exist_ok=True)
        atomic_write(directory / RESULTS, f"{document}\n".encode("utf-8", "backslashreplace"))
        atomic_write(directory / JUNIT, junit(comparison))
        for old in scripts.glob("[0-9]*.sh"):
            old.unlink()
        for number, finding in enumerate(comparison.findings, 1):
            text = comparison.script(finding)
            atomic_write(scripts / f"{number:04}.sh", text.encode("utf-8", "surrogateescape"))
        if all(find_spec(name) for name in LIBRARIES):
            atomic_write(directory / PAGE, page(comparison).encode("utf-8", "backslashreplace"))
