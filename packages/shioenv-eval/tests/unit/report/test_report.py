"""A dataset as a page: its counts and contents, and its safety against hostile records."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from shioenv import errors
from shioenv.cli.main import app
from shioenv.dataset.write import ShardWriter
from shioenv.domain.inputs import Input, Session
from shioenv.domain.patch import ContextPatch
from shioenv.domain.readable import changes
from shioenv.domain.record import ContentDigest, Effect, Record, ScoredSegment
from shioenv.errors import DatasetCorruptError, DatasetStorageError, MissingExtraError, UsageError
from shioenv.text import visible
from shioenv_eval.report import browsed_records as samples_module
from shioenv_eval.report import chart_style
from shioenv_eval.report.browsed_records import argument_levels
from shioenv_eval.report.charts import RANKED, dataset_figures
from shioenv_eval.report.dataset_page import collect_page_data, write_report
from shioenv_eval.report.markup import FILE
from shioenv_eval.report.statistics import (
    EXPENSIVE,
    STEPS,
    composition,
    effects_of,
    operators_of,
    size_class,
)
from support.dataset_fakes import HOME, plan

FILE_ENTRY = {
    "perms": "-rw-r--r--",
    "links": 1,
    "owner": "root",
    "group": "root",
    "size": 12,
    "month": "Oct",
    "day": 16,
    "year": 2025,
    "time": "19:43",
}
PATCHES: tuple[list[Any], ...] = (
    [],
    [["a", "/fs/new.txt", FILE_ENTRY]],
    [["=", "/fs/notes.txt/size", 3], ["=", "/fs/notes.txt/time", "19:43"]],
    [["m", "/fs/old", "/fs/young"], ["r", "/fs/gone"]],
    [["=", "/cwd", "/tmp"], ["=", "/env/PWD", "/tmp"]],
    [["=", "/shell_options/extglob", True], ["a", "/aliases/ll", "ls -l"]],
    [["=", "/network/links/eth0", "down"], ["=", "/umask", "0077"], ["a", "/user", "x"]],
)
INPUTS = (
    ["ls"],
    ["ls", "-l<ns>", "<ns>a", "documents"],
    ["cat", "a.txt", "|", "sort", "-u"],
    ["cd", "documents", "&&", "ls", ">", "out.txt"],
    ["echo", "a", ";", "true"],
    ["grep", "-r", "needle", "."],
)

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\x1b]0;title\x07\x1b[31mred\x1b[0m",
    '"><svg onload=alert(1)>',
    "{{ 7 * 7 }} {% raw %}",
    "<!-- \u202eright to left\u2066",
    "&lt;b&gt; &amp;amp;",
    "a" * 20_000,
)


def record(number: int, input_args: Sequence[str], **fields: Any) -> Record:
    shell_input = Input.from_marked(input_args)
    count = shell_input.n_arguments
    return Record(
        **{
            "session_id": number,
            "input": Session(HOME, (shell_input,)).text,
            "input_args": list(input_args),
            "exit_code": 0,
            "output": "",
            "context_patch": "[]",
            "irreducibility": None,
            "n_arguments": count,
            "segments": [
                ScoredSegment(
                    command=one.command, n_arguments=len(one.arguments), irreducibility=None
                )
                for one in shell_input.segments
            ],
            "cwd": HOME,
            "system": "fake",
            "sampler": "gcs",
            **fields,
        }
    )


def some_records(count: int = 300, seed: int = 1) -> list[Record]:
    rng = random.Random(seed)
    made = []
    for number in range(count):
        input_args = rng.choice(INPUTS)
        scored = Input.from_marked(input_args).n_arguments > 0
        score = rng.choice([0.0, 1.0, rng.random()]) if scored else None
        made.append(
            record(
                number,
                input_args,
                exit_code=rng.choice([0, 0, 0, 1, 2, 127]),
                output="x" * rng.choice([0, 1, 5, 70, 4095, 4096]),
                context_patch=ContextPatch.from_json(rng.choice(PATCHES)).to_json(),
                irreducibility=score,
                irreducibility_strict=score,
                exact=rng.random() < 0.5,
                standard_error=None if score is None else 0.1,
                n_executions=rng.randrange(40),
                volatile=rng.random() < 0.1,
            )
        )
    return made


def dataset(directory: Path, records: Sequence[Record]) -> Path:
    """A dataset directory with these records, one shard after the other."""
    directory.mkdir(exist_ok=True)
    writer = ShardWriter(directory, plan(), ("6.1.0",))
    for one in records:
        writer.add(one)
    writer.finish()
    return directory


def drawn(directory: Path) -> str:
    write_report(directory)
    return (directory / FILE).read_text()


class Structure(HTMLParser):
    """The tags of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.text = ""
        self._open = ""
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")
        self._open = ""

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open][-1] += data
        else:
            self.text += data


