"""Query Cowrie over SSH: one JSON line in and one JSON line out for each input.

This program starts and ends the server. Its arguments are the server's program, directory and port.
It uses only the standard library and paramiko, since it runs in Cowrie's own environment.
"""

import base64
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time

import paramiko

START_SECONDS = 120
SECONDS = 25
LONGEST = 4 << 20
"""Number of output bytes after which reading stops."""

logging.getLogger("paramiko").setLevel(logging.CRITICAL)


def started(program, directory, port):
    words = [sys.executable, "-I", program]
    if os.getuid() == 0:  # Cowrie refuses to run as root
        words = ["unshare", "-U", "--map-user=1000", "--map-group=1000", *words]
    changes = os.path.join(directory, "changes.jsonl")
    log = open(os.path.join(directory, "server.log"), "wb")
    server = subprocess.Popen(
        words,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, "SHIOENV_COWRIE_CHANGES": changes, "COWRIE_STDOUT": "yes"},
    )
    end = time.time() + START_SECONDS
    while time.time() < end and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as made:
            if made.recv(3) == b"SSH":
                return server, changes
        time.sleep(0.2)
    server.kill()
    with open(log.name, "rb") as file:
        sys.exit("Cowrie failed to start: " + file.read()[-300:].decode("utf-8", "replace"))


def ask(text, port):
    """Return the output and the exit status of one exec request in a new connection."""
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect("127.0.0.1", port, "root", "x", look_for_keys=False, allow_agent=False)
    try:
        channel = client.get_transport().open_session()
        channel.set_combine_stderr(True)
        channel.settimeout(SECONDS)
        try:
            channel.exec_command(text)
            channel.shutdown_write()
        except paramiko.SSHException as error:
            # Cowrie runs the input first, and closes the channel before it answers the request
            if "Channel closed" not in str(error):
                raise
        except (EOFError, OSError):
            pass
        output = b""
        while len(output) <= LONGEST and (data := channel.recv(65536)):
            output += data
        channel.status_event.wait(2)
        return output, max(0, channel.exit_status)
    finally:
        client.close()


def told(path, before):
    """Return the files that an input changed, from the line that the server appended to its log.

    `before` is the log's size in bytes before the input. Empty if no line appears within a second.
    """
    for _ in range(100):
        if os.path.exists(path) and os.path.getsize(path) > before:
            with open(path, "rb") as log:
                log.seek(before)
                lines = log.read().splitlines(keepends=True)
            if lines and lines[-1].endswith(b"\n"):
                return json.loads(lines[-1])["files"]
        time.sleep(0.01)
    return {}


def main():
    program, directory, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    server, changes = started(program, directory, port)
    try:
        for line in sys.stdin:
            question = json.loads(line)
            if "text" not in question:
                print("{}", flush=True)
                continue
            before = os.path.getsize(changes) if os.path.exists(changes) else 0
            try:
                output, status = ask(question["text"], port)
            except Exception as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
                continue
            encoded = base64.b64encode(output).decode()
            answer = {"output_b64": encoded, "exit_code": status, "files": told(changes, before)}
            print(json.dumps(answer), flush=True)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
