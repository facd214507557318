import pytest

from shioenv.domain.inputs import Argument, Input, Role, Session
from shioenv.errors import InputError

PIPELINE = ["du", "-a", "user_config.json", "|", "cpio", "-o<ns>", "<ns>L", ">", "out.cpio"]


def roles(shell_input: Input) -> str:
    return "".join(token.role[0] for token in shell_input.tokens)


def test_tokens_get_their_roles_from_what_stands_before_them() -> None:
    shell_input = Input.from_marked(PIPELINE)
    assert roles(shell_input) == "caaocaaot"
    assert shell_input.operators == ("|", ">")
    assert shell_input.n_arguments == 4
    assert [segment.command for segment in shell_input.segments] == ["du", "cpio"]


def test_the_line_is_rendered_with_its_operators() -> None:
    assert Input.from_marked(PIPELINE).text == "du -a user_config.json | cpio -oL > out.cpio"


def test_marks_survive_the_round_trip() -> None:
    assert Input.from_marked(PIPELINE).input_args == PIPELINE


def test_operators_are_whole_tokens_only() -> None:
    shell_input = Input.from_marked(["find", ".", r"-exec ls {} \;", "-name 'a|b'", "'>'"])
    assert roles(shell_input) == "caaaa"


def test_a_target_may_be_spelled_like_an_operator_and_arguments_may_follow_it() -> None:
    assert roles(Input.from_marked(["ls", ">", "f", "-a", "2>&1", "-b"])) == "cotaoa"


@pytest.mark.parametrize("args", [[], ["|"], ["ls", "|"], [">", "f"], ["ls", "&&", "||", "ls"]])
def test_what_bash_refuses_is_still_an_input(args: list[str]) -> None:
    shell_input = Input.from_marked(args)
    assert shell_input.text == " ".join(args)
    assert shell_input.input_args == args
    for segment in range(len(shell_input.segments)):
        shell_input.through(segment)


def test_single_takes_everything_as_arguments() -> None:
    shell_input = Input.single("echo", [Argument("|"), Argument("a")])
    assert shell_input.n_arguments == 2
    assert shell_input.tokens[0].role is Role.COMMAND


def test_keep_removes_arguments_alone() -> None:
    shell_input = Input.from_marked(PIPELINE)
    assert shell_input.keep(()).text == "du | cpio > out.cpio"
    assert shell_input.keep((1, 3)).text == "du user_config.json | cpio -L > out.cpio"
    assert shell_input.keep(range(4)) == shell_input


def test_keep_within_a_segment_leaves_the_others_whole() -> None:
    shell_input = Input.from_marked(PIPELINE)
    assert shell_input.keep((), 1).text == "du -a user_config.json | cpio > out.cpio"
    assert shell_input.keep((1,), 0).text == "du user_config.json | cpio -oL > out.cpio"


@pytest.mark.parametrize(("kept", "segment"), [((2,), 0), ((-1,), None), ((0,), 2), ((9,), None)])
def test_keeping_what_is_not_there_is_refused(kept: tuple[int, ...], segment: int | None) -> None:
    with pytest.raises(InputError):
        Input.from_marked(PIPELINE).keep(kept, segment)


def test_through_ends_with_the_segment_and_its_redirections() -> None:
    shell_input = Input.from_marked(["ls", ">", "f", "&&", "cat", "f", ";", "wc", "f", "&"])
    assert shell_input.through(0).text == "ls > f"
    assert shell_input.through(1).text == "ls > f && cat f"
    assert shell_input.through(2) is shell_input


def test_a_session_starts_with_its_directory() -> None:
    row = Input.from_marked(["ls", "-l<ns>", "<ns>a"])
    assert Session("/home/ubuntu", (row,)).text == "cd /home/ubuntu; ls -la"
    assert Session("/tmp/a b", (row, row)).text == "cd '/tmp/a b'; ls -la\nls -la"
