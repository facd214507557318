"""`import shioenv` is cheap, and its public names are loaded on first use."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval

import pytest

import shioenv
from support.sources import PACKAGES

HEAVY = (
    "altair", "gymnasium", "numpy", "rapidfuzz", "rich", "scipy", "typer",
)  # fmt: skip


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_loads_no_heavy_library() -> None:
    code = f"import sys, shioenv; print([n for n in {HEAVY!r} if n in sys.modules])"
    assert python(code) == "[]"


def test_only_drawing_loads_what_draws() -> None:
    heavy = ("altair", "jinja2", "pandas", "scipy", "vl_convert")
    names = (
        "shioenv_eval.report.dataset_page",
        "shioenv_paper.by_length",
        "shioenv_paper.estimator_errors",
    )
    loading = ", ".join(("shioenv.cli.commands", *names))
    code = f"import sys, {loading}; shioenv.cli.commands.application(); "
    code += f"print([n for n in {heavy!r} if n in sys.modules])"
    assert python(code) == "[]"


def test_judging_loads_nothing_of_the_extra_that_trains() -> None:
    """The extra `eval` is enough for `shioenv evaluate` and its page."""
    training = ("regex", "sklearn", "tokenizers", "torch", "transformers")
    code = "import sys, shioenv_eval.evaluate, shioenv_eval.evaluation_page; "
    assert python(f"{code}print([n for n in {training!r} if n in sys.modules])") == "[]"


def test_asking_a_model_loads_nothing_that_builds_or_runs_a_machine() -> None:
    around = ("shioenv.system.build", "shioenv.system.store", "shioenv.sandbox.base")
    code = "import shioenv_model.files, shioenv.domain.answer_json, sys; "
    assert python(f"{code}print([n for n in {around!r} if n in sys.modules])") == "[]"


def loaded(code: str) -> int:
    """Return the number of the project's modules that it loads. Packages themselves have only a
    docstring."""
    counted = f"sum(name.split('.')[0] in {[*PACKAGES]!r} and not hasattr(module, '__path__')"
    counted += " for name, module in sys.modules.items())"
    return int(python(f"import sys; {code}; print({counted})").split("\n")[-1])


def test_it_loads_next_to_nothing_of_the_package() -> None:
    assert loaded("import shioenv") <= 2


def test_help_loads_the_subcommands_and_hardly_more() -> None:
    code = "sys.argv[1:] = ['--help']; from shioenv.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    assert loaded(f"exec({code!r})") <= 40


def test_help_of_one_subcommand_loads_no_other() -> None:
    code = "sys.argv[1:] = ['predict', '--help']; from shioenv.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print([n for n in sys.modules if n.split('.')[1:2] == ['cli'] and n.count('.') > 1])"
    said = python(f"import sys; exec({code!r})").splitlines()[-1]
    own = ("main", "interrupts", "commands", "subcommands", "printing", "shared")
    wanted = {*(f"shioenv.cli.{name}" for name in own), "shioenv_model.cli.predict"}
    wanted.add("shioenv.cli.stdin")  # it reads the inputs of `predict -`
    assert set(literal_eval(said)) == wanted


def test_help_loads_nothing_that_computes_or_validates() -> None:
    """It takes a tenth of a second to load: pydantic, which Typer 0.27 and newer import."""
    heavy = ("gymnasium", "numpy", "pydantic", "rapidfuzz", "zstandard")
    code = "sys.argv[1:] = ['run', '--help']; from shioenv.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code = f"import sys; exec({code!r}); print([n for n in {heavy!r} if n in sys.modules])"
    assert python(code).splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", [name for name in shioenv.__all__ if name != "__version__"])
def test_public_names_are_where_they_are_said_to_be(name: str) -> None:
    found = getattr(shioenv, name)
    assert found.__name__ == name
    assert name in dir(shioenv)


def test_the_version_is_the_installed_one() -> None:
    assert shioenv.__version__.split(".")[0].isdigit()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        shioenv.nonsense  # type: ignore[attr-defined] # noqa: B018
