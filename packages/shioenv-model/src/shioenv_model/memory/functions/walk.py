"""The language of tree walks filtered by an expression (find(1))."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache

from shioenv.domain.context import FileEntry, instant, pointer
from shioenv.domain.readable import mode_of
from shioenv_model.bash.patterns import matches
from shioenv_model.bash.work import spend
from shioenv_model.composition.opening import changed_mode
from shioenv_model.memory.facts import Operand, Tree
from shioenv_model.memory.functions.formats import ATTRIBUTES, ROUGH, format_file, unescape_format
from shioenv_model.memory.functions.language import (
    FormattedFile,
    Language,
    OptionMeaning,
    Plan,
    missing_file_error,
)
from shioenv_model.memory.rewrite import Taken


@dataclass
class _Walk:
    """A walk and its current file."""

    file: FormattedFile
    tree: Tree
    inner: str
    """The path relative to the root."""
    now: FileEntry
    taken: Taken
    plan: Plan
    printed: list[str]
    pruned: bool = False


_Test = Callable[[_Walk], bool]


def _test(
    test: Callable[[_Walk, str], bool], check: Callable[[str], object] | None = None
) -> Callable[[Plan, str], None]:
    """Return a change that appends a test to the expression.

    `check` raises ValueError or LookupError for an invalid argument of the test.
    """

    def change(plan: Plan, word: str) -> None:
        if check is not None:
            check(word)
        plan["closed"] = True
        plan.setdefault("terms", []).append(lambda walk: test(walk, word))

    return change


def _sign(sign: str) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        plan["closed"] = True
        plan.setdefault("terms", []).append(sign)

    return change


def _action(act: Callable[[_Walk, str], bool]) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        plan["acts"] = True
        _test(act)(plan, word)

    return change


def _last_name(walk: _Walk) -> str:
    return posixpath.basename(walk.file.path.rstrip("/")) or "/"


def _of_kind(walk: _Walk, word: str) -> bool:
    return _letter(walk.file.entry) in _kinds(word)


def _of_followed_kind(walk: _Walk, word: str) -> bool:
    entry = walk.file.entry
    return _letter((_followed(walk) or entry) if entry.target is not None else entry) in _kinds(
        word
    )


def _followed(walk: _Walk) -> FileEntry | None:
    return walk.tree.find(walk.inner or ".")


def _letter(entry: FileEntry) -> str:
    return entry.perms[0].replace("-", "f")


def _kinds(word: str) -> list[str]:
    kinds = word.split(",")
    if not set(kinds) <= set("fdlpscbD"):
        raise ValueError(word)
    return kinds


_UNITS = {"": 512, "b": 512, "c": 1, "w": 2, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _compared(number: int, sign: str, wanted: int) -> bool:
    return number > wanted if sign == "+" else number < wanted if sign == "-" else number == wanted


def _number(word: str) -> tuple[str, int]:
    match = re.fullmatch(r"([+-]?)(\d{1,15})", word)
    if match is None:
        raise ValueError(word)
    return match[1], int(match[2])


@lru_cache(maxsize=500)
def _sized(word: str) -> tuple[str, int, int]:
    """Parse a sign, a number and a unit. Errors: ValueError, LookupError for other words."""
    unit = _UNITS[word[-1:] if not word[-1:].isdigit() else ""]
    return *_number(word[:-1] if word[-1:] in _UNITS else word), unit


def _of_size(walk: _Walk, word: str) -> bool:
    sign, wanted, unit = _sized(word)
    return _compared(-(-walk.file.entry.size // unit), sign, wanted)


_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)


def _of_age(unit: timedelta, *, up: bool) -> Callable[[_Walk, str], bool]:
    """Return a test of the time since modification, in whole units; `up` rounds up."""

    def test(walk: _Walk, word: str) -> bool:
        sign, wanted = _number(word)
        age = instant(walk.now) - instant(walk.file.entry)
        return _compared(-(-age // unit) if up else age // unit, sign, wanted)

    return test


def _is_newer(walk: _Walk, word: str) -> bool:
    other = next((each.entry for name, each in walk.taken.valued if each.word == word), None)
    if other is None:
        raise ValueError(word)
    return instant(walk.file.entry) > instant(other)


@lru_cache(maxsize=500)
def _rights(word: str) -> int:
    """Parse the permissions in an argument. Errors: ValueError for other words."""
    mode = changed_mode(word[1:] if word[:1] in ("-", "/") else word, 0, 0, directory=False)
    if mode is None:
        raise ValueError(word)
    return mode


def _of_rights(walk: _Walk, word: str) -> bool:
    has, wanted = mode_of(walk.file.entry.perms), _rights(word)
    if word.startswith("-"):
        return has & wanted == wanted
    return bool(has & wanted) or not wanted if word.startswith("/") else has == wanted


def _is_empty(walk: _Walk, word: str) -> bool:
    kind = walk.file.entry.perms[0]
    if kind == "d":
        return walk.inner not in walk.tree.filled
    return kind == "-" and walk.file.entry.size == 0


def _is_owned(walk: _Walk, word: str) -> bool:
    users = walk.file.tree.users
    if word not in users and not (word.isdigit() and word in users.values()):
        raise ValueError(word)
    return walk.file.entry.owner == word or users.get(walk.file.entry.owner) == word


def _is_of_group(walk: _Walk, word: str) -> bool:
    groups = walk.file.tree.groups
    if word not in groups and not (word.isdigit() and word in groups.values()):
        raise ValueError(word)
    return walk.file.entry.group == word or groups.get(walk.file.entry.group) == word


def _leads_to(walk: _Walk, word: str) -> bool:
    target = walk.file.entry.target
    return target is not None and matches(word, target)


def _has_links(walk: _Walk, word: str) -> bool:
    return _compared(walk.file.entry.links, *_number(word))


def _can(letter: str) -> Callable[[_Walk, str], bool]:
    """Return a test of root's access: root may do anything except execute non-executable files."""

    def test(walk: _Walk, word: str) -> bool:
        entry = _followed(walk)
        return entry is not None and (
            letter != "x" or entry.perms[0] == "d" or bool(set("xst") & set(entry.perms))
        )

    return test


