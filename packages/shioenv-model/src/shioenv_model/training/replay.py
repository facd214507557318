"""Passes of a model over batches on a GPU, recorded once for each shape and then played again.

A processor starts each of a pass's operations by itself. A small model's operations end faster
than a processor starts them. A recorded pass (a CUDA graph) is started as one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

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
