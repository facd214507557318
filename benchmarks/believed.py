"""Test whether bytes on the wire distinguish `shioenv serve ssh` from a stock sshd of its package.

    python benchmarks/believed.py [--cowrie] [--json]

64 openings are sent to both, before any login: those of honeypot detectors, and others that no
client sends. All received bytes and the connection's end are compared, without the 16 random bytes
of a KEXINIT. An opening counts as different where it differs three times: a connection that is
reset may lose its last bytes. The group that a server draws for `GEX 8192` is random, so that this
opening differs between two stock servers too. `--cowrie` sends all of it to Cowrie as well. Where
they are installed, `nmap -sV` and `ssh-audit` identify each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from shioenv.system.idmap import find_idmap, spawn_mapped
from shioenv.system.store import System, find_system
from shioenv_eval.predictors.cowrie import free_port, interpreter

CLIENT = [
    "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
    "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes",
]  # fmt: skip
"""Options of an OpenSSH client without known hosts or saved state."""

BANNER = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10\r\n"
PATIENCE = 15.0
TRIES = 3
SILENCE = 4.0
"""Seconds of silence after which a server is assumed to keep the connection open."""


def packet(payload: bytes, padding: int | None = None) -> bytes:
    """Return a packet before encryption."""
    if padding is None:
        padding = 8 - (5 + len(payload)) % 8
        padding += 8 if padding < 4 else 0
    head = struct.pack(">IB", len(payload) + 1 + padding, padding)
    return head + payload + bytes(padding)


def texts(*words: str) -> bytes:
    """Return texts with their lengths before them."""
    return b"".join(struct.pack(">I", len(word)) + word.encode() for word in words)


def kexinit(
    kex: str = "curve25519-sha256", key: str = "ssh-ed25519", cipher: str = "aes128-ctr",
    mac: str = "hmac-sha2-256", compression: str = "none",
) -> bytes:  # fmt: skip
    """Return a client's proposal."""
    lists = texts(kex, key, cipher, cipher, mac, mac, compression, compression, "", "")
    return b"\x14" + b"\1" * 16 + lists + bytes(5)


GROUPS = packet(kexinit(kex="diffie-hellman-group-exchange-sha256"))


def head(length: int, padding: int = 4) -> bytes:
    """Return the beginning of a packet of a declared length."""
    return struct.pack(">IB", length, padding) + bytes(11)


