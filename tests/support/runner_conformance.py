"""Conformance checks that every runner must pass.

A check is a function that takes a runner and a state, and asserts. A runner that abstains from an
input of a check does not fail it. The check's result then records the abstention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Runner, State, answer_of
from shioenv.errors import Abstained

Check = Callable[[Runner, State], None]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: `failure` is None if it passed or the runner abstained."""

    name: str
    failure: str | None
    abstained: bool = False


def run_checks(runner: Runner, state: State) -> Iterator[CheckResult]:
    """Yield the result of every check. `state` is pristine and has its machine (`pristine`)."""
    return results(CHECKS, runner, state)


def results(checks: Iterable[Callable[..., None]], *subject: object) -> Iterator[CheckResult]:
    """Yield the result of each check for a subject, such as a runner."""
    for check in checks:
        try:
            check(*subject)
        except Abstained:
            yield CheckResult(check.__name__, None, abstained=True)
        except AssertionError as error:
            yield CheckResult(check.__name__, str(error) or "the assertion does not hold")
        else:
            yield CheckResult(check.__name__, None)


def _same(runner: Runner, text: str, state: State) -> Behavior:
    first, second = runner.run(text, state), runner.run(text, state)
    assert (first.exit_code, first.output, first.patch) == (
        second.exit_code,
        second.output,
        second.patch,
    ), f"{text!r} behaves differently the second time: {first.output!r}, {second.output!r}"
    return first


def exit_codes_and_outputs(runner: Runner, state: State) -> None:
    """Exit codes are 0 to 255, outputs are bytes, and repeated inputs give equal results."""
    for text in ("true", "false", "echo hello", "ls /nowhere", "exit 7", ""):
        behavior = _same(runner, text, state)
        assert 0 <= behavior.exit_code <= 255, f"{text!r}: exit code {behavior.exit_code}"
        assert isinstance(behavior.output, bytes), f"{text!r}: {behavior.output!r} is not bytes"


def nothing_stays_behind(runner: Runner, state: State) -> None:
    """An input has no effect on the next input that starts from the same state."""
    before = runner.run("ls -a; echo $x", state)
    for text in ("touch left-behind", "x=1", "cd /tmp"):
        runner.run(text, state)
    after = runner.run("ls -a; echo $x", state)
    assert (after.exit_code, after.output) == (before.exit_code, before.output), after.output


def no_state_is_the_first_one(runner: Runner, state: State) -> None:
    """Without a state, an input starts in the pristine machine's first start directory."""
    assert runner.run("pwd").output == f"{state.cwd}\n".encode(), runner.run("pwd").output


def nothing_leads_to_the_start(runner: Runner, state: State) -> None:
    """A new shell has no previous directory: `OLDPWD` is not set."""
    behavior = runner.run("echo ${OLDPWD-unset}", state)
    assert behavior.output == b"unset\n", behavior.output


def patches_fit(runner: Runner, state: State) -> None:
    """A patch converts the state's context into the one that the next input sees."""
    for text, shown in (
        ("mkdir -p deep/er", "ls -d deep/er"),
        ("cd /tmp", "pwd"),
        ("rm -rf documents", "ls -d documents"),
        ("x=5; export y=6", "echo $x $y"),
        ("alias l=ls; umask 077", "umask"),
    ):
        behavior = runner.run(text, state)
        following = state.after(text, behavior)
        expected = runner.run(f"{text}\n{shown}", state)
        after_it = runner.run(shown, following)
        assert after_it.output == expected.output[len(behavior.output) :], (
            f"after {text!r}, {shown!r} prints {after_it.output!r}, not {expected.output!r}"
        )
        both = state.after("", expected).before
        assert following.after(shown, after_it).before == both, (
            f"{text!r}; {shown!r}: different contexts"
        )


def answers_say_how_sure(runner: Runner, state: State) -> None:
    """A confidence is 0 to 1, and the answer's output equals that of `run`."""
    answer = answer_of(runner, "echo hello", state)
    assert 0 <= answer.confidence <= 1, answer.confidence
    assert answer.behavior.output == runner.run("echo hello", state).output


CHECKS: tuple[Check, ...] = (
    exit_codes_and_outputs,
    nothing_stays_behind,
    no_state_is_the_first_one,
    nothing_leads_to_the_start,
    patches_fit,
    answers_say_how_sure,
)
