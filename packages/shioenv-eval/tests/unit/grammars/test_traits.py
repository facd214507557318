"""Traits of commands in headers: parsed, compared with the grammar, and listed by role."""

import pytest

from shioenv.grammar.library import load_grammar, names_of_grammars, shipped_headers
from shioenv.grammar.load import read_grammar
from shioenv.grammar.traits import PATHS, Traits
from shioenv_eval.grammars.grammar_check import check_traits

HEAD = "command x\nmanual x(1), T 1\npackage t\nvolatile no\n"
BODY = """start x <option>* <from> <to>?
options
  -r, --recursive
  -o, --output=<to>
<from> : path = a | b
<to> : path = c | d
example x a b
"""


def faults(header: str, body: str = BODY) -> list[str]:
    """Return the faults of a grammar with this header, as reported by `grammar check`."""
    loaded = read_grammar(f"{HEAD}{header}\n{body}", "x.grammar")
    return [fault.message for fault in (*loaded.faults, *check_traits(loaded.grammar))]


def traits(header: str) -> Traits:
    return read_grammar(f"{HEAD}{header}\n{BODY}", "x.grammar").grammar.header.traits


@pytest.mark.parametrize(
    "header",
    [
        "operands file output?",
        "operands path+ target\nwith -r, --recursive: path as tree\nwith -o: no target",
        "operands path*   # any number\nwith --output: value output  # made\nimplied .",
        "operands if=file? of=output?\nopens yes\nmakes file",
        "operands path*\nremoves yes\nchanges mode\nordered yes\nhelp x -h; x more -h",
        "changes network",
    ],
)
def test_what_a_grammar_bears_out_is_no_fault(header: str) -> None:
    assert faults(header) == []


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("operands", "operands needs roles"),
        ("operands flie*", "unknown operand `flie*`"),
        ("operands file**", "unknown operand `file**`"),
        ("operands command*", "no operand can be command"),
        ("operands path* file+", "only one operand may be repeated"),
        ("operands user* ", "no operand can be user"),
        ("operands file", "more operands than `operands` permits: 1"),
        ("operands path*\nwith -z: path as tree", "x has no option -z"),
        ("operands path*\nwith --recursiv3: path as tree", "x has no option --recursiv3"),
        ("operands path*\nwith -r: pattern as tree", "no operand has the role pattern"),
        ("operands path*\nwith -r: tree", "unknown effect `tree`"),
        ("operands path*\nwith -r: no", "unknown effect `no`"),
        ("operands path*\nwith -r: value nothing", "unknown effect `value nothing`"),
        ("operands path*\nwith : no path", "with needs options"),
        ("makes arhcive", "unknown value `arhcive` of `makes`; did you mean archive?"),
        ("changes weather", "unknown value `weather` of `changes`"),
        ("removes perhaps", "removes must be `yes` or `no`"),
        ("opens", "opens must be `yes` or `no`"),
        ("operands path*\noperands path*", "operands is given twice"),
    ],
)
def test_what_it_does_not_is_one(header: str, message: str) -> None:
    found = faults(header)
    assert len(found) == 1
    assert message in found[0]


def test_what_is_said_of_files_needs_one() -> None:
    body = "start x <n>\n<n> : number = 1 | 2 | 3\nexample x 1\n"
    for header in ("removes yes", "makes copy", "changes mode", "opens yes"):
        (message,) = faults(header, body)
        assert "no operand is a path" in message
    assert faults("changes env", body) == []


def test_a_fault_is_told_with_its_line() -> None:
    loaded = read_grammar(f"{HEAD}operands user*\n{BODY}", "x.grammar")
    assert [str(fault).split()[0] for fault in check_traits(loaded.grammar)] == ["x.grammar:5:1:"]


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("operands path+ target", ["path", "path target", "path path target"]),
        ("operands pattern path*", ["pattern", "pattern path", "pattern path path"]),
        ("operands any+ suffix?", ["any", "any suffix", "any any suffix"]),
        ("operands file? output?", ["file", "file output", "file output output"]),
        ("operands file", ["file", "file file", "file file file"]),
        ("operands if=file of=output", ["text", "text text", "text text text"]),
        ("implied .", ["text", "text text", "text text text"]),
    ],
)
def test_roles_of_operands_in_a_row(header: str, roles: list[str]) -> None:
    found = traits(header)
    assert [" ".join(found.roles_of(count)) for count in (1, 2, 3)] == roles
    assert list(found.roles_of(0)) == []


def test_options_change_what_operands_are() -> None:
    grep = load_grammar("grep").header.traits
    assert grep.with_options(["-r"]).roles_of(2) == ["pattern", "tree"]
    assert grep.with_options(["-e", "--recursive"]).roles_of(2) == ["tree", "tree"]
    assert grep.with_options(["-z"]) == grep
    copy = load_grammar("cp").header.traits
    assert copy.role_of_value("-t") == "directory"
    assert copy.role_of_value("-r") is None
    assert copy.with_options(["-t"]).roles_of(2) == ["path", "path"]


def test_the_headers_alone_say_the_same() -> None:
    headers = shipped_headers()
    assert tuple(headers) == names_of_grammars()
    for name, header in headers.items():
        assert header == load_grammar(name).header, name


def test_every_role_for_paths_is_used() -> None:
    used = set[str]()
    for header in shipped_headers().values():
        used |= header.traits.roles | {effect.role for effect in header.traits.effects}
    assert set(PATHS) <= used
