"""All exceptions that this package raises on purpose, under one base class.

The message states the problem, its place and the value; the hint names the next step. Each class
has a stable code, which `docs/errors.md` explains, and an exit status for the command line.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar


class ShioenvError(Exception):
    """Base of all errors: message and hint for people, code and exit status for programs.

    Exit statuses: 1 the work failed, 2 the request was wrong, 3 this host lacks something.
    """

    code: ClassVar[str] = "SHIO-000"
    exit_status: int = 1

    def __init__(
        self, message: str, *, hint: str | None = None, named: OSError | None = None
    ) -> None:
        """Create an error. `named`: the OSError from a file that the request names, if any.

        If that file does not exist, the request was wrong, so the exit status is 2.
        """
        super().__init__(message)
        self.message = message
        self.hint = hint
        if isinstance(named, FileNotFoundError | NotADirectoryError):
            self.exit_status = UsageError.exit_status

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message[:140]!r:.150})"

    def __str__(self) -> str:
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{self.message} ({self.code}){hint}"


class UsageError(ShioenvError):
    """The request is invalid, for example an unknown option or value."""

    code = "SHIO-U01"
    exit_status = 2


class HostError(ShioenvError):
    """The host lacks something that is required; the hint is the exact fix."""

    code = "SHIO-H01"
    exit_status = 3


class MissingExtraError(HostError):
    """A feature needs libraries from an extra of this package; the hint installs the extra.

    A library may be a guest: another package of this project, such as `shioenv-backends`.
    `libraries` are the needed libraries that cannot be found. If all of them can be found (but
    cannot be imported), `libraries` lists all.
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
            hint=install_command(extra),
        )


def missing_guest(feature: str, extra: str) -> MissingExtraError:
    """Return the error for a feature of `shioenv-EXTRA`, with the install command in it."""
    error = MissingExtraError(feature, extra, f"shioenv-{extra}")
    error.message, error.hint = f"{error.message}: {error.hint}", None
    return error


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, for the installer in use.

    pipx and `uv tool` leave a file in the environments that they manage. Other environments of uv
    are recognised by the package's metadata. Otherwise the installer is pip.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    wanted = f"'shioenv[{extra}]'"
    place = Path(sys.prefix)
    if (place / "pipx_metadata.json").exists():
        return f"pipx runpip shioenv install {wanted}"
    by_uv = f"uv pip install --python {shlex.quote(sys.prefix)} {wanted}"
    if (place / "uv-receipt.toml").exists():
        return by_uv
    try:
        installer = distribution("shioenv").read_text("INSTALLER") or ""
    except PackageNotFoundError:
        installer = ""
    return by_uv if installer.strip() == "uv" else f"pip install {wanted}"


class ShellStateError(HostError):
    """The shell state cannot be read, and `--without-shell-state` was not given.

    `system` is the name of the system. `reason` explains why its bash cannot report it.
    """

    code = "SHIO-H03"

    def __init__(self, system: str, reason: str) -> None:
        self.system, self.reason = system, reason
        super().__init__(
            f"shell state on {system} cannot be read (directory, variables, functions, options): "
            f"its bash does not support the fork server ({reason})",
            hint="reinstall shioenv (pip install --force-reinstall; in a clone: make setup), then: "
            f"shioenv system build --fresh {system}. To record without it: --without-shell-state, "
            "in Python Limits(without_shell_state=True)",
        )


class InputError(ShioenvError):
    """A shell input is invalid: an argument has no text, or an index is out of range."""

    code = "SHIO-U11"
    exit_status = 2


class LimitsError(ShioenvError):
    """A limit is out of range, a sandbox is unknown, or limits contradict each other."""

    code = "SHIO-U12"
    exit_status = 2


class ContextError(ShioenvError):
    """A document is not a context."""

    code = "SHIO-D11"


class PatchError(ShioenvError):
    """A context patch is malformed, or does not apply to its document."""

    code = "SHIO-D12"


class RecordError(ShioenvError):
    """A line is not a record of this schema."""

    code = "SHIO-D13"


# sandbox


class SandboxError(ShioenvError):
    """A sandbox failed for a reason other than the input.

    The run is not recorded and may be retried.
    """

    code = "SHIO-X01"


