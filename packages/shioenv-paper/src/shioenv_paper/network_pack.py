"""Packing of the regimes' records for training on another machine (`shioenv_paper.networks`)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from shioenv.bash.normal import normal
from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import without_start
from shioenv.domain.record import Record
from shioenv.errors import Abstained, UsageError
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv_eval.suite import Suite
from shioenv_model.memory.world import World
from shioenv_model.sequence.codec import Codec
from shioenv_model.sequence.compact import DocumentNames, Now, Target, target_of
from shioenv_model.sequence.prompts import Prompter
from shioenv_model.training.material import described, world_in
from shioenv_model.training.preparing import DEV_ONE_IN, start_instant
from shioenv_model.training.token_examples import write_seen
from shioenv_paper.networks.carried import (
    CODE,
    QUESTION,
    ROW,
    CarriedError,
    CarriedPack,
    write_carried,
)
from shioenv_paper.regimes import REGIMES, choose_records, scored_gcs
from shioenv_paper.scores import make_dataset
from shioenv_paper.setting import ExperimentSetting
from shioenv_paper.training_sets import COMPOSITES

PAPERS = ("ucs", "gcs", "gcs-high", "gcs-low", "nl2cmd")
"""The paper's five regimes. Without a pool for `nl2cmd` there are four."""

POOLS = ("ucs", "gcs", "nl2cmd")

VOCABULARY, SOURCE, TARGET = 8192, 512, 256
"""Maximum size of the vocabulary, and maximum number of tokens of a prompt and of a target."""

_LEARNED_FROM = 20_000
"""Number of examples from which the vocabulary is learned; up to twice as many are used."""

PLAN: Mapping[str, Any] = {
    "seconds": 600,
    "start": 180,
    "run": 30,
    "seed": 0,
    "width": 2048,
    "batch": 32,
    "longest": TARGET,
    "rate": 1e-3,
    "rate_of_runs": 0.5,
    "shape": {"width": 512, "layers": 8, "heads": 8},
}
"""The plan of a call: seconds for everything, for training the start, and for each run.

With nine runs, 150 of 600 seconds remain for compiling and decoding, and as a reserve. A call with
another time limit scales all times. The network has 30 million weights.
"""

REPEATED, SEEDS = ("gcs-high", "gcs-low"), 3
"""The regimes that are trained with several seeds, and the number of these."""

LAUNCHER = '''"""Run the networks of this directory: python3 DIRECTORY OUT [--seconds S]."""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if not (HERE / "shioenv_paper" / "networks" / "run.py").is_file():
    sys.exit(f"{HERE / 'shioenv_paper'} is missing: carry the whole directory")
try:
    import numpy, torch
except ImportError as error:
    sys.exit(f"this Python lacks a library: {error}")
from shioenv_paper.networks.run import main

sys.exit(main(HERE, sys.argv[1:]))
'''


@dataclass(frozen=True, slots=True)
class PackedExample:
    """An example as text."""

    prompt: str
    target: Target
    dev: bool
    text: str
    form: str | None


def scored_pools(
    setting: ExperimentSetting, given: Mapping[str, Path], size: int, scoring: Scoring
) -> dict[str, Path]:
    """Return the pools by name: the given ones, and generated ones with `size` records a regime.

    Generated pools are those of `training-sets` and `regimes`, which are reused and resumed.
    """
    pools = dict(given)
    if "ucs" not in pools:
        drawing = Drawing(sampler="ucs", policy="paper", composite_share=COMPOSITES)
        pools["ucs"] = make_dataset(setting, "ucs", size, drawing, scoring).directory
    if "gcs" not in pools:
        pools["gcs"] = scored_gcs(setting, size, scoring)
    return pools


