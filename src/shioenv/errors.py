"""Every exception this package raises on purpose, under one base class.

A message says what is wrong, where, and with which value; the hint says what to do next. Each class
has a stable code that leads to `docs/errors.md` and the exit status the command line ends with.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, ClassVar


class ShioenvError(Exception):
    """Base of all errors: a message for people, a hint, a code and an exit status for programs.

    Exit statuses: 1 the work failed, 2 the request was wrong, 3 this host lacks something.
    """

    code: ClassVar[str] = "SHIO-000"
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{self.message} ({self.code}){hint}"


class UsageError(ShioenvError):
    """A request that cannot be meant: an option or value that does not exist."""

    code = "SHIO-U01"
    exit_status = 2


class HostError(ShioenvError):
    """The host lacks something the work needs; the hint is the exact fix."""

    code = "SHIO-H01"
    exit_status = 3


class MissingExtraError(HostError):
    """A feature needs libraries that an extra of this package installs; the hint is the command.

    `libraries` are those that cannot be found, of those that are needed.
    """

    code = "SHIO-H02"

    def __init__(self, feature: str, extra: str, *libraries: str) -> None:
        found = {name for name in libraries if find_spec(name.replace("-", "_"))}
        self.libraries = tuple(name for name in libraries if name not in found) or libraries
        self.extra = extra
        *others, last = self.libraries
        named = f"{', '.join(others)} and {last}" if others else last
        are = "are" if others else "is"
        super().__init__(
            f"{feature} needs {named}, which {are} not installed",
            hint=f"pip install 'shioenv[{extra}]'",
        )


class ShellStateError(HostError):
    """What inputs change of their shell cannot be read, and nobody said to go without.

    `system` is the name of the system, `reason` why its bash cannot be served.
    """

    code = "SHIO-H03"

    def __init__(self, system: str, reason: str) -> None:
        self.system, self.reason = system, reason
        super().__init__(
            f"what inputs change of their shell (directory, variables, functions, options) cannot "
            f"be read on {system}: no fork server can serve its bash ({reason})",
            hint="build shioenv anew on this host (pip install --force-reinstall, from a clone: "
            f"make setup), then: shioenv system build --fresh {system}. To go without: "
            "--without-shell-state, in Python Limits(without_shell_state=True)",
        )


class InputError(ShioenvError):
    """Shell input that cannot be represented: an argument without text, an index that is none."""

    code = "SHIO-U11"
    exit_status = 2


class LimitsError(ShioenvError):
    """A limit that leaves nothing to run with."""

    code = "SHIO-U12"
    exit_status = 2


class ContextError(ShioenvError):
    """A document that is not a context."""

    code = "SHIO-D11"


class PatchError(ShioenvError):
    """A context patch that is malformed, or does not fit the document it is applied to."""

    code = "SHIO-D12"


class RecordError(ShioenvError):
    """A line that is not a record of this schema."""

    code = "SHIO-D13"


# sandbox


class SandboxError(ShioenvError):
    """A sandbox broke: not what an input did, so never recorded; the run may be repeated."""

    code = "SHIO-X01"


class Abstained(ShioenvError):  # noqa: N818 - it says what a runner did, not what went wrong
    """A runner declined to say what an input does; the input is none of its mistakes."""

    code = "SHIO-X02"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word most like `word`, or None where none is as like (0 to 1) as `cutoff`."""
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint naming the closest known word, or all of them (sorted) where none is close."""
    names = sorted(known)
    match = nearest(word, names)
    return f"did you mean {match}?" if match else f"known: {', '.join(names)}"


# system


class SystemDeclarationError(ShioenvError):
    """A system's TOML file says what cannot be meant; `problems` holds every fault found."""

    code = "SHIO-S01"
    exit_status = 2

    def __init__(self, source: str, problems: Iterable[str], *, hint: str | None = None) -> None:
        self.source = source
        self.problems = tuple(problems)
        listed = "\n".join(f"{source}: {problem}" for problem in self.problems)
        super().__init__(listed or f"{source}: not a system declaration", hint=hint)


class UnknownSystemError(ShioenvError):
    """No system of this name is declared."""

    code = "SHIO-S02"
    exit_status = 2


class SystemNotBuiltError(ShioenvError):
    """The system is declared but its root filesystem is not built here; the hint builds it."""

    code = "SHIO-S03"
    exit_status = 3


class SystemBuildError(ShioenvError):
    """Building the root filesystem failed; nothing half-built stays behind."""

    code = "SHIO-S04"


class BuildToolError(HostError):
    """A program that builds or unpacks root filesystems is not installed, or too old."""

    code = "SHIO-S05"


class RootfsTarError(ShioenvError):
    """A root filesystem given as a tarball cannot be read, or lacks what a session needs."""

    code = "SHIO-S06"
    exit_status = 2


class SystemStorageError(ShioenvError):
    """The cache directory cannot be written: the disk is full, or its permissions forbid it."""

    code = "SHIO-S07"