class Abstained(ShioenvError):  # noqa: N818 - it describes a decision of a runner, not a failure
    """A runner declined to predict an input's behavior, which does not count as a mistake."""

    code = "SHIO-X02"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word most similar to `word`; None if its similarity is below `cutoff`.

    Similarities are from 0 to 1. A word with another first character must reach 0.75 (our
    choice, because typing errors are rare there).
    """
    for match in get_close_matches(word, list(known), n=3, cutoff=cutoff):
        if match[:1] == word[:1] or SequenceMatcher(None, match, word).ratio() >= 0.75:
            return match
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known word, or with all known words if none is close."""
    names = sorted(known)
    match = nearest(word, names)
    return f"did you mean {match}?" if match else f"known: {', '.join(names)}"


# system


class SystemDeclarationError(ShioenvError):
    """A system's TOML file is not a valid declaration; `problems` lists all faults.

    `source` is the name of the file.
    """

    code = "SHIO-S01"
    exit_status = 2

    def __init__(self, source: str, problems: Iterable[str], *, hint: str | None = None) -> None:
        self.source = source
        self.problems = tuple(problems)
        listed = "\n".join(f"{source}: {problem}" for problem in self.problems)
        super().__init__(listed or f"{source}: not a system declaration", hint=hint)


class UnknownSystemError(ShioenvError):
    """No system with this name is declared."""

    code = "SHIO-S02"
    exit_status = 2


class SystemNotBuiltError(ShioenvError):
    """The system is declared but not built on this host; the hint builds it."""

    code = "SHIO-S03"
    exit_status = 3


class SystemBuildError(ShioenvError):
    """A root filesystem could not be built; incomplete files were removed."""

    code = "SHIO-S04"


class BuildToolError(HostError):
    """A program that builds or unpacks root filesystems is not installed, or too old."""

    code = "SHIO-S05"


class RootfsTarError(ShioenvError):
    """A tarball of a root filesystem cannot be read, or lacks files that a session needs."""

    code = "SHIO-S06"
    exit_status = 2


class SystemStorageError(ShioenvError):
    """The cache directory cannot be written, because of a full disk or missing permissions."""

    code = "SHIO-S07"


class SystemCorruptError(ShioenvError):
    """A built system in the cache is incomplete or was changed; rebuilding repairs it."""

    code = "SHIO-S08"


class StartDirectoryError(ShioenvError):
    """A start directory does not exist in the system, or is not a directory."""

    code = "SHIO-S09"
    exit_status = 2


class SystemMismatchError(ShioenvError):
    """A dataset or another product was made with a different build of the system."""

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
    """The system has no value for a required token of a command's grammar."""

    code = "SHIO-G03"


class UnknownSamplerError(ShioenvError):
    """No sampler has this name, or its horizon is below 1."""

    code = "SHIO-G04"
    exit_status = 2


class SamplesExhaustedError(ShioenvError):
    """Fewer distinct inputs exist than were requested."""

    code = "SHIO-G05"


class TraceError(ShioenvError):
    """A trace does not match the grammars that replay it."""

    code = "SHIO-G06"


# env


class ActionError(ShioenvError):
    """An action cannot be parsed: a field is missing or unknown, or has the wrong type.

    A parsed action that violates a rule of the environment raises nothing. It ends the episode,
    with a code in `info["error"]`.
    """

    code = "SHIO-E01"
    exit_status = 2


class EpisodeError(ShioenvError):
    """A step was taken outside an episode, or an object with an open machine was copied.

    An episode begins with a reset and lasts until its end.
    """

    code = "SHIO-E02"
    exit_status = 2


def used_environment() -> EpisodeError:
    """Return the error of copying an environment after its first reset."""
    return EpisodeError(
        "an environment that was reset cannot be copied",
        hint="copy it before its first reset, or make another one",
    )


class EnvironmentOptionError(ShioenvError, TypeError):
    """An option or value is invalid for making or resetting an environment.

    It is also a `TypeError`: Stable-Baselines3 passes a render mode first, and retries without it
    only after a `TypeError`.
    """

    code = "SHIO-E03"
    exit_status = 2


