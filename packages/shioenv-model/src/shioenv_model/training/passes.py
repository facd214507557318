"""Training passes that launch few operations on the GPU.

T5's own attention materializes the position bias for every row and layer. The backward pass of its
kernel is slow if the bias requires a gradient. Here everything between the two matrix products is
one operation. The norm of transformers takes six operations in float32, and each matrix product
after it needs a cast. Here the norm is one operation that returns bf16.

The CPU launches each operation of a pass separately. The operations of a small model take less time
than launching them. A recorded pass (a CUDA graph) is launched as one operation.
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
    """Within this context, a T5 model uses fused attention and norms, under autocast to bf16.

    The results equal the library's up to rounding. The model must have no attention dropout, since
    the attention weights are never materialized.
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
    """Compute attention with the library's layout: batch, heads, positions, width."""
    return _weighed(query, key, value, attention_mask, position_bias).transpose(1, 2), None


def _mask(*given: Any, **named: Any) -> Any:
    """Return the library's mask, even if the library would omit it for its own attention."""
    skipped = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(*given, **{**named, **skipped})


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, _mask)


LossOf = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A recorded pass, its input tensors, and its output loss."""

    graph: Any
    batch: dict[str, torch.Tensor]
    loss: torch.Tensor


class ReplayedPasses:
    """Forward and backward passes, captured as a CUDA graph for each batch shape and replayed.

    Each pass overwrites the previous pass's gradients. The first batch of a shape runs eagerly,
    which also triggers lazy initialization in the libraries. The second batch's pass is recorded.
    Everything runs on the current stream, which must not be the default stream: CUDA cannot capture
    that one (CUDA manual, section on graphs).
    """

    def __init__(self, loss_of: LossOf, weights: list[torch.Tensor]) -> None:
        """`loss_of` returns the loss of a batch without synchronizing with the GPU."""
        self._loss_of, self._weights = loss_of, weights
        self._gradients = [torch.zeros_like(each) for each in weights]
        self._pool = torch.cuda.graph_pool_handle()
        self._recorded: dict[tuple[torch.Size, ...], _Recorded | None] = {}

    def __call__(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch, on the GPU, and set the weights' gradients to the batch's."""
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
        """Run a batch eagerly, operation by operation, and return its loss."""
        self._own_gradients()
        torch._foreach_zero_(self._gradients)
        loss = self._loss_of(batch)
        loss.backward()
        return loss.detach()

    def _own_gradients(self) -> None:
        """Assign the buffers that every pass writes to, since a trainer may have reset `grad`."""
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
