from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.inputs import Argument, Input, Role

ARGUMENTS = st.builds(
    Argument,
    st.text(min_size=1, max_size=6) | st.sampled_from(["<ns>", "a<ns>", r"<\ns>", "-l"]),
    st.booleans(),
    st.booleans(),
)
MARKED = st.lists(
    st.one_of(ARGUMENTS.map(lambda argument: argument.marked), st.sampled_from(["|", "&&", ">"])),
    max_size=10,
)


@given(ARGUMENTS)
def test_marks_round_trip(argument: Argument) -> None:
    assert Argument.parse(argument.marked) == argument


@given(MARKED)
def test_input_args_round_trip(args: list[str]) -> None:
    shell_input = Input.from_marked(args)
    assert shell_input.input_args == args
    assert Input.from_marked(shell_input.input_args) == shell_input


@given(MARKED)
def test_keeping_every_index_is_the_identity(args: list[str]) -> None:
    shell_input = Input.from_marked(args)
    assert shell_input.keep(range(shell_input.n_arguments)) == shell_input


@given(MARKED, st.data())
def test_keep_removes_only_arguments_and_keeps_their_order(
    args: list[str], data: st.DataObject
) -> None:
    shell_input = Input.from_marked(args)
    kept = (
        data.draw(st.sets(st.sampled_from(range(shell_input.n_arguments))))
        if (shell_input.n_arguments)
        else set()
    )
    reduced = shell_input.keep(kept)
    arguments = [token for token in shell_input.tokens if token.role is Role.ARGUMENT]
    assert [token for token in reduced.tokens if token.role is Role.ARGUMENT] == [
        arguments[index] for index in sorted(kept)
    ]
    assert [token for token in reduced.tokens if token.role is not Role.ARGUMENT] == [
        token for token in shell_input.tokens if token.role is not Role.ARGUMENT
    ]


@given(MARKED)
def test_segments_partition_the_arguments(args: list[str]) -> None:
    shell_input = Input.from_marked(args)
    segments = shell_input.segments
    assert sum(len(segment.arguments) for segment in segments) == shell_input.n_arguments
    for number in range(len(segments)):
        assert shell_input.through(number).segments == segments[: number + 1]
