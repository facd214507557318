"""Output files of a comparison: JSON, JUnit XML, an HTML page, and a script for each finding."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from shioenv.files.durable import atomic_write, storage_errors
from shioenv.text import visible
from shioenv_eval.conform.comparison import CaseComparison
from shioenv_eval.report.tables import grouped
from shioenv_eval.report.template import FILE, LIBRARIES, rendered, script_json

RESULTS, JUNIT, SCRIPTS = "results.json", "junit.xml", "findings"
"""Files of the directory, and its subdirectory with a script for each finding."""


def write_comparison(comparison: CaseComparison, directory: Path) -> None:
    """Write the files of a comparison, replacing those of an earlier one.

    The page is omitted if the extra `report` is not installed. Errors: DatasetStorageError.
    """
    document = json.dumps(comparison.document, ensure_ascii=False, indent=1)
    scripts = directory / SCRIPTS
    with storage_errors(directory):
        scripts.mkdir(parents=True, exist_ok=True)
        atomic_write(directory / RESULTS, f"{document}\n".encode("utf-8", "backslashreplace"))
        atomic_write(directory / JUNIT, _junit(comparison))
        for old in scripts.glob("[0-9]*.sh"):
            old.unlink()
        for number, finding in enumerate(comparison.findings, 1):
            text = comparison.script(finding)
            atomic_write(scripts / f"{number:04}.sh", text.encode("utf-8", "surrogateescape"))
        if all(find_spec(name) for name in LIBRARIES):
            atomic_write(directory / FILE, _page(comparison).encode("utf-8", "backslashreplace"))


def _junit(comparison: CaseComparison) -> bytes:
    """Return a JUnit document with a test suite for each command and a test for each case.

    A case that differs is a failure, with the diff of its minimal finding. A case without steady
    truth is skipped. Characters that XML cannot hold are escaped as in Python.
    """
    root = ElementTree.Element("testsuites", name=_text(f"shioenv conform {comparison.title}"))
    found = {
        id(verdict.case): finding for finding in comparison.findings for verdict in finding.verdicts
    }
    verdicts = {id(one.case): one for one in comparison.verdicts}
    shown = {id(one): "\n".join(comparison.shown(one)) for one in comparison.findings}
    for command, cases in grouped(comparison.truth, lambda one: one.drawn.command).items():
        counts = comparison.counted(cases)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=command,
            tests=str(counts["drawn"]),
            failures=str(counts["steady"] - counts["right"]),
            skipped=str(counts["drawn"] - counts["steady"]),
        )
        for case in cases:
            name = _text("\n".join((*case.drawn.history, case.drawn.input.text)))
            test = ElementTree.SubElement(
                suite, "testcase", classname=f"{command}.{case.drawn.kind}", name=name
            )
            verdict = verdicts.get(id(case))
            if verdict is None:
                ElementTree.SubElement(test, "skipped", message="the machine's own runs differ")
            elif not verdict.right:
                finding = found[id(case)]
                minimal = _text(f"minimal: {finding.reduced.asked.input.text}")
                kind = ", ".join(sorted(verdict.classes))
                failure = ElementTree.SubElement(test, "failure", type=kind, message=minimal)
                failure.text = _text(shown[id(finding)])
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _text(text: str) -> str:
    return visible(text).encode("utf-8", "backslashreplace").decode()


def _page(comparison: CaseComparison) -> str:
    """Return the HTML page: shares, and every finding with its diff and script.

    It is self-contained.
    """
    from markupsafe import Markup

    document = comparison.document
    findings = [
        {
            **{name: one[name] for name in ("command", "count", "classes", "recurs")},
            "input": visible(one["input"]),
            "history": [visible(line) for line in one["history"]],
            "difference": one["difference"],
            "script": visible(one["script"]),
        }
        for one in document["findings"]
    ]
    return rendered(
        __package__,
        title=f"{comparison.title} and {comparison.system.name}",
        other=comparison.title,
        document=document,
        data=Markup(script_json({"findings": findings})),
    )
