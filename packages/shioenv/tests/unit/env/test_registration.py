import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from shioenv.errors import EnvironmentOptionError
from shioenv.registration import register
from support.nightly import by_day
from support.paths import ROOT

MAKE = "env = gymnasium.make('ShIOEnv-v0'); assert env.spec.id == 'ShIOEnv-v0'"


def python(*lines: str) -> str:
    """Return the output of a fresh interpreter; its failure fails the test."""
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
    "shioenv first": ("import shioenv", "import gymnasium", MAKE),
    "shioenv first, a name of gymnasium": (
        "import shioenv",
        "from gymnasium.wrappers import TimeLimit",
        "import gymnasium",
        MAKE,
    ),
    "shioenv first, a part of gymnasium": (
        "import shioenv",
        "import gymnasium.envs.registration",
        MAKE,
    ),
    "gymnasium imported anew": (
        "import shioenv, gymnasium, sys",
        "for name in [name for name in sys.modules if name.split('.')[0] == 'gymnasium']:",
        "    del sys.modules[name]",
        "shioenv.registration.register_when_loaded()",
        "import gymnasium",
        MAKE,
    ),
    "both in threads": (
        "import shioenv, threading",
        "def load():",
        "    import gymnasium",
        "threads = [threading.Thread(target=load) for _ in range(8)]",
        "[thread.start() for thread in threads]",
        "[thread.join() for thread in threads]",
        "import gymnasium",
        MAKE,
    ),
}


@pytest.mark.parametrize("idiom", by_day([*IDIOMS], 2))
def test_gymnasiums_own_idioms_work(idiom: str) -> None:
    python(*IDIOMS[idiom])


@pytest.mark.parametrize(
    "line",
    ["import shioenv", "import shioenv; shioenv.Limits", "import shioenv.cli.main"],
)
def test_importing_loads_no_library(line: str) -> None:
    printed = python("import sys", line, "print({'gymnasium', 'numpy'} & set(sys.modules))")
    assert printed == "set()\n"


def test_imports_are_found_as_before_once_gymnasium_is_loaded() -> None:
    printed = python(
        "import sys, importlib._bootstrap as importing",
        "before = list(sys.meta_path), list(sys.path_hooks), __import__, importing._gcd_import",
        "import shioenv, gymnasium",
        "now = list(sys.meta_path), list(sys.path_hooks), __import__, importing._gcd_import",
        "print(before == now)",
    )
    assert printed == "True\n"


def test_where_gymnasium_is_missing_its_import_says_so() -> None:
    printed = python(
        "import sys, shioenv",
        "sys.path[:] = [entry for entry in sys.path if 'site-packages' not in entry]",
        "try:",
        "    import gymnasium",
        "except ModuleNotFoundError as error:",
        "    print(error)",
    )
    assert printed == "No module named 'gymnasium'\n"


def test_a_failed_import_of_gymnasium_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "gymnasium.py").write_text("raise ImportError('broken')")
    python(
        "import sys, shioenv",
        f"sys.path.insert(0, {str(tmp_path)!r})",
        "try:",
        "    import gymnasium",
        "except ImportError as error:",
        "    assert str(error) == 'broken'",
        "del sys.path[0]",
        "import gymnasium",
        MAKE,
    )


@pytest.mark.filterwarnings("error")
def test_registering_twice_warns_of_nothing() -> None:
    register()
    register()
    made = gymnasium.make("ShIOEnv-v0")
    assert made.spec is not None
    assert made.spec.id == "ShIOEnv-v0"


@pytest.mark.parametrize("name", ["ShIOEnv-v0", "ShIOEnv-Grammar-v0"])
def test_an_option_that_does_not_exist_is_a_type_error_that_names_it(name: str) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'xyz'; known: .*max_arg"):
        gymnasium.make(f"shioenv:{name}", xyz=1)
    with pytest.raises(TypeError, match=r"argument 'reward'; did you mean rewards\?"):
        gymnasium.make(f"shioenv:{name}", reward=1)
    said = (ROOT / "docs" / "errors.md").read_text()
    assert "For an unknown option of `gymnasium.make`, a `TypeError` names" in said


@pytest.mark.parametrize("name", ["ShIOEnv-v0", "ShIOEnv-Grammar-v0"])
def test_a_reward_that_is_no_function_is_refused(name: str) -> None:
    with pytest.raises(EnvironmentOptionError, match="rewards is 'necessary', which is not a func"):
        gymnasium.make(f"shioenv:{name}", rewards="necessary")


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
