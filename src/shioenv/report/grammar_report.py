"""How good the grammars are, measured on a system: the numbers of `docs/grammars.md`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import cache
from itertools import islice
from typing import Any

from shioenv.behavior.observe import open_sandbox
from shioenv.domain.inputs import Input
from shioenv.domain.runner import Runner, State
from shioenv.execution.job import Executor, Job
from shioenv.execution.local import LocalExecutor
from shioenv.grammar.coverage import coverage
from shioenv.grammar.library import load_grammars
from shioenv.grammar.misuse import is_misuse
from shioenv.grammar.parse import InputParser
from shioenv.grammar.symbols import count as size_of
from shioenv.report.tables import Table
from shioenv.report.text import count
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import Sample, sample_on
from shioenv.system.store import System, find_system

COMMANDS, NONTERMINALS, PRODUCTIONS = 86, 803, 6222
"""The paper's grammars (Table of Appendix C), by its own counting rule."""

MISUSE, MISUSE_OF_A_COMMAND, EXIT_0, SPEED = 0.03, 0.10, 0.75, 5000
"""What must be reached: shares of inputs, and inputs per second on one core."""

JUDGED = 100
"""Inputs of a command below which its share of misuse is chance, and is not held against it."""

BATCH = 500
"""Inputs parsed back at once by a process."""

KEPT = 4096
"""Characters of output kept: messages stand at the beginning, or at the end."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """What one execution of an input gave.

    `grammar` is the first command's, `output` the first and the last 2,048 characters.
    """

    grammar: str
    exit_code: int
    output: str
    timed_out: bool


def tried(runner: Runner, task: tuple[int, Sample]) -> Trial:
    """A sample executed once."""
    _, sample = task
    behavior = runner.run(sample.input.text, State(cwd=sample.cwd))
    output = behavior.text
    if len(output) > KEPT:
        output = f"{output[: KEPT // 2]}\n{output[-KEPT // 2 :]}"
    return Trial(sample.trace[0].grammar, behavior.exit_code, output, behavior.timed_out)


@dataclass(frozen=True, slots=True)
class Share:
    """How executed inputs ended."""

    inputs: int
    misuse: int
    """Failed as misuse (`shioenv.grammar.misuse`)."""
    exit_0: int
    timed_out: int

    @property
    def misuse_share(self) -> float:
        """Misuse among the inputs; 0 of none."""
        return self.misuse / self.inputs if self.inputs else 0.0

    @property
    def exit_0_share(self) -> float:
        """Exit code 0 among the inputs; 0 of none."""
        return self.exit_0 / self.inputs if self.inputs else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the inputs of one sampler ended, together and by command."""

    together: Share
    by_command: Mapping[str, Share]

    def worst(self, number: int = 10) -> list[tuple[str, Share]]:
        """The commands with the largest shares of misuse, the worst first."""
        ordered = sorted(self.by_command.items(), key=lambda one: (-one[1].misuse_share, one[0]))
        return ordered[:number]


