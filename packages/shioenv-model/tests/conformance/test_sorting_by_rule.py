"""The output of `sort` and `comm`, derived by rule, matches the machine."""

from __future__ import annotations

import shlex
from random import Random

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_model.composition.call import Call
from shioenv_model.memory.world import World, world_called
from shioenv_model.rules.programs import printed

FILES = (
    "data/numbers.txt", "data/inventory.tsv", "data/data.csv", "data/duplicates.txt", "/etc/passwd",
    "documents/notes.txt", "documents/names.txt", "documents/words_sorted.txt", "data/spaces.txt",
    "data/ids.txt", "documents/poem.txt", "data/no_newline.txt", "logs/app.log",
)  # fmt: skip
OPTIONS = (
    "-n", "-r", "-rn", "-u", "-f", "-b", "-d", "-h", "-M", "-g", "-s", "-nu", "-ru",
    "--reverse", "--key=2", "-k2", "-k2,2", "-k1.2,1", "-k 3n", "-k2,2nr", "-k 2b,2br",
    "-t,", "-t :", "-t' '", "-k4,4 -k2r", "-k5n -t,", "+1", "+2n", "-k1,1 -u", "-k2b,3", "-k3.2",
)  # fmt: skip
ORDERED = r"""
sort -t. -k1,1n -k2,2n data/paths.txt
sort -t, -k4,4 -k5,5nr data/data.csv
sort documents/notes.txt documents/poem.txt
sort -- data/ids.txt
sort --field-separator=, --key 3 -r data/data.csv
""".strip().split("\n")
BEYOND = r"""
sort -V data/ids.txt
sort -c documents/words_sorted.txt
sort -k1.2,1.4 data/ids.txt
sort -R data/ids.txt
sort -o out data/ids.txt
sort -k 0 data/ids.txt
sort --foo data/ids.txt
sort nofile
sort -gn data/ids.txt
sort -t ab data/ids.txt
comm data/ids.txt
comm --foo data/ids.txt data/ids.txt
""".strip().split("\n")


@pytest.fixture(scope="module")
def world(observer: SandboxRunner) -> World:
    return world_called(observer.system.name)


def is_told(text: str, world: World, observer: SandboxRunner) -> bool:
    """Whether a rule derives the output. The derived output must be right."""
    said = printed(Call.parse(text), world.state())
    if said is not None:
        right = observer.run(text)
        assert (said.output, said.exit_code) == (right.output, right.exit_code), text
    return said is not None


@pytest.mark.parametrize("text", ORDERED)
def test_an_order(text: str, world: World, observer: SandboxRunner) -> None:
    assert is_told(text, world, observer)


@pytest.mark.parametrize("seed", range(4))
def test_orders_drawn_at_random(seed: int, world: World, observer: SandboxRunner) -> None:
    random = Random(seed)
    told = 0
    for _ in range(60):
        options = " ".join(random.sample(OPTIONS, random.choice((1, 1, 2, 3))))
        told += is_told(f"sort {options} {random.choice(FILES)}", world, observer)
    assert told > 40


@pytest.mark.parametrize("seed", range(2))
def test_lines_in_common(seed: int, world: World, observer: SandboxRunner) -> None:
    random = Random(seed)
    for _ in range(30):
        files = shlex.join(random.sample(FILES, 2))
        options = random.choice(
            ("", "-12", "-3", "-23", "--total", "--total -123", "--nocheck-order")
        )
        assert is_told(f"comm {options} {files}".replace("  ", " "), world, observer)


@pytest.mark.parametrize("text", BEYOND)
def test_what_no_rule_tells(text: str, world: World, observer: SandboxRunner) -> None:
    assert not is_told(text, world, observer)
