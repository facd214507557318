"""A decoder-only transformer with rotary positions: training on packed rows, and decoding.

A token attends to earlier tokens of its own example alone. Weights are float32, products bf16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

Tensor: TypeAlias = torch.Tensor


@dataclass(frozen=True)
class DecoderShape:
    """The size of a network."""

    vocabulary: int
    width: int = 512
    layers: int = 8
    heads: int = 8
    positions: int = 2048


class Decoder(nn.Module):  # type: ignore[misc]
    """The network; its output layer shares the weights of the embedding."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        half = shape.width // shape.heads // 2
        rates = 10_000.0 ** -(torch.arange(half) / half)
        angles = torch.arange(shape.positions)[:, None] * rates
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                scale = 0.02 / math.sqrt(2 * shape.layers) if last else 0.02
                nn.init.normal_(weight, std=scale)

    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, cache: Sequence[Cached] | None = None
    ) -> Tensor:
        """Return the last hidden state of each token. `mask`: true where a token is visible."""
        hidden = self.embedding(ids)
        turns = self.cosines[positions][:, None], self.sines[positions][:, None]
        for number, block in enumerate(self.blocks):
            hidden = block(hidden, turns, mask, cache[number] if cache else None)
        normed: Tensor = self.norm(hidden)
        return normed

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores of the next token."""
        return functional.linear(hidden, self.embedding.weight)


class Cached:
    """Keys and values of a block's earlier tokens, in a buffer for all tokens of a decoding."""

    def __init__(self, shape: DecoderShape, rows: int, length: int, like: Tensor) -> None:
        size = rows, shape.heads, length, shape.width // shape.heads
        self.keys = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.values = torch.zeros_like(self.keys)
        self.filled = 0

    def add(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append tokens; return all keys and values so far."""
        end = self.filled + keys.shape[2]
        self.keys[:, :, self.filled : end] = keys
        self.values[:, :, self.filled : end] = values
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class _Block(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.heads = shape.heads
        inner = 64 * math.ceil(shape.width * 8 / 3 / 64)
        self.before, self.between = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, shape.width, bias=False)

    def forward(
        self, hidden: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, cached: Cached | None
    ) -> Tensor:
        rows, length, width = hidden.shape
        mixed = self.qkv(self.before(hidden)).view(rows, length, 3, self.heads, -1)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        query, key = _turned(query, turns), _turned(key, turns)
        if cached is not None:
            key, value = cached.add(key, value)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        gate, inner = self.up(self.between(hidden)).chunk(2, dim=-1)
        added: Tensor = hidden + self.down(functional.silu(gate) * inner)
        return added


def _turned(heads: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate pairs of dimensions by an angle that grows with the position."""
    cosine, sine = turns
    one, other = heads.float().chunk(2, dim=-1)
    turned = torch.cat([one * cosine - other * sine, one * sine + other * cosine], dim=-1)
    return turned.to(heads.dtype)


class PackedLoss:
    """The mean loss of the learned tokens of packed rows, compiled once for one shape of rows."""

    def __init__(self, model: Decoder, device: str) -> None:
        self._model, self._device = model, device
        backend = "inductor" if device == "cuda" else "eager"
        self._compiled = torch.compile(self._loss, fullgraph=True, dynamic=False, backend=backend)

    def __call__(self, ids: Any, owner: Any, learned: Any) -> Tensor:
        """Return the loss of rows of `packed_rows`."""
        changes = owner[:, 1:] != owner[:, :-1]
        first = np.pad(changes, ((0, 0), (1, 0)), constant_values=True)
        place = np.arange(ids.shape[1])[None]
        positions = place - np.maximum.accumulate(np.where(first, place, 0), axis=1)
        targets = np.where(learned[:, 1:], ids[:, 1:], -100)
        targets = np.pad(targets, ((0, 0), (0, 1)), constant_values=-100)
        tensors = [torch.from_numpy(each) for each in (ids, positions, owner, targets)]
        with torch.autocast(self._device, torch.bfloat16):
            loss: Tensor = self._compiled(*(each.to(self._device) for each in tensors))
        return loss

    def _loss(self, ids: Tensor, positions: Tensor, owner: Tensor, targets: Tensor) -> Tensor:
        same = owner[:, None, :, None] == owner[:, None, None, :]
        earlier = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        scores = self._model.scores(self._model(ids, positions, same & earlier))
        return functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


@dataclass
class PackedTraining:
    """The training of one network, which ends when its time is used up."""

    loss: PackedLoss
    model: Decoder
    rows: tuple[npt.NDArray[np.int64], ...]
    batch: int
    """Rows of a step."""
    rate: float
    """The peak learning rate."""
    seed: int

    def run(self, done: Callable[[], float]) -> Iterator[float]:
        """Train until `done`, the share of the time that has passed, is 1; yield each loss.

        The learning rate rises in the first twentieth of the time, and falls to zero at its end. At
        least one step is made. Errors: FloatingPointError if the loss is not finite.
        """
        self.model.train()
        groups: list[dict[str, Any]] = [
            {"params": [w for w in self.model.parameters() if w.dim() > 1], "weight_decay": 0.1},
            {"params": [w for w in self.model.parameters() if w.dim() < 2], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=(0.9, 0.95), fused=True)
        batches = self._batches()
        while True:
            share = min(1.0, done())
            scale = min(share / _WARM_UP, (1 - share) / (1 - _WARM_UP))
            for group in optimizer.param_groups:
                group["lr"] = self.rate * max(scale, _LEAST)
            loss = self.loss(*next(batches))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            value = float(loss.detach())
            if not math.isfinite(value):
                raise FloatingPointError(f"the loss is {value}")
            yield value
            if done() >= 1:
                return

    def _batches(self) -> Iterator[tuple[npt.NDArray[np.int64], ...]]:
        """Yield batches of equal size; each pass over the rows has its own order."""
        rng, left = np.random.default_rng(self.seed), np.zeros(0, dtype=np.int64)
        while True:
            while len(left) < self.batch:
                left = np.append(left, rng.permutation(len(self.rows[0])))
            chosen, left = left[: self.batch], left[self.batch :]
            yield tuple(each[chosen] for each in self.rows)


_WARM_UP, _LEAST = 0.05, 1e-3


@torch.inference_mode()  # type: ignore[untyped-decorator]
def decode(
    model: Decoder, prompts: Sequence[Any], *, pad: int, end: int, longest: int, device: str
) -> list[tuple[list[int], float]]:
    """Continue all prompts in one batch, each by the likeliest tokens, at most `longest`.

    Return each prompt's new tokens with their log-probability.
    """
    model.eval()
    width = max(map(len, prompts)) + 1
    ids = torch.full((len(prompts), width), pad, dtype=torch.long)
    for row, prompt in enumerate(prompts):  # the pad between prompt and target is the last token
        ids[row, width - 1 - len(prompt) : -1] = torch.as_tensor(prompt)
    lengths = torch.tensor([len(prompt) + 1 for prompt in prompts], device=device)
    ids = ids.to(device)
    visible = torch.arange(width + longest, device=device)[None] >= width - lengths[:, None]
    positions = (torch.arange(width, device=device)[None] - (width - lengths[:, None])).clamp(min=0)
    own = torch.eye(width, dtype=torch.bool, device=device)  # padding sees itself, not nothing
    mask = visible[:, None, None, :width] & torch.ones_like(own).tril() | own
    written, total = [], torch.zeros(len(prompts), device=device)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    with torch.autocast(device, torch.bfloat16):
        like = torch.empty(0, dtype=torch.bfloat16, device=device)
        cache = [Cached(model.shape, len(ids), width + longest, like) for _ in model.blocks]
        for step in range(longest):
            hidden = model(ids, positions, mask, cache)[:, -1]
            sure, token = model.scores(hidden).float().log_softmax(-1).max(dim=-1)
            total += torch.where(ended, 0.0, sure)
            written.append(torch.where(ended, pad, token))
            ended |= token == end
            if bool(ended.all()):
                break
            ids, positions = written[-1][:, None], (lengths + step)[:, None]
            mask = visible[:, None, None, : width + step + 1]
    lines = torch.stack(written, dim=1).tolist()
    cut = [line[: line.index(end) + 1] if end in line else line for line in lines]
    return list(zip(cut, total.tolist(), strict=True))
