"""A fake sandbox whose answers are a pure function of the text, and samples for it.

Words in an input control it: `broken` breaks the sandbox, `deadly` kills the worker, `bug` raises
an ordinary exception, each the first time only (`always-broken`, `always-deadly`: every time);
`slow` takes a while; `hangs` times out, `hasty` times out the first time; `random` prints something
else every time. Files in the directory after which the system is named record past events.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset import (
    manifest,
    record_reader,
    record_tasks,
    repair,
    store,
    verify,
    write,
)
from shioenv.dataset.generate import Progress, Summary, run
from shioenv.dataset.manifest import Plan
from shioenv.dataset.store import Store
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import ScriptedCall, ScriptedRunner
from shioenv.errors import HostError, SandboxError
from shioenv.execution.job import Executor
from shioenv.execution.local import SerialExecutor
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.traces import Sample
from support.waiting import let_time_pass

HOME = "/home/ubuntu"


@dataclass(frozen=True)
class FakeSystem:
    name: str = "fake"
    digest: str = "d1935"


class FakeRunner(ScriptedRunner):
    system: Any = FakeSystem()

    def __init__(self, scratch: str) -> None:
        super().__init__()
        self._scratch = Path(scratch)

    def context(self, cwd: str | None = None) -> Context:
        document = dict(super().context(cwd).document)
        return Context(document | {"fs": {"notes.txt": {"perms": "-rw-r--r--", "size": 9}}})

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        assert asked.state is not None
        words = asked.text.split()
        if "always-broken" in words or ("broken" in words and self._once("broken")):
            raise SandboxError("the fake sandbox broke")
        if "always-deadly" in words or ("deadly" in words and self._once("deadly")):
            os.kill(os.getpid(), signal.SIGKILL)
        if "bug" in words:
            raise RuntimeError("a bug in the observer")
        if "slow" in words:
            let_time_pass(0.002, "such an input takes longer than others")
        if "hangs" in words or ("hasty" in words and self._once("hasty")):
            return Behavior(
                124, b"partial\n", timed_out=True, limits_hit=("wall_seconds",), volatile=True
            )
        kept = [word for word in words[1:] if not word.startswith("useless")]
        digest = hashlib.sha256(" ".join(kept).encode()).hexdigest()
        output = f"{digest}\n".encode() + (b"\xff\xfe" if "bytes" in words else b"")
        if "random" in words:
            output = os.urandom(64)
        patch = ContextPatch()
        if "touch" in words:
            patch = ContextPatch((("=", "/fs/notes.txt/size", len(kept)),))
        return Behavior(
            exit_code=int(digest[0], 16) // 8,
            output=output,
            patch=patch,
        )

    def _once(self, what: str) -> bool:
        try:
            os.close(os.open(self._scratch / what, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def open_fake(system: str, limits: Limits) -> FakeRunner:
    return FakeRunner(system)


def open_nothing(system: str, limits: Limits) -> FakeRunner:
    raise HostError("this host forbids everything", hint="allow something")


def open_and_die(system: str, limits: Limits) -> FakeRunner:
    os._exit(7)


def plan(seed: int = 7, **changes: object) -> Plan:
    made: dict[str, object] = {
        "sampler": "gcs",
        "seed": seed,
        "budget": 8,
        "system": "fake",
        "system_digest": FakeSystem.digest,
        "packages": {"bash": "5.2"},
        "grammar_digest": "9" * 64,
        "commands": ("echo", "ls"),
        "start_directories": (HOME,),
        "limits": Limits(),
        "version": "0.1.0",
    } | changes
    for name, kind in (("drawing", Drawing), ("scoring", Scoring)):
        names = {item.name for item in fields(kind)} & made.keys()
        made[name] = kind(**{each: made.pop(each) for each in names})  # type: ignore[arg-type]
    return Plan(**made)  # type: ignore[arg-type]


def keep_contexts(store: Store) -> None:
    """Put the start directories' contexts into the store, as executors do."""
    for number, cwd in store.missing_contexts():
        store.keep_context(number, FakeRunner("/nonexistent").context(cwd))


def sample(*input_args: str) -> Sample:
    return Sample(Input.from_marked(input_args), HOME, False, ())


WORDS = ("sort", "head", "wc", "uniq", "touch", "echo", "ls", "cat")


@contextmanager
def shards_of(records: int) -> Iterator[None]:
    """Give shards fewer records than 1,000, so that small datasets have several."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (manifest, record_reader, record_tasks, repair, store, verify, write):
            patch.setattr(module, "SHARD_RECORDS", records)
        yield


def alike() -> Iterator[Sample]:
    """Inputs of 56 kinds, each six times with other names and numbers."""
    for number in range(6):
        for word in WORDS:
            for letters in ("-a", "-b", "-ab", "-ba", "-c", "-d", "-e"):
                yield sample(word, letters, f"file{number}.txt", str(number))


def samples(seed: int = 7) -> Iterator[Sample]:
    """Generate samples without end."""
    random = generator(seed, "fake-samples")
    number = 0
    while True:
        words = [random.choice(("a", "useless", "-l<ns>", "bytes")) for _ in range(number % 5)]
        args = [random.choice(("echo", "touch")), f"n{number}", *words]
        if random.random() < 0.3:
            args += ["&&", "ls", "x", "useless"]
        yield sample(*args)
        number += 1


def interspersed(special: dict[int, Sample], seed: int = 7) -> Iterator[Sample]:
    """Generate the stream with some of its samples replaced."""
    for number, one in enumerate(samples(seed)):
        yield special.get(number, one)


def make(
    directory: Path,
    count: int = 30,
    *,
    asked: Plan | None = None,
    stream: Iterable[Sample] | None = None,
    numbers: Sequence[int] | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Record the first samples of the stream (or of `stream`), with the scratch next to them.
    Without an executor it runs in this process.
    """
    scratch = directory.with_name(f"{directory.name}-scratch")
    scratch.mkdir(exist_ok=True)
    return run(
        directory,
        asked or plan(),
        samples() if stream is None else stream,
        count=numbers or count,
        system=str(scratch),
        executor=executor or SerialExecutor(open_fake),
        report=report,
    )


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file of a dataset directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
