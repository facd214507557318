import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from msgspec import convert

from shioenv import registration
from shioenv.domain.behavior import Behavior
from shioenv.domain.record import NAMES, Record, encode
from shioenv.env.shio_env import ActionFault, ShIOEnv
from shioenv.errors import (
    ActionError,
    EnvironmentOptionError,
    EpisodeError,
    SandboxError,
    UnknownSystemError,
)
from shioenv.irreducibility.scoring import Scoring
from support.scripted_shell import Opener, ScriptedShell

registration.register()

EXECUTE = ("", 1, 0)
Step = tuple[Any, float, bool, bool, dict[str, Any]]


def row(*texts: str) -> list[tuple[str, int, int]]:
    """Return the actions that write one row."""
    return [(text, 0, int(index == 0)) for index, text in enumerate(texts)]


def play(env: ShIOEnv, actions: Iterable[Sequence[Any]]) -> Step:
    """Return the last of these actions' results, after a reset; earlier ones must not end an
    episode."""
    env.reset(seed=1)
    result: Step | None = None
    for action in actions:
        assert result is None or not (result[2] or result[3]), result
        result = env.step(action)
    assert result is not None
    return result


def make(**options: Any) -> tuple[ShIOEnv, ScriptedShell]:
    runner = options.pop("runner", None) or ScriptedShell()
    return ShIOEnv(runner=runner, **options), runner


# reset and observation


def test_reset_writes_only_the_start_directory() -> None:
    env, _ = make(max_commands=2, max_segments=2, max_arguments=3)
    observation, info = env.reset(seed=0)
    assert len(observation) == 3
    assert {len(cells) for cells in observation} == {2 * (3 + 4)}
    assert observation[0][:2] == ("cd", "/home/ubuntu")
    assert not any(observation[0][2:])
    assert not any(map(any, observation[1:]))
    assert info == {"h": 0, "l": 2, "cwd": "/home/ubuntu", "row_full": False, "error": None}
    assert env.observation_space.contains(observation)


def test_start_directory_is_drawn_by_the_seed() -> None:
    directories = tuple(f"/d{number}" for number in range(8))
    env, _ = make(start_directories=directories)
    seeds = range(60)
    drawn = [env.reset(seed=seed)[1]["cwd"] for seed in seeds]
    assert drawn == [env.reset(seed=seed)[1]["cwd"] for seed in seeds]
    assert set(drawn) == set(directories)


def test_start_directory_does_not_depend_on_what_was_written() -> None:
    directories = tuple(f"/d{number}" for number in range(8))
    after = []
    for actions in ([EXECUTE], row("ls"), [*row("ls", "-a"), EXECUTE]):
        env, _ = make(start_directories=directories)
        play(env, actions)
        after.append([env.reset()[1]["cwd"] for _ in range(5)])
    assert after[0] == after[1] == after[2]


def test_start_directory_can_be_an_option_of_reset() -> None:
    env, runner = make()
    observation, info = env.reset(seed=0, options={"cwd": "/tmp"})
    assert observation[0][1] == info["cwd"] == "/tmp"
    env.step(row("ls")[0])
    env.step(EXECUTE)
    assert {asked.state.cwd for asked in runner.asked if asked.state} == {"/tmp"}


@pytest.mark.parametrize(
    "options", [{"cwd": "relative"}, {"cwd": "/" * 65}, {"cwd": 3}, {"cdw": "/tmp"}]
)
def test_reset_refuses_what_is_no_option(options: dict[str, Any]) -> None:
    env, _ = make()
    with pytest.raises(EnvironmentOptionError):
        env.reset(options=options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_commands": 0},
        {"max_segments": 0},
        {"max_arguments": True},
        {"budget": 0},
        {"budget": 8, "scoring": Scoring()},
        {"start_directories": ()},
        {"start_directories": ["x"]},
        {"render_mode": "human"},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentOptionError):
        ShIOEnv(**options)


def test_unknown_system_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownSystemError, match="debian-0"):
        ShIOEnv("debian-0")


def test_observation_is_immutable_and_equals_the_state() -> None:
    env, _ = make()
    env.reset(seed=0)
    first, *_ = env.step(("ls", 0, 1))
    second, *_ = env.step(("-a", 0, 0))
    assert isinstance(first, tuple)
    assert all(isinstance(cells, tuple) for cells in first)
    assert first[1][:2] == ("ls", "")
    assert second[1][:2] == ("ls", "-a")
    assert env.session.text == "cd /home/ubuntu; ls -a"


# transitions


