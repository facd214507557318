# ruff: noqa: E402 - what is imported needs what may not be installed
"""Networks of a carried directory: trained within a time limit by new processes, on the CPU."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shioenv_paper.networks.carried import (
    LARGEST,
    QUESTION,
    ROW,
    CarriedError,
    CarriedPack,
    packed_rows,
    read_carried,
    write_carried,
)
from support.needs import needed_module
from support.nightly import NIGHTLY
from support.waiting import wait_until

torch = needed_module("torch")

from shioenv_paper.network_pack import LAUNCHER, PLAN, packed_modules
from shioenv_paper.networks.decoder import Decoder, DecoderShape, PackedLoss, PackedTraining, decode

PAD, END, WORDS = 0, 1, 12
SMALL = {
    **PLAN, "start": 0.3, "run": 0.1, "batch": 2, "width": 32, "longest": 4,
    "shape": {"width": 32, "layers": 1, "heads": 2}, "runs": [("odd", 0), ("even", 0), ("odd", 1)],
}  # fmt: skip


def small_pack(**plan: Any) -> CarriedPack:
    """Examples whose target repeats the prompt's last token; a regime for odd and even numbers."""
    tokens: list[int] = []
    rows = []
    for number in range(60):
        word = 2 + number % (WORDS - 2)
        prompt, target = [2 + number % 3] * (number % 4) + [word], [word, END]
        rows.append((len(tokens), len(prompt), len(target), number % 7 == 6, 1 << number % 2))
        tokens += [*prompt, *target]
    questions = [(len(tokens), 2, 0, 0), (len(tokens), 1, 0, 1)]
    tokens += [5, 7]
    facts = {
        "plan": {**SMALL, **plan},
        "regimes": ["even", "odd"],
        "tokens": {"size": WORDS, "pad": PAD, "end": END},
    }
    return CarriedPack(
        facts, np.array(tokens, "<u2"), np.array(rows, ROW), np.array(questions, QUESTION)
    )


@pytest.fixture
def carried(tmp_path: Path) -> Path:
    directory = tmp_path / "carried"
    write_carried(directory, small_pack(), packed_modules())
    return directory


def there(carried: Path, *words: str) -> list[str]:
    """Return the command on a machine where nothing of this project is installed."""
    out = carried.parent / "out"
    return [sys.executable, "-I", str(carried), str(out), "--device", "cpu", *words]


