"""Every exception this package raises on purpose, under one base class.

A message says what is wrong, where, and with which value. The hint says what to do next. Each class
has a stable code, which `docs/errors.md` explains, and the exit status of the command line.
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
        """Make an error. `named` is the error of opening a file that the request names.

        Where no such file is there, the request was wrong: exit status 2.
        """
        super().__init__(message)
        self.message = message
        self.hint = hint
        if isinstance(named, FileNotFoundError | NotADirectoryError):
            self.exit_status = UsageError.exit_status

    def __str__(self) -> str:
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{self.message} ({self.code}){hint}"


class UsageError(ShioenvError):
    """A request that makes no sense: an option or value that does not exist."""

    code = "SHIO-U01"
    exit_status = 2


class HostError(ShioenvError):
    """The host lacks something that the work needs; the hint is the exact fix."""

    code = "SHIO-H01"
    exit_status = 3


class MissingExtraError(HostError):
    """A feature needs libraries of an extra of this package; the hint is the command to install it.

    A library may be a guest: another package of this project, such as `shioenv-backends`.
    `libraries` are the needed libraries that cannot be found. Where each can be found, `libraries`
    are all the needed ones.
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
    """The error for a feature of the package `shioenv-EXTRA`, in one line with the command."""
    error = MissingExtraError(feature, extra, f"shioenv-{extra}")
    error.message, error.hint = f"{error.message}: {error.hint}", None
    return error


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, by the installer that made it.

    pipx and `uv tool` leave a file in the environments that they manage; other environments that
    uv made name it in the package's metadata. In every other case it is pip.
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
    """Inputs change their shell, but these changes cannot be read, and nobody said to go without.

    `system` is the name of the system. `reason` says why no fork server can serve its bash.
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
    """Shell input that cannot be represented: an argument without text, an index out of range."""

    code = "SHIO-U11"
    exit_status = 2


class LimitsError(ShioenvError):
    """A limit outside its range, an unknown sandbox, or limits that do not fit together."""

    code = "SHIO-U12"
    exit_status = 2


class ContextError(ShioenvError):
    """A document that is not a context."""

    code = "SHIO-D11"


class PatchError(ShioenvError):
    """A context patch that is malformed, or does not fit the document that it is applied to."""

    code = "SHIO-D12"


class RecordError(ShioenvError):
    """A line that is not a record of this schema."""

    code = "SHIO-D13"


# sandbox


class SandboxError(ShioenvError):
    """A sandbox broke: no input did this, so it is never recorded, and the run may be repeated."""

    code = "SHIO-X01"


class Abstained(ShioenvError):  # noqa: N818 - it says what a runner did, not what went wrong
    """A runner declined to say what an input does; that does not count as a mistake."""

    code = "SHIO-X02"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word most similar to `word`; None where no similarity (0 to 1) reaches `cutoff`.

    A word that begins with another character has to reach 0.75 (ours: typing errors are seldom in
    the first character).
    """
    for match in get_close_matches(word, list(known), n=3, cutoff=cutoff):
        if match[:1] == word[:1] or SequenceMatcher(None, match, word).ratio() >= 0.75:
            return match
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the closest known word, or all known words (sorted) where none is close."""
    names = sorted(known)
    match = nearest(word, names)
    return f"did you mean {match}?" if match else f"known: {', '.join(names)}"


# system


class SystemDeclarationError(ShioenvError):
    """A system's TOML file is not a valid declaration; `problems` holds every fault found.

    `source` names the file.
    """

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
    """A root filesystem could not be built; nothing half-built stays behind."""

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
    """A dataset or another product was made on another build of its system than the one here."""

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
    """The system has no value for a token that a command's grammar cannot do without."""

    code = "SHIO-G03"


class UnknownSamplerError(ShioenvError):
    """No sampler, policy or composite setting has this name or value."""

    code = "SHIO-G04"
    exit_status = 2


class SamplesExhaustedError(ShioenvError):
    """Fewer different inputs than wanted were drawn, and no command gives a new one any more."""

    code = "SHIO-G05"


class TraceError(ShioenvError):
    """A trace does not fit the grammars that it is replayed on."""

    code = "SHIO-G06"


# env


class ActionError(ShioenvError):
    """An action that cannot be read: a field is missing or unknown, or is not of the right type.

    An action that can be read but breaks a rule of the environment raises nothing. Such an action
    ends the episode, with a code in `info["error"]`.
    """

    code = "SHIO-E01"
    exit_status = 2


