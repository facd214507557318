"""Cowrie unchanged, but that it writes down what each input did to the virtual file system.

When an input ends, one line of JSON is appended to the file that SHIOENV_COWRIE_CHANGES names:
`{"code": ..., "files": {path: [verb, state]}}`. The verb is `added`, `changed` or `removed`; the
state of a removed file is null.

Standard library and Cowrie only: this is a program for another environment, Cowrie's own.
"""

import hashlib
import json
import os
import sys

from cowrie.core import honeyfs
from cowrie.shell import protocol

NAME, TYPE, UID, GID, SIZE, MODE, TIME, CONTENTS, TARGET, REAL = range(10)
DIRECTORY = 1
LOG = os.environ["SHIOENV_COWRIE_CHANGES"]
BASE = {}


def flat(node, path, found):
    for child in node[CONTENTS]:
        here = path + "/" + child[NAME]
        found[here] = state(child)
        if child[TYPE] == DIRECTORY:
            flat(child, here, found)
    return found


def state(node):
    """The facts of a file that are compared; no time of a directory, which every new entry sets."""
    seen = [node[TYPE], node[MODE], node[UID], node[GID]]
    if node[TYPE] == DIRECTORY:
        return seen
    contents = node[CONTENTS]
    if node[REAL]:
        with open(node[REAL], "rb") as file:
            contents = file.read()
    digest = hashlib.sha256(contents).hexdigest() if isinstance(contents, bytes) else ""
    return [*seen, node[TIME], digest, node[TARGET]]


def changes(files):
    if not files._private_fs:
        return {}
    if not BASE:
        BASE.update(flat(honeyfs.get_tree(), "", {}))
    now = flat(files.fs, "", {})
    found = {path: after for path, after in now.items() if BASE.get(path) != after}
    found.update({path: None for path in BASE if path not in now})
    return {
        path: [
            "changed" if path in BASE and after else "removed" if after is None else "added",
            after,
        ]
        for path, after in found.items()
    }


ended = protocol.HoneyPotBaseProtocol.end_process


def end_process(self, code):
    if not self._process_ended and isinstance(self, protocol.HoneyPotExecProtocol):
        with open(LOG, "a") as log:
            log.write(json.dumps({"code": code, "files": changes(self.fs)}) + "\n")
    return ended(self, code)


protocol.HoneyPotBaseProtocol.end_process = end_process

if __name__ == "__main__":
    from twisted.scripts.twistd import run

    sys.argv = ["twistd", "-n", "--umask=0022", "--pidfile=", "cowrie"]
    run()