def pack_networks(
    setting: ExperimentSetting,
    pools: Mapping[str, Path],
    suites: Sequence[Suite],
    size: int,
    directory: Path,
    plan: Mapping[str, Any] = PLAN,
) -> dict[str, Any]:
    """Write the carried directory of the regimes' examples and the suites' questions.

    `pools` are datasets by the names of the regimes' pools. The setting's seed chooses at most
    `size` records for each regime. The hashes of each regime's texts are written beside the
    directory. Return the facts of the pack. Errors: CarriedError, UsageError if the pack is too
    large; those of reading records and of `find_system`.
    """
    regimes = [name for name in PAPERS if REGIMES[name][0] in pools]
    examples: list[PackedExample] = []
    bits: list[int] = []
    counts: dict[str, dict[str, int]] = {}
    for pool in dict.fromkeys(REGIMES[name][0] for name in regimes):
        members: dict[int, int] = {}
        for bit, name in enumerate(regimes):
            if REGIMES[name][0] == pool:
                chosen = choose_records(setting, pools[pool], REGIMES[name][1], size, setting.seed)
                counts[name] = {"records": len(chosen), "examples": 0}
                members |= {place: members.get(place, 0) | 1 << bit for place in chosen}
        for place, example in _examples(setting, pools[pool], members):
            examples.append(example)
            bits.append(members[place])
    codec = _learned(examples)
    kept = _Tokens()
    rows = []
    for example, own in zip(examples, bits, strict=True):
        target = codec.encode_target(example.target)
        if target is None or len(target) > TARGET:
            continue
        source = codec.encode(example.prompt)[:SOURCE]
        rows.append((kept.add([*source, *target]), len(source), len(target), example.dev, own))
        for bit, name in enumerate(regimes):
            counts[name]["examples"] += own >> bit & 1
    world, now = _machine(next(iter(pools.values())))
    facts = {
        "plan": {**plan, "runs": _runs(regimes)},
        "regimes": regimes,
        "counts": counts,
        "pools": {name: described(path) for name, path in pools.items()},
        "tokens": {"size": codec.size, "pad": codec.pad, "end": codec.end},
        "now": now.text,
        "suites": {suite.head.name: suite.head.digest for suite in suites},
    }
    questions = [
        (kept.add(prompt), len(prompt), number, case)
        for number, suite in enumerate(suites)
        for case, prompt in _questions(suite, world, now, codec)
    ]
    carried = CarriedPack(
        facts,
        np.array(kept.numbers, dtype="<u2"),
        np.array(rows, dtype=ROW),
        np.array(questions, dtype=QUESTION),
    )
    beside = directory.parent / "known"
    for bit, name in enumerate(regimes):
        (beside / name).mkdir(parents=True, exist_ok=True)
        texts = (
            (e.text, e.form) for e, mine in zip(examples, bits, strict=True) if mine >> bit & 1
        )
        write_seen(beside / name, texts)
    codec.save(beside)
    (beside / "world.json").write_bytes(world.to_json())
    try:
        size = write_carried(directory, carried, packed_modules())
    except CarriedError as error:
        raise UsageError(str(error), hint="use a smaller --records") from None
    return {**facts, "bytes": size, "questions": len(questions)}


def _runs(regimes: Sequence[str]) -> list[tuple[str, int]]:
    """Return the regime and seed of each run; the first seed of every regime comes first."""
    first = [(name, 0) for name in regimes]
    return first + [
        (name, seed) for seed in range(1, SEEDS) for name in regimes if name in REPEATED
    ]


def _examples(
    setting: ExperimentSetting, pool: Path, members: Mapping[int, int]
) -> Iterator[tuple[int, PackedExample]]:
    """Yield the examples of chosen records that a target can express, with the records' places."""
    world, now = _machine(pool)
    prompter = Prompter()
    names = lru_cache(64)(lambda cwd: DocumentNames(world.state(cwd).before.document))
    for place, record in enumerate(islice(read_records(pool), max(members, default=-1) + 1)):
        if place not in members:
            continue
        setting.report(f"examples of {pool.name}", place, max(members))
        found = _example(record, world, now, prompter, names)
        if found is not None:
            yield place, found


def _example(
    record: Record, world: World, now: Now, prompter: Prompter, names: Any
) -> PackedExample | None:
    if record.is_cut or record.volatile or record.history:
        return None
    cwd, text = without_start(record.input)
    cwd = cwd or world.start
    behavior = record.behavior()
    if len(behavior.patch.operations) > TARGET or "\0" in text:
        return None
    target = target_of(behavior, names(cwd), now)
    prompt = _prompt(prompter, text, world, cwd, now)
    if target is None or prompt is None:
        return None
    form = normal(text)
    dev = zlib.crc32((form or text).encode("utf-8", "surrogateescape")) % DEV_ONE_IN == 0
    return PackedExample(prompt, target, dev, text, form)


def _prompt(prompter: Prompter, text: str, world: World, cwd: str, now: Now) -> str | None:
    """Return the prompt of a whole input; None if it cannot be expressed."""
    try:
        prompt = prompter.prompt(text, world.state(cwd), now)
        prompt.encode()
    except (Abstained, UnicodeEncodeError):
        return None
    return prompt


def _questions(
    suite: Suite, world: World, now: Now, codec: Codec
) -> Iterator[tuple[int, list[int]]]:
    """Yield the numbers and prompts of a suite's cases that start on the pristine machine."""
    prompter = Prompter()
    for number, case in enumerate(suite.cases):
        state = case.state(suite.head.start)
        if state.history:
            continue
        prompt = _prompt(prompter, case.question.input, world, state.cwd, now)
        if prompt is not None:
            yield number, codec.encode(prompt)[:SOURCE]


def _machine(pool: Path) -> tuple[World, Now]:
    built, world = world_in(pool)
    return world, start_instant(built.declaration)


def _learned(examples: Sequence[PackedExample]) -> Codec:
    step = max(1, len(examples) // _LEARNED_FROM)
    return Codec.learned(
        (
            text
            for one in examples[::step]
            for text in (
                one.prompt,
                *(data.decode("utf-8", "replace") for _, data in one.target.printed),
                one.target.patch,
            )
        ),
        VOCABULARY,
    )


class _Tokens:
    """The tokens of all texts, one after the other."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, numbers: Sequence[int]) -> int:
        """Append tokens; return where they start."""
        start = len(self.numbers)
        self.numbers += numbers
        return start


def packed_modules() -> dict[str, bytes]:
    """Return the files that run on the other machine, by their paths in the carried directory."""
    package = Path(__file__).parent
    files = [package / "__init__.py", *sorted((package / "networks").glob("*.py"))]
    own = {f"{CODE}/{file.relative_to(package)}": file.read_bytes() for file in files}
    return {"__main__.py": LAUNCHER.encode(), **own}
