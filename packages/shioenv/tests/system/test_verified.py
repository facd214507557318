"""Records of all inputs pass `verify` and survive a round trip, whatever they write or how they
end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shioenv.dataset.external import CommandList, import_commands
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import replay, verify
from shioenv.execution.local import SerialExecutor
from shioenv.irreducibility.scoring import UNSCORED
from shioenv.system.store import System

WRITES = (
    "true",
    "echo word",
    "printf '%9000s\\n' x",
    "printf '%70000s\\n' y",
    "head -c 66000 /dev/zero",
    "head -c 300 /usr/bin/env",
    "head -c 66000 /usr/bin/env",
    "tr '\\0' '\\377' < /dev/zero | head -c 40000",
    "for i in {1..4000}; do echo $i; echo $i >&2; done",
    "yes | head -c 17000000",
    "ls /etc /nowhere",
    "echo kept > file",
)
ENDS = ("true", "kill -9 $$", "exit 3", "exec >&-", "sleep 30 &", "mktemp")
START = "/home/ubuntu"


def inputs() -> list[str]:
    """Inputs of pieces for both channels, in orders that a seed draws."""
    rng = random.Random(3)
    drawn = []
    for piece in WRITES:
        lines = [piece, *rng.choices(WRITES, k=rng.randrange(3))]
        ended = [line + rng.choice(("", " >&2")) for line in lines]
        drawn.append("; ".join([*ended, rng.choice(ENDS)]))
    return drawn


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, system: System) -> Path:
    directory = tmp_path_factory.mktemp("verified")
    fixed = (
        "printf '%40000s\\n' a; printf '%40000s\\n' b >&2",
        "printf '%70000s\\n' a; printf '%70000s\\n' b >&2",
        "echo a >&2; yes",
    )
    (directory / "inputs").write_text("".join(f"{text}\n" for text in (*fixed, *inputs())))
    import_commands(
        CommandList(directory / "inputs", start_directories=(START,)),
        directory / "dataset",
        scoring=UNSCORED,
        executor=SerialExecutor(),
    )
    return directory / "dataset"


def test_every_record_passes_and_comes_out_again(dataset: Path) -> None:
    assert verify(dataset).problems == ()
    assert replay(dataset, 100).ok


def test_what_is_written_past_the_limit_has_its_channels_and_is_not_volatile(
    dataset: Path,
) -> None:
    together, both, endless, *_ = read_records(dataset)
    for record in (together, both, endless):
        assert record.output_truncated
        assert not record.volatile
    assert (len(together.stdout or ""), len(together.stderr or "")) == (40_001, 40_001)
    assert (len(both.stdout or ""), len(both.stderr or "")) == (65_536, 65_536)
    assert endless.output == ("a\n" + "y\n" * 32_767)
    assert (endless.stdout, endless.stderr) == ("y\n" * 32_768, "a\n")
    assert endless.limits_hit == ["output_bytes", "drain_bytes"]
