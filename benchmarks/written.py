"""Measure a sequence model's time for an answer on one core, by the data type of its weights.

The models have random weights, so their output is meaningless: each writes 40 tokens, the median of
a record, after a prompt of 300. Needs torch and transformers (`make test-train` makes an
environment with both): `.train/bin/python benchmarks/written.py`.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration

from shioenv_model.training.sequence import SIZES

VOCABULARY, PROMPT, ANSWER, TURNS = 8192, 300, 40, 9


def model_of(size: str) -> Any:
    torch.manual_seed(0)
    settings: dict[str, Any] = dict(SIZES[size])
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **settings)
    return T5ForConditionalGeneration(config).eval()


def kept_in() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield data types of weights, each with the function that converts a model."""
    yield "fp32", lambda model: model
    yield "bf16", lambda model: model.to(torch.bfloat16)
    try:
        from torch.ao.quantization import quantize_dynamic
    except ImportError:  # it left torch for a separate package
        return
    yield "int8, linear layers", lambda model: quantize_dynamic(model, {torch.nn.Linear})


def answer(model: Any, prompt: Any) -> float:
    """Return the seconds of one answer."""
    began = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            prompt, min_new_tokens=ANSWER, max_new_tokens=ANSWER, do_sample=False, num_beams=1
        )
    return time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    prompt = torch.randint(3, VOCABULARY, (1, PROMPT))
    for size in ("small", "base"):
        for name, made in kept_in():
            model = made(model_of(size))
            answer(model, prompt)
            times = [answer(model, prompt) for _ in range(TURNS)]
            print(
                f"{size:<6} {name:<20} {median(times) * 1e3:6.0f} ms "
                f"({min(times) * 1e3:.0f} to {max(times) * 1e3:.0f})",
                flush=True,
            )
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{most:.0f} MiB at most, in total")


if __name__ == "__main__":
    main()
