"""Arguments and results of the tools, with their JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

LONGEST_COMMAND: Final = 131_071
"""Maximum characters of a command; Linux allows an argument of as many bytes."""

LONGEST_SECONDS: Final = 60.0
"""Maximum seconds of wall time that a call may ask for (our choice, because clients give up after a
minute)."""

MOST_HISTORY: Final = 64
"""Maximum earlier commands of a prediction (our choice)."""

LARGEST_OUTPUT: Final = 65_536
"""Maximum characters of a result's output."""

OUTPUT: Final = 16_384
"""Default maximum of a result's output (our choice, about four thousand tokens)."""

Command = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_COMMAND,
        description="The Bash command line. It may have several lines, pipes and here-documents.",
    ),
]
Path = Annotated[str, Meta(max_length=4096)]
Directory = Annotated[
    Path | None,
    Meta(description="Absolute path of the directory to start in. Default: the home directory."),
]
Seconds = Annotated[
    float,
    Meta(gt=0, le=LONGEST_SECONDS, description="Seconds after which the command is ended."),
]
OutputLimit = Annotated[
    int,
    Meta(
        ge=1,
        le=LARGEST_OUTPUT,
        description="Maximum characters of output to return. The middle of longer output is "
        "omitted.",
    ),
]
ShellId = Annotated[
    Annotated[str, Meta(max_length=64)] | None,
    Meta(description="The id of an open shell, as `open` or `fork` returned it."),
]


class RunArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `run`."""

    command: Command
    cwd: Directory = None
    stdin: Annotated[
        str, Meta(max_length=LONGEST_COMMAND, description="Text on standard input.")
    ] = ""
    timeout_seconds: Seconds = 5.0
    output_limit: OutputLimit = OUTPUT


class PreviewArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `preview`."""

    command: Command
    cwd: Annotated[
        Path | None,
        Meta(
            description="The directory to start in: absolute, or relative to the server's "
            "directory, and never outside it. Default: the server's directory.",
        ),
    ] = None
    timeout_seconds: Seconds = 30.0
    output_limit: OutputLimit = OUTPUT


class ShellArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `shell`."""

    action: Annotated[
        Literal["open", "run", "fork", "patch", "close"],
        Meta(
            description="`open` starts a shell and returns its id. `run` runs `command` in the "
            "shell with the id. `fork` copies that shell, by running its commands again on "
            "another machine. `patch` returns all changes since the shell was opened. `close` "
            "ends the shell."
        ),
    ]
    shell: ShellId = None
    command: Annotated[
        Annotated[str, Meta(max_length=LONGEST_COMMAND)] | None,
        Meta(description="The Bash command line of `run`."),
    ] = None
    cwd: Directory = None
    timeout_seconds: Seconds = 5.0
    output_limit: OutputLimit = OUTPUT


class PredictArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `predict`."""

    command: Command
    cwd: Directory = None
    history: Annotated[
        list[Annotated[str, Meta(max_length=LONGEST_COMMAND)]],
        Meta(
            max_length=MOST_HISTORY,
            description="Earlier commands of the same shell, oldest first.",
        ),
    ] = []
    output_limit: OutputLimit = OUTPUT


class ReportedChange(msgspec.Struct):
    """A change in readable form."""

    change: Literal["added", "changed", "removed", "moved"]
    name: Annotated[
        str, Meta(description="A file, relative to `cwd` where it is below it, or `env NAME`.")
    ]
    detail: Annotated[
        str, Meta(description="The new value; for a file as `ls -l` lists it. May be empty.")
    ]


class ReportedEffects(msgspec.Struct, kw_only=True):
    """The effects of a command; the fields have the names of `shioenv run --json`."""

    cwd: Annotated[str, Meta(description="The directory that relative names refer to.")]
    exit_code: Annotated[int, Meta(description="0 to 255; 124 after a timeout.")]
    output: Annotated[str, Meta(description="Standard output and standard error, in order.")]
    output_omitted: Annotated[
        int, Meta(description="Characters omitted from the middle of `output`.")
    ] = 0
    output_truncated: Annotated[
        bool, Meta(description="Whether output beyond the machine's limit was lost.")
    ] = False
    changes: Annotated[
        list[ReportedChange], Meta(description="Every change, in readable form.")
    ] = []
    context_patch: Annotated[
        list[list[Any]],
        Meta(
            description="The same changes as operations on JSON Pointers: "
            '["a"|"=", pointer, value], ["r", pointer] or ["m", from, to].'
        ),
    ] = []
    changes_omitted: Annotated[
        int, Meta(description="Operations omitted from `changes` and `context_patch`.")
    ] = 0
    patch_truncated: Annotated[
        bool, Meta(description="Whether there were more changes than the machine records.")
    ] = False
    timed_out: bool = False
    limits_hit: Annotated[list[str], Meta(description="Limits that the command reached.")] = []
    died_by_signal: Annotated[
        int | None, Meta(description="The signal that killed the shell itself.")
    ] = None
    volatile: Annotated[
        bool, Meta(description="Whether another run may have a different result.")
    ] = False


class PreviewEffects(ReportedEffects, kw_only=True):
    """The result of `preview`."""

    diff: Annotated[str, Meta(description="Changed contents, for `patch -p1 -d /`.")]
    diff_omitted: Annotated[int, Meta(description="Characters cut off the end of `diff`.")] = 0
    diff_truncated: Annotated[bool, Meta(description="Whether files are too large for `diff`.")] = (
        False
    )
    layers: Annotated[list[str], Meta(description="Directories whose changes are reported.")]
    read_only: Annotated[list[str], Meta(description="Mount points that were read-only.")]
    whole_root: Annotated[
        bool, Meta(description="Whether the whole root was layered, not only `layers`.")
    ]


class ShellAnswer(msgspec.Struct, kw_only=True):
    """The result of `shell`."""

    shell: Annotated[str, Meta(description="The id of the shell; of the copy after `fork`.")]
    open: Annotated[bool, Meta(description="Whether the shell accepts another command.")]
    effects: Annotated[
        ReportedEffects | None,
        Meta(
            description="The effects of the command (`run`), or all changes since the shell was "
            "opened (`patch`)."
        ),
    ] = None


class Prediction(ReportedEffects, kw_only=True):
    """The result of `predict`."""

    confidence: Annotated[
        float, Meta(ge=0, le=1, description="Expected accuracy of such predictions.")
    ]
    source: Annotated[str, Meta(description="What the prediction is based on.")]


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct, without references: some clients follow none."""
    whole = msgspec.json.schema(struct)
    inlined: dict[str, Any] = _inlined(whole, whole["$defs"])
    for name in ("title", "description"):
        inlined.pop(name, None)
    return inlined


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _inlined({**definitions[name], **_without(schema, "$ref")}, definitions)
    return {name: _inlined(value, definitions) for name, value in _without(schema, "$defs").items()}


def _without(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}
