"""Presentation of an evaluation: one HTML page, or tables in Markdown.

The HTML page has the scores, the errors of each predictor, and every answer next to the gold run
with the differences marked. The Markdown has the paper's numbers next to ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from shioenv.behavior.compare import similarity
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel
from shioenv.domain.readable import changes
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.text import fixed, visible
from shioenv_eval.evaluate import Evaluation, read_evaluation
from shioenv_eval.mask import output_text_of
from shioenv_eval.metrics import Status
from shioenv_eval.places import utilities
from shioenv_eval.report.markup import Table, page_file, rendered, script_json
from shioenv_eval.results import GROUPS, SHOWN, JudgedPredictor, by_utility
from shioenv_eval.suite import SuiteCase

LINES = 120
"""Maximum number of output lines shown, gold and answer together; omitted lines are counted."""
CHARACTERS = 400
"""Maximum number of characters shown of a line."""
OPERATIONS = 40
"""Maximum number of operations shown of a patch."""
SHADES = 10
"""Colour steps of the heat map between a share of 0 and of 1."""

HEADINGS = {
    **SHOWN,
    "em_masked": "EM masked",
    "em_exit": "EM + exit",
    "em_files": "EM files",
    "exit_code": "exit code",
    "em_macro": "EM by utility",
}
"""Metrics of the page's tables, with their headings."""

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
"""The paper's EM, O-ES and Delta-JS, by group and method, from its tables."""

_TITLES = {"single": "Single commands", "multi": "Several steps", "all": "All inputs"}

_COLUMNS = {**SHOWN, "em_macro": "by utility", "ms_p50": "ms"}
"""Metrics of the tables, with their headings."""

_HEAD = """\
# Evaluation of predictors

Made by `make evaluate`; {inputs} inputs of the suite `{name}` on {system} (`{digest}`);
{volatile} of them are volatile. [The design page](../design/evaluation.md#metrics) defines the
metrics; brackets show 95% bootstrap confidence intervals over inputs. EM, masked, +exit, patch and
ΔJS compare patches at the level in parentheses after the predictor's name: `full` or `files`.
Only the columns `files`, `output`, `exit` and O-ES are comparable across levels.

**The paper's numbers are listed for reference; they were measured on different inputs.** The
paper's 700 inputs are not public; ours were written by hand ([how](../reference/public-suite.md)).
The paper defines its metrics without formulas, so ours are one interpretation of them. These
results do not show how the paper's models would perform on our inputs.
"""

Row = list[str]


def write_page(directory: str | Path, file: str | Path | None = None) -> Evaluation:
    """Write the page of the evaluation in a directory, and return the evaluation.

    `file` is the page's path, by default `report.html` in the directory. Errors: those of
    `page_file` and `read_evaluation`; DatasetStorageError.
    """
    path = page_file(directory, file)
    evaluation = read_evaluation(directory)
    content = evaluation_html(evaluation).encode()
    with storage_errors(path):
        atomic_write(path, content)
    return evaluation


def evaluation_html(evaluation: Evaluation) -> str:
    """Return the page as HTML that loads nothing from the network."""
    document = evaluation.document
    names = list(document["predictors"])
    return rendered(
        __package__,
        title=f"ShIOEnv evaluation: {document['suite']['name']}",
        document=document,
        names=names,
        groups=GROUPS,
        headings=HEADINGS,
        heat=heat_map(evaluation),
        shade=shade,
        calibrations=[
            {"name": one.name, "rows": rows}
            for one in evaluation.predictors
            if (rows := calibration(one))
        ],
        failures=[failure for one in evaluation.predictors for failure in _failures(one)],
        data=_data(evaluation),
    )


def shade(value: float | None) -> str:
    """Return the CSS class of a share: `h0` to `h10`, `h-none` for None."""
    return "h-none" if value is None else f"h{round(value * SHADES)}"