def browsable(structure: Structure) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(structure.inside["script"][0])
    return found


# numbers


def naive_quartile(scores: list[float], share: float) -> float:
    rounded = sorted(round(score * STEPS) / STEPS for score in scores)
    reached = [one for index, one in enumerate(rounded, 1) if index >= share * len(rounded)]
    return reached[0]


def test_the_numbers_are_those_of_a_naive_recount(tmp_path: Path) -> None:
    records = some_records()
    _, found, _ = collect_page_data(dataset(tmp_path, records))
    assert found.records == len(records)
    for n, spread in found.by_arguments.items():
        group = [one for one in records if one.n_arguments == n]
        scores = [one.irreducibility for one in group if one.irreducibility is not None]
        assert (spread.records, spread.scored) == (len(group), len(scores))
        if scores:
            assert spread.mean_irreducibility == pytest.approx(statistics.fmean(scores))
            assert spread.quartiles == tuple(naive_quartile(scores, q) for q in (0.25, 0.5, 0.75))
    assert {name: one.records for name, one in found.by_command.items()} == Counter(
        one.input_args[0] for one in records
    )
    assert {name: one.records for name, one in found.by_composition.items()} == Counter(
        {
            0: "one command", 1: "one command", 2: "pipe", 3: "and-or + redirection",
            4: "sequence", 5: "one command",
        }[INPUTS.index(one.input_args)]
        for one in records
    )  # fmt: skip
    assert found.output_sizes == Counter(
        {0: 0, 1: 1, 5: 4, 70: 64, 4095: 1024, 4096: 4096}[len(one.output)] for one in records
    )
    assert [one.executions for one in found.expensive] == sorted(
        (one.n_executions for one in records), reverse=True
    )[:EXPENSIVE]


def test_what_inputs_change_is_told_by_their_patches(tmp_path: Path) -> None:
    expected: tuple[set[str], ...] = (
        {"nothing"},
        {"files added"},
        {"files changed"},
        {"files moved", "files removed"},
        {"working directory", "environment"},
        {"shell options and settings", "functions and aliases"},
        {"network", "limits and umask", "other"},
    )
    records = some_records()
    _, found, _ = collect_page_data(dataset(tmp_path, records))
    naive = Counter(
        effect
        for one in records
        for effect in expected[
            [ContextPatch.from_json(patch).to_json() for patch in PATCHES].index(one.context_patch)
        ]
    )
    assert {name: count for name, count in found.effects.items() if count} == naive


def test_changed_contents_are_changed_files() -> None:
    one = record(0, ["ls"], content_digests=[ContentDigest(name="notes.txt", sha256="0" * 64)])
    assert effects_of(one) == {"files changed"}


def test_a_size_is_in_the_class_that_begins_at_or_below_it() -> None:
    for size in [*range(2000), 1 << 20, (1 << 20) - 1]:
        bound = size_class(size)
        assert bound <= size
        assert size < max(1, 4 * bound)


# what the page shows


def test_the_page_is_the_same_for_the_same_dataset(tmp_path: Path) -> None:
    records = some_records(60)
    pages = [drawn(dataset(tmp_path / name, records)) for name in ("one", "other")]
    assert pages[0] == pages[1]


