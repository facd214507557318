import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from shioenv.env.shio_env import ShIOEnv
from shioenv.env.wrappers import ENCODINGS, IntegerObservation, texts
from shioenv.errors import EnvironmentOptionError
from support.scripted_shell import ScriptedShell


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_integers_hold_every_cell(encoding: str) -> None:
    inner = ShIOEnv(runner=ScriptedShell())
    env = IntegerObservation(inner, encoding)
    env.reset(seed=0)
    for text in ("ls", "naïve 漢", "😀" * 64, "x" * 64):
        array, *_ = env.step((text, 0, int(text == "ls")))
        assert env.observation_space.contains(array)
    grid, *_ = inner.step(("-a", 0, 0))
    assert texts(env.observation(grid)) == grid


def test_integer_types_and_shapes() -> None:
    env = ShIOEnv(runner=ScriptedShell(), max_segments=1, max_arguments=2)
    assert IntegerObservation(env).observation_space == gymnasium.spaces.Box(
        0, 0x10FFFF, (2, 6, 64), np.int32
    )
    assert IntegerObservation(env, "utf-8").observation_space == gymnasium.spaces.Box(
        0, 255, (2, 6, 256), np.uint8
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_wrapped_environment_passes_the_checks(encoding: str) -> None:
    env = gymnasium.make("ShIOEnv-v0", runner=ScriptedShell())
    check_env(IntegerObservation(env, encoding), skip_close_check=True, skip_render_check=True)


def test_unknown_encoding_names_the_nearest() -> None:
    with pytest.raises(EnvironmentOptionError, match="did you mean utf-8"):
        IntegerObservation(ShIOEnv(), "utf8")


def test_other_observations_are_refused() -> None:
    with pytest.raises(EnvironmentOptionError, match="grid of shell texts"):
        IntegerObservation(gymnasium.make("CartPole-v1"))
