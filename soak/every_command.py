"""Execute every program on PATH that has no grammar, and list answers that are sure and wrong.

    python soak/every_command.py [--count N] [--seed S] [--system NAME] [--workers W] [--keep FILE]
        [--sure P] [--json]

Each program is executed bare, with `--help`, with every option of its help, with a file, a missing
file and a number, behind a pipe, and behind `xargs`, `nice`, `nohup`, `env`, `timeout` and `<( )`.
`--count` takes a random part of these inputs, and 0 all of them. The default model is asked about
each. An answer with a confidence of at least P (default: .9) whose output, exit code or patch
differs is a *violation*; it is executed again, and left out if the two executions differ. `--keep`
writes the executions as JSON Lines. The exit status is 1 if such answers are more than one in
twenty of the sure ones.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

from common import Progress, parser, report
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.answer_json import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.errors import Abstained
from shioenv.execution.job import processes_here
from shioenv.grammar.library import load_grammars
from shioenv.sandbox.base import Limits
from shioenv.system.store import System, find_system
from shioenv_model.files import load_model

FORMS = (
    "{}", "{} --help", "{} --version", "{} README.md", "{} missing", "{} 3", "{} -", "{} src",
    "{} README.md missing", "{} < README.md", "cat README.md | {}", "{} | wc -l",
    "{} README.md > out", "ls | xargs {}", "nice {}", "nohup {}", "env {}", "timeout 1 {}",
    "cat <({})", "{} 2>/dev/null || echo failed",
)  # fmt: skip
"""The inputs of each program, besides its options."""

MOST_OPTIONS = 40
"""Maximum number of a program's options."""

LIMITS = Limits(wall_seconds=1.0)
ALLOWED = 0.05
"""Share of sure answers that may be wrong."""

_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def main() -> int:
    """Execute, ask, and return the exit status."""
    options = parser(__doc__, count=0)
    options.add_argument("--workers", type=int, help="sandboxes (default: one per processor)")
    options.add_argument("--keep", type=Path, help="file for the executions, as JSON Lines")
    options.add_argument("--sure", type=float, default=0.9, help="confidence (default: .9)")
    chosen = options.parse_args()
    system = find_system(chosen.system)
    names = programs(system)
    helps = executed(system, [f"{name} --help" for name in names], chosen.workers)
    inputs = [
        text
        for name, behavior in zip(names, helps, strict=True)
        for text in inputs_of(name, behavior)
    ]
    if chosen.count:
        inputs = Random(chosen.seed).sample(inputs, min(chosen.count, len(inputs)))
    found = executed(system, inputs, chosen.workers)
    if chosen.keep:
        lines = ({"input": t, **behavior_json(b)} for t, b in zip(inputs, found, strict=True))
        chosen.keep.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    facts, wrong = judged(inputs, found, chosen.sure)
    again = executed(system, [one["input"] for one in wrong], chosen.workers)
    expected = dict(zip(inputs, found, strict=True))
    kept = [one for one, run in zip(wrong, again, strict=True) if same(run, expected[one["input"]])]
    classes = Counter(one["source"] for one in kept)
    facts = {"system": system.digest, "programs": len(names), **facts, "sure and wrong": len(kept)}
    tables = [("sure and wrong, by answerer", ("answerer", "answers"), classes.most_common())]
    report(facts, kept, as_json=chosen.json, tables=tables)
    return int(len(kept) > ALLOWED * facts["sure"])


def programs(system: System) -> list[str]:
    """Return the names of programs on PATH without a grammar."""
    known = {grammar.name for grammar in load_grammars(host_clock=system.host_clock)}
    with open_sandbox(system.name) as sandbox:
        listed = sandbox.run('IFS=:; ls -L $PATH 2>/dev/null | grep -v ":$"').output.decode()
    return sorted({name for name in listed.split() if name not in known and name != "["})


def inputs_of(name: str, behavior: Behavior) -> Iterator[str]:
    """Yield the inputs of a program; `behavior` is that of its help."""
    text = behavior.output.decode("utf-8", "replace") if not behavior.timed_out else ""
    options = list(dict.fromkeys(_OPTION.findall(text)))[:MOST_OPTIONS]
    yield from dict.fromkeys([*(form.format(name) for form in FORMS)])
    yield from (f"{name} {option}" for option in options if option not in ("--help", "--version"))


def executed(system: System, inputs: Sequence[str], workers: int | None) -> list[Behavior]:
    """Execute inputs, each on the pristine machine, and return their behaviors in order."""
    progress = Progress("executions", len(inputs))
    found: list[Behavior | None] = [None] * len(inputs)
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(inputs)):
        waiting.put(number)

    def run() -> None:
        with open_sandbox(system.name, LIMITS) as sandbox, suppress(Empty):
            while True:
                number = waiting.get_nowait()
                found[number] = sandbox.run(inputs[number])
                progress.step()

    with ThreadPoolExecutor(processes_here(workers)) as pool:
        for done in [pool.submit(run) for _ in range(processes_here(workers))]:
            done.result()
    return [behavior for behavior in found if behavior is not None]


def judged(
    inputs: Sequence[str], found: Sequence[Behavior], sure: float
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Ask the default model; return counts, and its sure and wrong answers."""
    model = load_model()
    progress = Progress("answers", len(inputs))
    counts: Counter[str] = Counter({"inputs": len(inputs), "sure": 0, "right": 0})
    wrong: list[dict[str, Any]] = []
    for text, behavior in zip(inputs, found, strict=True):
        progress.step()
        if behavior.timed_out or behavior.volatile:
            counts["timed out or volatile"] += 1
            continue
        try:
            answer = model.answer(text)
        except Abstained:
            counts["abstained"] += 1
            continue
        right = same(answer.behavior, behavior)
        counts["right"] += right
        if answer.confidence is None or answer.confidence < sure:
            continue
        counts["sure"] += 1
        if not right:
            said, did = answer.behavior, behavior
            wrong.append(
                {
                    "input": text,
                    "source": answer.source,
                    "confidence": round(answer.confidence, 3),
                    "said": f"{said.exit_code} {said.output[:80]!r}",
                    "did": f"{did.exit_code} {did.output[:80]!r}",
                }
            )
    return dict(counts), wrong


def same(one: Behavior, other: Behavior) -> bool:
    """Whether output, exit code and patch agree."""
    return (one.output, one.exit_code, one.patch) == (other.output, other.exit_code, other.patch)


if __name__ == "__main__":
    sys.exit(main())