def heat_map(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return the number of inputs that call each utility, and each predictor's accuracy on them.

    `shares` are in the order of the predictors. An answer counts as right if `em_files` or
    `em_masked` is 1. It is then exact at the level of files, or right at the predictor's level
    apart from what is volatile.
    """
    rows = []
    for utility, places in by_utility(evaluation.suite.cases).items():
        shares = [
            sum(max(one.marks[place].em_files, one.marks[place].em_masked) for place in places)
            / len(places)
            for one in evaluation.predictors
        ]
        rows.append({"utility": utility, "n": len(places), "shares": shares})
    return rows


def calibration(one: JudgedPredictor) -> list[dict[str, Any]]:
    """Return a predictor's accuracy on its most confident answers: a tenth, a quarter, up to all.

    Answers and abstentions count; abstentions have the lowest confidence. `least` is the lowest
    confidence of a part, `said` its mean confidence, `right` its mean `em_masked`. Empty if the
    confidence is constant.
    """
    sure = [
        (-1.0 if said.behavior is None else said.confidence or 0.0, mark.em_masked)
        for said, mark in zip(one.said, one.marks, strict=True)
        if said.status in (Status.ANSWERED, Status.ABSTAINED)
    ]
    if len({confidence for confidence, _ in sure}) < 2:
        return []
    ranked = sorted(sure, key=lambda pair: -pair[0])
    rows = []
    for part in (0.1, 0.25, 0.5, 0.75, 1.0):
        kept = ranked[: max(1, round(part * len(ranked)))]
        rows.append(
            {
                "part": part,
                "n": len(kept),
                "least": max(0.0, kept[-1][0]),
                "said": sum(max(0.0, confidence) for confidence, _ in kept) / len(kept),
                "right": sum(right for _, right in kept) / len(kept),
            }
        )
    return rows


def _failures(one: JudgedPredictor) -> Iterator[dict[str, Any]]:
    """Yield a predictor's number of missing answers by status, with the first case's reason."""
    for status in Status:
        found = [said for said in one.said if said.status is status]
        if found and status is not Status.ANSWERED:
            yield {
                "name": one.name,
                "status": status.value.replace("_", " "),
                "n": len(found),
                "why": found[0].why,
            }


def _data(evaluation: Evaluation) -> Any:
    """Return the page's cases and answers as JSON that is safe inside `<script>`."""
    from markupsafe import Markup

    cases = []
    for place, case in enumerate(evaluation.suite.cases):
        question = case.question
        answers = [_answer(case, one, place) for one in evaluation.predictors]
        cases.append(
            {
                "i": question.id,
                "t": visible(question.input),
                "h": [visible(text) for text in question.history],
                "c": question.cwd or "",
                "s": question.steps,
                "u": list(utilities(question.input)),
                "v": list(case.mask.channels),
                "a": answers,
            }
        )
    names = [one.name for one in evaluation.predictors]
    return Markup(script_json({"names": names, "cases": cases}))


def _answer(case: SuiteCase, one: JudgedPredictor, place: int) -> dict[str, Any]:
    said, mark = one.said[place], one.marks[place]
    behavior = said.behavior
    gold = _nearest(case, behavior)
    shown: dict[str, Any] = {
        "k": said.status.value,
        "m": round(said.milliseconds, 1),
        "r": [mark.em, mark.em_masked, mark.em_output, mark.em_patch, mark.exit_code],
        "w": visible(said.why[:CHARACTERS]),
        "e": [gold.exit_code, None if behavior is None else behavior.exit_code],
        "o": _lines(gold, behavior),
        "p": _operations(gold, behavior, one.level),
    }
    if said.confidence is not None and said.confidence < 1:
        shown["f"] = round(said.confidence, 3)
    return shown


def _nearest(case: SuiteCase, behavior: Behavior | None) -> Behavior:
    """Return the gold run to show next to an answer: the one with the most similar output."""
    if behavior is None or len(case.gold) == 1:
        return case.gold[0]
    return max(case.gold, key=lambda run: similarity(run.output, behavior.output))


def _lines(gold: Behavior, behavior: Behavior | None) -> list[Row]:
    """Return the lines of both outputs, each with a mark.

    `=`: in both; `-`: missing from the answer; `+`: only in the answer; `…`: lines omitted.
    """
    before = output_text_of(gold.output).split("\n")
    after = before if behavior is None else output_text_of(behavior.output).split("\n")
    rows = list(_compared(before, after))
    if behavior is None:
        rows = [["-", text] for _, text in rows]
    if rows[-1] in (["=", ""], ["-", ""]):
        rows.pop()  # the empty string after a final newline
    cut = len(rows) - LINES
    shown = [[kind, visible(text[:CHARACTERS])] for kind, text in rows[:LINES]]
    return [*shown, ["…", f"and {cut} more lines"]] if cut > 0 else shown


def _operations(gold: Behavior, behavior: Behavior | None, level: PatchLevel) -> list[Row]:
    """Return the operations of both patches in readable form, with the marks of `_lines`."""

    def told(one: Behavior | None) -> list[str]:
        listed = [] if one is None else changes(one.patch.operations[:OPERATIONS])
        if level is PatchLevel.FILES:
            return sorted({f"{verb} {name}" for verb, name, _ in listed})
        return list(map(str, listed))

    return [[kind, text[:CHARACTERS]] for kind, text in _compared(told(gold), told(behavior))]


def _compared(before: Sequence[str], after: Sequence[str]) -> Iterator[Row]:
    matcher = SequenceMatcher(None, before, after, autojunk=len(before) > 1000)
    for kind, start, stop, other, end in matcher.get_opcodes():
        if kind == "equal":
            yield from (["=", text] for text in before[start:stop])
        else:
            yield from (["-", text] for text in before[start:stop])
            yield from (["+", text] for text in after[other:end])


def markdown(evaluation: Evaluation) -> str:
    """Return the page of tables as Markdown."""
    suite = evaluation.document["suite"]
    head = _HEAD.format(
        inputs=suite["inputs"],
        name=suite["name"],
        system=suite["system"],
        digest=suite["system_digest"][:12],
        volatile=suite["volatile"],
    )
    return "\n".join([head, *_tables(evaluation)])


def _tables(evaluation: Evaluation) -> Iterator[str]:
    document = evaluation.document
    for group, title in _TITLES.items():
        note = f"{next(iter(document['predictors'].values()))[group]['n']} inputs."
        rows = [
            (
                f"`{name}` ({facts['patch_level']})",
                *(_estimate(facts[group], each) for each in _COLUMNS),
            )
            for name, facts in document["predictors"].items()
        ]
        yield Table(title, note, ("predictor", *_COLUMNS.values()), rows).markdown
    for group, methods in PAPER.items():
        rows = [(name, *(fixed(value) for value in values)) for name, values in methods.items()]
        note = "Measured on the paper's inputs, which are not public."
        title = f"The paper: {_TITLES[group].lower()}"
        yield Table(title, note, ("method", "EM", "O-ES", "ΔJS"), rows).markdown
    rows = [
        (f"`{name}`", facts["version"], _trained(facts))
        for name, facts in document["predictors"].items()
    ]
    headers = ("predictor", "version", "trained on")
    note = "The table lists the version and the training data of each predictor."
    yield Table("Versions of the predictors", note, headers, rows).markdown
    lacking = [(f"`{name}`", why) for name, why in document["unable"].items()]
    if lacking:
        note = "These predictors could not run on the machine of this evaluation."
        yield Table("Predictors not evaluated", note, ("predictor", "reason"), lacking).markdown


def _estimate(scores: Mapping[str, Any], metric: str) -> str:
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
    text, form = (fixed(facts["all"][f"em_new_{name}"][0]) for name in ("text", "form"))
    return (
        f"{known['inputs']:,} inputs. Overlap with the suite: {known['text']:.1%} same text, "
        f"{known['form']:.1%} same normal form. EM without inputs of the same text: {text}; "
        f"without inputs of the same form: {form}"
    )
