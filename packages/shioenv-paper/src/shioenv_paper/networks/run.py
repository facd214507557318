"""Training and decoding of the networks of a carried directory, within a time limit.

One network (the start) is trained on the examples of all regimes. Each run continues its training
on one regime. After each run, all questions are decoded in one batch, and the results are written.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from shioenv_paper.networks.carried import (
    MIXTURE,
    OUT,
    RUNS,
    CarriedError,
    CarriedPack,
    export,
    packed_rows,
    read_carried,
)
from shioenv_paper.networks.decoder import Decoder, DecoderShape, PackedLoss, PackedTraining, decode

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_DEV_ROWS = 32
"""Maximum number of packed rows on which the loss of held-out examples is measured."""
_SPARE = 0.02
"""Share of the time, at its end, in which nothing is begun."""


class StoppedError(BaseException):
    """A signal asks the process to end."""


class Elsewhere:
    """One call on the other machine, with a limit of `seconds` for everything."""

    def __init__(self, carried: CarriedPack, directory: Path, options: argparse.Namespace) -> None:
        self.carried, self.device = carried, options.device
        self.plan = {**carried.facts["plan"], **options.plan}
        self._begun = time.monotonic()
        self._ends: float = self._begun + options.seconds * (1 - _SPARE)
        self._scale: float = options.seconds / self.plan["seconds"]
        self._runs, self._out = directory / RUNS, options.out
        self._decoding = 0.0
        self.results: dict[str, Any] = {"pack": carried.digest, "plan": self.plan, "models": {}}
        previous = self._runs / OUT
        if previous.exists():
            kept = json.loads(previous.read_bytes())
            if (kept["pack"], kept["plan"]) == (carried.digest, self.plan):
                self.results = kept

    @property
    def names(self) -> list[str]:
        """The names of all models of the plan: the start's, and the regime and seed of each run."""
        return [MIXTURE, *(f"{regime}-{seed}" for regime, seed in self.plan["runs"])]

    @property
    def missing(self) -> list[str]:
        """The models of the plan without results."""
        return [name for name in self.names if name not in self.results["models"]]

    def run(self) -> None:
        """Train, decode and export each model that is missing, as long as there is time."""
        if not self.missing:
            return self._export("complete")
        torch.set_float32_matmul_precision("high")
        torch.manual_seed(self.plan["seed"])
        shape = DecoderShape(self.carried.facts["tokens"]["size"], **self.plan["shape"])
        model = Decoder(shape).to(self.device)
        loss = PackedLoss(model, self.device)
        self._compile(model, loss)
        weights = self._runs / "start.pt"
        if MIXTURE in self.missing or not weights.exists():
            self._train(model, loss, MIXTURE, MIXTURE, self.plan["seed"])
            self._runs.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), weights)
        else:
            model.load_state_dict(torch.load(weights, weights_only=True))
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for name, (regime, seed) in zip(self.names[1:], self.plan["runs"], strict=True):
            if name in self.missing:
                if self._left < self._seconds("run") + 1.5 * self._decoding:
                    self._tell(f"no time is left for {name}")
                    break
                model.load_state_dict(start)
                self._train(model, loss, name, regime, seed)
        return self._export("incomplete" if self.missing else "complete")

    def stopped(self, by: str) -> None:
        """Export the results after a signal."""
        self._export(f"stopped by {by}")

    @property
    def _left(self) -> float:
        return self._ends - time.monotonic()

    def _seconds(self, what: str) -> float:
        """Return the seconds for training of the `start` or of one `run`."""
        return float(self.plan[what]) * self._scale

    def _compile(self, model: Decoder, loss: PackedLoss) -> None:
        """Compile the training pass by running one that leaves the weights unchanged."""
        batch, width = self.plan["batch"], self.plan["width"]
        rows = packed_rows(self.carried, self.carried.numbers(MIXTURE, dev=False), width, 0)
        loss(*(each.repeat(-(-batch // len(each)), 0)[:batch] for each in rows)).backward()
        model.zero_grad(set_to_none=True)
        self._tell(f"compiled, {sum(w.numel() for w in model.parameters()):,} weights")

    def _train(self, model: Decoder, loss: PackedLoss, name: str, regime: str, seed: int) -> None:
        """Train one model, decode all questions, and export the results so far."""
        rows = packed_rows(
            self.carried, self.carried.numbers(regime, dev=False), self.plan["width"], seed
        )
        is_start = name == MIXTURE
        seconds = max(0.1, min(self._seconds("start" if is_start else "run"), self._left))
        rate = self.plan["rate"] * (1 if is_start else self.plan["rate_of_runs"])
        training = PackedTraining(loss, model, rows, self.plan["batch"], rate, seed)
        begun = time.monotonic()
        losses = list(training.run(lambda: (time.monotonic() - begun) / seconds))
        trained = time.monotonic() - begun
        per_step = self.plan["batch"] * self.plan["width"]
        if self._left <= 0:
            self._tell(f"{name} is not decoded: no time is left")
            return
        facts: dict[str, Any] = {
            "regime": regime,
            "seed": seed,
            "examples": len(self.carried.numbers(regime, dev=False)),
            "steps": len(losses),
            "seconds": round(trained, 2),
            "tokens_per_second": round(len(losses) * per_step / trained),
            "curve": [round(each, 4) for each in losses[:: max(1, len(losses) // 50)]],
            "dev_loss": self._dev_loss(loss, regime),
        }
        begun = time.monotonic()
        tokens = self.carried.facts["tokens"]
        answers = decode(
            model,
            self.carried.prompts(),
            pad=tokens["pad"],
            end=tokens["end"],
            longest=self.plan["longest"],
            device=self.device,
        )
        self._decoding = max(self._decoding, time.monotonic() - begun)
        facts["answers"] = [[said, round(sure, 4)] for said, sure in answers]
        self.results["models"][name] = facts
        self._export("incomplete")
        self._tell(
            f"{name}: {facts['steps']} steps, {facts['tokens_per_second']:,} tokens/s, loss "
            f"{losses[-1]:.3f}, held out {facts['dev_loss']}, decoded in {self._decoding:.1f} s"
        )

    def _dev_loss(self, loss: PackedLoss, regime: str) -> float | None:
        """Return the loss of held-out examples; None if there are fewer than a batch."""
        numbers = self.carried.numbers(regime, dev=True)
        rows = packed_rows(self.carried, numbers, self.plan["width"], 0)
        batch, found = self.plan["batch"], []
        with torch.no_grad():
            for at in range(0, min(len(rows[0]), _DEV_ROWS) - batch + 1, batch):
                found.append(float(loss(*(each[at : at + batch] for each in rows))))
        return round(math.fsum(found) / len(found), 4) if found else None

    def _export(self, status: str) -> None:
        self.results |= {"status": status, "missing": self.missing}
        export(self.results, self._runs, self._out)

    def _tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)


@contextmanager
def _raising(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Within this context, these signals raise StoppedError with their names."""

    def stop(number: int, _: Any) -> None:
        raise StoppedError(signal.Signals(number).name)

    before: list[Any] = [signal.signal(each, stop) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def main(directory: Path, given: list[str]) -> int:
    """Run the command line. The exit status is 0 only if every model of the plan has results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="directory for results.json")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of everything")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--plan", type=json.loads, default={}, help="JSON: other values of the plan"
    )
    options = parser.parse_args(given)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("this machine has no CUDA device: use --device cpu", file=sys.stderr)
        return 3
    try:
        carried = read_carried(directory)
    except CarriedError as error:
        print(error, file=sys.stderr)
        return 3
    call = Elsewhere(carried, directory, options)
    with _raising(SIGNALS):
        try:
            call.run()
        except StoppedError as stopped:
            name = str(stopped)
            call.stopped(name)
            print(f"stopped by {name}; results so far are written", file=sys.stderr)
            return 128 + signal.Signals[name]
    if call.missing:
        print(f"no results of {', '.join(call.missing)}: repeat the command", file=sys.stderr)
        return 1
    return 0
