"""Visit an SSH server with paramiko: a program for an environment that has paramiko.

    python ssh_by_paramiko.py PORT < LINES

Prints JSON: a command's result, the output of each line of a terminal, and the files from SFTP.
"""

import json
import re
import sys

import paramiko

PROMPT = re.compile(rb"[#$] \Z")


def shown(channel):
    """Return the screen's text up to the next prompt."""
    data = b""
    while not PROMPT.search(data):
        piece = channel.recv(65536)
        if not piece:
            raise SystemExit(f"the end came first: {data!r}")
        data += piece
    return data.decode()


def main():
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(
        "127.0.0.1", int(sys.argv[1]), "root", "x", look_for_keys=False, allow_agent=False
    )
    _, out, err = client.exec_command("echo out; exit 4")
    command = [out.read().decode(), err.read().decode(), out.channel.recv_exit_status()]
    with client.open_sftp() as files:
        with files.open("/tmp/brought", "wb") as file:
            file.write(bytes(range(256)) * 300)
        with files.open("/tmp/brought", "rb") as file:
            back = file.read() == bytes(range(256)) * 300
        files.chmod("/tmp/brought", 0o640)
        facts = files.stat("/tmp/brought")
        listed = files.listdir("/tmp")
        files.rename("/tmp/brought", "/tmp/moved")
        files.remove("/tmp/moved")
        left = files.listdir("/tmp")
        try:
            files.stat("/nowhere")
            missing = False
        except FileNotFoundError:
            missing = True
    channel = client.invoke_shell("dumb", 200, 50)
    channel.settimeout(60)
    shown(channel)
    told = []
    for line in sys.stdin.read().splitlines():
        channel.sendall(line.encode() + b"\r")
        told.append(shown(channel))
    client.close()
    sftp = [back, facts.st_size, facts.st_mode & 0o777, listed, left, missing]
    print(json.dumps({"command": command, "lines": told, "sftp": sftp}))


main()
