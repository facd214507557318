from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from shioenv import registration
from shioenv.domain.record import NAMES
from shioenv.env.grammar_env import BORDER, START, GrammarEnv
from shioenv.errors import (
    ActionError,
    EnvironmentOptionError,
    EpisodeError,
    SandboxError,
    UnknownGrammarError,
)
from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.symbols import Nonterminal, Production, TerminalText
from shioenv.synthesis.samplers import Sampler, united
from support.scripted_shell import ScriptedShell

registration.register()

COMMANDS = ("df", "ls")


def make(**options: Any) -> tuple[GrammarEnv, ScriptedShell]:
    runner = options.pop("runner", None) or ScriptedShell()
    options = {"commands": COMMANDS, "catalogue": stand_in_catalogue(), **options}
    return GrammarEnv(runner=runner, **options), runner


def play(env: GrammarEnv, seed: int, each: Callable[[Any], None] = lambda info: None) -> Any:
    """Return the last step of an episode of permitted actions, drawn uniformly."""
    env.action_space.seed(seed)
    _, info = env.reset(seed=seed)
    while True:
        each(info)
        result = env.step(env.action_space.sample(mask=info["action_mask"]))
        info = result[4]
        if result[2]:
            return result


def test_reset_permits_the_choice_of_a_command() -> None:
    env, _ = make()
    observation, info = env.reset(seed=0)
    assert info["state"] == "(<env:input>)"
    assert info["leftmost"] == START.name
    permitted = np.flatnonzero(info["action_mask"])
    starts = [Production(START, ((grammar.start,),)) for grammar in load_grammars(COMMANDS)]
    assert [env.productions[action] for action in permitted] == starts
    assert observation["symbols"][:3].tolist() == [observation["leftmost"], BORDER, 0]
    assert (observation["action_mask"] == info["action_mask"]).all()
    assert env.action_masks().sum() == 2


def test_masked_policies_write_inputs_within_the_horizon() -> None:
    env, _ = make(max_arguments=3)
    for seed in range(60):
        observation, reward, terminated, truncated, info = play(env, seed)
        assert (terminated, truncated, info["error"]) == (True, False, None)
        assert len(info["input_args"]) <= 4
        assert env.observation_space.contains(observation)
        assert observation["leftmost"] == 0
        assert not info["action_mask"].any()
        assert reward == (info["irreducibility"] or 0.0)


def test_mask_permits_productions_of_the_leftmost_nonterminal_alone() -> None:
    env, _ = make()

    def check(info: Any) -> None:
        heads = {env.productions[a].head.name for a in np.flatnonzero(info["action_mask"])}
        assert heads == {info["leftmost"]}

    for seed in range(20):
        play(env, seed, check)


def test_observation_is_the_state() -> None:
    env, _ = make()
    env.reset(seed=4)
    for seed in range(10):
        play(env, seed)
        observation, info = env.reset(seed=seed)
        while info["leftmost"]:
            arguments: list[list[str]] = [[]]
            for number in observation["symbols"]:
                if number == BORDER:
                    arguments.append([])
                elif number:
                    arguments[-1].append(str(env.vocabulary[number - 2]))
            shown = ["".join(argument) for argument in arguments[:-1]]
            assert shown == ["".join(map(str, argument)) for argument in env.state.arguments]
            symbol = env.vocabulary[observation["leftmost"] - 2]
            assert isinstance(symbol, Nonterminal)
            assert symbol.name == info["leftmost"]
            action = np.flatnonzero(info["action_mask"])[0]
            observation, _, _, _, info = env.step(action)


def test_what_the_sampler_draws_can_be_written_production_by_production() -> None:
    bound = [bind(grammar, stand_in_catalogue()) for grammar in load_grammars(COMMANDS)]
    own = united(bound)
    sampler = Sampler("gcs", bound)
    env, _ = make()
    actions = {production: action for action, production in enumerate(env.productions)}
    random = Random(5)
    for number in range(100):
        start = bound[number % 2].start
        drawn = sampler.draw(start, random)
        env.reset(seed=number)
        result = env.step(actions[Production(START, ((start,),))])
        for choice in drawn.trace:
            leftmost = env.state.leftmost
            assert leftmost is not None
            assert isinstance(choice, int)
            action = actions[own[leftmost][choice]]
            assert result[4]["action_mask"][action]
            result = env.step(action)
        assert result[2]
        assert result[4]["input_args"] == list(drawn.words)


def test_nothing_runs_before_the_derivation_is_complete() -> None:
    env, runner = make()

    def check(info: Any) -> None:
        assert runner.asked == []

    *_, info = play(env, 3, check)
    assert runner.asked
    assert {*NAMES} <= set(info)
    assert info["sampler"] == "env-grammar"
    assert env.scored is not None


def test_masked_action_ends_the_episode_at_minus_ten() -> None:
    env, runner = make()
    before, info = env.reset(seed=0)
    masked = int(np.flatnonzero(info["action_mask"] == 0)[0])
    after, reward, terminated, truncated, now = env.step(masked)
    assert (reward, terminated, truncated, now["error"]) == (-10.0, True, False, "MASKED_ACTION")
    assert (after["symbols"] == before["symbols"]).all()
    assert runner.asked == []
    with pytest.raises(EpisodeError):
        env.step(masked)


