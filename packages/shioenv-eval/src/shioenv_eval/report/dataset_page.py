"""The page of a dataset: a single file that includes its style, script, charts and samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shioenv.dataset.manifest import Manifest, read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.record import Record
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.text import count
from shioenv_eval.report.browsed_records import SAID_BY_FLAGS, Samples
from shioenv_eval.report.chart_style import DARK
from shioenv_eval.report.statistics import Statistics, statistics_of
from shioenv_eval.report.tables import Table
from shioenv_eval.report.template import page_file, rendered

ORIGINS = {
    "generate": "Each was written by the grammars, executed on a pristine system, and scored.",
    "filter": "They were selected from another dataset.",
    "merge": "They were put together from several datasets.",
    "commands": "They come from a list; each was executed on a pristine system, and scored.",
    "records": "They were exported from a dataset; what its manifest said was not.",
    "released": "They were executed and scored elsewhere, and are shown as they were released.",
}
"""Sentences about the creation of a dataset, by the kind of its origin."""


def write_report(
    directory: str | Path,
    file: str | Path | None = None,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Statistics:
    """Write the page of a dataset, and return the dataset's numbers.

    `file` is the page's path; None: `report.html` in the dataset's directory. The file is written
    completely or not at all. Equal datasets give equal bytes with the same versions of the
    libraries and the same fonts. `report` is called with the number of records read and the total.

    Errors: those of `page_file` and `collect_page_data`. DatasetStorageError if the file cannot
    be written.
    """
    path = page_file(directory, file, "altair", "vl_convert")
    manifest, statistics, samples = collect_page_data(directory, report=report)
    content = dataset_html(manifest, statistics, samples).encode()
    with storage_errors(path):
        atomic_write(path, content)
    return statistics


def collect_page_data(
    directory: str | Path, *, report: Callable[[int, int], None] = lambda done, total: None
) -> tuple[Manifest, Statistics, Samples]:
    """Collect all data for the page in one pass over the finished records.

    `report` is called after each record with the number read and the total. Errors: those of
    `read_manifest`, and of `read_records` with `check`.
    """
    manifest, samples = read_manifest(directory), Samples()

    def passing() -> Iterator[Record]:
        for number, record in enumerate(read_records(directory, check=True, unfinished=True), 1):
            samples.add(record)
            report(number, manifest.count)
            yield record

    return manifest, statistics_of(passing(), manifest.plan), samples


def dataset_html(manifest: Manifest, statistics: Statistics, samples: Samples) -> str:
    """Return the page as HTML.

    It loads nothing; its policy admits only its own style and script.
    """
    from markupsafe import Markup

    from shioenv_eval.report.charts import dataset_figures

    drawing = manifest.plan.drawing
    chosen = samples.chosen()
    return rendered(
        __package__,
        style=dark_charts(),
        title=f"ShIOEnv dataset: {drawing.sampler}, seed {drawing.seed}",
        data=Markup("[" + ",\n".join(chosen.texts) + "]"),
        n_samples=len(chosen.texts),
        every_pair=chosen.every_pair,
        figures=dataset_figures(statistics),
        manifest=manifest,
        plan=manifest.plan,
        stats=statistics,
        reached={name: n for name, n in statistics.limits_hit.items() if name not in SAID_BY_FLAGS},
        facts=manifest_facts(manifest, statistics.records),
        tables=tables(manifest),
        origin=ORIGINS.get(_origin(manifest).get("kind", "generate"), ""),
    )


def manifest_facts(manifest: Manifest, records: int) -> dict[str, str]:
    """Return the manifest's facts in readable form, and the number of records.

    Unknown facts are left out.
    """
    plan, shards = manifest.plan, len(manifest.shards)
    drawing, scoring = plan.drawing, plan.scoring
    most = scoring.process_budget if scoring else 0
    bound = f" that start at most {count(most)} processes" if most else ""
    said = {
        "records": f"{count(records)} of {count(manifest.count)} wanted, "
        f"in {count(shards)} shard{'s' * (shards != 1)}",
        "sampler": f"{drawing.sampler}, policy {drawing.policy}, seed {drawing.seed}",
        **{
            f"origin: {key}": value if isinstance(value, str) else json.dumps(value)
            for key, value in _origin(manifest).items()
        },
        "score": ""
        if scoring is None
        else f"none: inputs were executed alone, {scoring.noise_runs} times"
        if not scoring.budget
        else f"at most {count(scoring.budget)} sub-inputs of each input{bound}, "
        f"{scoring.noise_runs} noise runs; {count(manifest.executions)} executions in all",
        "inputs": f"at most {drawing.horizon} arguments a command and {drawing.max_segments} "
        f"commands, {drawing.composite_share:.0%} of draws composed of several",
        "grammars": f"{len(drawing.commands)}: {', '.join(drawing.commands)}"
        if drawing.commands
        else "",
        "start directories": ", ".join(drawing.start_directories),
        "system": f"{plan.system}, {len(plan.packages)} packages"
        + (f", bash {plan.packages['bash']}" if "bash" in plan.packages else ""),
        "system digest": plan.system_digest,
        "grammar digest": plan.grammar_digest,
        "made with": f"shioenv {plan.version}",
        "host kernels": ", ".join(manifest.kernels),
        "host layers": ", ".join(manifest.layers),
    }
    return {name: value for name, value in said.items() if value}


def tables(manifest: Manifest) -> list[Table]:
    """Return the execution limits and the system's packages; only tables with rows."""
    bounds = manifest.plan.to_json()["limits"] or {}
    limits = [(name.replace("_", " "), str(value)) for name, value in bounds.items()]
    packages = sorted(manifest.plan.packages.items())
    known = (
        Table("Limits of every execution", "", ("limit", "value"), limits),
        Table("Packages of the system", "", ("package", "version"), packages),
    )
    return [table for table in known if table.rows]


def _origin(manifest: Manifest) -> dict[str, Any]:
    """Return the origin of the inputs; empty if a sampler drew them here."""
    return dict(manifest.plan.to_json().get("origin") or {})


def dark_charts() -> str:
    """Return CSS that applies the colours of `DARK` to charts on a dark page."""
    rules: list[Any] = [
        f'svg [{part}="{light}"] {{ {part}: {dark}; }}'
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
    ]
    return "@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}\n"
