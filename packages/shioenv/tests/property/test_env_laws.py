"""Laws of `ShIOEnv-v0` for every sequence of actions."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.domain.runner import ScriptedRunner
from shioenv.env.shio_env import ShIOEnv
from shioenv.env.spaces import is_shell_text
from shioenv.env.wrappers import ENCODINGS, IntegerObservation, texts
from shioenv.recording.execution_cache import MemoryCache

OPERATORS = ["|", "&&", "||", ";", ">", ">>"]
ROWS, SEGMENTS, ARGUMENTS = 2, 1, 2
COLUMNS = SEGMENTS * (ARGUMENTS + 4)

additions = st.one_of(
    st.sampled_from(
        ["ls", "-l<ns>", "<ns>a", "-la", "", "<ns>", "x" * 65, "a\0", "\n", *OPERATORS]
    ),
    st.text(max_size=66),
)
flags = st.sampled_from([0, 0, 0, 1])
actions = st.lists(st.tuples(additions, flags, flags), max_size=20)


def make(**options: Any) -> tuple[ShIOEnv, ScriptedRunner]:
    echo = ScriptedRunner(lambda text: Behavior(0, text.encode()))
    env = ShIOEnv(
        max_commands=ROWS,
        max_segments=SEGMENTS,
        max_arguments=ARGUMENTS,
        budget=4,
        runner=echo,
        **options,
    )
    return env, echo


def is_addition(text: str) -> bool:
    """Whether a text may be added, decided without the environment's own code."""
    bare = text.removeprefix("<ns>").removesuffix("<ns>")
    return len(text) <= 64 and bare != "" and is_shell_text(text)


def is_within(row: list[str]) -> bool:
    """Whether a row is within its limits of cells, commands and arguments of a command."""
    segments = Input.from_marked(row).segments
    arguments = max((len(segment.arguments) for segment in segments), default=0)
    return len(row) <= COLUMNS and len(segments) <= SEGMENTS and arguments <= ARGUMENTS


@given(actions)
@example(sequence=[("|", 0, 1), ("|", 0, 0)])
def test_every_step_follows_the_rules(sequence: list[tuple[str, int, int]]) -> None:
    env, echo = make()
    observation, _ = env.reset(seed=0)
    rows: list[list[str]] = []
    for text, execute, begin in sequence:
        allowed = (
            text == "" and not begin and bool(rows)
            if execute
            else is_addition(text) and (begin == 1 or bool(rows))
        )
        past = allowed and not execute
        past = past and (len(rows) == ROWS if begin else not is_within([*rows[-1], text]))
        after, reward, terminated, truncated, info = env.step((text, execute, begin))
        assert env.observation_space.contains(after)
        if not allowed or past:
            assert reward == (0.0 if allowed else -10.0)
            assert (terminated, truncated) == (True, False)
            assert (info["error"] == "HORIZON") == allowed
            assert after == observation
            assert echo.texts == []
            return
        if not execute:
            if begin:
                rows.append([])
            rows[-1].append(text)
        assert [[cell for cell in row if cell] for row in after[1:]][: len(rows)] == rows
        assert (info["h"], info["error"]) == (len(rows), None)
        full = len(rows) == ROWS and len(rows[-1]) == COLUMNS
        assert truncated == (full and not execute)
        assert terminated == (bool(execute) or full)
        if terminated:
            assert echo.texts[0] == "\n".join(Input.from_marked(row).text for row in rows)
            assert 0.0 <= reward <= 1.0
            assert info["irreducibility"] in (None, reward)
            return
        assert (reward, echo.texts) == (0.0, [])
        observation = after


@given(actions)
@example(sequence=[("|", 0, 1), ("", 1, 0)])
def test_dictionary_and_triple_do_the_same(sequence: list[tuple[str, int, int]]) -> None:
    names = ("input_addition", "exec_action", "new_global")
    triples, _ = make()
    dictionaries, _ = make()
    assert triples.reset(seed=1) == dictionaries.reset(seed=1)
    for action in sequence:
        result = triples.step(action)
        assert dictionaries.step(dict(zip(names, action, strict=True))) == result
        if result[2]:
            return


@given(st.lists(st.lists(st.text(max_size=64).filter(is_shell_text), max_size=COLUMNS), max_size=3))
@settings(max_examples=50)
def test_integers_give_every_grid_back(rows: list[list[str]]) -> None:
    env, _ = make()
    filled = [row + [""] * (COLUMNS - len(row)) for row in rows]
    filled += [[""] * COLUMNS] * (ROWS + 1 - len(rows))
    grid = tuple(map(tuple, filled))
    for encoding in ENCODINGS:
        wrapped = IntegerObservation(env, encoding)
        array = wrapped.observation(grid)
        assert wrapped.observation_space.contains(array)
        assert texts(array) == grid


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))), st.integers(1, 4))
def test_cache_holds_the_last_written_and_never_more_than_it_may(
    keys: list[tuple[str, str]], capacity: int
) -> None:
    cache = MemoryCache(capacity=capacity)
    written: dict[tuple[str, str], bytes] = {}
    for number, (cwd, text) in enumerate(keys):
        written[cwd, text] = str(number).encode()
        cache.at(cwd).update({text: Behavior(0, written[cwd, text])})
        held = {
            (place, key): found
            for place, key in written
            if (found := cache.at(place).get(key)) is not None
        }
        assert len(held) <= capacity
        assert (cwd, text) in held
        assert all(found.output == written[key] for key, found in held.items())