def test_dictionary_and_triple_do_the_same() -> None:
    triples = [*row("ls", "-l<ns>", "<ns>a"), EXECUTE]
    names = ("input_addition", "exec_action", "new_global")
    dictionaries = [dict(zip(names, triple, strict=True)) for triple in triples]
    results = []
    for actions in (triples, dictionaries):
        env, _ = make()
        steps = [env.reset(seed=5), *[env.step(action) for action in actions]]
        results.append(steps)
    assert results[0] == results[1]


def test_numpy_scalars_are_flags() -> None:
    env, _ = make()
    env.reset(seed=0)
    action = {
        "input_addition": np.str_("ls"),
        "exec_action": np.array(0),
        "new_global": np.int64(1),
    }
    observation, *_ = env.step(action)
    assert observation[1][0] == "ls"
    assert type(observation[1][0]) is str


@pytest.mark.parametrize(
    "action",
    [
        "ls",
        ("ls", 0),
        None,
        {"input_addition": "ls", "exec_action": 0},
        {"input_addition": "ls", "exec_action": 0, "new_global": 1, "exec": 0},
        (b"ls", 0, 1),
        ("ls", 2, 0),
        ("ls", 0, None),
        ("ls", 0, np.array([0, 1])),
    ],
)
def test_malformed_actions_are_errors_and_change_nothing(action: Any) -> None:
    env, runner = make()
    before, _ = env.reset(seed=0)
    with pytest.raises(ActionError):
        env.step(action)
    assert env.step(("ls", 0, 1))[0][1][0] == "ls"
    assert before[1][0] == ""
    assert runner.asked == []


@pytest.mark.parametrize(
    ("before", "action", "fault"),
    [
        (row("ls"), ("ls", 1, 0), ActionFault.EXEC_WITH_INPUT),
        (row("ls"), ("ls", 1, 1), ActionFault.EXEC_WITH_INPUT),
        (row("ls"), ("", 1, 1), ActionFault.FLAGS_BOTH_SET),
        (row("ls"), ("x" * 65, 0, 0), ActionFault.TOO_LONG),
        ([], ("x" * 65, 0, 1), ActionFault.TOO_LONG),
        (row("ls"), ("", 0, 0), ActionFault.EMPTY_INPUT),
        ([], ("", 0, 1), ActionFault.EMPTY_INPUT),
        (row("ls"), ("<ns>", 0, 0), ActionFault.EMPTY_INPUT),
        (row("ls"), ("<ns><ns>", 0, 0), ActionFault.EMPTY_INPUT),
        ([], ("ls", 0, 0), ActionFault.NO_COMMAND),
        ([], EXECUTE, ActionFault.NO_COMMAND),
        (row("ls"), ("a\0b", 0, 0), ActionFault.BAD_CHAR),
        (row("ls"), ("a\nb", 0, 0), ActionFault.BAD_CHAR),
        (row("ls"), ("a\udc80", 0, 0), ActionFault.BAD_CHAR),
    ],
)
def test_action_against_the_rules_ends_the_episode(
    before: list[Any], action: Any, fault: ActionFault
) -> None:
    env, runner = make()
    observation, info = env.reset(seed=0)
    for earlier in before:
        observation, _, _, _, info = env.step(earlier)
    after, reward, terminated, truncated, now = env.step(action)
    assert (reward, terminated, truncated) == (-10.0, True, False)
    assert now == {**info, "error": str(fault)}
    assert type(now["error"]) is str
    assert after == observation
    assert runner.asked == []
    assert env.observation_space.contains(after)
    with pytest.raises(EpisodeError):
        env.step(EXECUTE)


def test_stepping_before_reset_is_an_error() -> None:
    env, _ = make()
    with pytest.raises(EpisodeError, match="SHIO-E02"):
        env.step(EXECUTE)


def test_longest_text_and_any_script_are_allowed() -> None:
    env, _ = make()
    texts = ["x" * 64, "naïve", "漢字", "😀" * 64, "\t", " ", "a\\b"]
    observation = play(env, row("ls", *texts))[0]
    assert observation[1][1 : len(texts) + 1] == tuple(texts)
    assert env.observation_space.contains(observation)


def test_length_limit_can_be_chosen() -> None:
    env, _ = make(max_argument_length=16)
    assert play(env, row("x" * 17))[4]["error"] == "TOO_LONG"
    assert play(env, row("x" * 16))[4]["error"] is None


# horizons (D-1)


