"""The utilities that inputs call."""

from __future__ import annotations

import pytest

from shioenv_eval.places import utilities


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ls -l; ls | sort", ("ls", "sort")),
        ("echo $(date) `id -u`", ("echo", "date", "id")),
        ("find . -type f -exec grep -l x {} \\; -ok rm {} +", ("find", "grep", "rm")),
        ("find . | xargs -n 1 wc -l", ("find", "xargs", "wc")),
        ("env -u HOME A=1 printenv", ("env", "printenv")),
        ("timeout -k 1 5 nice ls; timeout 5", ("timeout", "nice", "ls")),
        ("sudo ip -br a; ip link show; ip r", ("ip-addr", "ip-link", "ip-route")),
        ("sudo -u nobody id; sudo -n --user root sudo -g staff -- TZ=UTC date", ("id", "date")),
        ("sudo -l; sudo -Eu postgres env A=b psql; sudo LANG=C ls", ("env", "psql", "ls")),
        ("ip -V; /usr/bin/ip foo", ("ip",)),
        ("for f in *; do basename $f; done", ("basename",)),
        ("cat 'open", ("cat",)),
        ("xargs -I{} -P 2 --max-args 3 mv {} x < list", ("xargs", "mv")),
        ("xargs -0 --delimiter=, -r -L 1 env -i A=b date", ("xargs", "env", "date")),
        ("find . -exec sh -c 'a; b' \\; -exec wc {} + -print", ("find", "sh", "wc")),
        ("find . -exec wc {}", ("find", "wc")),
        ("echo -exec ls \\;; env; env A=b", ("echo", "env")),
        ("export X=1", ("export",)),
        ("X=1", ()),
        ("", ()),
    ],
)
def test_utilities_are_found_wherever_they_are_called(text: str, names: tuple[str, ...]) -> None:
    assert utilities(text) == names
