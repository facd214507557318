"""Visit a Cowrie whose LLM back end calls an endpoint: a line of JSON in, a line of JSON out.

    python cowrie_visit.py PREDICTORS DIRECTORY PORT ENDPOINT KEY MODEL

`{"lines": [...]}` opens a new terminal, `{"command": ...}` sends a new exec request, whose standard
input stays open. The answer has the output and the seconds, for each line. PREDICTORS is the
directory of `cowrie_client.py`. Standard library and paramiko only: this is a program for Cowrie's
own environment.
"""

import json
import os
import sys
import time

import paramiko

CONFIGURATION = """\
[honeypot]
hostname = svr04
backend = llm
internet_facing_ip = 192.0.2.1
internet_facing_ipv6 = 2001:db8::1
[ssh]
listen_endpoints = tcp:{port}:interface=127.0.0.1
[telnet]
enabled = false
[output_crashreporter]
enabled = false
[llm]
host = {endpoint}
api_key = {key}
model = {model}
rate_limit_enabled = false
"""
SERVER = """\
import sys
from twisted.scripts.twistd import run
sys.argv = ["twistd", "-n", "--umask=0022", "--pidfile=", "cowrie"]
run()
"""
PROMPT = b"root@svr04:/# "


def connected(port):
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect("127.0.0.1", port, "root", "x", look_for_keys=False, allow_agent=False)
    return client


def shown(channel, end):
    """Read until `end` is at the end of the output, or until the channel closes."""
    data = b""
    while not (end and data.endswith(end)) and (piece := channel.recv(65536)):
        data += piece
    return data


def typed(port, lines):
    """Return each line's output after its echo, without the prompt, and its seconds."""
    client = connected(port)
    try:
        channel = client.invoke_shell()
        channel.settimeout(60)
        shown(channel, PROMPT)
        told = []
        for line in lines:
            began = time.monotonic()
            channel.sendall(line.encode() + b"\r")
            said = shown(channel, PROMPT).removesuffix(PROMPT)
            seconds = time.monotonic() - began
            _, _, text = said.partition(b"\r\n")
            told.append([text.decode("utf-8", "replace"), seconds])
        return told
    finally:
        client.close()


def executed(port, command):
    client = connected(port)
    try:
        channel = client.get_transport().open_session()
        channel.settimeout(60)
        began = time.monotonic()
        channel.exec_command(command)
        text = shown(channel, b"").decode("utf-8", "replace")
        return [[text, time.monotonic() - began], channel.recv_exit_status()]
    finally:
        client.close()


def main():
    predictors, directory, port, endpoint, key, model = sys.argv[1:]
    sys.path.insert(0, predictors)
    from cowrie_client import started

    for name in ("etc", "log", "var/log/cowrie", "var/lib/cowrie/downloads", "var/lib/cowrie/tty"):
        os.makedirs(os.path.join(directory, name), exist_ok=True)
    written = {
        "etc/cowrie.cfg": CONFIGURATION.format(port=port, endpoint=endpoint, key=key, model=model),
        "etc/userdb.txt": "root:x:*\n",
        "server.py": SERVER,
    }
    for name, text in written.items():
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
    server, _ = started(os.path.join(directory, "server.py"), directory, int(port))
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            if "lines" in asked:
                told = typed(int(port), asked["lines"])
            else:
                told = executed(int(port), asked["command"])
            print(json.dumps(told), flush=True)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