def _print(end: str) -> Callable[[_Walk, str], bool]:
    def act(walk: _Walk, word: str) -> bool:
        walk.printed.append(walk.file.path + end)
        return True

    return act


def _print_formatted(walk: _Walk, word: str) -> bool:
    file = walk.file
    if file.entry.target is not None:
        file = replace(file, followed=_followed(walk))
    made = format_file(unescape_format(word), file, walk.plan["directives"])
    if made is None:
        raise ValueError(word)
    walk.printed.append(made)
    return True


def _remove(walk: _Walk, word: str) -> bool:
    if not walk.inner and walk.file.path in (".", "./"):
        return True
    if walk.file.entry.perms[0] == "d":
        kept = {path for path, _ in walk.tree.entries or () if _is_in(path, walk.inner)}
        if kept - walk.plan["removed"]:
            raise ValueError("a directory is not empty")
    walk.plan["removed"].add(walk.inner)
    key = walk.file.tree.key(walk.file.path, follow=False)
    walk.plan["operations"].append(("r", pointer("fs", key)))
    return True


def _is_in(path: str, above: str) -> bool:
    return path.startswith(f"{above}/") or not above


def _removing(plan: Plan, word: str) -> None:
    plan["inside first"] = True
    _action(_remove)(plan, word)


def _prune(walk: _Walk, word: str) -> bool:
    walk.pruned = True
    return True


def _to_depth(name: str) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        if not re.fullmatch(r"\d{1,6}", word):
            raise ValueError(word)
        plan["closed"] = True
        plan[name] = int(word)

    return change


def _closing(plan: Plan, word: str) -> None:
    plan["closed"] = True


def _inside_first(plan: Plan, word: str) -> None:
    plan["closed"] = plan["inside first"] = True


def _has_name(walk: _Walk, word: str) -> bool:
    return matches(word, _last_name(walk))


def _has_folded_name(walk: _Walk, word: str) -> bool:
    return matches(word.lower(), _last_name(walk).lower())


def _has_path(walk: _Walk, word: str) -> bool:
    return matches(word, walk.file.path)


def _has_folded_path(walk: _Walk, word: str) -> bool:
    return matches(word.lower(), walk.file.path.lower())


_MEANINGS = (
    OptionMeaning("print", _action(_print("\n"))),
    OptionMeaning("nothing", _closing),
    OptionMeaning("not", _sign("!")),
    OptionMeaning("and", _sign("-a")),
    OptionMeaning("or", _sign("-o")),
    OptionMeaning("print with NUL", _action(_print("\0"))),
    OptionMeaning("is empty", _test(_is_empty)),
    OptionMeaning("remove", _removing),
    OptionMeaning("true", _test(lambda walk, word: True)),
    OptionMeaning("false", _test(lambda walk, word: False)),
    OptionMeaning("may be run", _test(_can("x"))),
    OptionMeaning("may be read", _test(_can("r"))),
    OptionMeaning("go no deeper", _test(_prune)),
    OptionMeaning("what is inside first", _inside_first),
    OptionMeaning("of this name", _test(_has_name), valued=True),
    OptionMeaning("of this kind", _test(_of_kind, _kinds), valued=True),
    OptionMeaning("of this name in any case", _test(_has_folded_name), valued=True),
    OptionMeaning("of this path", _test(_has_path), valued=True),
    OptionMeaning("of this path in any case", _test(_has_folded_path), valued=True),
    OptionMeaning("of this size", _test(_of_size, _sized), valued=True),
    OptionMeaning("at most so deep", _to_depth("deepest"), valued=True),
    OptionMeaning("at least so deep", _to_depth("least"), valued=True),
    OptionMeaning("changed days ago", _test(_of_age(_DAY, up=False), _number), valued=True),
    OptionMeaning("changed minutes ago", _test(_of_age(_MINUTE, up=True), _number), valued=True),
    OptionMeaning("newer", _test(_is_newer), valued=True),
    OptionMeaning("of these rights", _test(_of_rights, _rights), valued=True),
    OptionMeaning("of this owner", _test(_is_owned), valued=True),
    OptionMeaning("of this group", _test(_is_of_group), valued=True),
    OptionMeaning("leads to a file of this kind", _test(_of_followed_kind, _kinds), valued=True),
    OptionMeaning("leads to this", _test(_leads_to), valued=True),
    OptionMeaning("of so many links", _test(_has_links, _number), valued=True),
    OptionMeaning("print by a format", _action(_print_formatted), valued=True, format=True),
    OptionMeaning("nothing", lambda plan, word: _closing(plan, word), valued=True),
)