# dataset


class DatasetCorruptError(ShioenvError):
    """A directory does not hold a dataset, or files of the dataset were changed."""

    code = "SHIO-D01"


class DatasetMismatchError(ShioenvError):
    """A dataset was made with other settings than requested; `differences` lists them."""

    code = "SHIO-D02"
    exit_status = 2

    def __init__(self, directory: str, differences: Iterable[str]) -> None:
        self.directory = directory
        self.differences = tuple(differences)
        listed = "".join(f"\n  {difference}" for difference in self.differences)
        hint = "use the same settings, or choose another directory"
        made = ("system.", "grammar.", "versions.", "record_schema_version")
        if any(each.startswith(made) for each in self.differences):
            hint = (
                "to extend it, use the system, grammars and release it was made with; without them "
                "it can be read, verified and exported; choose another directory for new records"
            )
        super().__init__(
            f"{directory} holds a dataset made with other settings:{listed}", hint=hint
        )


class DatasetBusyError(ShioenvError):
    """Another process is writing into this directory."""

    code = "SHIO-D03"


class DatasetStorageError(ShioenvError):
    """A dataset cannot be written or read, because of a full disk or missing permissions."""

    code = "SHIO-D04"


class GenerationError(ShioenvError):
    """A record could not be made in any attempt; finished records are kept."""

    code = "SHIO-D05"


class UnknownDatasetError(ShioenvError):
    """There is no dataset in this directory."""

    code = "SHIO-D06"
    exit_status = 2


class OutputExistsError(ShioenvError):
    """The output file or directory already exists; nothing is ever overwritten."""

    code = "SHIO-D07"
    exit_status = 2


class ImportFileError(ShioenvError):
    """An imported file cannot be read, or contains nothing to import."""

    code = "SHIO-D08"


class RepairError(ShioenvError):
    """A dataset cannot be repaired: its inputs cannot be drawn again, or the new records differ.

    The shard in question was not changed.
    """

    code = "SHIO-D09"


# evaluation


class SuiteError(ShioenvError):
    """A file has no suite or no inputs for one, or a suite was changed after its creation."""

    code = "SHIO-V01"


class PredictorError(ShioenvError):
    """A predictor is unknown, or refuses its argument (`NAME:ARGUMENT`)."""

    code = "SHIO-V02"
    exit_status = 2


class AnswerError(ShioenvError):
    """A predictor's reply is not a valid answer.

    `received` is the behavior parsed from the reply; None if nothing could be parsed.
    """

    code = "SHIO-V03"

    def __init__(self, message: str, *, hint: str | None = None, received: Any = None) -> None:
        self.received = received
        super().__init__(message, hint=hint)


# tasks


class TaskError(ShioenvError):
    """A file has no tasks, a line is not a task, or a task belongs to another system."""

    code = "SHIO-T01"


class TerminalError(ShioenvError):
    """A terminal's shell was killed or cannot be ended, or its rows cannot be repeated."""

    code = "SHIO-T02"


# persistent shells


class ShellEndedError(ShioenvError):
    """A line was sent to a shell that has ended."""

    code = "SHIO-L01"


class ForkError(ShioenvError):
    """A line of a shell behaved differently when another shell replayed it."""

    code = "SHIO-L02"


class TransferError(ShioenvError):
    """A file or directory could not be copied into or out of a machine."""

    code = "SHIO-L04"


# serving


class OverloadedError(ShioenvError):
    """A server is at its maximum number of shells, and all are busy."""

    code = "SHIO-W01"


class ConversationTooLongError(ShioenvError):
    """The lines of a conversation take too long to replay in another shell."""

    code = "SHIO-W02"


class ServingError(ShioenvError):
    """A server cannot start with these options, or a part of it has ended."""

    code = "SHIO-W03"


class HubError(ShioenvError):
    """A hub cannot be reached, or rejects what is published there."""

    code = "SHIO-W05"


class LogError(ShioenvError):
    """A server's log or recording cannot be read, or lacks the requested entry."""

    code = "SHIO-W04"


# models


class ModelError(ShioenvError):
    """A file or directory has no model or the wrong one, or a recipe is invalid."""

    code = "SHIO-M01"
