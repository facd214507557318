"""The predictor Cowrie: the actual honeypot, over real SSH, configured for the system.

Cowrie is installed in a separate environment in the user's cache directory on first use. The system
provides its file tree with contents, /proc, processes and the output of `uname`. It also provides
the output of commands that Cowrie lacks, if they print something and change nothing when they
run without arguments.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import posixpath
import re
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import published_input
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import State
from shioenv.errors import AnswerError
from shioenv.grammar.library import names_of_grammars
from shioenv.system.store import System, find_system
from shioenv_eval.predictors.line_program import LineProcess, installed, run_installer
from shioenv_eval.predictors.tree import changed_file

VERSION = "3.1.4"
"""The version that is installed and named in every result.

The scores of different versions differ by a factor of two to five.
"""

LARGEST = 4 << 20
"""Maximum size in bytes of a file whose content Cowrie receives; larger files are empty."""

LINK, DIRECTORY, FILE = 0, 1, 2

_REFUSED = re.compile(rb"bash: -c: line \d+: (?:syntax error|unexpected EOF)")

CONFIGURATION = """\
[honeypot]
hostname = {hostname}
txtcmds_path = {home}/txtcmds
ttylog = false
timezone = UTC
logtype = plain
boot_offset = {uptime}
fake_addr = {address}
log_path = {state}/log
state_path = {state}
download_path = {state}/downloads
[shell]
filesystem = {home}/fs.pickle
processes = {home}/cmdoutput.json
arch = linux-x64-lsb
kernel_name = Linux
kernel_version = {release}
kernel_build_string = {build}
hardware_platform = {machine}
operating_system = GNU/Linux
wget_rate_limit_enabled = false
curl_rate_limit_enabled = false
nc_rate_limit_enabled = false
ftpget_rate_limit_enabled = false
tftp_rate_limit_enabled = false
[ssh]
enabled = true
listen_endpoints = tcp:{port}:interface=127.0.0.1
rsa_public_key = {state}/ssh_host_rsa_key.pub
rsa_private_key = {state}/ssh_host_rsa_key
ecdsa_public_key = {state}/ssh_host_ecdsa_key.pub
ecdsa_private_key = {state}/ssh_host_ecdsa_key
ed25519_public_key = {state}/ssh_host_ed25519_key.pub
ed25519_private_key = {state}/ssh_host_ed25519_key
"""


class Cowrie:
    """Answers with Cowrie's response to the exec request `cd DIR; INPUT`, in a new connection."""

    patch_level = PatchLevel.FILES
    version = VERSION
    install = f"python3 -m venv cowrie && cowrie/bin/pip install cowrie=={VERSION}"

    def __init__(self, setting: Setting) -> None:
        self._start = setting.start
        python = interpreter()
        system = find_system(setting.text or setting.system)
        home = installed(
            f"cowrie-{VERSION}-{system.digest[:12]}", lambda made: _configure(made, system, python)
        )
        self._state = Path(tempfile.mkdtemp(prefix="shioenv-cowrie-"))
        try:
            self._process = self._begun(python, home, setting)
        except BaseException:
            shutil.rmtree(self._state, ignore_errors=True)
            raise

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return Cowrie's behavior for the input.

        A history is also run alone, and its output and changes are subtracted. Cowrie skips the
        history before some inputs that it cannot parse. Such an input is run alone. Errors:
        AnswerError if the connection breaks; those of `LineProcess.ask`.
        """
        cwd = state.cwd if state else self._start
        history = state.history if state else ()
        known: dict[str, Any] = {}
        said = self._asked(published_input(cwd, "\n".join([*history, shell_input])))
        output = base64.b64decode(said["output_b64"])
        if history:
            before = self._asked(published_input(cwd, "\n".join(history)))
            printed, known = base64.b64decode(before["output_b64"]), before["files"]
            if known and not said["files"] and _REFUSED.match(output):
                said, known = self._asked(published_input(cwd, shell_input)), {}
                output = base64.b64decode(said["output_b64"])
            output = output.removeprefix(printed)
        changed = said["files"]
        patch = ContextPatch(tuple(_operations(known, changed, cwd)))
        return Behavior(said["exit_code"] & 0xFF, output, patch)

    def make_ready(self) -> None:
        """Restart client and server if they have ended."""
        self._process.make_ready()

    def close(self) -> None:
        """End client and server, and remove their directory."""
        self._process.close()
        shutil.rmtree(self._state, ignore_errors=True)

    def _begun(self, python: Path, home: Path, setting: Setting) -> LineProcess:
        self.port = port = free_port()
        """Cowrie's port on 127.0.0.1; root can log in with any password."""
        facts = json.loads((home / "facts.json").read_text())
        self._lay_out(CONFIGURATION.format(home=home, state=self._state, port=port, **facts))
        here = files("shioenv_eval.predictors")
        programs = [str(here.joinpath(f"cowrie_{name}.py")) for name in ("client", "server")]
        words = [str(python), "-I", *programs, str(self._state), str(port)]
        return LineProcess(words, {"hello": True}, setting)

    def _asked(self, text: str) -> dict[str, Any]:
        said = self._process.ask({"text": text}, dict)
        if "error" in said:
            raise AnswerError(said["error"])
        return said

    def _lay_out(self, configuration: str) -> None:
        for name in ("etc", "log", "downloads", "var/log/cowrie", "var/lib/cowrie/downloads"):
            (self._state / name).mkdir(parents=True, exist_ok=True)
        (self._state / "etc" / "cowrie.cfg").write_text(configuration)
        (self._state / "etc" / "userdb.txt").write_text("root:x:*\n")