OPENINGS: dict[str, tuple[bytes, ...]] = {
    "nothing, and the end": (b"",),
    "SSH-1111": (b"SSH-1111-OpenSSH_9.0\r\n",),
    "SSH-1111 without a newline": (b"SSH-1111-OpenSSH_9.0",),
    "SSH-1.5": (b"SSH-1.5-x\r\n",),
    "SSH-1.99": (b"SSH-1.99-x\r\n",),
    "SSH-3.0": (b"SSH-3.0-x\r\n",),
    "SSH-2.1": (b"SSH-2.1-x\r\n",),
    "SSH-2.0 alone": (b"SSH-2.0\r\n",),
    "SSH-2.0 without software": (b"SSH-2.0-\r\n",),
    "ssh-2.0": (b"ssh-2.0-x\r\n",),
    "LF alone": (b"SSH-2.0-x\n",),
    "a comment in UTF-8": ("SSH-2.0-ü ö\r\n".encode(),),
    "eight newlines (Metasploit)": (BANNER + b"\n" * 8,),
    "eight newlines, later": (BANNER, b"\n" * 8),
    "two banners": (BANNER * 2,),
    "two banners, apart": (BANNER, BANNER),
    "three banners": (BANNER * 3,),
    "libssh": (b"SSH-2.0-libssh-0.6.3\r\n",),
    "a probe": (b"SSH-2.0-Probe-x\r\n",),
    "a scanner": (b"SSH-2.0-SSH-Version-Mapper\r\n",),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",),
    "TLS": (bytes.fromhex("16030100c8010000c40303") + b"\x11" * 200,),
    "zeros": (bytes(64),),
    "all bytes": (bytes(range(256)),),
    "a line of 300": (b"A" * 300 + b"\r\n",),
    "a banner of 255": (b"SSH-2.0-" + b"x" * 245 + b"\r\n",),
    "a banner of 310": (b"SSH-2.0-" + b"x" * 300 + b"\r\n",),
    "1,100 lines": (b"x\r\n" * 1100,),
    "a line of 10,000": (b"B" * 10_000,),
    "NUL in the banner": (b"SSH-2.0-a\0b\r\n",),
    "lines before the banner": (b"hello\r\nworld\r\n" + BANNER,),
    "length ffffffff": (BANNER, b"\xff" * 16),
    "length 0": (BANNER, bytes(16)),
    "length 1": (BANNER, head(1, 0)),
    "length 5": (BANNER, head(5)),
    "length 35,000": (BANNER, head(35_000)),
    "length 262,145": (BANNER, head(262_145)),
    "length 262,140": (BANNER, head(262_140)),
    "more padding than packet": (BANNER, head(12, 200)),
    "no padding": (BANNER, packet(b"\x14" + b"x" * 10, 0)),
    "no common key exchange": (BANNER, packet(kexinit(kex="diffie-hellman-group1-sha1"))),
    "no common host key": (BANNER, packet(kexinit(key="ssh-dss"))),
    "no common cipher": (BANNER, packet(kexinit(cipher="3des-cbc"))),
    "no common MAC": (BANNER, packet(kexinit(mac="hmac-md5"))),
    "no common compression": (BANNER, packet(kexinit(compression="zlib"))),
    "KEXINIT": (BANNER, packet(kexinit())),
    "KEXINIT twice": (BANNER, packet(kexinit()) * 2),
    "KEXINIT, cut": (BANNER, packet(kexinit()[:40])),
    "KEXINIT of empty lists": (BANNER, packet(b"\x14" + b"\1" * 16 + bytes(45))),
    "NEWKEYS first": (BANNER, packet(b"\x15")),
    "SERVICE_REQUEST first": (BANNER, packet(b"\x05" + texts("ssh-userauth"))),
    "USERAUTH first": (BANNER, packet(b"\x32" + texts("root", "ssh-connection", "none"))),
    "DISCONNECT": (BANNER, packet(b"\x01" + struct.pack(">I", 11) + texts("bye", ""))),
    "IGNORE": (BANNER, packet(b"\x02" + texts("x"))),
    "DEBUG": (BANNER, packet(b"\x04\1" + texts("x", ""))),
    "UNIMPLEMENTED": (BANNER, packet(b"\x03\0\0\0\1")),
    "type 0": (BANNER, packet(b"\0x")),
    "type 192": (BANNER, packet(b"\xc0x")),
    "type 255": (BANNER, packet(b"\xffx")),
    "USERAUTH_SUCCESS (CVE-2018-10933)": (BANNER, packet(kexinit()), packet(b"\x34")),
    "ECDH with a key of zeros": (
        BANNER, packet(kexinit()), packet(b"\x1e" + struct.pack(">I", 32) + bytes(32)),
    ),
    "ECDH with a short key": (
        BANNER, packet(kexinit()), packet(b"\x1e" + struct.pack(">I", 5) + bytes(5)),
    ),
    "GEX 8192": (BANNER, GROUPS, packet(b"\x22" + struct.pack(">III", 8192, 8192, 8192))),
    "GEX with sizes the wrong way round": (
        BANNER, GROUPS, packet(b"\x22" + struct.pack(">III", 4096, 1024, 512)),
    ),
}  # fmt: skip
"""The bytes to send, in pieces: each piece goes once the server has answered the one before."""


