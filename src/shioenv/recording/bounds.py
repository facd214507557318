"""Bounds of what is recorded."""

from __future__ import annotations

from shioenv.sandbox.base import Limits

LIMITS = Limits(wall_seconds=2.0)
"""Bounds of every execution of a dataset, where none are given. What the grammars write is done in
milliseconds or waits for ever (`grep -R x` at a fifo). A score may meet that dozens of times: hence
a fifth of the usual wall time.
"""
