"""ShIOEnv: shell inputs synthesised from grammars, executed on a pristine system, recorded, scored.

`import shioenv` loads no libraries: public names are imported on first use. The ids of the
environments are registered whether Gymnasium is imported before or after.
"""

from __future__ import annotations

from importlib import import_module

from shioenv.registration import register_when_loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shioenv.behavior.observe import SandboxRunner, open_sandbox
    from shioenv.dataset.generate import generate
    from shioenv.dataset.record_reader import read_records
    from shioenv.domain.behavior import Behavior
    from shioenv.domain.context import Context
    from shioenv.domain.inputs import Input
    from shioenv.domain.patch import ContextPatch
    from shioenv.domain.readable import file_name
    from shioenv.domain.record import Record
    from shioenv.domain.runner import Runner, ScriptedRunner, State
    from shioenv.errors import ShioenvError
    from shioenv.irreducibility.score import Score, estimate_irreducibility
    from shioenv.irreducibility.scoring import Scoring
    from shioenv.live.answerer import load_model
    from shioenv.live.resident import open_shell
    from shioenv.live.shell import Shell
    from shioenv.recording.text_score import score
    from shioenv.sandbox.base import Limits
    from shioenv.synthesis.drawing import Drawing
    from shioenv.synthesis.sample import sample
    from shioenv.system.store import System, build_system, find_system

    __version__: str

_HOMES = {
    "Behavior": "shioenv.domain.behavior",
    "Context": "shioenv.domain.context",
    "ContextPatch": "shioenv.domain.patch",
    "Drawing": "shioenv.synthesis.drawing",
    "Input": "shioenv.domain.inputs",
    "Limits": "shioenv.sandbox.base",
    "Runner": "shioenv.domain.runner",
    "SandboxRunner": "shioenv.behavior.observe",
    "ScriptedRunner": "shioenv.domain.runner",
    "State": "shioenv.domain.runner",
    "Record": "shioenv.domain.record",
    "Score": "shioenv.irreducibility.score",
    "Scoring": "shioenv.irreducibility.scoring",
    "Shell": "shioenv.live.shell",
    "ShioenvError": "shioenv.errors",
    "System": "shioenv.system.store",
    "build_system": "shioenv.system.store",
    "estimate_irreducibility": "shioenv.irreducibility.score",
    "file_name": "shioenv.domain.readable",
    "find_system": "shioenv.system.store",
    "generate": "shioenv.dataset.generate",
    "load_model": "shioenv.live.answerer",
    "open_sandbox": "shioenv.behavior.observe",
    "open_shell": "shioenv.live.resident",
    "read_records": "shioenv.dataset.record_reader",
    "sample": "shioenv.synthesis.sample",
    "score": "shioenv.recording.text_score",
}

__all__ = [
    "Behavior",
    "Context",
    "ContextPatch",
    "Drawing",
    "Input",
    "Limits",
    "Record",
    "Runner",
    "SandboxRunner",
    "Score",
    "Scoring",
    "ScriptedRunner",
    "Shell",
    "ShioenvError",
    "State",
    "System",
    "__version__",
    "build_system",
    "estimate_irreducibility",
    "file_name",
    "find_system",
    "generate",
    "load_model",
    "open_sandbox",
    "open_shell",
    "read_records",
    "sample",
    "score",
]

register_when_loaded()


if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any name

    def __getattr__(name):
        if name == "__version__":
            from importlib.metadata import version

            return version("shioenv")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