def test_every_chart_has_a_title_a_spoken_label_and_a_captioned_table(tmp_path: Path) -> None:
    structure = Structure(drawn(dataset(tmp_path, some_records())))
    charts = structure.tags.count("figure")
    assert charts == 8
    labels = [
        value for tag, name, value in structure.attributes if (tag, name) == ("svg", "viewbox")
    ]
    assert len(labels) == charts
    spoken = [
        value for tag, name, value in structure.attributes if (tag, name) == ("svg", "aria-label")
    ]
    assert len(spoken) == charts
    assert all(len(one) > 20 for one in spoken)
    assert structure.tags.count("caption") == structure.tags.count("table")
    headings = [tag for tag in structure.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1
    assert set(headings) == {"h1", "h2", "h3"}


def test_a_dataset_without_records_is_a_page_too(tmp_path: Path) -> None:
    structure = Structure(drawn(dataset(tmp_path, [])))
    assert browsable(structure) == []
    assert "0 inputs" in structure.text


def test_every_axis_says_what_it_counts(tmp_path: Path) -> None:
    found = collect_page_data(dataset(tmp_path, some_records()))[1]
    for name, figure in dataset_figures(found).items():
        axes = re.findall(r"[XY]-axis( titled '[^']+')? for a (\w+) scale", figure.svg)
        assert len(axes) >= 2, name
        for title, scale in axes:
            assert title or scale == "discrete", name


def test_every_colour_of_a_chart_has_one_for_dark_pages(tmp_path: Path) -> None:
    found = collect_page_data(dataset(tmp_path, some_records()))[1]
    for name, figure in dataset_figures(found).items():
        colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', figure.svg)) - {"none"}
        assert colours, name
        assert colours <= set(chart_style.DARK), name


def test_long_rankings_are_cut_in_the_chart_and_whole_in_the_table(tmp_path: Path) -> None:
    records = [record(n, [f"command{n}"]) for n in range(RANKED + 10)]
    _, found, _ = collect_page_data(dataset(tmp_path, records))
    figure = dataset_figures(found)["commands"]
    assert len(re.findall(r">command\d+</text>", figure.svg)) == RANKED
    assert len(figure.table.rows) == RANKED + 10


# the browser's samples


def test_samples_hold_every_command_with_each_of_its_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples_module, "RECORDS", 60)
    records = some_records(1200)
    structure = Structure(drawn(dataset(tmp_path, records)))
    found = browsable(structure)
    assert len(found) == 60
    assert {(one["c"], one["x"]) for one in found} == {
        (one.input_args[0], one.exit_code) for one in records
    }
    assert [one["n"] for one in found] == sorted({one["n"] for one in found})
    assert "60 of 1,200 records: every pair of command and exit code" in structure.text


def test_samples_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "BYTES", 50_000)
    records = [record(n, ["cat", f"f{n}"], output="<" * 10_000) for n in range(100)]
    found = browsable(Structure(drawn(dataset(tmp_path, records))))
    assert 0 < len(found) < 10
    assert all(one["m"] == 7000 and one["b"] == 10_000 for one in found)


def test_pieces_of_an_input_are_the_input() -> None:
    for input_args in [*INPUTS, ["> x"], [">", "file"], ["ls", "-l<ns>", "<ns>T 32", "2>&1"]]:
        one = record(0, input_args)
        pieces = samples_module.browsed_record(one)["i"]
        assert "".join(text for text, _ in pieces) == one.input
        assert pieces[0] == [f"cd {HOME}; ", "d"]


def test_pieces_of_a_session_are_the_session() -> None:
    rows = (Input.from_marked(["cd", "documents"]), Input.from_marked(["ls", "-l"]))
    one = record(0, ["ls"])
    one = replace(
        one,
        input=Session(HOME, rows).text,
        input_args=["cd", "documents", "\n", "ls", "-l"],
        segments=[
            ScoredSegment(command="cd", n_arguments=1, irreducibility=1.0),
            ScoredSegment(command="ls", n_arguments=1, irreducibility=0.0),
        ],
    )
    pieces = samples_module.browsed_record(one)["i"]
    assert "".join(text for text, _ in pieces) == one.input
    assert [piece for piece in pieces if piece[1] in "msiu" and piece[1]] == [
        ["documents", "m"],
        ["-l", "i"],
    ]


def test_an_input_that_its_arguments_do_not_give_is_shown_as_it_is() -> None:
    one = record(0, ["ls", "-l"], input="something else")
    assert samples_module.browsed_record(one)["i"] == [["something else", ""]]


def effect(leave_one_out: bool | None, contribution: float | None) -> Effect:
    return Effect(leave_one_out=leave_one_out, channel=None, contribution=contribution)


