"""Options of every environment, and the effect of each."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest

from shioenv import registration
from shioenv.env.grammar_env import GrammarEnv, GrammarTables, shared_tables
from shioenv.env.shio_env import ShIOEnv
from shioenv.errors import EnvironmentOptionError, EpisodeError, UnknownSamplerError, UsageError
from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.library import names_of_grammars
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from support.scripted_shell import Opener, ScriptedShell

registration.register()

COMMANDS = ("df", "ls", "wc")


def make(**options: Any) -> tuple[GrammarEnv, ScriptedShell]:
    runner = options.pop("runner", None) or ScriptedShell()
    options = {"commands": COMMANDS, "catalogue": stand_in_catalogue(), **options}
    return GrammarEnv(runner=runner, **options), runner


def play(env: GrammarEnv, seed: int, options: dict[str, Any] | None = None) -> Any:
    """Return the last step of an episode of permitted actions, drawn uniformly."""
    random = np.random.default_rng(seed)
    env.reset(seed=seed, options=options)
    while True:
        result = env.step(random.choice(env.permitted))
        if result[2]:
            return result


def execute(env: ShIOEnv, *words: str) -> Any:
    env.reset(seed=0)
    for number, word in enumerate(words):
        env.step((word, 0, int(number == 0)))
    return env.step(("", 1, 0))


# scoring


def test_fields_of_scoring_are_options() -> None:
    runs = {}
    for options in ({"budget": 8, "noise_runs": 1}, {"scoring": Scoring(budget=8, noise_runs=1)}):
        runner = ScriptedShell()
        execute(ShIOEnv(runner=runner, **options), "echo", *"abcdefgh")
        runs[len(options)] = runner.texts
    assert runs[1] == runs[2]
    assert len(runs[1]) <= 8 + 2  # one with two pipes


def test_estimator_and_target_decide_what_is_run() -> None:
    counts = []
    for options in ({"estimator": "paper"}, {"target_se": 0.2}, {}):
        env = ShIOEnv(runner=ScriptedShell(), budget=64, **options)
        *_, info = execute(env, "echo", *"abcdefgh")
        counts.append(info["n_executions"])
    assert counts[1] < counts[2]
    assert counts[0] != counts[2]


def test_scoring_is_given_once() -> None:
    with pytest.raises(EnvironmentOptionError, match="estimator and scoring cannot be combined"):
        ShIOEnv(estimator="paper", scoring=Scoring())
    with pytest.raises(UsageError, match="unknown estimator"):
        ShIOEnv(estimator="papers")
    with pytest.raises(EnvironmentOptionError, match="budget"):
        ShIOEnv(scoring=Scoring(budget=0))
    with pytest.raises(EnvironmentOptionError, match="wall_seconds and limits"):
        ShIOEnv(wall_seconds=0.5, limits=Limits())


# records


def test_without_a_record_nothing_is_executed_that_the_score_does_not_need() -> None:
    runner = ScriptedShell()
    env = ShIOEnv(runner=runner, record=False)
    _, reward, *_, info = execute(env, "ls", "-l<ns>", "<ns>a")
    assert runner.texts == ["ls -la"] * 3 + ["ls -l", "ls -a"]
    assert not any(asked.separate for asked in runner.asked)
    assert (info["input"], info["input_args"]) == (
        "cd /home/ubuntu; ls -la",
        ["ls", "-l<ns>", "<ns>a"],
    )
    assert reward == info["irreducibility"] == 1.0
    assert "schema_version" not in info
    assert env.scored is not None
    assert env.scored.record is None


def test_scores_are_the_same_with_a_record_and_without() -> None:
    for seed in range(10):
        scores = [play(make(record=record)[0], seed)[4]["irreducibility"] for record in (0, 1)]
        assert scores[0] == scores[1]


# samplers


@pytest.mark.parametrize("sampler", ["gcs", "ucs", "ucs-universal"])
def test_mask_permits_what_the_sampler_permits(sampler: str) -> None:
    env, _ = make(sampler=sampler)
    for seed in range(30):
        *_, info = play(env, seed)
        if info["error"] is None:
            assert len(info["input_args"]) <= 13
            assert info["sampler"] == "env-grammar" + ("" if sampler == "gcs" else f"-{sampler}")
        else:
            assert sampler == "ucs-universal"


def test_unconstrained_mask_is_wider() -> None:
    env, _ = make(sampler="ucs-universal")
    env.reset(seed=0, options={"command": "df"})
    assert env.action_masks().sum() == len(env.productions) - 3  # the choices of a command


def test_sampler_ucs_opens_the_options_of_every_command() -> None:
    taken = {}
    for sampler in ("gcs", "ucs"):
        env, _ = make(sampler=sampler, command="df")
        written = (play(env, seed)[4]["input_args"] for seed in range(100))
        taken[sampler] = {word for words in written for word in words}
    assert any(word.startswith("--max-line-length") for word in taken["ucs"])
    assert not any(word.startswith("--max-line-length") for word in taken["gcs"])


def test_unknown_sampler_names_the_nearest() -> None:
    with pytest.raises(UnknownSamplerError, match="did you mean gcs"):
        make(sampler="gsc")


# a given command


def test_given_command_is_what_episodes_begin_behind() -> None:
    env, _ = make(command="wc")
    observation, info = env.reset(seed=0)
    assert info["leftmost"] != "env:input"
    assert env.observation_space.contains(observation)
    for seed in range(5):
        assert play(env, seed)[4]["input_args"][0] == "wc"
        assert play(env, seed, {"command": "ls"})[4]["input_args"][0] == "ls"
    assert play(env, 0)[4]["input_args"][0] == "wc"


def test_uniform_command_is_drawn_by_the_environment() -> None:
    env, _ = make(command="uniform")
    drawn = [play(env, seed)[4]["input_args"][0] for seed in range(60)]
    assert set(drawn) == set(COMMANDS)
    assert drawn == [play(env, seed)[4]["input_args"][0] for seed in range(60)]


def test_command_that_cannot_be_given_is_refused() -> None:
    with pytest.raises(EnvironmentOptionError, match="did you mean ls"):
        make(command="lss")
    env, _ = make()
    with pytest.raises(EnvironmentOptionError, match="unknown command 'rm'"):
        env.reset(options={"command": "rm"})
    with pytest.raises(EnvironmentOptionError, match="did you mean command"):
        env.reset(options={"comand": "ls"})


# copies


class Bound:
    """Counts the grammars bound to it."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, cwd: str) -> Any:
        self.asked += 1
        return stand_in_catalogue()


