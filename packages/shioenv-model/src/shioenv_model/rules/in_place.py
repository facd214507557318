"""Files that a command edits in place, told by what the command prints of each."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import OF_DATE
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained
from shioenv_model.composition.call import Call, Options, option_words
from shioenv_model.rules.tree_changes import Effects

EDITORS = frozenset({"sed", "perl"})
"""Programs that edit files in place with `-i`: the output of the program becomes the file."""

_IN_PLACE = frozenset({"-i", "--in-place"})
_SCRIPTS = frozenset({"-e", "-E", "--expression", "-f", "--file"})
"""Options whose values are scripts. Without a value `-E` of sed is none."""


def edited_in_place(
    name: str,
    options: Options,
    operands: tuple[str, ...],
    state: State,
    fresh: Mapping[str, Any],
    ask: Callable[[Call, State], Answer],
) -> Answer | None:
    """What `sed -i` and `perl -i` do. `ask` says what the command prints of one file.

    `fresh` is the entry of an empty file that is made now. None for other commands, for files whose
    content is not known, and where the command would print an error.
    """
    if name not in EDITORS or not any(option in _IN_PLACE for option, _ in options):
        return None
    suffix = "".join(value or "" for option, value in options if option in _IN_PLACE)
    others = [pair for pair in options if pair[0] not in _IN_PLACE]
    apart = 0 if any(option in _SCRIPTS and value is not None for option, value in others) else 1
    script, files = operands[:apart], operands[apart:]
    if not files or "/" in suffix or "*" in suffix:
        return None
    before = [name, *(word for option in others for word in option_words(option)), *script]
    made, sure = Effects(state, fresh), 1.0
    try:
        for path in files:
            answer = ask(Call.of([*before, path]), state)
            sure = min(sure, answer.confidence)
            _replace(made, path, suffix, answer.behavior)
    except Abstained:
        return None
    return Answer(made.behavior(), sure, "a file edited in place, by rule", made.contents)


def _replace(made: Effects, path: str, suffix: str, said: Behavior) -> None:
    """Puts a new file in the place of a file, with what was printed of that. Errors: Abstained.

    The new file has the rights, but no special bits, and the owner of the old one. A link becomes a
    file. With a suffix the old file stays under another name.
    """
    entry, content = made.state.entry(path), made.state.read(path)
    if entry is None or content is None or entry.links > 1:
        raise Abstained("a file of which too little is known")
    if said.exit_code or said.patch or said.stderr or said.stdout is None:
        raise Abstained("an editor that does more than print")
    whole, now = made.place(path), {each: made.fresh[each] for each in OF_DATE}
    if suffix:
        kept = made.place(f"{path}{suffix}")
        if made.entry(kept) is not None:
            raise Abstained("a file that is in the way")
        made.put(kept, entry.to_json())
        made.contents[made.key(kept)] = content
    else:
        above = posixpath.dirname(whole)
        made.put(above, {**(made.entry(above) or {}), **now})
    perms = entry.perms.translate(str.maketrans("sStT", "x-x-"))
    made.put(whole, {**entry.to_json(), **now, "perms": perms, "size": len(said.stdout)})
    if said.stdout != content:
        made.contents[made.key(whole)] = said.stdout