def call(carried: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(there(carried, *words), capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def results(carried: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((carried.parent / "out" / "results.json").read_bytes())
    return found


@NIGHTLY
def test_all_models_have_results_and_a_missing_one_is_made_alone(carried: Path) -> None:
    assert call(carried) == (0, "")
    first = results(carried)
    assert (first["status"], first["missing"]) == ("complete", [])
    assert list(first["models"]) == ["mixture", "odd-0", "even-0", "odd-1"]
    for model in first["models"].values():
        assert model["steps"] >= 1
        assert len(model["answers"]) == 2
        assert all(0 < len(said) <= 4 and sure <= 0 for said, sure in model["answers"])
    lost = first["models"].pop("even-0")
    (carried / "runs" / "results.json").write_text(json.dumps(first))
    assert call(carried, "--seconds", "0.001")[0] == 1, "no time is left to train it"
    assert results(carried)["missing"] == ["even-0"]
    assert call(carried) == (0, "")
    again = results(carried)["models"]
    assert {name: again[name] for name in first["models"]} == first["models"]
    assert again["even-0"]["examples"] == lost["examples"]


@NIGHTLY
def test_too_little_time_fails_and_names_what_is_missing(carried: Path) -> None:
    status, errors = call(carried, "--seconds", "0.001")
    assert status == 1
    assert "no results of mixture, odd-0, even-0, odd-1" in errors
    assert results(carried)["status"] == "incomplete"


@NIGHTLY
def test_a_signal_ends_with_the_results_so_far(tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    write_carried(carried, small_pack(run=500), packed_modules())
    with subprocess.Popen(there(carried), stderr=subprocess.PIPE, text=True) as process:
        out = tmp_path / "out" / "results.json"
        wait_until(lambda: out.exists() or process.poll() is not None, "the start's results")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "results so far are written" in errors
    assert results(carried)["status"] == "stopped by SIGTERM"
    assert list(results(carried)["models"]) == ["mixture"]


def test_an_incomplete_directory_is_refused(carried: Path) -> None:
    whole = carried.parent / "whole"
    shutil.copytree(carried, whole)
    shutil.rmtree(carried / "shioenv_paper")
    status, errors = call(carried)
    assert status == 1
    assert "shioenv_paper is missing: carry the whole directory" in errors
    assert "Traceback" not in errors
    examples = whole / "examples.xz"
    examples.write_bytes(examples.read_bytes()[:-1])
    assert call(whole) == (3, f"{examples} differs from the packed file: carry it again\n")
    examples.unlink()
    with pytest.raises(CarriedError, match="is missing"):
        read_carried(whole)


def test_a_pack_that_is_too_large_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CarriedError, match="use fewer records"):
        write_carried(tmp_path / "carried", small_pack(), {"more": bytes(LARGEST)})
    assert not (tmp_path / "carried").exists()


def test_each_example_is_packed_once_with_its_target_to_be_learned() -> None:
    pack = small_pack()
    numbers = pack.numbers("odd", dev=False)
    ids, owner, learned = packed_rows(pack, numbers, 32, seed=4)
    assert sorted(set(owner.ravel().tolist()) - {-1}) == numbers.tolist()
    for number in numbers.tolist():
        source, target = pack.example(number)
        own = ids[owner == number].tolist()
        assert own == [*source.tolist(), PAD, *target.tolist()]
        assert ids[(owner == number) & (learned == 1)].tolist() == target.tolist()
    assert len(ids) <= 1.3 * (owner >= 0).sum() / 32 + 1


def test_a_network_learns_and_decodes_a_batch_as_single_prompts() -> None:
    torch.manual_seed(3)
    torch.set_num_threads(1)
    pack = small_pack()
    rows = packed_rows(pack, pack.numbers("mixture", dev=False), 32, 0)
    model = Decoder(DecoderShape(WORDS, width=32, layers=2, heads=2, positions=32))
    losses: list[float] = []
    training = PackedTraining(PackedLoss(model, "cpu"), model, rows, 4, 3e-3, 0)
    for loss in training.run(lambda: len(losses) / 150):
        losses.append(loss)
    assert losses[-1] < 0.2 < losses[0]
    prompts = [[3, 3, 8], [5], [4, 11]]

    def answers(prompts: list[list[int]]) -> list[Any]:
        return list(decode(model, prompts, pad=PAD, end=END, longest=4, device="cpu"))

    together, apart = answers(prompts), [answers([one])[0] for one in prompts]
    assert [said for said, _ in together] == [[8, END], [5, END], [11, END]]
    assert [said for said, _ in apart] == [said for said, _ in together]
    assert [sure for _, sure in apart] == pytest.approx([s for _, s in together], abs=0.02)


def test_an_example_does_not_depend_on_those_beside_it() -> None:
    torch.manual_seed(3)
    pack = small_pack()
    model = Decoder(DecoderShape(WORDS, width=32, layers=2, heads=2, positions=32))
    loss = PackedLoss(model, "cpu")
    alone = [packed_rows(pack, np.array([number]), 32, 0) for number in (1, 2)]
    both = packed_rows(pack, np.array([1, 2]), 32, 0)
    assert len(both[0]) == 1
    apart = [loss(*rows).item() for rows in alone]
    assert loss(*both).item() == pytest.approx(np.mean(apart), abs=0.01)


def test_the_launcher_needs_this_package_alone() -> None:
    assert LAUNCHER.count("import") == 4
    assert {name.split("/")[0] for name in packed_modules()} == {"__main__.py", "shioenv_paper"}