def test_filling_the_last_cell_of_the_last_row_executes() -> None:
    env, runner = make(max_segments=1, max_arguments=2)
    actions = row("echo", "a", "b", ">", "c", ";")
    assert env.columns == len(actions)
    env.reset(seed=0)
    for action in actions[:-1]:
        *_, terminated, truncated, _ = env.step(action)
        assert not terminated
        assert not truncated
    assert runner.asked == []
    observation, reward, terminated, truncated, info = env.step(actions[-1])
    assert terminated
    assert truncated
    assert reward == info["irreducibility"] == 1.0
    assert info["row_full"]
    assert info["error"] is None
    assert observation[1] == ("echo", "a", "b", ">", "c", ";")
    assert info["input"] == "cd /home/ubuntu; echo a b > c ;"


def test_filling_an_earlier_row_ends_nothing() -> None:
    env, runner = make(max_commands=2, max_segments=1, max_arguments=1)
    full = row(*"ab>c;")
    _, reward, terminated, truncated, info = play(env, full)
    assert (reward, terminated, truncated, info["row_full"]) == (0.0, False, False, True)
    assert runner.asked == []
    _, _, terminated, truncated, info = env.step(("ls", 0, 1))
    assert (terminated, truncated, info["row_full"], info["h"]) == (False, False, False, 2)


@pytest.mark.parametrize("action", [("x", 0, 0), ("x", 0, 1)])
def test_going_past_a_bound_ends_the_episode_for_nothing(action: Any) -> None:
    env, runner = make(max_commands=2, max_segments=1, max_arguments=1)
    second = row("ls") if action[2] else []
    before = play(env, [*row(*"ab>c;"), *second])
    observation, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info == {**before[4], "error": "HORIZON"}
    assert observation == before[0]
    assert runner.asked == []


def test_full_row_can_be_executed() -> None:
    env, _ = make(max_commands=2, max_segments=1, max_arguments=1)
    *_, terminated, truncated, info = play(env, [*row(*"ab>c;"), EXECUTE])
    assert terminated
    assert not truncated
    assert info["input"] == "cd /home/ubuntu; a b > c ;"


@pytest.mark.parametrize(
    "full",
    [
        "echo a b",
        "echo a b > c",
        "echo > c a b",
        "> c echo a b",
        "echo a 2>&1 b",
        "date ; echo a b",
        "echo a b | cat c d",
        "echo a -l<ns>",
    ],
)
def test_one_argument_more_than_a_command_may_have_is_past_the_bound(full: str) -> None:
    env, runner = make(max_segments=3, max_arguments=2)
    before = play(env, row(*full.split()))
    assert before[4]["error"] is None
    observation, reward, terminated, truncated, info = env.step(("x", 0, 0))
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info == {**before[4], "error": "HORIZON"}
    assert not info["row_full"]
    assert observation == before[0]
    assert runner.asked == []


def test_operators_and_targets_are_no_arguments() -> None:
    env, _ = make(max_segments=2, max_arguments=1)
    words = ["echo", "a", "2>&1", ">", "b", "|", "cat", "c", ">>", "d"]
    assert len(words) == env.columns
    *_, truncated, info = play(env, row(*words))
    assert truncated
    assert info["input"] == "cd /home/ubuntu; " + " ".join(words)


@pytest.mark.parametrize("operator", ["|", "&&", "||", ";", "&"])
def test_one_command_more_than_a_row_may_have_is_past_the_bound(operator: str) -> None:
    env, runner = make(max_segments=2, max_arguments=3)
    play(env, row("ls", operator, "ls", operator))
    _, reward, terminated, _, info = env.step(("ls", 0, 0))
    assert (reward, terminated, info["error"]) == (0.0, True, "HORIZON")
    assert runner.asked == []


def test_a_command_has_the_papers_arguments_by_default() -> None:
    env, _ = make()
    play(env, row("echo", *"abcdefghijkl"))
    assert env.step(("m", 0, 0))[4]["error"] == "HORIZON"


# execution


def test_nothing_is_opened_before_the_executing_action() -> None:
    opener = Opener()
    env = ShIOEnv(runner=opener)
    env.reset(seed=0)
    for action in row("ls", "-l<ns>", "<ns>a", "|", "wc"):
        env.step(action)
    assert opener.opened == []
    env.step(EXECUTE)
    assert len(opener.opened) == 1
    assert opener.opened[0].asked


