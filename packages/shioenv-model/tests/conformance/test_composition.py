"""Inputs composed of their commands behave as in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import Abstained
from shioenv.sandbox.base import MEBIBYTE, Limits
from shioenv.system.store import System
from shioenv_model.composition.command_replay import Replay
from shioenv_model.composition.composed_inputs import Composition
from support.nightly import by_day
from support.runner_conformance import run_checks

CASES = r"""
for f in *.txt documents/*.md; do wc -l $f; done
for i in {1..3} a; do echo "$i:$?"; false; done; echo $?
x=5; y="a  b"; echo $x $y "$y"; echo ${x}1 $((x+1))
x=documents; ls $x/*.txt | head -2; cd $x; pwd; ls | wc -l
while read -r a b; do echo "$b-$a"; done < data/users.csv | head -3
while read l; do echo "[$l]"; done < <(ls documents | head -3)
cat <<EOF | sort\nb $HOME\na $(echo hi)\nEOF\necho done
cat <<'EOF' > f; cat f\nb $HOME\nEOF\nnosuch
if [ -d documents ]; then echo yes; else echo no; fi
if grep -q zzz README.md; then echo y; elif true; then echo z; fi
case abc in a*) echo A;& b) echo B;; *) echo C;; esac
f() { echo "$1-$#-$@"; return 3; }; f x y; echo $?; f
{ echo a; echo b >&2; ls nofile; } > out 2>&1; cat out; wc -c < out
(cd /tmp; touch q; pwd); pwd; ls /tmp/q; rm /tmp/q; ls /tmp/q
echo a > f; echo b >> f; cat f f > g; sort -r g; mv g h; ls -l f h
mkdir -p d/e; touch d/e/f; cp -r d d2; rm -r d; find d2; mv d2/e/f d2/g
true && false || echo x; ! true; echo $?; ! ls nofile 2>/dev/null && echo neg
ls nofile 2>&1 | wc -l; ls nofile |& cat; nosuch | cat; nosuch 2>err; cat err
diff <(ls documents) <(ls documents | sort -r) | head -4
echo $(ls | wc -l) "$(printf 'a\n\n')" `echo b`; x=$(false); echo $?
set -- a b c; echo $# $2; shift; echo "$@"; for a; do echo $a; done
export A=1; env | grep ^A=; bash -c 'echo $A'; unset A; echo "[$A]"
umask 077; touch p; ls -l p; umask; (umask 0); umask
yes | head -3; seq 100000 | head -1; seq 5 | (read a; echo $a; cat)
seq 5 | { head -1; cat; }; seq 5 | while read x; do echo $((x*x)); done | tail -2
cat README.md > README.md; wc README.md; cat f >> f; echo x > f; cat f >> f; cat f
echo a | tee x y > z; cat x y z; md5sum x y z
exec ls documents; echo no
exit 3; echo no
cd nowhere || echo failed; cd /etc && ls passwd; cd - ; cd; pwd
x=1; (x=2; echo $x); echo $x; x=3 | true; echo $x; echo a | read x; echo $x
a=b; echo ${a:-z} ${q:-z w} ${q:=n} $q ${#a}
p=/x/y.tar.gz; echo ${p##*/} ${p%.*} ${p%%.*} ${p/y/Z} ${p^^}
set -e; false; echo no
set -o pipefail; false | true; echo $?; true | false | true; echo $?
for i in 1 2; do if [ $i = 2 ]; then continue; fi; echo $i; [ $i -eq 1 ] && break; done
i=0; while [ $i -lt 3 ]; do i=$((i+1)); done; until [ -e stop ]; do touch stop; echo $i; done
for ((i=0;i<3;i++)); do echo $i > n$i; done; cat n*; ls n? n[0-1]
find documents -name "*.md" -type f | xargs wc -l | tail -1
find documents -type f -exec ls -l {} + | wc -l
ls | xargs -n 3 echo x; printf 'a b' | xargs touch; ls -l a b
ls | xargs -I{} echo "{}" | wc
find data -name '*.txt' | xargs -r wc -l > f; echo nofile | xargs cat; echo $?; true | xargs
find documents -name '*.txt' -exec wc -c {} \;
find . -name 'n*.txt' -exec cp {} {}.old \;; find . -name '*.old' -exec rm {} +; ls documents
mkdir d0; find . -name d0 -exec rm -r {} \;; echo $?; ls -d d0
mkdir -p k0/k1 k2/x; find . -name 'k[0-9]' -exec rm -rv {} \; 2>&1; echo $?; ls -d k?
mkdir -p k0/k1 k2; find . -type d -name 'k[0-9]' -exec rm -rf {} +; echo $?; ls -d k?
mkdir k0; find . -depth -name k0 -exec rmdir {} \;; find . -maxdepth 1 -name k1 -exec rm {} \;
mkdir -p k0/x; ln -s k0 k1; find . -name 'k?' -exec mv {} new \;; echo $?; ls -d k? new
find . -type d -name d* -exec rm -r {} \;; ls; find scripts -type f -exec nosuch {} +; echo $?
for f in $(find data -name '*.csv'); do head -1 $f | cut -d, -f1; done | sort | uniq -c
mkdir -p new/dir && cd $_ && pwd; true a b; echo $_; ls -d ~/d* | head -1; echo $_
true | false | ls nofile; echo ${PIPESTATUS[@]} "${PIPESTATUS[1]}"; echo $PIPESTATUS
wc -c *.md *.new > x.new; cat x.new; trap; wait; jobs; local x; echo $?
ps x | grep bash; pstree
ls; ps -ef | sort -r | head -3
true; ps | wc -l > f; cat f
x=1 > $nothing; echo $x; ! { ls; } < nofile; echo $?; { echo a >> f; echo b; } >> f; cat f
for i in 1\ndo\nls >/nowhere/x\ndone < nofile\ncd nofile; f() {\nnosuch; }\nf\neval nosuch
add() { echo $(( $1 + $2 )); }; r=$(add 2 3); echo $r; readonly R=1; R=2; echo $? $R
exec 3>&1 2>&1 >f; ls nofile; echo a >&3; cat f >&3; exec < README.md; head -1 >&3
while IFS=: read -r u p rest; do echo "$u $rest"; done < /etc/passwd | head -3; nohup sleep 9 &
cat <<EOF > conf; grep b conf\na=$HOME\nb=$(whoami)\nEOF\ncat conf | tail -1
yes | head -2 | nl; cat /dev/zero | head -c 5 | od -c; cat nofile 2>&1 | grep -q such && echo found
f() { echo a > b.txt 2>&1; cat b.txt; }; f 2> b.txt; ls -l b.txt; ls nofile > o 2> o; cat o
printf 'a\\tb c\n' | while read x y; do echo "<$x><$y>"; done
( for i in 1; do ls; done > d/e ); ls\nls nofile
tar cf a.tar documents; tar tf a.tar | head -3; gzip a.tar; ls -l a.tar.gz; rm a.tar.gz
nosuch\nnosuch2; ls nofile\n\n/bin/nope
echo ~ ~root ~+ "~" a~; x=~/f; echo $x; echo {a,b}{1..2} "{a,b}" a{,x}
IFS=:; x=a:b::c; for i in $x; do echo "[$i]"; done; echo $x "$x"
IFS=, read a b <<< "1,2,3"; echo $a/$b; read x y <<< "  p   q r "; echo "[$x][$y]"
[[ abc == a* ]] && echo m; (( 3 > 2 )) && echo gt
x=4; [[ $x -gt 3 ]] && echo big; (( x++ )); echo $x
eval 'x=3; echo $x'; y='echo hi'; $y; eval "$y" there; $nothing ls README.md
ls documents/*.zzz; for f in *.zzz; do echo "$f"; done; echo *.zzz "*"
printf '%s\n' a b > f; read l < f; echo $l
ln -s README.md link; readlink link; echo more >> link; tail -1 README.md; rm link; ls link
touch a; rm a; echo x > documents/notes.txt; echo x >> documents/notes.txt
echo a >/nowhere/x; echo $?; echo b > documents; > e; ls -l e; < nofile cat; echo $?
chmod 600 README.md; ls -l README.md; chown ubuntu README.md; stat -c %U README.md; mv README.md R2
mv documents papers; echo x > papers/new; mv papers/new n2
head -1 README.md | tr a-z A-Z | rev > r; cat r; wc -l < r; sed -i 's/A/B/' r; cat r
echo two >&2; echo three 1>&2 2>/dev/null; ls nofile README.md 2>/dev/null; ls nofile >/dev/null
ls nofile README.md 3>&1 1>&2 2>&3 | cat -n > f; cat f
cd documents; echo hi > n; cd ..; cat documents/n; (cd data && ls | head -2); pushd /tmp; popd
env; echo $SHLVL; env
true | split -n l/3
x=$(head -3 README.md); y="$x $x"; echo "$y" | wc -l; export z="$x"; env | grep -c z; echo ${#z}
cd documents; cd -; cd logs/archive; cd ..; echo $OLDPWD; (cd /etc; cd -); cd - >f; cat ../logs/f
declare -i n=5; n+=3; echo $n; readonly c=1; c+=2; echo $c
f() { echo f; }; g() { echo g; }; g=1; unset -f f; unset g; f; g; unset g; g; echo $?
alias ll='ls -l'; alias; type cd; type ls; ls >/dev/null; type ls
""".strip().splitlines()
"""One-line inputs; `\n` stands for a newline."""

ABSTAINED = (
    "ls |",
    "time ls; ls",
    "tee >(wc) < f; ls",
    "set -er; cd /",
)


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system, Limits(output_bytes=MEBIBYTE, wall_seconds=2)) as opened:
        yield opened


@pytest.fixture(scope="module")
def composition(sandbox: SandboxRunner) -> Composition:
    return Composition(Replay(sandbox), sandbox.state())


@pytest.mark.parametrize("case", by_day(CASES, 3))
def test_the_parts_do_what_the_whole_does(
    case: str, sandbox: SandboxRunner, composition: Composition
) -> None:
    text = case.replace(r"\n", "\n") if "printf" not in case else case
    whole, put_together = sandbox.run(text), composition.run(text)
    assert put_together.output == whole.output
    assert put_together.exit_code == whole.exit_code
    assert put_together.patch == whole.patch
    known = put_together.content_digests
    assert known == {name: whole.content_digests.get(name) for name in known}


def test_it_is_a_runner(sandbox: SandboxRunner, composition: Composition) -> None:
    results = list(run_checks(composition, sandbox.state()))
    assert [result for result in results if result.failure or result.abstained] == []


@pytest.mark.parametrize("text", ABSTAINED)
def test_what_is_beyond_it_is_abstained_from(text: str, composition: Composition) -> None:
    with pytest.raises(Abstained):
        composition.run(text)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (("false",), "echo $?"),
        (("ls nope",), "echo $?; cd -"),
        (("true",), "echo $?; false || echo $?"),
        (("cd documents",), "echo $OLDPWD $PWD"),
        (("cd documents",), "cd -; pwd"),
        (("cd documents", "cd ../data"), "cd -; echo $OLDPWD"),
        (("cd documents", "cd nowhere"), "echo $? $OLDPWD"),
        (("cd documents", "cd ."), "cd -"),
        (("cd documents", "cd -"), "cd -; pwd"),
        (("cd documents && ls",), "ls $OLDPWD"),
    ],
)
def test_a_shell_keeps_its_status_and_where_it_was(
    rows: tuple[str, ...], text: str, sandbox: SandboxRunner, composition: Composition
) -> None:
    state = sandbox.state()
    for row in rows:
        state = state.after(row, composition.run(row, state))
    assert composition.run(text, state).output == sandbox.run(text, state).output


@pytest.mark.parametrize("row", ["cd documents; cd ..", "(cd /tmp)", "ls | cd /"])
def test_nobody_guesses_where_a_shell_was(
    row: str, sandbox: SandboxRunner, composition: Composition
) -> None:
    state = sandbox.state()
    state = state.after(row, sandbox.run(row, state))
    with pytest.raises(Abstained, match="previous working directory"):
        composition.run("cd -", state)


def test_a_later_input_finds_what_an_earlier_one_left(
    sandbox: SandboxRunner, composition: Composition
) -> None:
    first = "cd documents; echo hello > n; x=5"
    state = sandbox.state()
    following = state.after(first, composition.run(first, state))
    second = composition.run("cat n | tr a-z A-Z; echo $x > m; cat m", following)
    assert second.output == b"HELLO\n5\n"
    assert [operation[1] for operation in second.patch.operations] == ["/fs/documents~1m"]