@dataclass(frozen=True, slots=True)
class GrammarReport:
    """Everything measured, and from what."""

    date: date
    system: str
    system_digest: str
    seed: int
    commands: int
    nonterminals: int
    productions: int
    documented: int
    """Options that the system's help texts name."""
    missing: int
    unknown: int
    excused: int
    gcs: Outcome
    ucs: Outcome
    speed: float
    """GCS inputs drawn per second of one core, not executed."""
    parsed_back: int
    """GCS inputs whose text was parsed again."""
    parsed_otherwise: int
    """Those of them that gave other arguments."""

    def goals(self) -> Iterator[tuple[str, str, str, bool]]:
        """What is measured, what must be, what is, and whether it is reached."""
        together, by_command = self.gcs.together, self.gcs.worst(len(self.gcs.by_command))
        judged = [one for one in by_command if one[1].inputs >= JUDGED]
        yield (
            "commands / nonterminals / productions",
            f"{COMMANDS} / > {NONTERMINALS} / > {PRODUCTIONS:,}",
            f"{self.commands} / {self.nonterminals:,} / {self.productions:,}",
            self.commands >= COMMANDS
            and self.nonterminals > NONTERMINALS
            and self.productions > PRODUCTIONS,
        )
        yield (
            "options missing or unknown against `--help`, without a stated reason",
            "0 / 0",
            f"{self.missing} / {self.unknown}, of {self.documented:,} documented "
            f"({self.excused} excused)",
            not (self.missing or self.unknown),
        )
        yield (
            "GCS inputs that fail as misuse",
            f"at most {MISUSE:.0%} overall",
            f"{together.misuse_share:.2%} of {together.inputs:,}",
            together.misuse_share <= MISUSE,
        )
        yield (
            "… of the worst command",
            f"at most {MISUSE_OF_A_COMMAND:.0%}",
            f"{judged[0][1].misuse_share:.1%} (`{judged[0][0]}`, of {judged[0][1].inputs})"
            if judged
            else f"not judged: no command has {JUDGED} inputs",
            not judged or judged[0][1].misuse_share <= MISUSE_OF_A_COMMAND,
        )
        yield (
            "GCS inputs that exit 0",
            f"at least {EXIT_0:.0%}",
            f"{together.exit_0_share:.1%}",
            together.exit_0_share >= EXIT_0,
        )
        ucs = self.ucs.together
        yield (
            "UCS inputs that fail as misuse",
            "reported",
            f"{ucs.misuse_share:.1%} of {ucs.inputs:,}; exit 0: {ucs.exit_0_share:.1%}",
            True,
        )
        yield (
            "GCS inputs drawn a second on one core, not executed",
            f"at least {SPEED:,}",
            f"{self.speed:,.0f}",
            self.speed >= SPEED,
        )
        right = self.parsed_back - self.parsed_otherwise
        yield (
            "GCS inputs that parse back to their own arguments",
            "100%",
            f"{right:,} of {self.parsed_back:,}",
            not self.parsed_otherwise,
        )

    @property
    def reached(self) -> bool:
        """Every number is what it must be."""
        return all(one[-1] for one in self.goals())

    def to_json(self) -> dict[str, Any]:
        """The report for programs, shares included."""
        document = {**asdict(self), "date": self.date.isoformat(), "reached": self.reached}
        for name, outcome in (("gcs", self.gcs), ("ucs", self.ucs)):
            document[name] = {
                "together": _share(outcome.together),
                "worst": {command: _share(one) for command, one in outcome.worst()},
                "by_command": {one: _share(share) for one, share in outcome.by_command.items()},
            }
        return document


def _share(share: Share) -> dict[str, Any]:
    return {
        **asdict(share),
        "misuse_share": round(share.misuse_share, 5),
        "exit_0_share": round(share.exit_0_share, 5),
    }


def _silent(text: str) -> None:
    """Tell nobody."""


def grammar_report(
    *,
    inputs: int = 20_000,
    ucs_inputs: int = 5_000,
    round_trip: int = 100_000,
    seed: int = 0,
    system: str | None = None,
    executor: Executor | None = None,
    tell: Tell = _silent,
) -> GrammarReport:
    """The shipped grammars measured on a built system: counted, executed, parsed back.

    Every input is a single command. Deterministic in `seed` but for speed, date, and what is
    volatile. About four minutes with the defaults. Errors: those of `find_system`, `open_sandbox`.
    """
    built = find_system(system)
    executor = executor or LocalExecutor()
    grammars = load_grammars(versions=built.packages)
    size = size_of(grammars)
    tell("options: comparing with the system's help texts")
    with open_sandbox(built) as sandbox:
        covered = [coverage(one, lambda text: sandbox.run(text).text) for one in grammars]
    tell(f"parsing back {round_trip:,} inputs")
    stream = _stream("gcs", built, seed, max(round_trip, inputs))
    started = time.process_time()
    drawn = list(stream)
    speed = len(drawn) / (time.process_time() - started)
    otherwise = _parsed_otherwise(drawn[:round_trip], executor)
    outcomes = {}
    for sampler, samples in (
        ("gcs", drawn[:inputs]),
        ("ucs", list(_stream("ucs", built, seed, ucs_inputs))),
    ):
        tell(f"executing {len(samples):,} inputs of {sampler}")
        job = Job(tried, system=system or built.name, what="input")
        with executor:
            outcomes[sampler] = outcome_of(t for _, t in executor.map(job, enumerate(samples)))
    return GrammarReport(
        date=datetime.now(UTC).date(),
        system=built.name,
        system_digest=built.digest,
        seed=seed,
        commands=len(grammars),
        nonterminals=size.nonterminals,
        productions=size.productions,
        documented=sum(one.documented for one in covered),
        missing=sum(len(one.missing) for one in covered),
        unknown=sum(len(one.unknown) for one in covered),
        excused=sum(len(one.excused) for one in covered),
        gcs=outcomes["gcs"],
        ucs=outcomes["ucs"],
        speed=speed,
        parsed_back=min(round_trip, len(drawn)),
        parsed_otherwise=otherwise,
    )


