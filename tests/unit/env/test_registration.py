import subprocess
import sys
from pathlib import Path

import pytest

ANNOUNCE = "from shioenv.env.registration import announce; announce()"
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


@pytest.mark.parametrize(
    "lines",
    [
        ("import gymnasium", ANNOUNCE, MAKE),
        (ANNOUNCE, "import gymnasium", MAKE),
        (
            ANNOUNCE,
            ANNOUNCE,
            "from gymnasium.envs.registration import make",
            "import gymnasium",
            MAKE,
        ),
        (
            ANNOUNCE,
            "import importlib.util as u; u.find_spec('gymnasium')",
            "import gymnasium",
            MAKE,
        ),
    ],
)
def test_ids_exist_in_either_order_of_imports(lines: tuple[str, ...]) -> None:
    python(*lines)


@pytest.mark.parametrize("order", ["import gymnasium, shioenv", "import shioenv, gymnasium"])
def test_importing_the_package_registers(order: str) -> None:
    python(order, MAKE, "assert 'ShIOEnv-Grammar-v0' in gymnasium.registry")


def test_gymnasiums_module_syntax_works() -> None:
    python("import gymnasium", "gymnasium.make('shioenv:ShIOEnv-v0')")


def test_announcing_loads_nothing_and_leaves_nothing_behind() -> None:
    printed = python(
        "import sys",
        "before = list(sys.meta_path)",
        ANNOUNCE,
        "print('gymnasium' in sys.modules, 'numpy' in sys.modules)",
        "import gymnasium",
        "print(sys.meta_path == before, type(gymnasium.__loader__).__name__)",
        "print(type(gymnasium.__spec__.loader).__name__)",
    )
    assert printed.split() == ["False", "False", "True", "SourceFileLoader", "SourceFileLoader"]


def test_registering_twice_warns_of_nothing() -> None:
    python(
        "import gymnasium",
        "from shioenv.env.registration import register",
        "register()" * 1,
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