def _operations(before: dict[str, Any], after: dict[str, Any], cwd: str) -> Iterator[Operation]:
    """Yield the operations that lead from one state to another.

    A state maps paths to each file's difference from the system as built.
    """
    for path in {*before, *after}:
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        verb = ""
        if new is None and old is not None:  # as built: the input reverted the history's change
            verb = {"added": "removed", "removed": "added"}.get(old[0], "changed")
        elif old is None and new is not None:
            verb = new[0]
        elif old is not None and new is not None:
            was, is_there = old[0] != "removed", new[0] != "removed"
            verb = "changed" if was and is_there else "added" if is_there else "removed"
        yield changed_file(verb, path, cwd)


def interpreter() -> Path:
    """Return the Python of Cowrie's environment, which includes paramiko; created on first use."""
    return installed(f"cowrie-{VERSION}", _install) / "venv" / "bin" / "python"


def _install(directory: Path) -> None:
    run_installer((sys.executable, "-m", "venv", directory / "venv"), "cowrie")
    python = directory / "venv" / "bin" / "python"
    packages = (f"cowrie=={VERSION}", "paramiko>=3.4")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run_installer((python, *pip, *packages), "cowrie", env=environment)


def _configure(directory: Path, system: System, python: Path) -> None:
    """Write all system files that Cowrie needs into a directory."""
    (directory / "fs.pickle").write_bytes(pickle.dumps(_tree(system), protocol=4))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    asking = (
        "import importlib, json, pkgutil, cowrie.commands as c\n"
        "found = set()\n"
        "for _, name, _ in pkgutil.iter_modules(c.__path__):\n"
        "    module = importlib.import_module('cowrie.commands.' + name)\n"
        "    found.update(getattr(module, 'commands', {}))\n"
        "print(json.dumps(sorted(found)))"
    )
    own = set(json.loads(run_installer((python, "-c", asking), "cowrie", env=environment)))
    own = {name.rpartition("/")[2] for name in own}
    with open_sandbox(system) as sandbox:
        _text_commands(directory, sandbox, own)
        (directory / "cmdoutput.json").write_text(json.dumps({"command": {"ps": _ps(sandbox)}}))
        release, build, machine = sandbox.run("uname -r; uname -v; uname -m").text.splitlines()
        uptime = float(sandbox.run("cat /proc/uptime").text.split()[0])
    interfaces = system.declaration.machine.interfaces
    facts = {
        "hostname": system.declaration.machine.hostname,
        "release": release,
        "build": build,
        "machine": machine,
        "uptime": round(uptime),
        "address": interfaces[0].address if interfaces else "127.0.0.1",
    }
    (directory / "facts.json").write_text(json.dumps(facts))


def _text_commands(directory: Path, sandbox: SandboxRunner, own: set[str]) -> None:
    """Write the output of utilities that Cowrie lacks (`own` are those it has).

    A utility is included if without arguments it exits 0, prints something and changes nothing.
    Each text is stored under usr/bin at the utility's path, where Cowrie looks for it.
    """
    (directory / "txtcmds").mkdir()
    for name in sorted({*names_of_grammars(), "mount"} - own):
        path = sandbox.run(f"command -v {quoted(name)}").text.strip()
        done = sandbox.run(name) if path.startswith("/") else None
        if done is not None and done.exit_code == 0 and done.output and not done.patch:
            file = directory / "txtcmds" / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(done.output)


def _ps(sandbox: SandboxRunner) -> list[dict[str, Any]]:
    names = ("USER", "PID", "CPU", "MEM", "VSZ", "RSS", "TTY", "STAT", "START", "TIME", "COMMAND")
    rows = []
    for line in sandbox.run("ps auxww").text.splitlines()[1:]:
        fields = dict(zip(names, line.split(None, 10), strict=False))
        if "ps auxww" not in fields.get("COMMAND", "ps auxww"):
            numbers = {"PID": int(fields["PID"]), "CPU": float(fields["CPU"]), "TIME": 0.0}
            sizes = {name: int(fields[name]) * 1024 for name in ("VSZ", "RSS")}
            rows.append({**fields, **numbers, **sizes, "MEM": float(fields["MEM"])})
    return rows


def _tree(system: System) -> list[Any]:
    """Return the system's files as Cowrie's tree.

    A node is name, type, owner, group, size, mode, time, contents, target, and a real file, which
    is always None here. Targets of links are absolute, since Cowrie resolves relative ones from the
    root.
    """
    nodes: dict[str, list[Any]] = {}
    proc = system.shown_in_proc()
    for path, entry in sorted(system.index.items()):
        facts = [entry.uid, entry.gid, entry.size, entry.mode, entry.mtime]
        name = path.rpartition("/")[2] or "/"
        node: list[Any]
        if stat.S_ISDIR(entry.mode):
            node = [name, DIRECTORY, *facts, [], None, None]
        elif stat.S_ISLNK(entry.mode):
            target = entry.target
            if not target.startswith("/"):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            node = [name, LINK, *facts, [], system.resolve(path) or target, None]
        elif stat.S_ISREG(entry.mode):
            small = entry.size <= LARGEST
            content = system.read(path) if small else b""
            node = [name, FILE, *facts, content, None, None]
        else:
            continue
        nodes[path] = node
    for path, content in proc.items():
        parts = path.split("/")
        for depth in range(2, len(parts)):
            above = "/".join(parts[:depth])
            nodes.setdefault(
                above, [parts[depth - 1], DIRECTORY, 0, 0, 0, 0o40555, 0, [], None, None]
            )
        nodes[path] = [parts[-1], FILE, 0, 0, 0, 0o100444, 0, content, None, None]
    for path, node in sorted(nodes.items()):
        if path != "/":
            nodes[path.rpartition("/")[0] or "/"][7].append(node)
    return nodes["/"]


def free_port() -> int:
    """Return an unused port of this host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
