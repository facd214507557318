"""T5's attention and norm for training on a GPU, each as few operations.

The library's own attention writes the biases of all positions once for each row and layer. Its
kernel's backward pass is slow where the bias has a gradient. Here everything between the two
products is one operation. The library's own norm is six operations in float32. Each product behind
such a norm casts by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
