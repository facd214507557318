"""Measure training steps a second of a sequence model on a GPU: eager, replayed, and fused.

    python benchmarks/replayed.py EXAMPLES [--size base] [--seconds 10]

Each way passes the same batches, of the ten most frequent shapes. The losses are compared, and the
passes of some shapes are timed. The rates are those of the second half of each way's time, when
every shape is recorded.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from shioenv_model.files import opened
from shioenv_model.training import sequence
from shioenv_model.training.passes import ReplayedPasses, fused
from shioenv_model.training.token_examples import Examples

SHAPES, TIMED, REPEATS = 10, 5, 5
WAYS: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "plain": (False, nullcontext),
    "replayed": (True, nullcontext),
    "replayed, fused": (True, fused),
}


def main() -> None:
    """Run each way and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--size", default="base")
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    examples = Examples(opened(given.examples))
    plan = sequence.TrainingPlan(size=given.size, dropout=0.0)
    batches = sequence.Batches(examples, dev=False, batch_tokens=plan.batch_tokens, seed=0)
    places = defaultdict(list)
    for place, each in enumerate(batches.batches):
        places[len(each.numbers), *each.shape].append(place)
    counts = Counter({shape: len(some) for shape, some in places.items()})
    padded = sum(rows * (source + target) * n for (rows, source, target), n in counts.items())
    print(f"{len(batches)} batches of {len(counts)} shapes, {padded / 1e6:.0f}M tokens padded")
    torch.cuda.set_stream(torch.cuda.Stream())
    chosen = [shape for shape, _ in counts.most_common(SHAPES)]
    first: list[float] = []
    for way, (replays, few) in WAYS.items():
        torch.manual_seed(0)
        model = sequence.new_model(examples, plan).to("cuda").train()
        optimizer = sequence.optimizer_of(model, plan.learning_rate)

        def loss_of(batch: Any, model: Any = model, few: Any = few) -> Any:
            with few(model), torch.autocast("cuda", torch.bfloat16):
                return model(**batch).loss

        passes = ReplayedPasses(loss_of, list(model.parameters()))
        step = passes if replays else passes.passed
        losses: list[torch.Tensor] = []
        marks: list[tuple[float, int, int]] = []
        begun, tokens = time.monotonic(), 0
        while not marks or marks[-1][0] < begun + given.seconds:
            turn, which = divmod(len(losses), len(chosen))
            here = places[chosen[which]]
            batch = {n: t.to("cuda") for n, t in batches[here[turn % len(here)]].items()}
            losses.append(step(batch))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            tokens += sum(batch[name].numel() for name in ("input_ids", "labels"))
            if not len(losses) % SHAPES:
                torch.cuda.synchronize()
                marks.append((time.monotonic(), tokens, len(losses)))
        (began, before, some), (ended, after, all_of) = marks[len(marks) // 2], marks[-1]
        spent = max(ended - began, 1e-9)
        told = [float(each) for each in losses]
        first = first or told
        gap = max(abs(one - other) for one, other in zip(first, told, strict=False))
        print(
            f"{given.size}, {way}: {all_of} steps, {(all_of - some) / spent:.1f} steps/s, "
            f"{(after - before) / spent / 1e3:.0f}K tokens/s, loss {told[-1]:.3f}, greatest gap "
            f"to plain {gap:.4f}",
            flush=True,
        )
        for shape in chosen[:TIMED]:
            here = places[shape]
            batch = {n: t.to("cuda") for n, t in batches[here[0]].items()}
            torch.cuda.synchronize()
            began = time.monotonic()
            for _ in range(REPEATS):
                step(batch)
            torch.cuda.synchronize()
            print(f"  {shape}: {(time.monotonic() - began) / REPEATS * 1e3:.1f} ms")


main()
