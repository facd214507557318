"""The taskset `shioenv_tasks` for verifiers, which imports tasksets as modules."""

from shioenv_agents.fronts.verifiers import ShioenvPlay, ShioenvTask, ShioenvTaskset

__all__ = ["ShioenvPlay", "ShioenvTask", "ShioenvTaskset"]
