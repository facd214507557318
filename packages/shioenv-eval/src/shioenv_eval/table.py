"""An evaluation as a page of tables in Markdown, with the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shioenv.text import fixed
from shioenv_eval.evaluate import Evaluation
from shioenv_eval.report.tables import Table
from shioenv_eval.results import SHOWN

PAPER: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "single": {
        "Cowrie": (0.165, 0.345, 0.248),
        "GPT-4o-mini": (0.165, 0.566, 0.164),
        "GPT-4.1-mini": (0.252, 0.600, 0.551),
        "CodeT5, NL2CMD": (0.216, 0.482, 0.512),
        "CodeT5, UCS": (0.331, 0.642, 0.572),
        "CodeT5, GCS, R* <= 0.5": (0.398, 0.644, 0.416),
        "CodeT5, GCS": (0.462, 0.732, 0.681),
        "CodeT5, GCS, R* >= 0.5": (0.510, 0.735, 0.648),
    },
    "multi": {
        "Cowrie": (0.059, 0.231, 0.146),
        "GPT-4o-mini": (0.136, 0.597, 0.015),
        "GPT-4.1-mini": (0.157, 0.616, 0.349),
        "CodeT5, NL2CMD": (0.104, 0.298, 0.105),
        "CodeT5, UCS": (0.142, 0.510, 0.499),
        "CodeT5, GCS, R* <= 0.5": (0.189, 0.665, 0.484),
        "CodeT5, GCS": (0.195, 0.698, 0.534),
        "CodeT5, GCS, R* >= 0.5": (0.216, 0.689, 0.534),
    },
}
"""The paper's EM, O-ES and Delta-JS, by group and method, as its tables give them."""

TITLES = {"single": "Single commands", "multi": "Several steps", "all": "All inputs"}

COLUMNS = {**SHOWN, "em_macro": "by utility", "ms_p50": "ms"}
"""Metrics of the tables, with their headings."""

_HEAD = """\
# Judging predictors

Made by `make evaluate`; {inputs} inputs of the suite `{name}` on {system} (`{digest}`), of which
{volatile} do not do the same every time. What the metrics mean is said in
[judging predictors](../design/evaluation.md#metrics); brackets are 95% intervals by resampling
inputs. EM, masked, +exit, patch and ΔJS are at the level that stands behind a predictor's name:
`full` or `files`. Only the columns `files`, `output`, `exit` and O-ES compare across levels.

**The paper's numbers stand beside ours, and are of other inputs.** Its 700 are not public; ours
were written by hand ([how](../reference/public-suite.md)). Its metrics are given without formulas,
and ours are one reading of them. Nothing here says how its models would do on these inputs.
"""


def markdown(evaluation: Evaluation) -> str:
    """The page of tables, as Markdown."""
    suite = evaluation.document["suite"]
    head = _HEAD.format(
        inputs=suite["inputs"],
        name=suite["name"],
        system=suite["system"],
        digest=suite["system_digest"][:12],
        volatile=suite["volatile"],
    )
    return "\n".join([head, *_parts(evaluation)])


def _parts(evaluation: Evaluation) -> Iterator[str]:
    document = evaluation.document
    for group, title in TITLES.items():
        note = f"{next(iter(document['predictors'].values()))[group]['n']} inputs."
        rows = [
            (f"`{name}` ({facts['patch_level']})", *(_cell(facts[group], each) for each in COLUMNS))
            for name, facts in document["predictors"].items()
        ]
        yield Table(title, note, ("predictor", *COLUMNS.values()), rows).markdown
    for group, methods in PAPER.items():
        rows = [(name, *(fixed(value) for value in values)) for name, values in methods.items()]
        note = "On its own inputs, which nobody else has."
        title = f"The paper: {TITLES[group].lower()}"
        yield Table(title, note, ("method", "EM", "O-ES", "ΔJS"), rows).markdown
    rows = [
        (f"`{name}`", facts["version"], _trained(facts))
        for name, facts in document["predictors"].items()
    ]
    headers = ("predictor", "version", "trained on")
    yield Table("What was judged", "Versions matter.", headers, rows).markdown
    lacking = [(f"`{name}`", why) for name, why in document["unable"].items()]
    if lacking:
        note = "On the machine that this page was made on."
        yield Table("What could not run", note, ("predictor", "why"), lacking).markdown


def _cell(scores: Mapping[str, Any], metric: str) -> str:
    value, low, high = scores[metric]
    if metric == "ms_p50":
        return fixed(value, 1)
    if value is None:
        return "-"
    return f"{fixed(value)} [{fixed(low, 2)}, {fixed(high, 2)}]"


def _trained(facts: Mapping[str, Any]) -> str:
    known = facts.get("training")
    if known is None:
        return "-"
    new = (fixed(facts["all"][f"em_new_{name}"][0]) for name in ("text", "form"))
    return (
        f"{known['inputs']:,} inputs: the text of {known['text']:.1%} of the suite, the form of "
        f"{known['form']:.1%}; EM of the others {' and '.join(new)}"
    )
