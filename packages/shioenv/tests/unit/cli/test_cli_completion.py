"""Shells complete subcommands, and names of systems, commands and samplers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from shioenv.cli import shared
from shioenv.cli.main import app
from support.cli_reference import commands
from support.needs import needs


def complete(line: str, tmp_path: Path) -> list[str]:
    """Return bash's completions for this line."""
    environment = {
        "_SHIOENV_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "SHIOENV_CACHE": str(tmp_path),
    }
    done = CliRunner().invoke(app, prog_name="shioenv", env=environment)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("shioenv ", "generate"),
        ("shioenv sc", "score"),
        ("shioenv run ls --system deb", "debian-12"),
        ("shioenv system build ub", "ubuntu-24.04"),
        ("shioenv sample --sampler ucs-", "ucs-universal"),
        ("shioenv sample --command gr", "grep"),
        ("shioenv grammar show d", "df"),
        ("shioenv sample --policy m", "mixed"),
        ("shioenv generate made --estimator b", "balanced"),
        ("shioenv generate made --engine l", "local"),
        ("shioenv run ls --sandbox n", "namespaces"),
        ("shioenv run ls --revert n", "never"),
        pytest.param("shioenv dataset export d --format p", "parquet", marks=needs("shioenv-eval")),
        pytest.param("shioenv suite record pub", "public-dev", marks=needs("shioenv-eval")),
        pytest.param("shioenv evaluate --predictor tr", "trivial", marks=needs("shioenv-eval")),
        pytest.param("shioenv conform --level f", "files", marks=needs("shioenv-eval")),
        pytest.param("shioenv predict ls --model d", "default", marks=needs("shioenv-model")),
        pytest.param("shioenv train model made --size m", "mini", marks=needs("shioenv-model")),
        pytest.param("shioenv serve ssh log --passwords n", "never", marks=needs("shioenv-serve")),
    ],
)
def test_names_are_completed(line: str, offered: str, tmp_path: Path) -> None:
    assert offered in complete(line, tmp_path)


def test_values_that_the_help_lists_are_completed() -> None:
    """A metavar such as `cpu|cuda` lists all values."""
    lacking = []
    for path, command in commands("shioenv", typer.main.get_command(app)):
        context = command.make_context(path, [], resilient_parsing=True)
        for option in command.params:
            values = re.findall(r"\b[a-z]+\b", option.metavar or "")
            if "|" in (option.metavar or "") and values:
                offered = {item.value for item in option.shell_complete(context, "")}
                if not offered >= set(values):
                    lacking.append(f"{path} {option.opts[0]}")
    assert lacking == []


def test_the_installed_completion_works_in_bash(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("shioenv")
    script = f"""
        {program} --install-completion > /dev/null || exit 1
        source ~/.bashrc
        PATH={program.parent}:$PATH
        COMP_WORDS=(shioenv sample --sampler ucs-) COMP_CWORD=3
        $(complete -p shioenv | sed 's/.*-F //; s/ .*//') shioenv
        echo "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["ucs-universal"]


def test_completed_names_begin_with_what_was_typed() -> None:
    assert shared.complete_samplers("u") == ["ucs", "ucs-universal"]
    assert all(name.startswith("c") for name in shared.complete_commands("c"))
    assert "debian-12" in shared.complete_systems("")