class EpisodeError(ShioenvError):
    """A step while no episode is running, or a copy of what holds an open machine.

    No episode runs before the first reset, nor after the end of an episode until the next reset.
    """

    code = "SHIO-E02"
    exit_status = 2


def used_environment() -> EpisodeError:
    """Return the error of copying an environment after its first reset."""
    return EpisodeError(
        "an environment that was reset cannot be copied",
        hint="copy it before its first reset, or make another one",
    )


class EnvironmentOptionError(ShioenvError):
    """An environment cannot be made, or reset, with this option or value."""

    code = "SHIO-E03"
    exit_status = 2


# dataset


class DatasetCorruptError(ShioenvError):
    """A directory that holds something else than a dataset, or a dataset with changed files."""

    code = "SHIO-D01"


class DatasetMismatchError(ShioenvError):
    """A dataset was made with other settings than asked for; `differences` names each setting."""

    code = "SHIO-D02"
    exit_status = 2

    def __init__(self, directory: str, differences: Iterable[str]) -> None:
        self.directory = directory
        self.differences = tuple(differences)
        listed = "".join(f"\n  {difference}" for difference in self.differences)
        hint = "ask for the same settings, or choose another directory"
        made = ("system.", "grammar.", "versions.", "record_schema_version")
        if any(each.startswith(made) for each in self.differences):
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
    """A record could not be made in any attempt; the records finished before are kept."""

    code = "SHIO-D05"


class UnknownDatasetError(ShioenvError):
    """There is no dataset in this directory."""

    code = "SHIO-D06"
    exit_status = 2


class OutputExistsError(ShioenvError):
    """The file or directory to be written exists already; nothing is ever overwritten."""

    code = "SHIO-D07"
    exit_status = 2


class ImportFileError(ShioenvError):
    """A file to be imported cannot be read, or holds nothing that can be imported."""

    code = "SHIO-D08"


class RepairError(ShioenvError):
    """A dataset cannot be repaired: its records cannot be drawn again, or come out otherwise.

    The shard in question was not changed.
    """

    code = "SHIO-D09"


# evaluation


class SuiteError(ShioenvError):
    """A file that holds no suite or no inputs for a suite, or a suite changed after it was made."""

    code = "SHIO-V01"


class PredictorError(ShioenvError):
    """An unknown predictor, or a predictor that cannot use the text behind its name."""

    code = "SHIO-V02"
    exit_status = 2


class AnswerError(ShioenvError):
    """A predictor's reply is no answer.

    `received` is the behavior that could be read from the reply; None where nothing could be read.
    """

    code = "SHIO-V03"

    def __init__(self, message: str, *, hint: str | None = None, received: Any = None) -> None:
        self.received = received
        super().__init__(message, hint=hint)


# tasks


class TaskError(ShioenvError):
    """A file without tasks, a line that is no task, or a task of another system."""

    code = "SHIO-T01"


class TerminalError(ShioenvError):
    """A second shell, beside the one of a terminal, was killed before it could answer."""

    code = "SHIO-T02"


# shells that stay


class ShellEndedError(ShioenvError):
    """A line for a shell that has ended."""

    code = "SHIO-L01"


class ForkError(ShioenvError):
    """A line of a shell did something else when another shell ran it again."""

    code = "SHIO-L02"


class SavedShellError(ShioenvError):
    """A file is no saved shell, or the shell cannot be made again here."""

    code = "SHIO-L03"


class TransferError(ShioenvError):
    """A file or a directory could not be brought into a machine, or out of it."""

    code = "SHIO-L04"


# serving


class OverloadedError(ShioenvError):
    """Every shell that a server may keep is running a line."""

    code = "SHIO-W01"


class ConversationTooLongError(ShioenvError):
    """The lines of a conversation take too long to be run again in another shell."""

    code = "SHIO-W02"


class ServingError(ShioenvError):
    """A server cannot be started so, or what it is made of is gone."""

    code = "SHIO-W03"


class LogError(ShioenvError):
    """A server's log or recording cannot be read, or does not have what is asked for."""

    code = "SHIO-W04"


# models


class ModelError(ShioenvError):
    """A file or directory with no model or another one than wanted, or a text that is no recipe."""

    code = "SHIO-M01"