@pytest.mark.parametrize(
    ("segment", "levels"),
    [
        ({"n_arguments": 2, "irreducibility": 1.0}, "mm"),
        ({"n_arguments": 2, "irreducibility": 0.0}, "ii"),
        ({"n_arguments": 2, "irreducibility": 0.4}, "uu"),
        ({"n_arguments": 0, "irreducibility": None}, ""),
        ({"n_arguments": -3, "irreducibility": None}, ""),
        ({"n_arguments": 10**12}, ""),
        ({"n_arguments": 1}, "u"),
        (
            {
                "n_arguments": 5,
                "irreducibility": 0.4,
                "arguments": [
                    effect(True, 0.5),
                    effect(False, 0.25),
                    effect(False, 0.0),
                    effect(None, -0.1),
                    effect(None, None),
                ],
            },
            "msiuu",
        ),
        *(
            (
                {
                    "n_arguments": 3,
                    "irreducibility": score,
                    "arguments": [effect(None, one) for one in (None, 0.0, -0.1)],
                },
                levels,
            )
            for score, levels in ((0.0, "iii"), (1.0, "mmm"), (0.5, "uuu"))
        ),
        ({"n_arguments": 1, "irreducibility": 0.0, "arguments": []}, "i"),
    ],
)
def test_what_a_segment_tells_of_its_arguments(segment: dict[str, Any], levels: str) -> None:
    assert "".join(argument_levels(ScoredSegment(command="ls", **segment))) == levels


def test_limits_that_were_reached_are_counted_and_shown(tmp_path: Path) -> None:
    limits = [["cpu_seconds", "processes"], ["processes"], ["wall_seconds"], ["output_bytes"]]
    records = [
        record(
            number,
            ["seq", str(number)],
            limits_hit=names,
            timed_out="wall_seconds" in names,
            output_truncated="output_bytes" in names,
        )
        for number, names in enumerate(limits)
    ]
    directory = dataset(tmp_path, records)
    structure = Structure(drawn(directory))
    rows = re.findall(r"reached the limit ([a-z ]+?)([\d.]+%)(\d)\n", structure.text)
    assert rows == [("processes", "50.0%", "2"), ("cpu seconds", "25.0%", "1")]
    assert [one["f"] for one in browsable(structure)] == [
        ["cpu seconds reached", "processes reached"],
        ["processes reached"],
        ["timed out"],
        ["output truncated"],
    ]
    told = CliRunner().invoke(app, ["dataset", "stats", str(directory)]).stdout
    said = "processes 2, cpu_seconds 1, output_bytes 1, wall_seconds 1"
    assert f"limits reached     {said}\n" in told
    assert re.search(r"settings +policy \S+, estimator \S+, budget \d+\n", told)
    shown = CliRunner().invoke(app, ["dataset", "show", str(directory), "--id", "0"]).stdout
    assert "limits      reached cpu_seconds, processes\n" in shown


def test_changes_read_like_a_listing() -> None:
    operations = [
        ("a", "/fs/new.txt", {**FILE_ENTRY, "target": "notes.txt"}),
        ("=", "/fs/notes.txt/perms", "-rw-------"),
        ("=", "/fs/notes.txt/size", 7),
        ("r", "/fs/a~1b"),
        ("m", "/fs/old", "/fs/young"),
        ("=", "/env/PWD", "/tmp"),
        ("r", "/env/X"),
        ("a", "/limits", {"open files": 7}),
    ]
    assert [list(one) for one in changes(operations)] == [
        ["added", "new.txt", "-rw-r--r-- 1 root root 12 Oct 16 19:43 2025 -> notes.txt"],
        ["changed", "notes.txt", "perms -rw-------, size 7"],
        ["removed", "a/b", ""],
        ["moved", "old", "to young"],
        ["changed", "env PWD", "/tmp"],
        ["removed", "env X", ""],
        ["added", "limits", '{"open files": 7}'],
    ]


def test_what_cannot_be_seen_is_escaped() -> None:
    assert visible("a\tb\nc \x1b[0m\r\u202e\ud800é") == "a\tb\nc \\x1b[0m\\r\\u202e\\ud800é"


# nothing in a record reaches the page but as text


def with_texts(texts: Sequence[str]) -> list[Record]:
    """Records that hold these texts in every place that takes any."""
    made = []
    for number, text in enumerate(texts):
        name = f"w{text}"  # with a letter first, it is no redirection
        patch = ContextPatch(
            (("a", "/fs/x", {"perms": text, "owner": text}), ("=", "/env/E", text))
        )
        made.append(
            record(
                number,
                [name, "-x", name, "|", "sort"],
                exit_code=number,
                output=f"{text}\n{text}",
                context_patch=patch.to_json(),
                content_digests=[ContentDigest(name=text, sha256="0")],
                stdout=text,
                stderr=text,
                system=text,
                sampler=text,
                irreducibility=0.5,
                n_executions=number,
            )
        )
    return made


