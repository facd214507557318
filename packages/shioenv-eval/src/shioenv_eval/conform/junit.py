"""A comparison as JUnit XML, which programs of continuous integration show."""

from __future__ import annotations

from xml.etree import ElementTree

from shioenv.text import visible
from shioenv_eval.conform.comparison import CaseComparison
from shioenv_eval.conform.verdicts import CaseVerdict
from shioenv_eval.report.tables import grouped


def junit(comparison: CaseComparison) -> bytes:
    """A test suite for each command, and in it a test for each case.

    A case that differs is a failure, with the diff of the finding that it came down to. A case
    whose truth is not steady is skipped. Characters that XML cannot hold are escaped as in Python.
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
                ElementTree.SubElement(test, "skipped", message="the machine's own runs disagree")
            elif not verdict.right:
                finding = found[id(case)]
                minimal = finding.reduced.asked.input.text
                failure = ElementTree.SubElement(
                    test, "failure", type=_classes(verdict), message=_text(f"minimal: {minimal}")
                )
                failure.text = _text(shown[id(finding)])
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _classes(verdict: CaseVerdict) -> str:
    return ", ".join(sorted(verdict.classes))


def _text(text: str) -> str:
    return visible(text).encode("utf-8", "backslashreplace").decode()
