"""Programs' errors for external hosts, derived by rule, match the machine."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_model.composition.call import Call
from shioenv_model.composition.changes import composed
from shioenv_model.memory.world import World, world_called
from shioenv_model.rules.unreachable_hosts import outside

SAID = r"""
wget http://example.com/
wget -q http://1.2.3.4/x.sh
wget -O /tmp/x http://1.2.3.4:8080/x.sh
wget -O README.md http://evil.net/x
wget -qO- http://bad.example.org/a.sh
wget https://raw.githubusercontent.com/a/b/main/x.sh
wget example.com
wget -P newdir http://evil.net/m
wget -c http://evil.net/m -O m
wget --no-check-certificate https://Evil.NET:8443/m?a=1
wget http://evil.net/m http://1.2.3.4/n
wget -t 1 --timeout=5 http://evil.net
wget -nv http://evil.net/x http://1.2.3.4
wget -nc http://1.2.3.4/m
curl http://example.com
curl -s http://EVIL.net
curl -fsSL https://evil.net/install.sh
curl http://1.2.3.4:8443/x -o y
curl -I -k https://5.6.7.8
curl -X POST -d a=1 --connect-timeout 2 evil.net:8080/x
curl -sS 1.2.3.4
ping example.com -c 3
ping -c1 8.8.8.8
ping -q -n -c 1 -W 2 1.2.3.4
wget http://localhost/
wget -O /tmp/x http://localhost:8080/x.sh
wget -q http://127.0.0.1/x -O y
wget -nv LOCALHOST/a https://localhost/b
wget http://127.0.0.2/ ubuntu:81/a
wget -c 10.20.30.40/x ip6-loopback/y
curl -sS http://localhost/a
curl -O http://ubuntu/x
curl -s -o /dev/null -w '%{http_code}\n' http://localhost/x
curl -sL -w "%{http_code}" http://1.2.3.4/
curl -sSk https://127.0.0.1:8443/a
""".strip().split("\n")

BEYOND = r"""
wget http://localhost:22/
wget http://10.20.30.1/
wget http://10.20.30.9/
wget http://1.2.3/
wget http://a:b@evil.net/
wget -b http://evil.net/
wget -nc http://evil.net/README.md
wget
curl http://ubuntu:22/
curl --retry 3 http://evil.net
curl http://evil.net http://evil.org
curl 'http://evil.net/a b'
ping -c 2 1.2.3.4
ping localhost
""".strip().split("\n")


@pytest.fixture(scope="module")
def world(observer: SandboxRunner) -> World:
    return world_called(observer.system.name)


@pytest.mark.parametrize("text", SAID)
def test_it_says_what_the_program_says(text: str, world: World, observer: SandboxRunner) -> None:
    assert world.made is not None
    state = world.state()
    found = outside(Call.parse(text), state, world.made)
    assert found is not None
    said, right = found[0], observer.run(text)
    ours, theirs = (re.sub(rb"after \d+ ms", b"", each.output) for each in (said, right))
    assert (ours, said.exit_code) == (theirs, right.exit_code)
    assert said.volatile == (b" ms: " in right.output)
    patch = composed(state.before.document, [said.patch], state.cwd)
    assert {each[1]: each for each in patch.operations} == {
        each[1]: each for each in right.patch.operations
    }


@pytest.mark.parametrize("text", BEYOND)
def test_it_says_nothing_of_what_may_be_reached_or_is_not_known(text: str, world: World) -> None:
    assert world.made is not None
    assert outside(Call.parse(text), world.state(), world.made) is None


def test_a_name_that_the_machine_was_given_is_known(world: World) -> None:
    assert world.made is not None
    state = world.state()
    (hosts,) = (name for name in state.before.document["fs"] if name.endswith("/etc/hosts"))
    known = replace(state, written={hosts: b"1.2.3.4 evil.net\n"})
    assert known.read("/etc/hosts") == b"1.2.3.4 evil.net\n"
    assert outside(Call.parse("wget http://evil.net/"), known, world.made) is None
