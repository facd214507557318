"""The verifiers taskset `shioenv_tasks`, a module because verifiers imports tasksets."""

from shioenv_agents.fronts.verifiers import ShioenvPlay, ShioenvTask, ShioenvTaskset

__all__ = ["ShioenvPlay", "ShioenvTask", "ShioenvTaskset"]
