import subprocess
import sys
from pathlib import Path

import pytest

MAKE = "env = gymnasium.make('ShIOEnv-v0'); assert env.spec.id == 'ShIOEnv-v0'"


def python(*lines: str) -> str:
    """What a fresh interpreter prints; its failure is ours."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IDIOMS = {
    "module of the environments": (
        "import shioenv, gymnasium",
        "gymnasium.make('shioenv.env:ShIOEnv-v0')",
        MAKE,
    ),
    "import of the environments": ("import shioenv.env, gymnasium", MAKE),
    "module": ("import gymnasium", "gymnasium.make('shioenv:ShIOEnv-v0')", MAKE),
    "register_envs": (
        "import gymnasium, shioenv",
        "gymnasium.register_envs(shioenv)",
        MAKE,
        "assert 'ShIOEnv-Grammar-v0' in gymnasium.registry",
    ),
    "a part of gymnasium": (
        "from gymnasium.envs.registration import make",
        "import shioenv, gymnasium",
        MAKE,
    ),
    "a public name": ("import gymnasium", "from shioenv import Limits", MAKE),
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_gymnasiums_own_idioms_work(idiom: str) -> None:
    python(*IDIOMS[idiom])


@pytest.mark.parametrize(
    "line",
    ["import shioenv", "import shioenv; shioenv.Limits", "import shioenv.cli.main"],
)
def test_importing_leaves_the_machinery_of_imports_as_it_was(line: str) -> None:
    printed = python(
        "import sys, importlib._bootstrap as importing",
        "before = list(sys.meta_path), list(sys.path_hooks), __import__, importing._gcd_import",
        line,
        "now = list(sys.meta_path), list(sys.path_hooks), __import__, importing._gcd_import",
        "print(before == now, 'gymnasium' in sys.modules, 'numpy' in sys.modules)",
    )
    assert printed.split() == ["True", "False", "False"]


def test_gymnasium_imported_later_is_told_by_register() -> None:
    python(
        "import shioenv, gymnasium",
        "assert 'ShIOEnv-v0' not in gymnasium.registry",
        "from shioenv.registration import register",
        "register()",
        MAKE,
    )


def test_registering_twice_warns_of_nothing() -> None:
    python(
        "import gymnasium",
        "from shioenv.registration import register",
        "register()",
        "register()",
        MAKE,
    )


@pytest.mark.parametrize("name", ["ShIOEnv-v0", "ShIOEnv-Grammar-v0"])
def test_an_option_that_does_not_exist_is_a_type_error_that_names_it(name: str) -> None:
    printed = python(
        "import gymnasium, shioenv",
        "try:",
        f"    gymnasium.make('{name}', nonsense=1)",
        "except TypeError as error:",
        "    print(error)",
    )
    assert "unexpected keyword argument 'nonsense'" in printed
    said = (Path(__file__).parents[3] / "docs" / "errors.md").read_text()
    assert "One of `gymnasium.make` that does not exist is Python's own `TypeError`" in said


SPAWNED = """
import gymnasium
from gymnasium.vector import AsyncVectorEnv
from shioenv import Behavior, ScriptedRunner

def runner():
    return ScriptedRunner(lambda text: Behavior(0, text.encode()))

OPTIONS = {"runner": runner, "start_directories": ["/a"], "max_arguments": 4}
SPAWN = {"context": "spawn", "shared_memory": False}

def one():
    return gymnasium.make("shioenv:ShIOEnv-v0", **OPTIONS)

if __name__ == "__main__":
    made = gymnasium.make_vec(
        "shioenv:ShIOEnv-v0", 2, vectorization_mode="async", vector_kwargs=SPAWN, **OPTIONS
    )
    for envs in made, AsyncVectorEnv([one, one], **SPAWN):
        observation, _ = envs.reset(seed=3)
        print(len(observation))
        envs.close()
"""


def test_vectors_work_in_spawned_processes(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.returncode) == (["2", "2"], 0), done.stderr
