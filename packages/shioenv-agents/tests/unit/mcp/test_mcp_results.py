"""Results of the tools for agents: bounded, and described by schemas without references."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv_agents.mcp.schema import (
    Prediction,
    PreviewArguments,
    PreviewEffects,
    ReportedEffects,
    RunArguments,
    ShellAnswer,
    ShellArguments,
    schema_of,
)
from shioenv_agents.mcp.tools import LARGEST_PATCH, MOST_SHOWN, effects_of, shorten, text_of

STRUCTS = (
    ReportedEffects,
    Prediction,
    PreviewArguments,
    PreviewEffects,
    RunArguments,
    ShellAnswer,
    ShellArguments,
)


def many_files(count: int) -> Behavior:
    operations = tuple(("r", f"/fs/file{number}") for number in range(count))
    return Behavior(3, b"", ContextPatch(operations))


@given(st.text(max_size=300), st.integers(1, 100))
def test_a_long_text_keeps_its_beginning_and_end(text: str, limit: int) -> None:
    short, omitted = shorten(text, limit)
    assert omitted == max(len(text) - limit, 0)
    if not omitted:
        assert short == text
        return
    head, _, tail = short.partition(f"\n[... {omitted} characters omitted ...]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == limit


def test_a_large_patch_is_cut_and_the_rest_counted() -> None:
    effects = effects_of(many_files(5000), "/home", 100, ReportedEffects)
    assert len(effects.context_patch) == len(effects.changes)
    assert len(json.dumps(effects.context_patch)) < 2 * LARGEST_PATCH
    assert effects.changes_omitted == 5000 - len(effects.changes)
    assert text_of(effects).endswith(f"and {5000 - MOST_SHOWN} more changes")


def test_names_are_those_that_people_write() -> None:
    behavior = Behavior(0, b"", ContextPatch((("r", "/fs/~1tmp~1a b"), ("r", "/env/X"))))
    effects = effects_of(behavior, "/home", 100, ReportedEffects)
    assert [(each.change, each.name) for each in effects.changes] == [
        ("removed", "env X"),
        ("removed", "'/tmp/a b'"),
    ]
    assert effects.context_patch == [["r", "/env/X"], ["r", "/fs/~1tmp~1a b"]]


def test_the_text_states_everything_that_went_wrong() -> None:
    behavior = Behavior(
        124,
        b"half\n",
        timed_out=True,
        limits_hit=("wall_seconds",),
        output_truncated=True,
        patch_truncated=True,
        died_by_signal=9,
    )
    assert text_of(effects_of(behavior, "/", 100, ReportedEffects)).splitlines() == [
        "half",
        "[exit code 124, timed out, ended by signal 9, limits reached: wall_seconds, output "
        "truncated, changes truncated]",
    ]


@pytest.mark.parametrize("struct", STRUCTS)
def test_schemas_are_objects_without_references(struct: type) -> None:
    schema = schema_of(struct)
    assert schema["type"] == "object"
    assert "$ref" not in json.dumps(schema)
    assert "$defs" not in json.dumps(schema)


@pytest.mark.parametrize("struct", [RunArguments, PreviewArguments, ShellArguments])
def test_every_argument_is_described(struct: type) -> None:
    for name, property_ in schema_of(struct)["properties"].items():
        assert property_.get("description"), name
