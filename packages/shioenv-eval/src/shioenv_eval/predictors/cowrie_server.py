"""Run Cowrie unchanged, and log each input's changes to the virtual file system.

When an input ends, one line of JSON is appended to the file in SHIOENV_COWRIE_CHANGES: `{"code":
..., "files": {path: [verb, state]}}`. The verb is `added`, `changed` or `removed`; the state of a
removed file is null.

It uses only the standard library and Cowrie, since it runs in Cowrie's own environment.
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
"""The initial state of each file of the tree, by path; `prepared` fills it."""
DIGESTS = {}
"""Digests of initial contents, by `id`: copies of the tree share the objects."""
DIRECTORIES = []
"""Each directory's list of entries, with the initial entries."""


def prepared():
    """Record the initial tree before anything changes it."""
    tree = honeyfs.get_tree()
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        contents = node[CONTENTS]
        if node[TYPE] == DIRECTORY:
            DIRECTORIES.append((contents, tuple(contents)))
            nodes += contents
        elif isinstance(contents, bytes):
            DIGESTS[id(contents)] = hashlib.sha256(contents).hexdigest()
    BASE.update(flat(tree, "", {}))


def flat(node, path, found):
    for child in node[CONTENTS]:
        here = path + "/" + child[NAME]
        found[here] = state(child)
        if child[TYPE] == DIRECTORY:
            flat(child, here, found)
    return found


def state(node):
    """Return a file's compared attributes, without a directory's time, which new entries set."""
    seen = [node[TYPE], node[MODE], node[UID], node[GID]]
    if node[TYPE] == DIRECTORY:
        return seen
    contents = node[CONTENTS]
    if node[REAL]:
        with open(node[REAL], "rb") as file:
            contents = file.read()
    digest = DIGESTS.get(id(contents))
    if digest is None:
        digest = hashlib.sha256(contents).hexdigest() if isinstance(contents, bytes) else ""
    return [*seen, node[TIME], digest, node[TARGET]]


def changes(files):
    if not files._private_fs and all(len(now) == len(was) for now, was in DIRECTORIES):
        return {}
    now = flat(files.fs, "", {})
    found = {path: after for path, after in now.items() if BASE.get(path) != after}
    found.update({path: None for path in BASE if path not in now})
    for entries, built in DIRECTORIES:  # rmdir changes the tree that all connections share
        if len(entries) != len(built):
            entries[:] = built
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

    prepared()
    sys.argv = ["twistd", "-n", "--umask=0022", "--pidfile=", "cowrie"]
    run()
