"""The taskset `shioenv_tasks` of verifiers, whose programs find tasksets among modules."""

from shioenv_agents.fronts.verifiers import ShioenvPlay, ShioenvTask, ShioenvTaskset

__all__ = ["ShioenvPlay", "ShioenvTask", "ShioenvTaskset"]
