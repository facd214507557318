"""A comparison as one HTML page: shares, and every finding with its diff and its script."""

from __future__ import annotations

from shioenv.text import visible
from shioenv_eval.conform.comparison import CaseComparison
from shioenv_eval.report.drawing import require_libraries
from shioenv_eval.report.samples import script_json
from shioenv_eval.report.template import LIBRARIES, rendered


def page(comparison: CaseComparison) -> str:
    """The page, which needs no network and no other file.

    Errors: MissingExtraError where the extra `report` is not installed.
    """
    require_libraries("a report", "report", *LIBRARIES)
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