def test_execution_rewards_the_irreducibility() -> None:
    env, runner = make()
    behavior = Behavior(0, b"total 0\n", stdout=b"total 0\n", stderr=b"")
    runner.table = dict.fromkeys(("ls -la", "ls -l"), behavior)
    runner.table["ls -a"] = Behavior(2, b"no")
    _, reward, terminated, truncated, info = play(env, [*row("ls", "-l<ns>", "<ns>a"), EXECUTE])
    assert (reward, terminated, truncated) == (0.5, True, False)
    assert runner.texts == ["ls -la"] * 3 + ["ls -l", "ls -a"]
    assert [asked.separate for asked in runner.asked] == [False, False, True, False, False]
    assert info["irreducibility"] == 0.5
    assert info["exact"]
    assert info["standard_error"] == 0.0
    assert info["n_executions"] == 5


def test_info_at_the_end_is_a_record() -> None:
    env, _ = make()
    *_, info = play(env, [*row("ls", "-l<ns>", "<ns>a"), EXECUTE])
    record = convert({name: info[name] for name in NAMES}, Record)
    assert encode(record)
    assert record.input == "cd /home/ubuntu; ls -la"
    assert record.input_args == ["ls", "-l<ns>", "<ns>a"]
    assert record.system == "debian-12"
    assert record.cwd == "/home/ubuntu"
    assert record.stdout == record.output
    assert record.stderr == ""
    beside = {"h", "l", "row_full", "error", "cache_hits"}
    assert set(info) == {*NAMES, *beside}
    assert env.scored is not None
    assert env.scored.record == record


def test_bare_command_has_no_score_and_earns_nothing() -> None:
    env, runner = make()
    _, reward, terminated, _, info = play(env, [*row("ls"), EXECUTE])
    assert (reward, terminated, info["irreducibility"]) == (0.0, True, None)
    assert runner.texts[0] == "ls"


def test_operators_are_cells_of_their_own() -> None:
    env, runner = make()
    *_, info = play(env, [*row("ls", "-a", "|", "wc", "-l", ">", "out"), EXECUTE])
    assert info["input"] == "cd /home/ubuntu; ls -a | wc -l > out"
    assert [segment["command"] for segment in info["segments"]] == ["ls", "wc"]
    assert info["n_arguments"] == 2
    asked = set(runner.texts)
    assert asked == {"ls -a | wc -l > out", "ls -a | wc > out", "ls -a", "ls"}


def test_earlier_rows_are_held_constant() -> None:
    env, runner = make(max_commands=2)
    _, reward, *_, info = play(env, [*row("export", "A=1"), *row("env", "-0"), EXECUTE])
    assert info["input"] == "cd /home/ubuntu; export A=1\nenv -0"
    assert info["input_args"] == ["export", "A=1", "\n", "env", "-0"]
    asked = set(runner.texts)
    assert asked == {"export A=1\nenv -0", "export A=1\nenv", "export A=1", "export"}
    assert reward == 1.0


def test_declared_volatile_commands_are_recorded_so() -> None:
    env, _ = make()
    assert play(env, [*row("mktemp", "-u"), EXECUTE])[4]["volatile"] is True
    assert play(env, [*row("TZ=UTC", "mktemp"), EXECUTE])[4]["volatile"] is True
    assert play(env, [*row("ls", "-a"), EXECUTE])[4]["volatile"] is False


def test_flags_of_the_behavior_reach_the_info() -> None:
    limited = Behavior(124, b"x", timed_out=True, output_truncated=True)
    env, _ = make(runner=ScriptedShell({"yes a": limited}))
    *_, info = play(env, [*row("yes", "a"), EXECUTE])
    assert info["exit_code"] == 124
    assert info["timed_out"]
    assert info["output_truncated"]


def test_input_that_times_out_is_run_again_and_scored_from_few_sub_inputs() -> None:
    slow = Behavior(124, b"", timed_out=True)
    runner = ScriptedShell({"sleep " + " ".join("abcdef"): slow})
    env, _ = make(runner=runner)
    *_, info = play(env, [*row("sleep", *"abcdef"), EXECUTE])
    assert info["timed_out"]
    assert info["volatile"]
    assert not info["exact"]
    assert info["n_executions"] <= 3 + 8
    full = [text for text in runner.texts if text == "sleep a b c d e f"]
    assert len(full) == 1 + 3  # the last of the noise runs has two pipes


def failing(opener: Opener, count: int, error: BaseException) -> ScriptedShell:
    """Fails until `count` sandboxes were opened."""
    return ScriptedShell(fails=error if len(opener.opened) < count else None)


def test_broken_sandbox_is_replaced_once() -> None:
    opener = Opener()
    opener.make = lambda: failing(opener, 1, SandboxError("gone"))
    env = ShIOEnv(runner=opener)
    *_, info = play(env, [*row("ls", "-a"), EXECUTE])
    assert info["irreducibility"] == 1.0
    assert [one.closed for one in opener.opened] == [1, 0]


