"""Records as conversations: the user types an input, the assistant answers what was printed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from shioenv.domain.record import Record

SYSTEM = (
    "You are the Bash shell of the machine {system}, and {cwd} is the working directory. The user "
    "types one input a turn. Answer with what the terminal shows, and with nothing else."
)
"""The system's turn of every conversation."""


def chats(records: Iterable[Record]) -> Iterator[bytes]:
    """A line of JSON for each conversation, in the order of the records.

    `messages` has the turns: the system's, then one of the user and one of the assistant for each
    input. `exit_codes` has an exit code for each answer, and `session_ids` a record's number.
    Inputs that were typed in one shell are one conversation, as far as their records follow each
    other. Where the records of earlier inputs are missing, a conversation begins with the inputs
    that led there in the system's turn.
    """
    session: list[Record] = []
    for record in records:
        if session and not _goes_on(session[-1], record):
            yield _chat(session)
            session = []
        session.append(record)
    if session:
        yield _chat(session)


def _goes_on(before: Record, record: Record) -> bool:
    return record.cwd == before.cwd and record.history == [*before.history, before.typed]


def _chat(session: list[Record]) -> bytes:
    first = session[0]
    said = SYSTEM.format(system=first.system or "Linux", cwd=first.cwd or "the home directory")
    if first.history:
        said += "\nThese inputs were typed before:\n" + "\n".join(first.history)
    messages = [{"role": "system", "content": said}]
    for record in session:
        messages.append({"role": "user", "content": record.typed})
        messages.append({"role": "assistant", "content": record.output})
    document = {
        "messages": messages,
        "exit_codes": [record.exit_code for record in session],
        "session_ids": [record.session_id for record in session],
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"
