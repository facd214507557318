"""Limits of the executions that records are made from."""

from __future__ import annotations

from shioenv.sandbox.base import Limits

LIMITS = Limits(wall_seconds=2.0)
"""Limits of every execution of a dataset, where none are given. An input that the grammars write
takes milliseconds or waits for ever (`grep -R x` at a fifo). One score may execute dozens of
sub-inputs that wait for ever: hence two fifths of the default wall time.
"""