def _expression(terms: Sequence[_Test | str]) -> _Test:
    """Combine the terms into one test: `!` binds closest, `-a` is optional, `-o` binds least.

    Errors: ValueError for an invalid sequence of terms.
    """
    left = list(terms)[::-1]

    def disjunction() -> _Test:
        found = [conjunction()]
        while left and left[-1] == "-o":
            left.pop()
            found.append(conjunction())
        return found[0] if len(found) == 1 else lambda walk: any(each(walk) for each in found)

    def conjunction() -> _Test:
        found = [single()]
        while left and left[-1] not in ("-o", ")"):
            if left[-1] == "-a":
                left.pop()
            found.append(single())
        return found[0] if len(found) == 1 else lambda walk: all(each(walk) for each in found)

    def single() -> _Test:
        if not left:
            raise ValueError("an expression ends too early")
        term = left.pop()
        if term == "!":
            inner = single()
            return lambda walk: not inner(walk)
        if term == "(":
            inner = disjunction()
            if not left or left.pop() != ")":
                raise ValueError("a parenthesis is open")
            return inner
        if isinstance(term, str):
            raise ValueError(term)
        return term

    made = disjunction()
    if left:
        raise ValueError("a parenthesis is closed that was not opened")
    return made


def _run(taken: Taken, plan: Plan) -> Sequence[str] | None:
    """Return the paths for which an expression holds, or the output of its actions."""
    if taken.tree is None or taken.tree.now is None:
        return None
    terms = plan.get("terms", [])
    test = _expression(terms) if terms else None
    printed: list[str] = []
    for root, root_entry, tree in roots(taken, plan["operands"]):
        word = root.word
        if root_entry is None:
            printed.append(missing_file_error(root, plan))
            continue
        below = tree.entries if root_entry.perms[0] == "d" else ()
        if below is None:
            return None
        spend(len(below) * (1 + len(terms)))
        files = [("", root_entry), *below]
        if plan.get("inside first"):
            files = list(_inside(files))
        pruned: tuple[str, ...] = ()
        plan["removed"] = set()
        for inner, entry in files:
            deep = inner.count("/") + bool(inner)
            if deep > plan.get("deepest", deep) or deep < plan.get("least", 0):
                continue
            if pruned and inner.startswith(pruned):
                continue
            path = f"{word.rstrip('/') if inner else word}{'/' * bool(inner)}{inner}"
            file = FormattedFile(path, word, entry, tree=taken.tree)
            walk = _Walk(file, tree, inner, taken.tree.now, taken, plan, printed)
            if (test is None or test(walk)) and not plan.get("acts"):
                printed.append(f"{path}\n")
            if walk.pruned and not plan.get("inside first"):
                pruned += (f"{inner}/" if inner else "",)
    return printed


def roots(
    taken: Taken, operands: Sequence[Operand]
) -> Iterator[tuple[Operand, FileEntry | None, Tree]]:
    """Yield the roots of a walk: each operand, its entry (None if missing), and its tree.

    Without operands the root is the working directory. Errors: ValueError if it was removed.
    """
    assert taken.tree is not None
    if not operands:
        entry = taken.tree.find(".")
        if entry is None:
            raise ValueError(".")
        yield Operand(".", "d"), entry, taken.tree
    for each in operands:
        yield each, each.entry, each.tree or taken.tree


def _inside(files: Sequence[tuple[str, FileEntry]]) -> Iterator[tuple[str, FileEntry]]:
    """Yield the files of a walk with each directory after its contents."""
    open_: list[tuple[str, FileEntry]] = []
    for path, entry in files:
        while open_ and open_[-1][0] and not path.startswith(f"{open_[-1][0]}/"):
            yield open_.pop()
        if entry.perms[0] == "d":
            open_.append((path, entry))
        else:
            yield path, entry
    yield from reversed(open_)


WALK = Language(
    "walk", _MEANINGS, _run,
    words={
        "!": OptionMeaning("not", _sign("!")),
        "(": OptionMeaning("begin", _sign("(")),
        ")": OptionMeaning("end", _sign(")")),
    },
    directives=ATTRIBUTES,
    rough=ROUGH,
)  # fmt: skip
