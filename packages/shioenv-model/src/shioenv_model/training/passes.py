"""Training passes on a GPU in few operations.

T5's own attention writes the biases of all positions once for each row and layer. Its kernel's
backward pass is slow where the bias has a gradient. Here everything between the two products is one
operation. The library's own norm is six operations in float32. Each product behind such a norm
casts by itself.

A processor starts each of a pass's operations by itself. A small model's operations end faster
than a processor starts them. A recorded pass (a CUDA graph) is started as one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.models.t5.modeling_t5 import T5LayerNorm

_NAME = "shioenv-fused"


@contextmanager
def fused(model: Any) -> Iterator[None]:
    """While it is entered, passes of a T5 under autocast to bf16 are of few operations.

    The numbers are the library's, but for rounding. The model must have no dropout of attention,
    since the weights of attention are never written.
    """
    configs = model.config, model.encoder.config, model.decoder.config
    before = [each._attn_implementation for each in configs]
    norms = [each for each in model.modules() if isinstance(each, T5LayerNorm)]
    for each in configs:
        each._attn_implementation = _NAME
    for norm in norms:
        norm.forward = partial(_normed, norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward
        for each, name in zip(configs, before, strict=True):
            each._attn_implementation = name


def _normed(norm: T5LayerNorm, hidden: torch.Tensor) -> torch.Tensor:
    width = (hidden.shape[-1],)
    normed = torch.nn.functional.rms_norm(hidden, width, norm.weight, norm.variance_epsilon)
    return normed.to(torch.bfloat16)


@torch.compile(dynamic=True)  # type: ignore[untyped-decorator]
def _weighed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    scores = torch.where(mask, query @ key.transpose(2, 3) + bias, torch.finfo(value.dtype).min)
    return scores.float().softmax(-1).to(value.dtype) @ value


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    position_bias: torch.Tensor,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as the library asks for it: rows, heads, places, width."""
    return _weighed(query, key, value, attention_mask, position_bias).transpose(1, 2), None


def _mask(*given: Any, **named: Any) -> Any:
    """The library's mask, written out where the library leaves it to its own attention."""
    skipped = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*given, **{**named, **skipped})


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, _mask)


LossOf = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A pass, the tensors that the pass reads, and the loss that the pass writes."""

    graph: Any
    batch: dict[str, torch.Tensor]
    loss: torch.Tensor


class ReplayedPasses:
    """Forward and backward passes whose gradients replace those of the pass before.

    The first batch of a shape passes as usual, which also starts what the libraries start late.
    The second batch's pass is recorded. Everything runs on the current stream, which cannot be the
    default stream: that one cannot be recorded (manual of CUDA, section on graphs).
    """

    def __init__(self, loss_of: LossOf, weights: list[torch.Tensor]) -> None:
        """`loss_of` gives the loss of a batch and waits for nothing on the GPU."""
        self._loss_of, self._weights = loss_of, weights
        self._gradients = [torch.zeros_like(each) for each in weights]
        self._pool = torch.cuda.graph_pool_handle()
        self._recorded: dict[tuple[torch.Size, ...], _Recorded | None] = {}

    def __call__(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The loss of a batch on the GPU. The weights' gradients are those of the batch."""
        shape = tuple(each.shape for each in batch.values())
        if shape not in self._recorded:
            self._recorded[shape] = None
            return self.passed(batch)
        self._own_gradients()
        recorded = self._recorded[shape] or self._record(batch)
        self._recorded[shape] = recorded
        for name, tensor in recorded.batch.items():
            tensor.copy_(batch[name])
        recorded.graph.replay()
        return recorded.loss.clone()

    def passed(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The loss of a batch that passes as usual, operation by operation."""
        self._own_gradients()
        torch._foreach_zero_(self._gradients)
        loss = self._loss_of(batch)
        loss.backward()
        return loss.detach()

    def _own_gradients(self) -> None:
        """The weights' gradients are in memory that every pass writes: a trainer drops them."""
        for weight, gradient in zip(self._weights, self._gradients, strict=True):
            weight.grad = gradient

    def _record(self, batch: Mapping[str, torch.Tensor]) -> _Recorded:
        own = {name: tensor.clone() for name, tensor in batch.items()}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, self._pool, torch.cuda.current_stream(), capture_error_mode="thread_local"
        ):
            loss = self.passed(own)
        return _Recorded(graph, own, loss)