def test_hostile_records_make_the_same_tags_as_harmless_ones(tmp_path: Path) -> None:
    harmless = [f"w{n}".ljust(len(text.encode()), "x") for n, text in enumerate(HOSTILE)]
    structures = [
        Structure(drawn(dataset(tmp_path / name, with_texts(texts))))
        for name, texts in (("hostile", HOSTILE), ("harmless", harmless))
    ]
    assert structures[0].tags == structures[1].tags
    hostile = {name for _, name, _ in structures[0].attributes}
    assert hostile == {name for _, name, _ in structures[1].attributes}
    assert not [name for name in hostile if name.startswith("on") or name == "style"]
    assert [one["o"] for one in browsable(structures[0])] == [
        visible(f"{text}\n{text}"[: samples_module.OUTPUT_CHARACTERS]) for text in HOSTILE
    ]
    content = (tmp_path / "hostile" / FILE).read_text()
    assert not [one for one in content if not one.isprintable() and one not in "\n\t"]


def test_the_page_names_nothing_outside_itself_and_admits_its_own_script_only(
    tmp_path: Path,
) -> None:
    structure = Structure(drawn(dataset(tmp_path, with_texts(HOSTILE))))
    for tag, name, value in structure.attributes:
        if name in {"href", "src", "srcset", "action", "data", "xlink:href", "poster"}:
            assert value.startswith("#") or value == "data:,", (tag, name, value)
    assert structure.tags.count("script") == 2
    (policy,) = (value for tag, name, value in structure.attributes if "default-src" in value)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, content in (
        ("script", structure.inside["script"][1]),
        ("style", structure.inside["style"][0]),
    ):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "url(" not in structure.inside["style"][0]
    assert "innerHTML" not in structure.inside["script"][1]


# files and errors


def test_what_is_missing_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (chart_style, errors):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    words = "altair, jinja2 and vl-convert, which are not installed"
    with pytest.raises(MissingExtraError, match=words) as caught:
        write_report(dataset(tmp_path, some_records(3)))
    assert caught.value.hint == "pip install 'shioenv[report]'"
    assert not (tmp_path / FILE).exists()


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    dataset(tmp_path / "d", some_records(3))
    target = tmp_path / "d" / "manifest.json" / "page.html"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DatasetStorageError):
        write_report(tmp_path / "d", target)
    assert sorted(tmp_path.rglob("*")) == before


def test_progress_counts_every_record(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    collect_page_data(dataset(tmp_path, some_records(5)), report=lambda *one: told.append(one))
    assert told == [(n, 5) for n in range(1, 6)]


def test_a_page_is_not_made_of_changed_records(tmp_path: Path) -> None:
    directory = dataset(tmp_path, some_records(5))
    shard = directory / "data/00000.ndjson"
    shard.write_bytes(shard.read_bytes().replace(b'"exit_code":0', b'"exit_code":1'))
    with pytest.raises(DatasetCorruptError, match="was changed"):
        collect_page_data(directory)


def test_a_directory_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory") as caught:
        write_report(dataset(tmp_path / "d", some_records(3)), tmp_path)
    assert caught.value.hint == f"add a file name: {tmp_path / FILE}"


def test_the_subcommand_prints_the_numbers_or_writes_the_page(tmp_path: Path) -> None:
    directory = dataset(tmp_path / "d", some_records(20))
    done = CliRunner().invoke(app, ["dataset", "report", str(directory), "--json"])
    assert done.exit_code == 0, done.output
    found = collect_page_data(directory)[1]
    assert json.loads(done.stdout) == json.loads(json.dumps(found.to_json()))
    assert not (directory / FILE).exists()
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["dataset", "report", str(directory), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert "20 records" in done.stdout


def test_a_row_of_a_session_is_a_command_like_one_behind_a_semicolon() -> None:
    rows = record(0, ["mkdir", "d", "\n", "cd", "d", "\n", "ls", "|", "wc"])
    assert operators_of(rows) == [";", ";", "|"]
    assert composition(operators_of(rows)) == "pipe + sequence"
    assert composition(operators_of(record(1, ["ls", "-l"]))) == "one command"


def test_an_unfinished_dataset_is_announced(tmp_path: Path) -> None:
    directory = dataset(tmp_path / "dataset", some_records(6))
    run = ["dataset", "report", str(directory), "--json"]
    assert CliRunner().invoke(app, run).stderr == ""
    manifest = directory / "manifest.json"
    document = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps(document | {"count": 1009}), encoding="utf-8")
    result = CliRunner().invoke(app, run)
    assert result.exit_code == 0
    assert "is not finished: 6 of its 1,009 records are used" in result.stderr
