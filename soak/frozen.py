"""Check that a refactoring leaves everything that users see unchanged.

    python soak/frozen.py [--only PART ...] [--inputs FILE] [--write] [--json]

Each part is a list of texts made by this clone:

    help        the help of every command
    tests       the ids of the tests
    sample      2,000 inputs of each of five policies
    parse       how the public suite, the examples of the grammars, and the inputs of --inputs FILE
                are parsed, with their utilities and whether they are single
    predict     the default model's answers to the public suite: output, exit code, patch,
                confidence
    generate    the records of a dataset, without versions and digests of grammars
    export      the same dataset in every format
    manifest    that dataset's manifest, without versions, digests, and effects of volatile records
    tasks       100 tasks made of it
    certificate the certificates of five of them
    score       the scores of 500 inputs, as JSON, but of those with pipes and with dd
    episodes    200 episodes of each environment
    visit       the log of `serve ssh` about a visitor's commands
    findings    findings of `conform` in bashkit's `sort`
    wheels      the names of the files in the wheels of all packages

`soak/frozen.json` holds a hash of every hundred texts of each part. A difference is named by its
part and the numbers of its texts; `--texts DIR` writes the texts of both sides' parts, one file a
part, to be compared with those of another clone. An intended difference is written with `--write`,
and the commit gives its reason. FILE has one input a line and is not copied: its hash is in the
part's name.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from common import drawn, report
from visiting import OPTIONS

Part: TypeAlias = Iterator[tuple[str, list[str]]]
"""Texts by name; a part may have several."""

HERE = Path(__file__).parent
FROZEN = HERE / "frozen.json"
CHUNK = 100
"""Texts with a common hash."""
POLICIES = ("mixed", "people", "paper", "uniform", "lengths")
CHANGING = frozenset({"shioenv_version", "schema_version", "grammar_digest", "system_digest"})
"""Fields that identify the maker of a record, not the effects of an input."""


@dataclass(frozen=True)
class Chosen:
    """The inputs, tasks and records of which the parts are made."""

    inputs: Path | None
    """Further inputs for `parse`."""
    made: Path
    """An empty directory for shared results of several parts."""

    def dataset(self) -> Path:
        """Return a dataset of 1,200 scored records, generated at the first call."""
        directory = self.made / "dataset"
        if not directory.exists():
            _printed("generate", str(directory), "--count", "1200", "--seed", "33")
        return directory

    def tasks(self) -> Path:
        """Return 100 tasks made of that dataset, or all where there are fewer."""
        file = self.made / "tasks.jsonl"
        if not file.exists():
            every = self.made / "every.jsonl"
            _printed("tasks", "make", str(self.dataset()), "--out", str(every))
            lines = every.read_text(encoding="utf-8").splitlines(keepends=True)
            file.write_text("".join(lines[:100]), encoding="utf-8")
        return file


def main() -> int:
    """Make the parts, compare them and return the exit status."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", nargs="+", choices=sorted(PARTS), help="these parts")
    options.add_argument("--inputs", type=Path, help="more inputs to take apart, one a line")
    options.add_argument("--texts", type=Path, help="where to write the texts")
    options.add_argument("--write", action="store_true", help="freeze what is so now")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as made:
        return _compare(chosen, Chosen(chosen.inputs, Path(made)))