@pytest.mark.parametrize(
    ("error", "opened"), [(SandboxError("gone"), 2), (KeyboardInterrupt(), 1), (OSError(), 1)]
)
def test_step_can_be_repeated_after_an_exception(error: BaseException, opened: int) -> None:
    opener = Opener()
    opener.make = lambda: failing(opener, opened, error)
    env = ShIOEnv(runner=opener, max_segments=1, max_arguments=1)
    play(env, row(*"ab>c"))
    with pytest.raises(type(error)):
        env.step((";", 0, 0))
    assert [one.closed for one in opener.opened] == [1] * opened
    observation, _, terminated, truncated, info = env.step((";", 0, 0))
    assert terminated
    assert truncated
    assert info["input"].endswith("a b > c ;")
    assert observation[1][4] == ";"


def test_broken_observer_of_somebody_else_is_neither_closed_nor_asked_again() -> None:
    env, runner = make(runner=ScriptedShell(fails=SandboxError("gone")))
    with pytest.raises(SandboxError):
        play(env, [*row("ls", "-a"), EXECUTE])
    assert (len(runner.asked), runner.closed) == (1, 0)


def test_behaviors_are_shared_between_episodes() -> None:
    env, runner = make(start_directories=["/a"])
    actions = [*row("ls", "-l<ns>", "<ns>a"), EXECUTE]
    first = play(env, actions)
    executed = len(runner.asked)
    second = play(env, actions)
    assert second[1] == first[1]
    assert (first[4]["cache_hits"], second[4]["cache_hits"]) == (0, 2)
    assert second[4]["n_executions"] == first[4]["n_executions"]
    assert len(runner.asked) - executed == executed - 2
    env.reset(options={"cwd": "/b"})
    for action in actions:
        *_, info = env.step(action)
    assert info["cache_hits"] == 0


def test_same_seed_scores_the_same_sample_of_sub_inputs() -> None:
    actions = [*row("echo", *"abcdefgh"), EXECUTE]
    asked = []
    for _ in range(2):
        env, runner = make(budget=8)
        *_, info = play(env, actions)
        assert not info["exact"]
        asked.append(runner.asked)
    assert asked[0] == asked[1]


def test_close_closes_what_was_opened_here_and_nothing_else() -> None:
    opener = Opener()
    env = ShIOEnv(runner=opener)
    env.close()
    play(env, [*row("ls", "-a"), EXECUTE])
    env.close()
    env.close()
    assert opener.opened[0].closed == 1
    env, runner = make()
    play(env, [*row("ls", "-a"), EXECUTE])
    env.close()
    assert runner.closed == 0


def test_observer_class_is_something_that_opens_one() -> None:
    env = ShIOEnv(runner=ScriptedShell)
    assert play(env, [*row("ls", "-a"), EXECUTE])[1] == 1.0


# rendering


def test_rendering_shows_the_session_then_what_it_did() -> None:
    env, runner = make(render_mode="ansi")
    runner.table["ls -l"] = Behavior(0, b"total 0")
    play(env, row("ls", "-l"))
    assert env.render() == "$ cd /home/ubuntu\n$ ls -l\n"
    env.step(EXECUTE)
    assert env.render() == (
        "$ cd /home/ubuntu\n$ ls -l\ntotal 0\n"
        "[exit code 0, irreducibility 1.000 (exact), 4 executions]\n"
    )


def test_rendering_an_estimate_and_an_undefined_score() -> None:
    env, _ = make(render_mode="ansi", budget=2)
    play(env, [*row("echo", *"abcd"), EXECUTE])
    assert "irreducibility 1.000 (estimated, standard error " in (env.render() or "")
    play(env, [*row("ls"), EXECUTE])
    assert "irreducibility undefined, no argument can be removed" in (env.render() or "")


def test_rendering_without_a_mode_is_nothing() -> None:
    env, _ = make()
    env.reset(seed=0)
    assert env.render() is None


# Gymnasium


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_gymnasiums_own_checks_find_nothing(render_mode: str | None) -> None:
    env = gymnasium.make("ShIOEnv-v0", runner=ScriptedShell(), render_mode=render_mode)
    check_env(env.unwrapped)


def test_specification_pickles() -> None:
    env = gymnasium.make("ShIOEnv-v0", system="debian-12", max_commands=2, budget=16)
    assert env.spec is not None
    again = gymnasium.make(pickle.loads(pickle.dumps(env.spec)))
    assert again.observation_space == env.observation_space
    assert again.action_space == env.action_space
    assert len(env.spec.to_json()) > 0
