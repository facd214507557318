"""A dataset of user grammars: made, extended, and repaired with a copy of the directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shioenv.dataset.generate import generate
from shioenv.dataset.repair import repair
from shioenv.dataset.verify import verify
from shioenv.env.grammar_env import GrammarEnv
from shioenv.errors import DatasetMismatchError, UsageError
from shioenv.execution.local import SerialExecutor
from shioenv.grammar.library import PAPER
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for
from shioenv.system.store import System

SCORING = Scoring(budget=2)


SEQ = """command   seq
manual    seq(1), GNU coreutils 9.1
package   coreutils
volatile  no

start     seq <option>* <number> <number>

options
  -w, --equal-width
  -s, --separator=<cut>
<cut> : text = , | : | -

example seq -w 8 11
  prints 08
example seq --separator=: 1 3
  prints 1:2:3
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with a grammar of a command without a shipped one."""
    directory = tmp_path_factory.mktemp("own") / "mine"
    directory.mkdir()
    (directory / "seq.grammar").write_text(SEQ)
    return directory


def drawing(directory: Path) -> Drawing:
    return Drawing(commands=("seq",), own_grammars=str(directory))


def test_a_dataset_goes_on_and_is_mended_with_a_copy(
    system: System, mine: Path, tmp_path: Path
) -> None:
    made, executor = tmp_path / "made", SerialExecutor()
    generate(made, count=4, drawing=drawing(mine), scoring=SCORING, executor=executor)
    there = tmp_path / "there"
    shutil.copytree(mine, there)
    generate(made, count=6, drawing=drawing(there), executor=executor)
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["grammar"]["commands"] == ["seq"]
    assert manifest["grammar"]["own"].startswith("sha256:")
    assert str(there) not in json.dumps(manifest)
    assert verify(made).ok
    shard = made / "data" / "00000.ndjson"
    content = shard.read_bytes()
    assert all(b'"seq' in line or b"; seq" in line for line in content.splitlines())
    shard.unlink()
    with pytest.raises(UsageError, match="own grammars"):
        repair(made, executor=executor)
    (repaired,) = repair(made, own_grammars=str(there), executor=executor)
    assert repaired.identical
    assert shard.read_bytes() == content
    with (there / "seq.grammar").open("a") as file:
        file.write("# another\n")
    with pytest.raises(DatasetMismatchError, match=r"grammar\.own"):
        generate(made, count=7, drawing=drawing(there), executor=executor)
    shard.unlink()
    with pytest.raises(DatasetMismatchError, match=r"grammar\.own"):
        repair(made, own_grammars=str(there), executor=executor)


def test_own_commands_stand_beside_the_shipped_ones(system: System, mine: Path) -> None:
    names = {grammar.name for grammar in grammars_for(system, Drawing(own_grammars=str(mine)))}
    assert names == {*PAPER, "seq"}


def test_environments_write_with_own_grammars(
    system: System, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="unknown grammar 'factor'"):
        GrammarEnv(commands=["factor"])
    named = GrammarEnv(commands=["seq"], own_grammars=mine)
    monkeypatch.setenv("SHIOENV_GRAMMARS", str(mine))
    meant = GrammarEnv(commands=["seq"])
    assert named.productions == meant.productions
    assert any("seq" in str(production) for production in named.productions)