@dataclass(frozen=True)
class Heard:
    """A server's reply to an opening, and the connection's state afterwards."""

    said: str
    """Bytes in hexadecimal."""
    end: str


def opened(port: int, pieces: tuple[bytes, ...]) -> Heard:
    """Send an opening, and return the reply."""
    heard, end = b"", "open"
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        try:
            while b"\n" not in heard and (data := connection.recv(4096)):
                heard += data
            for number, piece in enumerate(pieces):
                if number:  # wait for an answer to the previous piece first
                    connection.settimeout(0.4)
                    with suppress(TimeoutError):
                        heard += connection.recv(65536)
                connection.sendall(piece)
            connection.settimeout(SILENCE)
            if pieces == (b"",):
                connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                heard += data
            end = "closed"
        except TimeoutError:
            pass
        except OSError as error:
            end = type(error).__name__
    line = heard.find(b"\n")
    if heard[line + 6 : line + 7] == b"\x14":
        heard = heard[: line + 7] + bytes(16) + heard[line + 23 :]
    return Heard(heard.hex(), end)


class Client:
    """Root with a key and a password, and OpenSSH's client for both."""

    def __init__(self, directory: Path) -> None:
        """Make the key in a directory."""
        self.key = directory / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        self.public = self.key.with_suffix(".pub").read_text().strip()
        """The key that a server must accept; servers that ask for a password get one."""
        ask = directory / "ask"
        ask.write_text("#!/bin/sh\necho any\n")
        ask.chmod(0o700)
        kept = {name: text for name, text in os.environ.items() if name[:3] != "LC_"}
        asking = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "TERM": "dumb"}
        self.environment = {**kept, **asking}

    def words(self, port: int, *more: str) -> list[str]:
        """Return the client's command line."""
        return ["ssh", "-p", str(port), "-i", str(self.key), *CLIENT, *more, "root@127.0.0.1"]


STOCK = """
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/new /mnt/work /mnt/root
mount -t overlay -o userxattr,lowerdir=rootfs,upperdir=/mnt/new,workdir=/mnt/work none /mnt/root
for device in null zero full random urandom tty; do
    touch /mnt/root/dev/$device
    mount --bind /dev/$device /mnt/root/dev/$device
done
mkdir -p /mnt/root/run/sshd /mnt/root/proc /mnt/root/dev/pts
mount -t devpts -o newinstance,ptmxmode=666 none /mnt/root/dev/pts
ln -sf pts/ptmx /mnt/root/dev/ptmx
mkdir -p -m 700 /mnt/root/root/.ssh
echo "$1" > /mnt/root/root/.ssh/authorized_keys
mount -t proc proc /mnt/root/proc
exec chroot /mnt/root /usr/sbin/sshd -D -e -p "$0" -o ListenAddress=127.0.0.1
"""
"""The system's sshd as its package configures it, on this host's network. Root may have a key."""