@pytest.mark.parametrize("option", [{"max_expansions": 2}, {"max_symbols": 2}])
def test_derivation_without_room_ends_for_nothing(option: dict[str, int]) -> None:
    env, runner = make(**option)
    observation, reward, terminated, truncated, info = play(env, 0)
    assert (reward, terminated, truncated, info["error"]) == (0.0, True, False, "HORIZON")
    assert env.observation_space.contains(observation)
    assert runner.asked == []


@pytest.mark.parametrize("last", [True, False])
def test_over_long_argument_is_against_the_rules(last: bool) -> None:
    (grammar,) = load_grammars(["ls"])
    start, tail = grammar.start, Nonterminal("tail")
    long = (TerminalText("--width="), TerminalText("x" * 57))
    body = ((TerminalText("ls"),), long) if last else ((TerminalText("ls"),), long, (tail,))
    productions = {start: (Production(start, body),), tail: (Production(tail, ()),)}
    env, runner = make(grammars=[replace(grammar, productions=productions, pipe=None)])
    _, reward, terminated, truncated, info = play(env, 0)
    assert (reward, terminated, truncated, info["error"]) == (-10.0, True, False, "TOO_LONG")
    assert runner.asked == []


@pytest.mark.parametrize("action", [-1, 10**6, "ls", None, 1.5, np.array([1, 2])])
def test_malformed_actions_are_errors(action: Any) -> None:
    env, _ = make()
    env.reset(seed=0)
    with pytest.raises(ActionError):
        env.step(action)
    assert env.step(np.flatnonzero(env.action_masks())[0])[4]["error"] is None


def test_broken_sandbox_leaves_the_last_step_to_be_repeated() -> None:
    env, runner = make(runner=ScriptedShell(fails=SandboxError("gone")))
    with pytest.raises(SandboxError):
        play(env, 3)
    runner.fails = None
    *_, info = env.step(np.flatnonzero(env.action_masks())[0])
    assert info["exit_code"] == 0


def test_same_seeds_write_the_same_input() -> None:
    written = [[play(make()[0], seed)[4]["input"] for seed in range(5)] for _ in range(2)]
    assert written[0] == written[1]
    assert len(set(written[0])) > 1


def test_start_directories_have_values_of_their_own() -> None:
    def values(cwd: str) -> dict[str, tuple[str, ...]]:
        return {**stand_in_catalogue(), "File": (f"{cwd[1:]}-file",)}

    env, _ = make(catalogue=values, start_directories=["/a", "/b"])
    size = len(env.productions)
    for cwd in ("/a", "/b"):
        env.reset(options={"cwd": cwd})
        assert len(env.productions) == size
        for seed in range(40):
            env.action_space.seed(seed)
            _, info = env.reset(options={"cwd": cwd})
            while info["leftmost"]:
                *_, info = env.step(env.action_space.sample(mask=info["action_mask"]))
            assert f"{'ba'[cwd == '/b']}-file" not in info["input"]
    with pytest.raises(EnvironmentOptionError, match="not a start directory"):
        env.reset(options={"cwd": "/c"})


def test_unknown_command_is_refused() -> None:
    with pytest.raises(UnknownGrammarError, match="did you mean ls"):
        make(commands=["lls"])
    with pytest.raises(EnvironmentOptionError, match="must be a list, got 'ls'"):
        make(commands="ls")


def test_rendering_shows_the_derivation_then_the_run() -> None:
    env, runner = make(render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "$ cd /home/ubuntu\n(<env:input>)\n"
    play(env, 3)
    shown = env.render() or ""
    assert shown.startswith(f"$ cd /home/ubuntu\n$ {runner.texts[0]}\n")
    assert "[exit code 0, irreducibility" in shown


@pytest.mark.filterwarnings("error")
def test_gymnasiums_own_checks_find_nothing() -> None:
    env = gymnasium.make(
        "ShIOEnv-Grammar-v0",
        commands=COMMANDS,
        catalogue=stand_in_catalogue(),
        runner=ScriptedShell(),
    )
    check_env(env.unwrapped)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_share_memory(mode: str) -> None:
    envs = gymnasium.make_vec(
        "ShIOEnv-Grammar-v0",
        num_envs=2,
        vectorization_mode=mode,
        commands=COMMANDS,
        catalogue=stand_in_catalogue(),
        runner=ScriptedShell,
        # a fork of a process in which Ray was started dies at once
        vector_kwargs={"context": "spawn"} if mode == "async" else {},
    )
    single, _ = make()
    expected, _ = single.reset(seed=0)
    observation, info = envs.reset(seed=0)
    for _ in range(6):
        assert (observation["symbols"][0] == expected["symbols"]).all()
        actions = observation["action_mask"].argmax(axis=1)
        expected, *_ = single.step(actions[0])
        observation, *_, info = envs.step(actions)
        if info["error"][0] is not None or not observation["action_mask"].any():
            break
    envs.close()


def test_a_given_command_shifts_no_later_episode() -> None:
    """An episode draws its command even where an option names the command."""

    def begun(env: GrammarEnv, given: str | None) -> list[list[int]]:
        env.reset(seed=4, options={"command": given} if given else None)
        taken = []
        for _ in range(8):
            env.reset()
            taken.append(env.taken)
        return taken

    env, _ = make(command="uniform")
    assert begun(env, None) == begun(env, "ls") == begun(env, "df")
