"""Lines typed one after the other behave as in Bash, where its rules determine the shell's state.

Only the rules handle scripts, arrays, parameters and the directory stack here: the underlying
runner executes single commands and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.bash.scan import Refused
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained
from shioenv.sandbox.base import MEBIBYTE, Limits
from shioenv.system.store import System
from shioenv_model.composition.call import Call
from shioenv_model.composition.command_replay import Replay
from shioenv_model.composition.composed_inputs import answer_broken
from shioenv_model.composition.program_evaluation import Walk
from shioenv_model.composition.reading import read_program
from shioenv_model.composition.ruled import ruled
from shioenv_model.rules.programs import printed

SCRIPTS = r"""
printf '#!/bin/bash\necho $0 $# "$@"\nexit 4\n' > a.sh ⏎ bash a.sh x 'y z'; echo $?
printf '#!/bin/sh\necho hi $1\n' > h.sh ⏎ ./h.sh bob
printf '#!/bin/sh\necho hi $1\n' > h.sh ⏎ chmod +x h.sh ⏎ ./h.sh bob
echo 'echo plain $1' > p ⏎ chmod 755 p ⏎ ./p q
printf '#!/usr/bin/env bash\nx=1\necho $x $HOME\n' > e.sh ⏎ chmod +x e.sh && ./e.sh; echo "[$x]"
printf 'echo a\nnosuchcmd\n' > n.sh ⏎ bash n.sh ⏎ echo $?
echo nosuchcmd > n.sh ⏎ sh n.sh
printf 'cd /nowhere\n' > n.sh ⏎ sh n.sh; pwd
printf 'greet() { echo hello $1; }\nV=5\n' > lib.sh ⏎ . ./lib.sh ⏎ greet bob; echo $V
printf 'greet() { echo hello $1; }\nV=5\n' > lib.sh ⏎ source lib.sh && greet x
echo 'return 3; echo no' > r.sh ⏎ . ./r.sh x; echo $? $#
X=1 ⏎ bash -c 'echo "[$X]"'
export X=1 ⏎ bash -c 'echo "[$X]"; X=2'; echo $X
X=3 bash -c 'echo $X $SHLVL'; echo "[$X]"
bash -c 'echo $0 $1 $#' name a b; sh -c 'echo $1' a b
bash -c 'cd /tmp; pwd'; pwd; bash -c 'exit 7'; echo $?
bash nofile.sh; echo $?
sh nofile.sh; echo $?
./nofile.sh; echo $?
./documents; echo $?
./README.md; echo $?
printf 'while read l; do echo "[$l]"; done\n' > w.sh; head -2 data/ids.txt | bash w.sh
echo 'echo hi; pwd; echo $0' | bash; echo 'echo $0 a\\tb' | sh
printf 'set -e\necho a\nfalse\necho b\n' > s.sh; bash s.sh; echo $?; bash -e s.sh || echo failed
printf 'f() { local a=$1; echo $a; return 2; }\nf 1\necho $?\n' > f.sh; bash f.sh
printf 'echo one\n' > a.sh; printf 'bash a.sh\necho two\n' > b.sh; bash b.sh
printf 'touch made; mkdir -p q/r\n' > m.sh; bash m.sh; ls -d made q/r
printf 'echo $((1/0)); echo no\necho yes\n' > d.sh; bash d.sh
printf 'while getopts ab: o; do echo $o $OPTARG $OPTIND; done\n' > g.sh; bash g.sh -a -bx -b y -z w
getopts ab: o -ab x ⏎ echo $o $OPTIND ${OPTARG-unset}
set -- -xv file ⏎ while getopts xv o; do echo $o; done; shift $((OPTIND - 1)); echo $1 $OPTIND
getopts :a o -z; echo $o $OPTARG; OPTIND=1; getopts :a: o -a; echo $o $OPTARG
getopts a o word; echo $? $o $OPTIND ⏎ OPTIND=1; getopts a o -a; echo $? $o $OPTIND
unset OPTERR ⏎ getopts a o -z; echo $? $o
OPTERR= ⏎ getopts ab: o -b; echo $? $o
OPTERR=0; getopts a o -z; echo $? $o; OPTIND=1 OPTERR=-1; getopts a o -y; echo $o
OPTERR=word; getopts a o -z; OPTIND=1 OPTERR=' 2x'; getopts a o -y
OPTERR=+0; getopts a o -x; OPTIND=1 OPTERR=00; getopts a: o -a; echo $? $o
""".strip().splitlines()

VARIABLES = r"""
a=(red green blue) ⏎ echo ${a[1]} ${#a[@]} "${a[*]}" ${!a[@]} ${a[-1]} $a
a=(1 2 3); a+=(4 5); echo ${#a[@]} ${a[@]:1:2} ${a[@]: -2}
a=(x y z); unset 'a[1]'; echo "${a[@]}" ${!a[@]} ${#a[@]}; a[7]=q; a+=(r); echo ${!a[@]}
a=(); echo ${#a[@]} "${a[@]}"; declare -a e; declare -p a e
declare -A m=([x]=1 [y]=2) ⏎ m[z z]=3 ⏎ for k in "${!m[@]}"; do echo "$k=${m[$k]}"; done
declare -A c; for w in a b a c a; do ((c[$w]++)); done; declare -p c; echo ${#c[@]}
IFS=, read -ra f <<< "a,b,,c"; echo ${f[1]} ${#f[@]}; mapfile -t l < data/ids.txt; echo "${l[-1]}"
a=(a b c); echo "${a[@]/b/X}" "${a[@]^^}" ${a[@]#a}; b=("${a[@]}" "d e"); printf '[%s]' "${b[@]}"
x=abc; echo ${x[0]} ${#x[@]}; x[1]=d; echo ${x[@]}; a=(1 2 3); echo $((a[0] + a[2])) ${a[1+1]}
a=($'tab\there' 'q"$`\'); declare -p a; a=(documents/*.txt); echo ${#a[@]}
s='Hello World'; echo ${s^^} ${s,} ${s:0:5} ${s: -5} ${#s} ${s/o/0} ${s//o/0} ${s~~} ${s//[aeiou]}
v=HOME; echo ${!v} ${!v:0:2}; printf -v pad '%05d' 42 ⏎ echo $pad ${pad@Q}
set -- alpha beta gamma ⏎ shift ⏎ echo $1 $# "$*" "${@: -1}" ${1^}
unset F ⏎ echo "${F:?must be set}"; echo no ⏎ echo later
echo ${F?}; echo no
set -u ⏎ echo "$nope"; echo no
readonly P=3.14 ⏎ P=3; echo no ⏎ echo $P $?
readonly P=3.14; unset P; echo $?; declare P=2; echo $?
echo $((1/0)); echo no ⏎ echo yes $?
(echo $((1/0)); echo no); echo $?; x=$(echo $((08))); echo "[$x] $?"
f() { echo $((2+)); echo in; }; f; echo out
n=5; echo $((n++)) $n $((--n)) $((n>3?1:2)); let 'y = n * 4'; echo $y; let n-=5; echo $?
declare -i i=5+5; i+=3; echo $i; export A=1; A+=2; declare -p i A; declare x; declare -p x
export HISTFILESIZE=0 killall -9 f; declare -p killall
f() { local x=1 y; x=2; echo $x $y; g; }; g() { echo "g sees $x"; }; x=9; f; echo $x; local z=1
f() { local -a l=(1 2); echo ${l[1]}; }; f; echo "[${l[1]}]"
f() { if [ -f "$1" ]; then ls "$1" | head -1; else echo n >&2; fi; } ⏎ type f ⏎ f README.md
alias ll='ls -l' ⏎ alias; alias ll ⏎ unalias ll; unalias ll
count() { local c=0; while read -r _; do ((c++)); done; echo $c; } ⏎ count < documents/notes.txt
f() { echo out; } > log.txt; f; cat log.txt
select x in one two; do echo $x; break; done <<< 2
select x in a b; do echo "$REPLY:$x"; [ $REPLY = 9 ] && break; done <<< $'1\n\n9'
pushd /tmp ⏎ pushd /etc ⏎ dirs -v ⏎ popd ⏎ popd ⏎ popd
pushd data > /dev/null; pushd; dirs -l ⏎ pushd +1; dirs -c; dirs; pushd /nowhere
umask 027; umask u=rwx,g=rx,o=; umask; umask -S; umask go-x; umask
exit 3 ⏎ echo no
""".strip().splitlines()

PROGRAMS = r"""
env
env; true
true; env
env | grep -n SHLVL
export A=1 ZED=2 bb=3; env
unset LANG TERM; printenv
cd /tmp; env | grep PWD
export A=1 ⏎ cd data ⏎ env
printenv HOME NOPE USER; echo $?
A=3; printenv A; echo $?
PATH=/bin; printenv _; env
ln -s nowhere x; readlink x; readlink -f x; readlink -e x; echo $?
ln -s loop loop; readlink loop; mkdir d; ln -s ../data d/l; cd d; readlink -f l/../README.md l
yes | head -n 2
yes a b | head -c 5; echo ${PIPESTATUS[@]}
yes y | head -3 | wc -l
echo aGkK | base64 -d; echo 'bHM=' | base64 --decode | wc -c
echo 'x=3; x*x' | bc; echo 2^10 | bc
ps -ef | cat
ps -ef | grep ssh | grep -v grep
ps -e | wc -l
ps | tail -n 3
ps -ef | sed -n '$p' | cut -c1-20
ps -ef | grep "[c]ron"
ps ax -o pid,ppid,args | tail -4
ps -eo user,pid,cmd | tail -3
""".strip().split("\n")

REFUSED = r"""
for i in 1 2 3; echo $i; done
if [ -f README.md ] then echo yes; fi
while read line do echo $line; done < data/ids.txt
echo 'unclosed
echo "unclosed
echo $(ls
if true; then echo a
ls |
ls | | wc
ls >
echo (a)
echo a b (c
echo a ⏎ echo )
case x in a) echo; done
""".strip().splitlines()


class Single:
    """A runner for single commands: by rule, else executed. It does not report that it executes."""

    def __init__(self, runner: SandboxRunner) -> None:
        self._replay = Replay(runner)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self._replay.execute(shell_input, state, separate=True)

    def answer_call(self, call: Call, state: State) -> Answer:
        said = ruled(call, state) or printed(call, state)
        return Answer(said or self.run(call.text, state))


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system, Limits(output_bytes=MEBIBYTE, wall_seconds=2)) as opened:
        yield opened


def told(lines: list[str], sandbox: SandboxRunner) -> Answer:
    """Return the rules' answer to the last line, in the state that the rules derive from the
    others."""
    state = sandbox.state()
    for line in lines:
        if state.carried.ended:
            return Answer(Behavior(state.status, b""))
        answer = Walk(Single(sandbox), state, line).answer(read_program(line))
        state = state.after(line, answer.behavior, answer.written, answer.carried)
    return answer


@pytest.mark.parametrize("case", [*SCRIPTS, *VARIABLES, *PROGRAMS])
def test_a_line_does_what_bash_does(case: str, sandbox: SandboxRunner) -> None:
    *history, text = lines = case.split(" ⏎ ")
    state = sandbox.state()
    for line in history:
        state = state.after(line, sandbox.run(line, state))
    said, right = told(lines, sandbox).behavior, sandbox.run(text, state)
    assert (said.output, said.exit_code) == (right.output, right.exit_code)
    ours, theirs = ({each[1]: each for each in one.patch.operations} for one in (said, right))
    assert ours == theirs


@pytest.mark.parametrize("case", REFUSED)
def test_what_bash_refuses_is_told_in_its_words(case: str, sandbox: SandboxRunner) -> None:
    *history, text = case.split(" ⏎ ")
    state = sandbox.state()
    for line in history:
        state = state.after(line, sandbox.run(line, state))
    with pytest.raises(Refused) as refused:
        read_program(text)
    said = answer_broken(Replay(sandbox), refused.value, text, state)
    right = sandbox.run(text, state)
    assert said is not None
    assert (said.behavior.output, said.behavior.exit_code) == (right.output, right.exit_code)


@pytest.mark.parametrize(
    "text",
    [
        "echo 'bash again.sh' > again.sh; bash again.sh",
        "echo 'f() { f; }; f' > again.sh; bash again.sh",
        "echo '[[ -n $1 ]] && echo yes' > b.sh; sh b.sh a",
        "echo 'declare -x a=1' > b.sh; sh b.sh",
    ],
)
def test_what_has_no_end_or_another_language_is_abstained_from(
    text: str, sandbox: SandboxRunner
) -> None:
    with pytest.raises(Abstained):
        told([text], sandbox)
