"""Inputs drawn as people write them, and tables of their habits."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from shioenv.errors import TraceError, UsageError
from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammar, load_grammars, names_of_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.parse import InputParser
from shioenv.grammar.symbols import Grammar
from shioenv.synthesis.compose import may_run, run_by, substituted
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import NAMED, PolicySettings, settings_named
from shioenv.synthesis.sample import draw_samples
from shioenv.synthesis.samplers import Sampler
from shioenv.synthesis.traces import Sample
from shioenv.synthesis.usage_sampler import LONGEST_SHAPE, OTHERS, n_operands
from shioenv.synthesis.usage_tables import (
    ABOUT_ITSELF,
    CommandUsage,
    Usage,
    form,
    shipped_usage,
    usage_from,
)
from shioenv.synthesis.writer import CommandWriter
from shioenv_eval.grammars.describe import Describer, count_usage, option_names, option_set, shape

HERE = ("/home/ubuntu",)
CATALOGUE = stand_in_catalogue()
NEVER_ENDS = {"ping": "without -c it never ends, so no grammar writes it"}


@cache
def loaded(name: str) -> Grammar:
    return load_grammar(name)


@pytest.fixture(scope="module")
def describer() -> Describer:
    return Describer(load_grammars())


def writer(name: str, settings: PolicySettings = NAMED["people"]) -> CommandWriter:
    return bound_writer(loaded(name), settings)


def writer_of(rules: str, settings: PolicySettings) -> CommandWriter:
    """Return the writer of a command `x` with these definitions."""
    text = f"command x\nmanual x(1), T 1\npackage t\nvolatile no\n{rules}"
    return bound_writer(read_grammar(text, "x.grammar").grammar, settings)


def bound_writer(grammar: Grammar, settings: PolicySettings) -> CommandWriter:
    bound = bind(grammar, CATALOGUE)
    return CommandWriter(bound, Sampler("gcs", [bound]).table, CATALOGUE, settings)


def draw(policy: str, count: int | None = None, **options: object) -> Iterator[Sample]:
    names = options.pop("commands", None)
    grammars = None if names is None else [loaded(name) for name in names]  # type: ignore[attr-defined]
    drawing = Drawing(policy=policy, start_directories=HERE, **options)  # type: ignore[arg-type]
    return draw_samples(drawing, count=count, catalogue=CATALOGUE, grammars=grammars)


def policy_file(path: Path, usage: Usage, **settings: object) -> str:
    file = path / "policy.json"
    document = {"usage": usage.to_json(), "usage_share": 1.0, "once": True, "stop": 0.6, **settings}
    file.write_text(json.dumps(document))
    return str(file)


def commonest(counts: Mapping[str, float], most: int) -> list[str]:
    pairs = sorted(counts.items(), key=lambda pair: -pair[1])
    return [name for name, _ in pairs[:most]]


@pytest.mark.parametrize("name", [name for name in names_of_grammars() if name not in NEVER_ENDS])
def test_the_commonest_option_sets_are_drawn_and_taken_apart(
    describer: Describer, name: str
) -> None:
    known = shipped_usage().by_command.get(name, CommandUsage())
    made, random = writer(name), Random(3)
    for wanted in commonest(known.option_sets, 21):
        if wanted == OTHERS:
            continue
        written = None
        for start in made.grammar.starts:
            plan = made.options.plan(start, frozenset(wanted.split()))
            for _ in range(10):
                if plan is not None and written is None:
                    written = made.write(start, plan, random, horizon=12, spelling=known)
        assert written is not None, wanted
        text = " ".join(written.words).replace("<ns> <ns>", "")
        (segment,) = describer.describe(text).segments
        assert option_set(segment) == wanted, text


SHAPES = [
    wanted
    for wanted in commonest(shipped_usage().shapes, 102)
    if sum(part[0].isalpha() for part in wanted.split(" ")) <= LONGEST_SHAPE
]


@pytest.mark.parametrize("wanted", SHAPES)
def test_the_commonest_shapes_are_drawn_and_taken_apart(
    describer: Describer, wanted: str, tmp_path: Path
) -> None:
    names = [part for part in wanted.split(" ") if part[0].isalpha()]
    usage = Usage("", {}, dict.fromkeys(names, 1.0), {wanted: 1.0}, {}, {}, {})
    policy = policy_file(tmp_path, usage)
    stream = draw(policy, commands=list(dict.fromkeys(names)), composite_share=1.0, max_segments=6)
    drawn = [one.input.text for one in islice(stream, 8)]
    shapes = [shape(describer.describe(text)) for text in drawn]
    assert wanted in [each.replace(" <", "", 1) for each in shapes] + shapes, drawn


def test_paper_is_drawn_as_the_grammars_weights_say() -> None:
    (one,) = draw("paper", 1, seed=9, commands=["ls"], composite_share=0)
    grammar = bind(loaded("ls"), CATALOGUE)
    choices = [choice for choice in one.trace[0].choices if isinstance(choice, int)]
    words = Sampler("gcs", [grammar]).replay(grammar.start, choices)
    assert words == ("ls", *(argument.marked for argument in one.input.segments[0].arguments))
    assert NAMED["paper"] == PolicySettings()


def test_policies_of_people_are_for_gcs_and_the_default_is_the_samplers() -> None:
    assert Drawing().chosen_policy == "mixed"
    assert Drawing(sampler="ucs").chosen_policy == "paper"
    assert replace(Drawing(), sampler="ucs").chosen_policy == "paper"
    assert Drawing(sampler="ucs", policy="people").chosen_policy == "people"
    with pytest.raises(UsageError, match="supports gcs"):
        next(draw("mixed", sampler="ucs"))


def test_what_was_drawn_freely_is_written_again_from_its_trace() -> None:
    for name in ("ls", "tar", "find", "head"):
        made, random, known = writer(name), Random(5), shipped_usage().by_command[name]
        start = made.grammar.start
        plan = made.options.plan(start, None)
        assert plan is not None
        for spelling in (known, None):
            written = [
                made.write(start, plan, random, horizon=12, spelling=spelling) for _ in range(60)
            ]
            for one in filter(None, written):
                assert made.replay(start, one.trace, spelling) == one.words
    with pytest.raises(TraceError):
        made.replay(start, (), None)
    with pytest.raises(TraceError):
        made.replay(start, (9999,), None)


def test_values_of_a_list_are_drawn_anew_between_its_bounds() -> None:
    made = writer_of("start x {-n <a>}\n<a> : number = 5 | 900\n", PolicySettings(values=1.0))
    plan = made.options.plan(made.grammar.start, None)
    assert plan is not None
    drawn = [
        made.write(made.grammar.start, plan, Random(n), horizon=9, spelling=None) for n in range(99)
    ]
    numbers = {int(one.words[1].removeprefix("-n ")) for one in drawn if one}
    assert len(numbers) > 20
    assert 5 <= min(numbers) <= max(numbers) <= 900


def test_a_substitution_in_a_list_is_no_number_to_draw_anew() -> None:
    made = writer_of(
        "start x {-n <a>}\n<a> : number = 5 | $(nproc) | 9\n", PolicySettings(values=1.0)
    )
    plan = made.options.plan(made.grammar.start, None)
    assert plan is not None
    drawn = [
        made.write(made.grammar.start, plan, Random(n), horizon=9, spelling=None) for n in range(50)
    ]
    assert {one.words[1] for one in drawn if one} == {"-n 5", "-n $(nproc)", "-n 9"}


def test_no_mistake_is_written_on_purpose() -> None:
    made = writer("cut")
    start = made.grammar.start
    plan = made.options.plan(start, None)
    assert plan is not None
    drawn = [made.write(start, plan, Random(n), horizon=12, spelling=None) for n in range(300)]
    assert not any("-f1" in one.words and "-c1" in one.words for one in drawn if one)
    assert not any(one.words[-1] == "1:3" for one in drawn if one)
    table = Sampler("gcs", [made.grammar]).table
    assert not [number for number in plan.rows if "bad-" in table.nonterminals[number].name]


def test_every_setting_of_a_file_counts(tmp_path: Path) -> None:
    usage = Usage("mine", {}, {"ls": 1.0}, {}, {}, {}, {"ls": CommandUsage({"-l -a": 1e9})})
    settings = settings_named(policy_file(tmp_path, usage, values=0.25))
    assert (settings.stop, settings.once, settings.values, settings.usage_share) == (
        0.6,
        True,
        0.25,
        1.0,
    )
    assert settings.usage == usage
    texts = [
        one.input.text
        for one in draw(
            str(tmp_path / "policy.json"), 20, commands=["ls"], composite_share=0, seed=2
        )
    ]
    assert all(set("la") <= set(text.replace(" -", "")) for text in texts)


def test_a_table_is_counted_written_and_read(describer: Describer) -> None:
    texts = [
        "ls -la documents | grep -i 'a b' > out.txt",
        "ls -la",
        "head -5 x.txt",
        "tar -xf /tmp/a.tar",
        "nope -x",
    ]
    table = count_usage(map(describer.describe, texts), "mine")
    assert table.utilities == {"ls": 2, "grep": 1, "head": 1, "tar": 1}
    assert table.shapes == {"ls | grep >": 1}
    assert table.follows == {"ls | grep": 1}
    assert table.targets == {"> file name": 1}
    assert table.by_command["ls"].option_sets == {"-a -l": 2}
    assert table.by_command["ls"].spellings == {"cluster": 4}
    assert table.by_command["head"].options == {"-NUM": 1}
    assert table.by_command["grep"].piped == {"-i": {"text": 1}}
    assert table.by_command["tar"].styles == {"-f": {"separate": 1}}
    read = usage_from(json.loads(json.dumps(table.to_json())), "here")
    assert read.to_json() == table.to_json()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("notes", "name"),
        ("notes.txt", "file name"),
        ("a/b", "relative path"),
        ("/a/b", "absolute path"),
        ("'a b'", "text"),
        ("*.c", "glob"),
        ("'*.c'", "pattern"),
        ("..", "special path"),
        ("12", "number"),
        ("~/x", "tilde"),
        ("$HOME", "variable"),
        ("$(ls)", "substitution"),
    ],
)
def test_a_word_has_a_form(word: str, name: str) -> None:
    assert form(word) == name


def test_the_shipped_table_says_where_it_is_from_and_holds_no_texts() -> None:
    usage = shipped_usage()
    assert "excluded" in usage.about
    assert usage.utilities.keys() <= set(names_of_grammars())
    known = {
        name: {name for spec in loaded(name).options for name in spec.names} for name in ("ls",)
    }
    names = {option for options in usage.by_command["ls"].option_sets for option in options.split()}
    assert names <= known["ls"] | {"-NUM", OTHERS}


def test_options_are_named_as_tables_name_them(describer: Describer) -> None:
    def names(text: str) -> list[str]:
        (segment,) = describer.describe(text).segments
        return list(option_names(segment))

    assert names("ls -1") == ["-1"]
    assert names("tail -20 x") == ["-NUM"]
    assert names("grep -in --color=auto x") == ["-i", "-n", "--color"]


def test_commands_are_drawn_half_by_use_and_half_uniformly() -> None:
    counts = Counter(one.trace[0].grammar for one in draw("people", 1500, composite_share=0))
    assert counts["ls"] > 2 * counts["link"] > 0
    assert len(counts) > 70


def test_bound_grammars_are_all_that_a_writer_needs() -> None:
    grammars = [bind(loaded(name), CATALOGUE) for name in ("df", "ls")]
    table = Sampler("gcs", grammars).table
    for grammar in grammars:
        made = CommandWriter(grammar, table, CATALOGUE, PolicySettings(once=True))
        plan = made.options.plan(grammar.start, frozenset({"--nope"}))
        assert plan is None


def written(made: CommandWriter, options: str, tries: int = 40) -> list[tuple[str, ...]]:
    plan = made.options.plan(made.grammar.start, frozenset(options.split()))
    assert plan is not None
    start, tried = made.grammar.start, range(tries)
    drawn = [
        made.write(start, plan, Random(n), horizon=12, spelling=None, evenly=n % 2 > 0)
        for n in tried
    ]
    return [one.words for one in drawn if one is not None]


def test_an_option_that_is_taken_several_times_is_written_where_another_needs_it() -> None:
    drawn = written(writer("find"), "-name -o")
    assert drawn
    for words in drawn:
        assert sum(word.startswith("-name ") for word in words) > 1, words


@pytest.mark.parametrize("options", ["-maxdepth -mindepth", "-exec -name -print"])
def test_sets_that_no_usual_way_writes_are_written_evenly(options: str) -> None:
    assert written(writer("find"), options, 80)


@pytest.mark.parametrize(("seen", "least", "most"), [(1.0, 0.2, 1.0), (1e6, 0.0, 0.01)])
def test_the_less_a_table_knows_the_more_options_it_has_not_are_drawn(
    seen: float, least: float, most: float, tmp_path: Path
) -> None:
    known = {"ls": CommandUsage({"": seen}, n_options={"0": seen}), "wc": CommandUsage()}
    known["wc"] = CommandUsage(n_options={"1": 1.0})
    usage = Usage("", {}, {"ls": 1.0}, {}, {}, {}, known)
    policy = policy_file(tmp_path, usage)
    describe = Describer([loaded("ls")]).describe
    drawn = list(draw(policy, 200, commands=["ls"], composite_share=0))
    options = [option_set(describe(one.input.text).segments[0]) for one in drawn]
    assert least <= sum(map(bool, options)) / len(options) <= most


def test_options_are_drawn_beside_those_that_they_stand_with(tmp_path: Path) -> None:
    counts = {"-l": 500.0, "-t": 500.0, "-a": 500.0, "-r": 500.0}
    known = CommandUsage(options=counts, n_options={"2": 1e6}, pairs={"-l -t": 900, "-a -r": 900})
    usage = Usage("", {}, {"ls": 1.0}, {}, {}, {}, {"ls": known})
    policy = policy_file(tmp_path, usage)
    describe = Describer([loaded("ls")]).describe
    sets = Counter(
        option_set(describe(one.input.text).segments[0])
        for one in draw(policy, 300, commands=["ls"], composite_share=0)
    )
    assert sets["-l -t"] + sets["-a -r"] > 3 * (sets["-a -l"] + sets["-a -t"])


def test_what_is_marked_wrong_is_left_to_the_grammars_weights() -> None:
    text = (
        "command x\nmanual x(1), T 1\npackage t\nvolatile no\n"
        "start x <a>\nstart x b %wrong\n<a> : number = 5 | 0 %wrong | 9\n"
    )
    grammar = bind(read_grammar(text, "x.grammar").grammar, CATALOGUE)
    sampler = Sampler("gcs", [grammar])
    made = CommandWriter(grammar, sampler.table, CATALOGUE, PolicySettings(values=0.5))
    assert {words[-1] for words in written(made, "")} == {"5", "6", "7", "8", "9"}
    random = Random(1)
    drawn = {sampler.draw(grammar.start, random).words[-1] for _ in range(50)}
    assert drawn == {"5", "0", "9", "b"}


@pytest.mark.parametrize("policy", ["people", "mixed"])
@pytest.mark.parametrize("name", ["tr", "sort", "cat", "uniq", "xargs"])
def test_a_command_that_reads_standard_input_is_given_some(policy: str, name: str) -> None:
    """Nine times in ten; `cat` and `sort` mostly name a file, `tr` cannot."""
    drawn = [one.input for one in draw(policy, 150, commands=[name], composite_share=0)]
    drawn = [one for one in drawn if ABOUT_ITSELF.isdisjoint(one.input_args)]
    fed = sum("<" in one.operators for one in drawn)
    if name == "tr":
        assert 0.8 * len(drawn) < fed < len(drawn)
    bare = sum(not one.operators and n_operands(one.input_args) == 0 for one in drawn)
    assert bare < 0.2 * len(drawn)


def test_no_input_is_fed_where_the_paper_draws() -> None:
    drawn = draw("paper", 300, commands=["tr", "sort", "cat"], composite_share=0.5)
    assert not any("<" in one.input.operators for one in drawn)


def test_a_command_without_operands_reads_a_file(tmp_path: Path) -> None:
    known = CommandUsage({"-n": 1e6}, operands={"-n": {"": 1.0}})
    usage = Usage("", {}, {"sort": 1.0}, {}, {}, {}, {"sort": known})
    policy = policy_file(tmp_path, usage)
    drawn = [one.input.text for one in draw(policy, 20, commands=["sort"], composite_share=0)]
    assert any(text.startswith("sort -n < ") for text in drawn)


def test_no_pattern_is_drawn_where_one_name_is_taken() -> None:
    made = writer("link", PolicySettings(values=1.0, once=True))
    assert not any("*" in word for words in written(made, "", 200) for word in words)
    copied = writer("cp", PolicySettings(values=1.0, once=True))
    assert any("*" in word for words in written(copied, "", 200) for word in words)


def test_commands_that_others_run_are_those_of_the_table_and_taken_apart(
    describer: Describer, tmp_path: Path
) -> None:
    ways = {"-exec -name -type": 1e9}
    known = {
        "find": CommandUsage(ways, nested={"grep": 5.0, "chmod": 5.0, "rm": 5.0, "xargs": 5.0}),
        "grep": CommandUsage({"-i -l": 1e9}, options={"-i": 1.0}, n_options={"2": 1.0}),
    }
    usage = Usage("", {}, {"find": 1.0}, {}, {}, {}, known)
    policy = policy_file(tmp_path, usage, values=1.0)
    texts = [one.input.text for one in draw(policy, 300, commands=None, composite_share=0)]
    met: Counter[str] = Counter()
    for text in texts:
        for segment in describer.describe(text).segments:
            if segment.grammar == "find":
                met.update(one.grammar or "?" for one in segment.nested)
                assert all(one.derivable for one in segment.arguments if one.option == "-exec")
    assert met["grep"] > 0
    assert met["chmod"] > 0
    assert met["rm"] > 0
    assert not met["xargs"]
    grepped = [text for text in texts if "-exec grep" in text]
    assert all("-type f" in text and "{}" in text for text in grepped), grepped


@pytest.mark.parametrize(
    ("name", "words", "wanted"),
    [
        ("find", ("rm", "-f", "a.txt", "docs/b.txt"), "rm -f {}"),
        ("find", ("chmod", "644", "a.txt"), "chmod 644 {}"),
        ("find", ("grep", "-i<ns>", "<ns>l", "x", "a.txt"), "grep -il x {}"),
        ("find", ("cp", "-p", "a.txt", "/tmp"), "cp -p {} /tmp"),
        ("xargs", ("wc", "-l", "a.txt"), "wc -l"),
        ("xargs", ("rm", "a.txt"), None),
        ("xargs", ("rm", "-f", "a.txt"), "rm -f"),
        ("find", ("rm", "misc/it\\'s.txt"), "rm {}"),
        ("find", ("cat", "-", "a.txt"), None),
        ("find", ("ls", "$HOME"), None),
        ("find", ("cat", "a", ">", "b"), None),
        ("find", ("ls", "--version", "a.txt"), None),
        ("xargs", ("cat", "--help"), None),
        ("env", ("cat", "-n", "--version"), None),
    ],
)
def test_names_give_way_where_a_command_is_run(
    name: str, words: tuple[str, ...], wanted: str | None
) -> None:
    text = run_by(name, load_grammar(words[0]).header.traits, words, Random(1))
    ended = (
        None
        if wanted is None
        else {wanted}
        if name == "xargs"
        else {f"{wanted} \\;", f"{wanted} +"}
    )
    assert text is None if ended is None else text in ended


def test_what_waits_for_a_pipe_is_run_for_regular_files_only() -> None:
    assert may_run(load_grammar("find"), "find:reading", load_grammar("cat"))
    assert not may_run(load_grammar("find"), "find:call", load_grammar("cat"))
    assert may_run(load_grammar("find"), "find:call", load_grammar("chmod"))
    assert not may_run(load_grammar("xargs"), "xargs:command", load_grammar("mkdir"))
    before = ("find", "documents", "-type f")
    assert may_run(load_grammar("find"), "find:call", load_grammar("cat"), before, ["logs/pipe"])
    assert not may_run(
        load_grammar("find"), "find:call", load_grammar("cat"), before[:2], ["logs/pipe"]
    )
    for path in ("logs", ".", "logs/pipe", "/home"):
        assert not may_run(
            load_grammar("find"),
            "find:call",
            load_grammar("cat"),
            ("find", path, "-type f"),
            ["logs/pipe"],
        )
    named = ("find", ".", "-type f", "-name '*.txt'")
    assert may_run(load_grammar("find"), "find:call", load_grammar("cat"), named, ["logs/pipe"])
    assert not may_run(
        load_grammar("find"),
        "find:call",
        load_grammar("cat"),
        (*named[:3], "-name '*'"),
        ["logs/pipe"],
    )
    assert may_run(load_grammar("env"), "env:run", load_grammar("sort"))
    assert may_run(load_grammar("env"), "env:run", load_grammar("find"))
    assert not may_run(load_grammar("env"), "env:run", load_grammar("env"))
    assert not may_run(load_grammar("xargs"), "xargs:command", load_grammar("find"))
    assert not may_run(load_grammar("env"), "env:run", load_grammar("cd"))


def test_a_command_runs_in_a_changed_environment_as_its_own_grammar_writes_it(
    describer: Describer,
) -> None:
    drawn = draw("people", 250, seed=2, commands=["env", "wc", "stat"], composite_share=0)
    texts = [one.input.text for one in drawn if one.trace[0].grammar == "env"]
    run = [text for text in texts if re.search(r"^env [^\"']*\b(?:wc|stat) -", text)]
    assert run
    for text in run:
        (segment,) = describer.describe(text).segments
        assert [one.grammar for one in segment.nested] in (["wc"], ["stat"]), text


def test_a_command_that_is_run_runs_another_one(describer: Describer, tmp_path: Path) -> None:
    known = {
        "env": CommandUsage({"": 1e9}, nested={"find": 1e9}),
        "find": CommandUsage({"-exec -type": 1e9}),
    }
    usage = Usage("", {}, {"env": 1.0}, {}, {}, {}, known)
    policy = policy_file(tmp_path, usage)
    deep = [
        inner.nested[0].command
        for one in draw(policy, 200, commands=["env", "find"], composite_share=0)
        for segment in describer.describe(one.input.text).segments
        for inner in segment.nested
        if segment.grammar == "env" and inner.nested
    ]
    assert len(deep) > 3


@pytest.mark.parametrize(
    ("mark", "words", "wanted"),
    [
        ("$(", ("find", ".", "-name '*.txt'"), "$(find . -name '*.txt')"),
        ("<(", ("sort", "-n<ns>", "<ns>r", "a.txt"), "<(sort -nr a.txt)"),
        ("$(", ("find", ".", "-exec rm {} \\;"), None),
        ("$(", ("ls", "--help"), None),
        ("<(", ("sort", "-o a.txt", "b.txt"), None),
        ("<(", ("sort", "-n"), None),
        ("$(", ("cat", "a", ">", "b"), None),
    ],
)
def test_what_only_tells_names_may_be_substituted(
    mark: str, words: tuple[str, ...], wanted: str | None
) -> None:
    assert substituted(mark, load_grammar(words[0]).header.traits, words) == wanted


def test_operands_are_substitutions_where_any_number_of_names_will_do() -> None:
    def drawn(*names: str, count: int = 4000) -> Iterator[str]:
        stream = draw("people", count, seed=2, commands=names, composite_share=0)
        return (one.input.text for one in stream)

    assert any(
        re.match(r"(?:comm|paste) .*<\(sort ", text) for text in drawn("comm", "paste", "sort")
    )
    assert any(re.match(r"ls .*\$\(find ", text) for text in drawn("ls", "find"))
    linked = drawn("link", "find", "sort", count=1000)
    assert not any(re.match(r"link .*\(", text) for text in linked)


@pytest.mark.parametrize("name", ["chmod", "grep", "stat"])
def test_a_command_that_says_what_it_is_stands_alone(name: str, tmp_path: Path) -> None:
    known = CommandUsage({"--help": 1e9}, options={"--help": 1e9})
    usage = Usage("", {}, {name: 1.0}, {}, {}, {}, {name: known})
    policy = policy_file(tmp_path, usage)
    first = next(draw(policy, 1, commands=[name], composite_share=0))
    assert first.input.text == f"{name} --help"


def test_options_beyond_the_named_sets_are_those_that_the_sets_leave(tmp_path: Path) -> None:
    known = CommandUsage(
        {"-l": 1e6, "-a -l": 1e6, OTHERS: 1e6},
        options={"-l": 2e6, "-a": 1e6, "-t": 1e6},
        n_options={"1": 2e6, "2": 1e6},
    )
    usage = Usage("", {}, {"ls": 1.0}, {}, {}, {}, {"ls": known})
    policy = policy_file(tmp_path, usage)
    describe = Describer([loaded("ls")]).describe
    sets = Counter(
        option_set(describe(one.input.text).segments[0])
        for one in draw(policy, 200, commands=["ls"], composite_share=0)
    )
    assert sets.keys() <= {"", "-l", "-a -l", "-t"}
    assert sets["-t"] > 40 > 10 > sets[""]


def test_clusters_are_spelt_anew_whole() -> None:
    made = writer("netstat")
    words = ("netstat", "-l<ns>", "<ns>n<ns>", "<ns>p", "-t<ns>", "<ns>u")
    clustered = CommandUsage(spellings={"cluster": 1e9})
    apart = CommandUsage(spellings={"short": 1e9})

    def spellings(usage: CommandUsage) -> set[str]:
        each = (made.spelling.respelt(words, seed, usage) for seed in range(40))
        return {" ".join(one).replace("<ns> <ns>", "") for one in each}

    assert spellings(clustered) == {"netstat -lnptu"}
    assert spellings(apart) == {"netstat -l -n -p -t -u"}


def test_the_last_option_stands_behind_an_operand_at_times() -> None:
    made = writer("wget")
    words = ("wget", "-q", "--output-document=x", "http://10.20.30.1/")
    spelt = Counter(made.spelling.respelt(words, seed, CommandUsage()) for seed in range(600))
    behind = ("wget", "-q", "http://10.20.30.1/", "--output-document=x")
    assert 5 < spelt[behind] < 60
    assert spelt[words] > 480


def test_the_depth_of_a_search_is_limited_behind_a_test_at_times(describer: Describer) -> None:
    made = writer("find")
    words = ("find", ".", "-maxdepth 2", "-type f", "-name x")
    spelt = Counter(made.spelling.respelt(words, seed, CommandUsage()) for seed in range(300))
    later = ("find", ".", "-type f", "-maxdepth 2", "-name x")
    assert spelt.keys() == {words, later}
    assert 15 < spelt[later] < 75
    assert describer.describe(" ".join(later)).segments[0].derivable


def test_new_sets_are_those_that_a_table_does_not_name(tmp_path: Path) -> None:
    known = CommandUsage({"-l": 1e6}, options={"-l": 1e6}, n_options={"1": 1e6})
    usage = Usage("", {}, {"ls": 1.0}, {}, {}, {}, {"ls": known})
    describe = Describer([loaded("ls")]).describe
    for share, least, most in ((0.0, 0, 10), (1.0, 190, 200)):
        policy = policy_file(tmp_path, usage, new_sets=share)
        drawn = draw(policy, 200, commands=["ls"], composite_share=0)
        sets = [option_set(describe(one.input.text).segments[0]) for one in drawn]
        assert least <= sum(each != "-l" for each in sets) <= most


@pytest.mark.parametrize("name", ["cd", "rmdir"])
def test_values_drawn_anew_name_no_files_where_directories_are_taken(name: str) -> None:
    made = writer(name, PolicySettings(values=1.0, once=True))
    words = [word for row in written(made, "", 300) for word in row[1:]]
    assert not [word for word in words if re.fullmatch(r"\w+\.(?:txt|log|csv|tar\.gz)", word)]


def test_what_a_command_says_about_itself_is_asked_for_alone(tmp_path: Path) -> None:
    known = CommandUsage(options={"--help": 1e6, "-l": 1e6, "-a": 1e6}, n_options={"2": 1e6})
    usage = Usage("", {}, {"ls": 1.0}, {}, {}, {}, {"ls": known})
    drawn = draw(policy_file(tmp_path, usage), 100, commands=["ls"], composite_share=0)
    assert not [one.input.text for one in drawn if "--help" in one.input.text]


@pytest.mark.parametrize(
    "names", [("truncate",), ("xargs", "ls", "echo", "head"), ("env", "ls", "tar", "head")]
)
def test_what_is_drawn_is_read_again_as_it_was_meant(names: tuple[str, ...]) -> None:
    """Values with a sign that the shell would interpret are quoted. A command run by another has
    the arguments that its own grammar separates.
    """
    parser = InputParser([*map(loaded, names)])
    for one in draw("mixed", 1500, commands=names, composite_share=0.0, seed=3):
        assert parser.parse(one.input.text) == one.input, one.input.text


@pytest.mark.parametrize("policy", ["people", "mixed"])
def test_help_and_version_are_asked_for_alone_whatever_draws_them(policy: str) -> None:
    names = ["nproc", "tr", "lscpu", "xargs", "cat"]
    for one in draw(policy, 600, commands=names, composite_share=0):
        words = one.input.text.split()[1:]
        assert len(words) < 2 or not {"--help", "--version"} & set(words), one.input.text


def test_numbers_are_drawn_anew_as_often_as_the_list_has_them() -> None:
    made = writer_of(
        "start x <a>\n<a> : size = 5 %weight 99 | 9 %weight 99 | 1K %weight 2\n",
        PolicySettings(values=1.0),
    )
    drawn = Counter(words[-1] for words in written(made, "", 400))
    assert 0 < drawn["1K"] < 20


@pytest.mark.parametrize("name", ["cat", "head", "tail", "sort"])
def test_values_drawn_anew_name_no_directories_where_files_are_taken(name: str) -> None:
    made = writer(name, PolicySettings(values=1.0, once=True))
    words = [word for row in written(made, "", 300) for word in row[1:]]
    listed = {".", "..", "/", "~", *CATALOGUE["Directory"]}
    named = [word for word in words if word.endswith("/") or word in listed]
    assert len(named) < 0.025 * len(words), named  # those that the grammar itself has


@pytest.mark.parametrize("name", ["mkdir", "mkfifo"])
def test_values_drawn_anew_are_new_where_something_is_made(name: str) -> None:
    made = writer(name, PolicySettings(values=1.0, once=True))
    words = [word for row in written(made, "", 300) for word in row[1:]]
    there = {*CATALOGUE["File"], *CATALOGUE["Directory"]}
    assert len([word for word in words if word.rstrip("/") in there]) < 0.01 * len(words)


def test_a_search_begins_at_a_directory() -> None:
    made = writer("find", PolicySettings(values=1.0, once=True))
    rows = [row for row in written(made, "", 200) if len(row) > 1]
    files = [row for row in rows if re.fullmatch(r"[\w/]*\w\.(?:txt|log|csv|py|sh)", row[1])]
    assert len(files) < 0.05 * len(rows), files  # those that the grammar itself has


def test_what_writes_no_option_keeps_its_weight_where_options_are_taken_evenly() -> None:
    made = writer("find", PolicySettings(once=True))
    rows = list(written(made, "", 300))
    assert 0 < sum("--" in row for row in rows) < 30


@pytest.mark.parametrize("name", ["xargs", "env", "cd"])
def test_what_fails_on_purpose_is_not_drawn(name: str) -> None:
    made = writer(name, PolicySettings(once=True))
    words = {word for row in written(made, "", 600) for word in row}
    assert not words & {"nosuchcommand", "/none", "-x", "--env"}
