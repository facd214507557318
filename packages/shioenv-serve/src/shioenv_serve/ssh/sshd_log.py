"""Parse sshd's log of a connection into events."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LONGEST_LINE: Final = 65_536
"""Maximum bytes parsed of a line of sshd's log; our choice."""

_PREFIX = re.compile(r"^(?:debug[123]: )?(.*?)(?: \[preauth\])?$", re.DOTALL)
_PROPOSAL = re.compile(
    r"(KEX algorithms|host key algorithms|ciphers ctos|MACs ctos|compression ctos|languages ctos): "
    r"(.*)"
)
_OF_HASSH = ("KEX algorithms", "ciphers ctos", "MACs ctos", "compression ctos")

_Fields = Mapping[str, Any]
_RULES: tuple[tuple[re.Pattern[str], str, Callable[[re.Match[str]], _Fields]], ...] = (
    (
        re.compile(r"Remote protocol version (\S+), remote software version (.*)"),
        "cowrie.client.version",
        lambda found: {"version": f"SSH-{found[1]}-{found[2]}"},
    ),
    (
        re.compile(
            r"Failed publickey for (?:invalid user )?(.*) from \S+ port \d+ ssh2: (\S+) (\S+)"
        ),
        "cowrie.client.fingerprint",
        lambda found: {"username": found[1], "type": found[2], "fingerprint": found[3]},
    ),
    (
        re.compile(
            r"Accepted publickey for (.*) from \S+ port \d+ ssh2: (\S+) (\S+)"
        ),
        "cowrie.login.success",
        lambda found: {
            "username": found[1], "password": "", "type": found[2], "fingerprint": found[3],
        },
    ),
    (
        re.compile(
            r"server_request_direct_tcpip: originator (\S+) port (\d+), target (\S+) port (\d+)"
        ),
        "cowrie.direct-tcpip.request",
        lambda found: {
            "src_ip": found[1], "src_port": int(found[2]),
            "dst_ip": found[3], "dst_port": int(found[4]),
        },
    ),
    (
        re.compile(r"server_input_global_request: rtype (\S+) want_reply \d"),
        "shioenv.forward.refused",
        lambda found: {"request": found[1]},
    ),
    (
        re.compile(r"server_request_direct_streamlocal.*"),
        "shioenv.forward.refused",
        lambda found: {"request": "direct-streamlocal@openssh.com"},
    ),
    (
        re.compile(
            r"session_input_channel_req: session \d+ req (x11-req|auth-agent-req@openssh\.com)"
        ),
        "shioenv.forward.refused",
        lambda found: {"request": found[1]},
    ),
    (
        re.compile(
            r"Bad protocol version identification .*|banner exchange: .*|Bad packet length.*"
            r"|kex_exchange_identification: .*|.*[Cc]orrupted MAC.*|Unable to negotiate .*"
            r"|ssh_dispatch_run_fatal: .*|fatal: .*|Disconnecting .*|Received disconnect .*"
            r"|error: .*|Timeout before authentication .*"
        ),
        "shioenv.protocol",
        lambda found: {"text": found[0]},
    ),
)  # fmt: skip
_GLOBAL_BUT_NO_FORWARD = ("no-more-sessions@openssh.com", "keepalive@openssh.com",
                          "hostkeys-prove-00@openssh.com")  # fmt: skip


@dataclass
class SshdLogParser:
    """A parser of one connection's log, line by line."""

    _proposal: dict[str, str] | None = None
    _names: dict[str, str] = field(default_factory=dict)

    def line(self, text: str) -> Iterator[tuple[str, _Fields]]:
        """Return the events in a log line, each with its fields."""
        match = _PREFIX.match(text[:LONGEST_LINE])
        said = match[1] if match else text
        if said == "peer client KEXINIT proposal":
            self._proposal = {}
        elif self._proposal is not None and (found := _PROPOSAL.fullmatch(said)):
            self._proposal[found[1]] = found[2]
            if found[1] == "languages ctos":
                yield "cowrie.client.kex", _kex(self._proposal)
                self._proposal = None
        else:
            for pattern, event, fields in _RULES:
                if found := pattern.fullmatch(said):
                    if found.lastindex and found[1] in _GLOBAL_BUT_NO_FORWARD:
                        return
                    yield event, fields(found)
                    return


def _kex(proposal: Mapping[str, str]) -> _Fields:
    algorithms = ";".join(proposal.get(name, "") for name in _OF_HASSH)
    return {
        "hassh": hashlib.md5(algorithms.encode(), usedforsecurity=False).hexdigest(),
        "hasshAlgorithms": algorithms,
        "kexAlgs": proposal.get("KEX algorithms", "").split(","),
        "keyAlgs": proposal.get("host key algorithms", "").split(","),
        "encCS": proposal.get("ciphers ctos", "").split(","),
        "macCS": proposal.get("MACs ctos", "").split(","),
        "compCS": proposal.get("compression ctos", "").split(","),
        "langCS": proposal.get("languages ctos", "").split(","),
    }