@contextmanager
def stock(system: System, key: str = "") -> Iterator[int]:
    """Run a stock sshd that accepts root's key; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["exec", "unshare", "-m", "-p", "-f", "--kill-child", "sh", "-ec", STOCK, str(port)]
    command.append(key)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    process, connection = spawn_mapped(
        command, find_idmap(), cwd=system.path, env=environment, stderr=subprocess.PIPE
    )
    connection.close()
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        if b"listening" not in line:
            raise SystemExit(f"no stock sshd: {line.decode()}{process.stderr.read().decode()}")
        yield port
    finally:
        process.terminate()
        process.kill()
        process.wait()


@contextmanager
def served(directory: Path, *options: str) -> Iterator[int]:
    """Run `shioenv serve ssh`; yield its port."""
    command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(directory), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--per-address", "100", *options], stderr=subprocess.PIPE, env=os.environ
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline().decode()
        yield int(line.partition(" (")[0].rpartition(":")[2])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def cowrie() -> Iterator[int]:
    """Run a Cowrie of the compared version, with its defaults except the banner; yield its port."""
    python, port = interpreter(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for name in ("etc", "var/log/cowrie", "var/lib/cowrie/downloads", "var/lib/cowrie/tty"):
            (home / name).mkdir(parents=True)
        listening = f"[ssh]\nlisten_endpoints = tcp:{port}:interface=127.0.0.1\n"
        listening += f"version = {BANNER.decode().strip()}\n"
        (home / "etc" / "cowrie.cfg").write_text(f"{listening}[telnet]\nenabled = false\n")
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        twistd = "from twisted.scripts.twistd import run; run()"  # scripts may name another Python
        words = [str(python), "-c", twistd, "-n", "--pidfile=", "cowrie"]
        if os.getuid() == 0:  # Cowrie refuses to run as root
            words = ["unshare", "-U", "--map-user=1000", "--map-group=1000", *words]
        with (home / "said").open("wb") as said:
            process = subprocess.Popen(words, cwd=home, env=environment, stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + 4 * PATIENCE
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit((home / "said").read_text()) from None
                    time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            process.wait()


def told(port: int) -> dict[str, str]:
    """Return the reports of server detection programs on a port, without the port, keys and
    times."""
    said = {}
    programs = {
        "nmap -sV": ["nmap", "-Pn", "-n", "-sV", "--version-all", "-p", str(port), "127.0.0.1"],
        "ssh-audit": ["ssh-audit", "-n", "-b", "-p", str(port), "127.0.0.1"],
    }
    for name, words in programs.items():
        if shutil.which(words[0]) is None:
            continue
        done = subprocess.run(words, capture_output=True, text=True, timeout=20 * PATIENCE)
        text = done.stdout.replace(str(port), "PORT")
        if name == "nmap -sV":
            text = "\n".join(re.findall(r"^PORT/tcp.*|^Service Info.*", text, re.MULTILINE))
        # the host's connection rate varies; the statement that nothing was throttled is kept
        text = re.sub(r"\d+ connections were created in .*? conns/sec", "CONNECTIONS", text)
        kept = [line for line in text.splitlines() if "(fin)" not in line]
        said[name] = "\n".join(kept)
    return said


def main() -> None:
    """Print the openings that tell the two servers apart, and the number of those that do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print all replies")
    parser.add_argument("--cowrie", action="store_true", help="also compare Cowrie")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        ports = {"stock": stack.enter_context(stock(find_system()))}
        ports["served"] = stack.enter_context(served(Path(directory)))
        if options.cowrie:
            ports["cowrie"] = stack.enter_context(cowrie())
        pool = stack.enter_context(ThreadPoolExecutor(4))
        heard: dict[str, dict[str, Heard]] = {}
        for _ in range(TRIES):
            names = [one for one in OPENINGS if one not in heard or len({*heard[one].values()}) > 1]
            for server, port in ports.items():
                said = pool.map(lambda name, port=port: opened(port, OPENINGS[name]), names)
                for name, one in zip(names, said, strict=True):
                    heard.setdefault(name, {})[server] = one
        programs = {server: told(port) for server, port in ports.items()}
    if options.json:
        openings = {
            name: {server: asdict(one) for server, one in each.items()}
            for name, each in heard.items()
        }
        print(json.dumps({"openings": openings, "programs": programs}))
        return
    for server in list(ports)[1:]:
        differ = [name for name, each in heard.items() if each[server] != each["stock"]]
        same = len(heard) - len(differ)
        print(f"{server}: {same} of {len(heard)} openings equal the stock sshd's, byte for byte")
        print(f"  differing: {', '.join(differ)}")
        for program, text in programs[server].items():
            result = "equals" if text == programs["stock"][program] else "differs from"
            print(f"  {program}: {result} the stock sshd's result")
    for server, each in programs.items():
        print(f"{server}: {each.get('nmap -sV', 'nmap is not installed')}")


if __name__ == "__main__":
    main()