def _compare(chosen: argparse.Namespace, given: Chosen) -> int:
    frozen = json.loads(FROZEN.read_text(encoding="utf-8")) if FROZEN.exists() else {}
    facts: dict[str, Any] = {}
    violations: list[dict[str, Any]] = []
    for part in chosen.only or PARTS:
        for name, texts in PARTS[part](given):
            print(f"{name}: {len(texts):,} texts", file=sys.stderr)
            if chosen.texts is not None:
                _write_texts(chosen.texts, name, texts)
            found = [_hash(texts[at : at + CHUNK]) for at in range(0, len(texts), CHUNK)]
            facts[name] = f"{len(texts):,} texts, {_hash(found)}"
            if chosen.write:
                frozen[name] = {"texts": len(texts), "hashes": found}
            else:
                violations += _differences(name, texts, found, frozen.get(name))
    if chosen.write:
        FROZEN.write_text(json.dumps(frozen, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return report(facts, violations, as_json=chosen.json)


def _differences(
    name: str, texts: list[str], found: list[str], frozen: dict[str, Any] | None
) -> Iterator[dict[str, Any]]:
    if frozen is None:
        yield {"part": name, "why": "nothing of it is frozen: --write"}
        return
    if len(texts) != frozen["texts"]:
        yield {"part": name, "why": f"{len(texts)} texts instead of {frozen['texts']}"}
    for number, (ours, theirs) in enumerate(zip(found, frozen["hashes"], strict=False)):
        if ours != theirs:
            first = number * CHUNK
            yield {"part": name, "first": first, "last": min(first + CHUNK, len(texts)) - 1}


def _hash(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogateescape")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:16]


def _write_texts(directory: Path, name: str, texts: list[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / (name.replace(" ", "-").replace("/", "-") + ".jsonl")
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(text) + "\n" for text in texts)


def _printed(*words: str) -> str:
    """Return the output of this clone's command, on a terminal of 100 columns."""
    done = subprocess.run(
        [sys.executable, "-m", "shioenv.cli.main", *words],
        check=True, capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"},
    )  # fmt: skip
    return done.stdout


def _help(_: Chosen) -> Part:
    import click
    from typer.main import get_command

    from shioenv.cli.main import app

    def names(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        if isinstance(command, click.Group) or hasattr(command, "commands"):
            for name in sorted(command.commands):
                yield from names(command.commands[name], (*path, name))

    paths = list(names(get_command(app), ()))
    yield "help", [_printed(*path, "--help") for path in paths]


def _tests(_: Chosen) -> Part:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q"],
        check=True, capture_output=True, text=True, cwd=HERE.parent,
    )  # fmt: skip
    yield "tests", sorted(line for line in done.stdout.splitlines() if "::" in line)


def _sample(_: Chosen) -> Part:
    for policy in POLICIES:
        words = ("sample", "--policy", policy, "--count", "2000", "--seed", "31", "--json")
        yield f"sample {policy}", _printed(*words).splitlines()


def _suite() -> list[str]:
    lines = files("shioenv.dataset").joinpath("inputs/public.jsonl").read_text("utf-8")
    return [json.loads(line)["input"] for line in lines.splitlines()]


def _parse(given: Chosen) -> Part:
    from shioenv.bash.normal import is_single, normal
    from shioenv.grammar.library import load_grammars
    from shioenv.grammar.parse import InputParser
    from shioenv_eval.places import utilities

    grammars = tuple(load_grammars())
    parser = InputParser(grammars)
    examples = {one.text for grammar in grammars for one in grammar.examples}
    groups = {"public": _suite(), "examples": sorted(examples)}
    if given.inputs is not None:
        lines = given.inputs.read_text(encoding="utf-8").splitlines()
        more = [line for line in lines if line.strip()]
        groups[_hash(more)] = more
    for name, texts in groups.items():
        yield (
            f"parse {name}",
            [
                json.dumps(
                    [
                        text,
                        list(parser.parse(text).input_args),
                        list(utilities(text)),
                        is_single(text),
                        normal(text),
                    ]
                )
                for text in texts
            ],
        )


def _predict(given: Chosen) -> Part:
    from shioenv import load_model
    from shioenv.errors import Abstained

    model = load_model()
    found = []
    for text in _suite():
        try:
            answer = model.answer(text)
        except Abstained as error:
            found.append(json.dumps([text, error.message]))
            continue
        told = answer.behavior
        output = told.output.decode("latin-1")
        patch = told.patch.to_json()
        found.append(json.dumps([text, told.exit_code, output, patch, answer.confidence]))
    yield "predict", found


def _unnamed(record: Mapping[str, Any]) -> str:
    """Return a record without its maker; of a volatile one only the stable fields."""
    if record["volatile"]:
        return json.dumps([record[name] for name in ("session_id", "input", "input_args")])
    return json.dumps({name: value for name, value in record.items() if name not in CHANGING})


def _records(lines: Iterable[str]) -> list[str]:
    return [_unnamed(json.loads(line)) for line in lines if line.strip()]


def _generate(given: Chosen) -> Part:
    shards = sorted(given.dataset().glob("data/*.ndjson"))
    yield "generate", _records(line for one in shards for line in _lines(one.read_bytes()))


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8").split("\n")


def _manifest(given: Chosen) -> Part:
    document = json.loads((given.dataset() / "manifest.json").read_bytes())

    def flat(value: Any, place: str) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from flat(inner, f"{place}.{key}")
        elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
            for number, inner in enumerate(value):
                yield from flat(inner, f"{place}.{number}")
        elif not re.search(r"version|digest|executions|\bsha256|seconds|bytes|created", place):
            yield json.dumps([place, value])

    yield "manifest", sorted(flat(document, ""))


def _export(given: Chosen) -> Part:
    import pyarrow.parquet as parquet

    dataset = str(given.dataset())
    for name in ("jsonl", "jsonl.gz"):
        file = given.made / f"exported.{name}"
        _printed("dataset", "export", dataset, "--out", str(file))
        data = file.read_bytes()
        yield f"export {name}", _records(_lines(gzip.decompress(data) if "gz" in name else data))
    file = given.made / "exported.parquet"
    _printed("dataset", "export", dataset, "--out", str(file))
    yield "export parquet", _rows(parquet.read_table(file).to_pylist())
    directory = given.made / "exported"
    _printed("dataset", "export", dataset, "--out", str(directory), "--format", "hf")
    yield "export hf", sorted(str(one.relative_to(directory)) for one in directory.rglob("*"))


def _rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    kept = ({name: value for name, value in row.items() if name not in CHANGING} for row in rows)
    return [json.dumps(row, default=str) if not row["volatile"] else row["input"] for row in kept]


def _tasks(given: Chosen) -> Part:
    yield "tasks", given.tasks().read_text(encoding="utf-8").splitlines()


def _certificates(given: Chosen) -> Part:
    few, certified = given.made / "few.jsonl", given.made / "certified.jsonl"
    tasks = given.tasks().read_text(encoding="utf-8").splitlines(keepends=True)
    few.write_text("".join(tasks[:5]), encoding="utf-8")
    _printed("tasks", "certify", str(few), "--out", str(certified), "--runs", "2")
    lines = certified.read_text(encoding="utf-8").splitlines()
    yield "certificate", [json.dumps(json.loads(line)["certificate"]) for line in lines]


VISIT = "cd /tmp; umask 027\nfor n in 1 2; do echo $n > f$n; done\ncat <<E\nx\nE\nls -l f?\nfalse\n"
"""A visitor's input for a shell. Times of files are the machine's own."""


def _visit(given: Chosen) -> Part:
    log = given.made / "visits"
    command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(log), "--port", "0"]
    ask = given.made / "ask"
    ask.write_text("#!/bin/sh\necho any\n")
    ask.chmod(0o700)
    asking = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "TERM": "dumb"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        found = re.search(r"running on ssh://[\d.]+:(\d+)", server.stderr.readline())
        assert found is not None
        client = ["ssh", "-p", found[1], *[word for word in OPTIONS if word != "-tt"], "bash"]
        subprocess.run(
            client, input=VISIT, capture_output=True, text=True, check=False,
            env={**os.environ, **asking},
        )  # fmt: skip
        server.terminate()
        server.wait()
    kept = ("eventid", "input", "exit_code", "output", "context_patch", "limits_hit")
    events = [json.loads(line) for line in (log / "log.jsonl").read_text("utf-8").splitlines()]
    yield (
        "visit",
        [
            json.dumps([event.get(name) for name in kept])
            for event in events
            if "command" in event["eventid"]
        ],
    )


def _findings(given: Chosen) -> Part:
    out = given.made / "conformed"
    words = ("--against", "bashkit", "--command", "sort", "--count", "300", "--seed", "3")
    _printed("conform", *words, "--out", str(out))
    document = json.loads((out / "results.json").read_text(encoding="utf-8"))
    yield "findings", [json.dumps(one) for one in document["findings"]]


def _wheels(given: Chosen) -> Part:
    packages = sorted(HERE.parent.glob("packages/*"))
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", given.made, *packages],
        check=True,
    )
    found = list[str]()
    for wheel in given.made.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            found += archive.namelist()
    yield "wheels", sorted(found)


def _score(_: Chosen) -> Part:
    from shioenv import open_sandbox, score

    found = []
    with open_sandbox() as sandbox:
        for one in drawn(system=sandbox.system, seed=35, count=500):
            if "|" in one.text or "dd " in one.text:
                continue  # stages race, and dd prints how fast it was
            scored = score(one.text, cwd=one.cwd, runner=sandbox)
            values = None if scored.volatile else scored.to_json(contrasts=True)
            found.append(json.dumps([one.text, values]))
    yield "score", found


def _episodes(given: Chosen) -> Part:
    import gymnasium
    import numpy as np

    quick: dict[str, Any] = {"record": False, "budget": 16}
    env: Any = gymnasium.make("shioenv.env:ShIOEnv-Grammar-v0", **quick)
    random = np.random.default_rng(37)
    found = []
    for number in range(200):
        observation, info = env.reset(seed=number)
        done, steps = False, list[Any]()
        while not done:
            action = int(random.choice(np.flatnonzero(info["action_mask"])))
            observation, reward, terminated, truncated, info = env.step(action)
            steps.append((action, int(observation["leftmost"])))
            done = terminated or truncated
        found.append(_told(steps, reward, terminated, truncated, info))
    env.close()
    yield "episodes ShIOEnv-Grammar-v0", found

    env = gymnasium.make("shioenv.env:ShIOEnv-v0", **quick)
    found = []
    for number, one in enumerate(drawn(seed=39, count=200)):
        env.reset(seed=number, options={"cwd": one.cwd})
        steps = list[Any]()
        for at, cell in enumerate(one.sample.input.input_args):
            step = env.step({"input_addition": cell, "exec_action": 0, "new_global": int(at == 0)})
            steps.append((cell, step[4]["error"]))
            if step[2]:
                break
        else:
            step = env.step({"input_addition": "", "exec_action": 1, "new_global": 0})
        found.append(_told(steps, *step[1:]))
    env.close()
    yield "episodes ShIOEnv-v0", found

    tasks = given.tasks()
    env = gymnasium.make("shioenv.env:ShIOEnv-Task-v0", tasks=str(tasks))
    found = []
    documents = [json.loads(line) for line in tasks.read_text(encoding="utf-8").splitlines()]
    for document in documents:
        for rows in (["ls"], ["pwd; ls -a"]):
            told, _ = env.reset(options={"task": document["id"]})
            steps = list[Any]([("", told)])
            for row in [*rows, document["solution"]]:
                told, reward, terminated, truncated, info = env.step(row)
                steps.append((row, told))
                if terminated or truncated:
                    break
            found.append(_told(steps, reward, terminated, truncated, info))
    env.close()
    yield "episodes ShIOEnv-Task-v0", found


def _told(
    steps: list[Any], reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
) -> str:
    """Return an episode as text; without reward and output if its input is volatile."""
    names = ("input", "exit_code", "output", "irreducibility", "necessary", "error", "progress")
    if info.get("volatile"):
        return json.dumps([steps, terminated, truncated, info["input"]])
    kept = [info.get(name) for name in names]
    return json.dumps([steps, float(reward), terminated, truncated, kept])


PARTS: dict[str, Callable[[Chosen], Part]] = {
    "help": _help,
    "tests": _tests,
    "sample": _sample,
    "parse": _parse,
    "predict": _predict,
    "generate": _generate,
    "export": _export,
    "manifest": _manifest,
    "tasks": _tasks,
    "certificate": _certificates,
    "score": _score,
    "episodes": _episodes,
    "visit": _visit,
    "findings": _findings,
    "wheels": _wheels,
}

if __name__ == "__main__":
    sys.exit(main())