class SystemCorruptError(ShioenvError):
    """A built system in the cache is incomplete or was changed; building again repairs it."""

    code = "SHIO-S08"


class StartDirectoryError(ShioenvError):
    """A start directory that does not exist in the system, or is no directory."""

    code = "SHIO-S09"
    exit_status = 2


class SystemMismatchError(ShioenvError):
    """What is to be worked with was made on another build of its system."""

    code = "SHIO-S10"


# grammar


class GrammarError(ShioenvError):
    """A grammar file has faults; the message lists all of them with file, line and column."""

    code = "SHIO-G01"


class UnknownGrammarError(ShioenvError):
    """No grammar has this name."""

    code = "SHIO-G02"
    exit_status = 2


class UnboundTokenError(ShioenvError):
    """The system has no value for a token that a command cannot do without."""

    code = "SHIO-G03"


class UnknownSamplerError(ShioenvError):
    """No sampler, policy or composite setting has this name or value."""

    code = "SHIO-G04"
    exit_status = 2


class SamplesExhaustedError(ShioenvError):
    """Every command left the draw before the wanted number of unique inputs was reached."""

    code = "SHIO-G05"


class TraceError(ShioenvError):
    """A trace does not fit the grammars it is replayed on."""

    code = "SHIO-G06"


# env


class ActionError(ShioenvError):
    """An action that is none: a field is missing, or of another type than the action space's.

    What the action space permits but the rules of the environment do not is no exception: it ends
    the episode, with a code in `info["error"]`.
    """

    code = "SHIO-E01"
    exit_status = 2


class EpisodeError(ShioenvError):
    """A step where no episode is running: before the first reset, or after the last one ended."""

    code = "SHIO-E02"
    exit_status = 2


class EnvironmentOptionError(ShioenvError):
    """An environment cannot be made, or reset, with this option or value."""

    code = "SHIO-E03"
    exit_status = 2


# dataset


class DatasetCorruptError(ShioenvError):
    """A directory that holds something else than a dataset, or one whose files were changed."""

    code = "SHIO-D01"


class DatasetMismatchError(ShioenvError):
    """A dataset was made with other settings than asked for; `differences` names each of them."""

    code = "SHIO-D02"
    exit_status = 2

    def __init__(self, directory: str, differences: Iterable[str]) -> None:
        self.directory = directory
        self.differences = tuple(differences)
        listed = "".join(f"\n  {difference}" for difference in self.differences)
        hint = "ask for the same settings, or choose another directory"
        if any(each.startswith(("system.", "grammar.", "versions.")) for each in self.differences):
            hint = (
                "to go on with it takes the system, the grammars and the release it was made with; "
                "without them it is read, verified (not replayed) and exported, and new records go "
                "into another directory"
            )
        super().__init__(
            f"{directory} holds a dataset made with other settings:{listed}", hint=hint
        )


class DatasetBusyError(ShioenvError):
    """Another process is writing into this directory."""

    code = "SHIO-D03"


class DatasetStorageError(ShioenvError):
    """A dataset cannot be written or read: the disk is full, or its permissions forbid it."""

    code = "SHIO-D04"


class GenerationError(ShioenvError):
    """A record could not be made, however often it was tried; what was finished is kept."""

    code = "SHIO-D05"


class UnknownDatasetError(ShioenvError):
    """There is no dataset in this directory."""

    code = "SHIO-D06"
    exit_status = 2


class OutputExistsError(ShioenvError):
    """What is to be written exists already; nothing is ever overwritten."""

    code = "SHIO-D07"
    exit_status = 2


class ImportFileError(ShioenvError):
    """A file to be imported cannot be read, or holds nothing that can be."""

    code = "SHIO-D08"


class RepairError(ShioenvError):
    """Records that were made again are not those that the manifest describes; nothing changed."""

    code = "SHIO-D09"


# evaluation


class SuiteError(ShioenvError):
    """A file that holds no suite, or no inputs for one, or a suite that was changed since."""

    code = "SHIO-V01"


class PredictorError(ShioenvError):
    """A predictor that nobody knows, or that cannot take the text behind its name."""

    code = "SHIO-V02"
    exit_status = 2


class AnswerError(ShioenvError):
    """What a predictor said is no answer; `received` is the behavior that could be read of it, None
    where there is nothing.
    """

    code = "SHIO-V03"

    def __init__(self, message: str, *, hint: str | None = None, received: Any = None) -> None:
        self.received = received
        super().__init__(message, hint=hint)


# tasks


class TaskError(ShioenvError):
    """A file that holds no tasks, or a line of it that is none; a task of another system."""

    code = "SHIO-T01"


class TerminalError(ShioenvError):
    """A shell beside a terminal's that was killed before it could answer."""

    code = "SHIO-T02"


# models


class ModelError(ShioenvError):
    """A file or directory that holds no model, or another than is wanted; a recipe that is none."""

    code = "SHIO-M01"
