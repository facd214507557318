"""Check that the parser accepts what Bash accepts, and refuses what Bash refuses.

    python soak/reading.py
    python soak/reading.py --count 50000 --seed 4

Parses the public suite, the examples of the grammars, and `--count` hostile texts (those of
`fuzz.py`: inputs with changed tokens, random syntax, lines of the system's scripts, bytes), and
runs `bash -n` of the system on each. It must accept nothing that Bash refuses, and refuse at most
1% of what Bash accepts. Bash runs in sandboxes, on some hundred texts a run.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from common import Progress, parser, report
from fuzz import Inputs
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.grammar.library import load_grammars
from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import find_system

MOST_REFUSED = 0.01
"""Largest share of the texts accepted by Bash that may be refused."""
AT_ONCE = 200
"""Texts for Bash in one run."""
LONGEST = 4000
LIMITS = replace(Limits(), wall_seconds=60.0, cpu_seconds=60.0)
ASK = r"""
mapfile -t -d '' texts
for text in "${texts[@]}"; do
    said=$(bash -n -c -- "$text" 2>&1 >/dev/null </dev/null)
    status=$?
    said=${said//*warning:*/}
    [[ $status = 0 && -z $said ]]
    printf %s $?
done
"""
"""Prints 0 for each text that Bash accepts. For some faults, as in `[[ … ]]`, Bash only prints an
error, with status 0; warnings do not count."""


def main() -> int:
    """Compare both and return the exit status."""
    options = parser(__doc__, count=10_000).parse_args()
    system = find_system(options.system)
    texts = [text for text in _texts(system, options.seed, options.count) if _is_askable(text)]
    progress = Progress("texts", len(texts))
    counts = Counter[str]()
    refused: list[dict[str, Any]] = []
    violations: list[dict[str, Any]] = []
    with NamespaceSandbox(system, LIMITS) as sandbox:
        for at in range(0, len(texts), AT_ONCE):
            chunk = texts[at : at + AT_ONCE]
            for text, theirs in zip(chunk, _asked(sandbox, chunk), strict=True):
                why = _refusal(text)
                counts["accepted" if theirs else "refused"] += 1
                if theirs and why:
                    refused.append({"text": text, "why": why})
                elif not theirs and not why:
                    violations.append({"text": text, "why": "Bash refuses it"})
            progress.step(len(chunk))
    if len(refused) > MOST_REFUSED * counts["accepted"]:
        violations += refused
    facts = {
        "accepted by Bash": counts["accepted"],
        "refused by Bash": counts["refused"],
        "refused here alone": len(refused),
        "why": [f"{one['why']}: {one['text']!r:.400}" for one in refused[:20]],
    }
    return report(facts, violations, as_json=options.json)


def _texts(system: Any, seed: int, count: int) -> Iterator[str]:
    lines = files("shioenv.dataset").joinpath("inputs/public.jsonl").read_text("utf-8")
    yield from (json.loads(line)["input"] for line in lines.splitlines())
    for grammar in load_grammars():
        yield from (each.text for each in grammar.examples)
    inputs = Inputs(system, seed)
    yield from (inputs.make(number).text for number in range(count))


def _is_askable(text: str) -> bool:
    """Whether Bash can read it: no NUL, no text that no file could hold, none that is long."""
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in data and len(data) <= LONGEST


def _refusal(text: str) -> str:
    """Return the parser's error for a text; "" where it parses."""
    try:
        read(text)
    except Refused as refused:
        return refused.why
    return ""


def _asked(sandbox: NamespaceSandbox, texts: Sequence[str]) -> list[bool]:
    """Return for each text whether Bash accepts it."""
    stdin = b"".join(os.fsencode(text) + b"\0" for text in texts)
    said = sandbox.run(Request(ASK, stdin=stdin)).output.decode()
    if len(said) != len(texts):
        raise SystemExit(f"bash answered {len(said)} of {len(texts)} texts: {said[-200:]!r}")
    return [answer == "0" for answer in said]


if __name__ == "__main__":
    sys.exit(main())