def outcome_of(done: Iterable[Trial]) -> Outcome:
    """How executed inputs ended."""
    tallies: dict[str, Counter[str]] = {}
    for trial in done:
        tally = tallies.setdefault(trial.grammar, Counter())
        tally["inputs"] += 1
        tally["misuse"] += is_misuse(trial.exit_code, trial.output)
        tally["exit_0"] += trial.exit_code == 0
        tally["timed_out"] += trial.timed_out
    together: Counter[str] = sum(tallies.values(), Counter())
    return Outcome(_ended(together), {name: _ended(tallies[name]) for name in sorted(tallies)})


def _ended(tally: Counter[str]) -> Share:
    return Share(tally["inputs"], tally["misuse"], tally["exit_0"], tally["timed_out"])


def _stream(sampler: str, system: System, seed: int, number: int) -> Iterator[Sample]:
    drawing = Drawing(sampler=sampler, seed=seed, composite_share=0.0)
    return islice(sample_on(system, drawing), number)


def _parsed_otherwise(samples: list[Sample], executor: Executor) -> int:
    """How many of the samples' texts are parsed to other arguments than were sampled."""
    shown = [one.input.input_args for one in samples]
    batches = [shown[start : start + BATCH] for start in range(0, len(shown), BATCH)]
    with executor:
        return sum(n for _, n in executor.map(Job(_otherwise), enumerate(batches)))


def _otherwise(lane: object, task: tuple[int, list[list[str]]]) -> int:
    inputs = [Input.from_marked(one) for one in task[1]]
    return sum(_parser().parse(one.text) != one for one in inputs)


@cache
def _parser() -> InputParser:
    return InputParser(load_grammars())


def page(report: GrammarReport) -> str:
    """The page `docs/grammars.md`, ended by a newline."""
    lines = [
        "# The grammars, measured",
        "",
        f"Made by `make grammars-report` on {report.date.isoformat()}, on the system "
        f"`{report.system}` (digest `{report.system_digest}`), seed {report.seed}.",
        f"{report.gcs.together.inputs:,} single-command inputs of `gcs` and "
        f"{report.ucs.together.inputs:,} of `ucs` were executed once each.",
        "",
        "| | must | measured | |",
        "|---|---|---|---|",
    ]
    for what, must, measured, reached in report.goals():
        mark = "" if must == "reported" else "yes" if reached else "**no**"
        lines.append(f"| {what} | {must} | {measured} | {mark} |")
    lines += [
        "",
        "*Misuse* is a failed input (exit code not 0) whose output complains about the command",
        "line as typed: an unknown or clashing option, a missing or extra operand, an argument",
        "that is not written as the program reads it. A missing file, no permission or a refused",
        "connection is none. The messages are listed in",
        "`src/shioenv/grammar/misuse.py`. Options are compared as the "
        "[reference](reference/grammar-format.md#coverage) says.",
        "",
    ]
    rows = []
    for command, share in report.gcs.worst(len(report.gcs.by_command)):
        cells = [f"`{command}`"]
        for one in (share, report.ucs.by_command.get(command, Share(0, 0, 0, 0))):
            cells += [count(one.inputs), f"{one.misuse_share:.1%}", f"{one.exit_0_share:.1%}"]
        rows.append(cells)
    by_command = Table(
        "By command",
        "The worst first. UCS fills option slots with every command's options, which most programs "
        "refuse.",
        ("command", "GCS inputs", "misuse", "exit 0", "UCS inputs", "misuse", "exit 0"),
        rows,
    )
    return "\n".join([*lines, by_command.markdown])