@pytest.mark.parametrize("copy", [deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("name", ["ShIOEnv-v0", "ShIOEnv-Grammar-v0"])
def test_copies_before_the_first_reset(name: str, copy: Any) -> None:
    options: dict[str, Any] = {"runner": ScriptedShell, "budget": 8, "start_directories": ["/a"]}
    if name == "ShIOEnv-Grammar-v0":
        options |= {"commands": ["ls"], "catalogue": dict(stand_in_catalogue()), "command": "ls"}
    env: Any = gymnasium.make(name, **options)
    copied = copy(env)
    assert copied.spec == env.spec
    assert copied.unwrapped.spec == env.unwrapped.spec
    for one in (env, copied):
        _, info = one.reset(seed=0)
        assert info["cwd"] == "/a"
    assert copied.observation_space == env.observation_space
    assert copied.unwrapped.scorer is not env.unwrapped.scorer
    with pytest.raises(EpisodeError, match="cannot be copied"):
        copy(env)


def test_copy_of_an_opener_opens_a_sandbox_of_its_own() -> None:
    env, _ = make(runner=Opener())
    other = deepcopy(env)
    play(env, 0)
    play(other, 0)
    assert env.scorer is not other.scorer


class Built:
    """Keys under which tables are shared."""

    def __init__(self, digest: str) -> None:
        self.digest, self.host_clock = digest, False
        self.programs = frozenset(names_of_grammars())


def test_tables_are_made_once_for_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = Bound()
    monkeypatch.setattr("shioenv.env.grammar_env.catalogue_of", lambda system, cwd: bound(cwd))
    tables = [
        shared_tables(Built(digest), commands, ("/a",), sampler)  # type: ignore[arg-type]
        for digest, commands, sampler in [
            ("1", ["ls"], "gcs"),
            ("1", ["ls"], "gcs"),
            ("1", ["ls"], "ucs"),
            ("2", ["ls"], "gcs"),
        ]
    ]
    assert tables[0] is tables[1]
    assert len({id(table) for table in tables}) == bound.asked == 3
    assert all(isinstance(table, GrammarTables) for table in tables)


def test_a_caller_that_falls_back_on_a_type_error_can_leave_out_its_render_mode() -> None:
    """Stable-Baselines3 asks for `rgb_array`, and asks again without it after a TypeError."""
    with pytest.raises(TypeError, match="unknown render mode 'rgb_array'"):
        make(render_mode="rgb_array")
