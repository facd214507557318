"""The interpreter runs programs like the Bash of the host, on a machine of a few files."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv_model.bash.work import answering
from support.composed_shell import composed, executed, make_files

LISTS_AND_LOOPS = r"""
true; echo $?; false; echo $?
false && echo no || echo yes; true && false || echo last
! true; echo $?; ! false && echo negated
{ echo a; false; } && echo no; echo $?
(exit 3); echo $?; (exit 3) || echo $?
for x in 1 2 3; do echo $x; done
for x in a{1..3} $(echo b c) "d e"; do echo "<$x>"; done
for x; do echo $x; done; set -- p q; for x; do echo $x; done
for x in; do echo never; done; echo $?
for x in 1 2 3; do [ $x = 2 ] && continue; echo $x; done
for x in 1 2; do for y in 1 2; do [ $y = 2 ] && continue 2; echo $x$y; done; echo no; done
for x in 1 2; do for y in 1 2; do break 2; done; done; echo $x$y
for x in 1 2 3; do if [ $x = 2 ]; then break; fi; echo $x; done; echo $?
for ((i = 0; i < 3; i++)); do echo $i; done; echo $i
for ((;;)); do break; done; for ((i = 5; i > 3; )); do echo $((i--)); done
i=0; while [ $i -lt 3 ]; do i=$((i + 1)); [ $i -eq 2 ] && continue; echo $i; done; echo $?
until [ -n "$x" ]; do x=1; echo once; done; while false; do :; done; echo $?
while true; do false; break; done; echo $?
if false; then echo a; elif true; then echo b; else echo c; fi; if false; then :; fi; echo $?
case abc in b*) echo 1 ;; ?b?) echo 2 ;; *) echo 3 ;; esac
case x in x) echo 1 ;& y) echo 2 ;;& x) echo 3 ;; *) echo 4 ;; esac
case "a b" in a\ b | c) echo yes ;; esac; case z in a) ;; esac; echo $?
case $(echo no; false) in yes) ;; esac; echo $?
case - in [[:alpha:]]) echo a ;; [!a-z]) echo other ;; esac
set -e; false || echo kept; if false; then :; fi; ! true; echo here; false; echo no
set -e; (false; echo no); echo no
set -e; x=$(false); echo no
f() { false; echo in; }; set -e; f || echo no; f; echo no
set -o pipefail; false | true; echo $?; set +o pipefail; false | true; echo $?
true | false; echo ${PIPESTATUS[*]}; true; echo ${PIPESTATUS[0]}
exit 4; echo no
exit 300
(echo in; exit 2; echo no); echo $?; exit
{ exit 5; } | cat; echo $?
echo hi | exit 6; echo $?
echo a && (false || { echo b; exit 1; }) && echo c
true & wait; echo $?
select x in one two; do echo $x $REPLY; break; done <<< 2
select x in one two; do echo "[$x]"; done <<< 7
select x in a b; do echo "$x"; done <<< $'1\n\n2'; echo $?
for x in 1 2; do (break; echo no); echo $x; done
echo $(for x in 1 2; do break; done; echo $x)
""".strip().splitlines()

FUNCTIONS = r"""
f() { echo $# "$@"; }; f; f a 'b c'; f "$@"
f() { return 3; echo no; }; f; echo $?; f() { false; return; }; f; echo $?
f() { local x=1 y; echo "$x[$y]"; x=2; g; echo $x; }; g() { x=3; }; x=0; f; echo $x
f() { local x; x=1; unset x; echo "[$x]"; }; x=5; f; echo $x
f() { local -i n=2+3; local -u c=d; echo $n $c; }; f; echo "[$n$c]"
f() { declare v=1; declare -g w=2; }; f; echo "[$v][$w]"
f() { echo $1; [ $1 -gt 0 ] && f $(($1 - 1)); }; f 3; echo $?
f() (x=1; exit 4); x=0; f; echo $? $x
f() { echo out; echo err >&2; } > log 2>&1; f; cat log
function f { echo "$0 $1"; }; f a; unset -f f; f; echo $?
f() { shift; echo $*; shift 5; echo $? $#; }; f a b c
f() { set -- x y; echo $1; }; set -- a; f; echo $1
f() { cat; }; echo piped | f; f < a.txt; f <<< here
f() { eval "$1"; }; f 'echo $1'; eval 'x=4' 'echo $x'; eval; echo $?
f() { echo old; }; f() { echo new; }; f
readonly k=1; k=2; echo no ⏎ echo $k
type f; f() { echo a; }; type -t f echo if nosuchcommand; echo $?
command_not() { :; }; unset command_not; command_not; echo $?
local x; echo $?
f() { echo $LINENO; nosuch; }; f
f() {¶echo a¶nosuch¶}¶f¶nosuch
""".strip().splitlines()

VARIABLES = r"""
x=1 y="a  b"; echo $x $y "$y" ${x}2 "${x}"'$x'
x=1; x=2 env | grep ^x=; echo $x; x=3; export x; env | grep ^x
export a=1 b; b=2; env | grep -c '^[ab]='; export -n a; env | grep -c '^[ab]='
x=a; x+=b; echo $x; declare -i n=3; n+=4; echo $n; n=2*5; echo $n; n=zz; echo $n
declare -l low=ABC; declare -u up=abc; echo $low $up; low+=D; echo $low
declare -r c=1; declare c=2; echo $? $c; unset c; echo $?
declare -p HOME > f; x=1; declare -p x; declare -p nothing; echo $?
declare a=1 b=2; declare -x a; declare -p a b; declare +x a; declare -p a
x=1; unset x; echo ${x-gone}
echo ${x:-d} ${x-d} ${x:=set} $x ${x:+alt} ${y+alt} ${y:+alt} ${#x}
x=; echo "${x:-d}${x-d}" "${x:+no}" "${x+yes}"
echo ${gone?}; echo no ⏎ echo $?
echo ${gone:?is not set}; echo no
x=abcdef; echo ${x:2} ${x:1:2} ${x: -2} ${x:0:-1} ${x:9} ${#x}
p=/a/b.c.d; echo ${p#*/} ${p##*/} ${p%.*} ${p%%.*} ${p#x} ${p%/*}
x=banana; echo ${x/an/_} ${x//an/_} ${x/#b/_} ${x/%a/_} ${x//a} ${x/z/y}
x='Ab cD'; echo ${x^} ${x^^} ${x,} ${x,,} "${x^^[a-b]}" ${x~} ${x~~}
n=x; x=val; echo ${!n} ${!n/a/_}
set -- a b c; echo $# $* "$*" "$@" ${@:2} ${*:1:1} ${#} ${1} $10; shift 2; echo $1
IFS=-; set -- a b; echo "$*" $*; x=1-2-3; echo $x "$x"; printf '[%s]' $x
IFS=; x='a b'; printf '[%s]' $x; x=ab; echo $x
x='*'; echo "$x" '*' \*; x='a*'; echo $x "$x"; set -f; echo *; set +f
x=$'tab\tq\x41\101\'' y="a\"b\\c\$d\`"; echo "$x" "$y" '\n'
echo ~ ~/d "~" x=~ a~b; x=~/y; echo $x; x=a:~; echo $x
x=1; (x=2; echo $x); echo $x; x=3 | true; echo $x; { x=4; }; echo $x
x=$(echo a; echo b; echo); echo "$x" $x `echo c \`echo d\``; echo "$(echo "q $(echo r)")"
x=$(exit 3); echo $?; x=$(exit 3) y=1; echo $?; echo $(exit 4); echo $?
read a b <<< "1 2 3"; echo $a,$b; read <<< " x "; echo "[$REPLY]"; read c < /dev/null; echo $?
IFS=: read a b c <<< x:y:z:w; echo $a-$b-$c; read -r x <<< 'a\b'; echo $x
read -a w <<< "p q r"; echo ${w[1]} ${#w[@]}; read -n 2 x <<< abc
echo $x; read -d , x <<< a,b; echo $x
printf 'a b\nc d\n' | while read x y; do echo $y$x; done; echo "[$x]"
seq() { printf '%s\n' 1 2 3; }; seq | { read a; read b; echo $b$a; cat; }
while IFS=, read -r id name; do echo "$name:$id"; done < users.csv
mapfile -t m < a.txt; echo ${#m[@]} ${m[2]}; mapfile m <<< x; printf '[%s]' "${m[@]}"
let x=3 y=x*2; echo $x $y; let 'x -= 3'; echo $?; let y; echo $?
echo $((1 + 2)) $((x = 5)) $x $((x++)) $x $((--x)) $((x > 3 ? 1 : 2)) $((010 + 0x1f + 2#11))
echo $((1 / 0)); echo no ⏎ echo yes $?
((x = 2)); echo $?; ((x - 2)); echo $?; ((x++)) && echo $x; (( x > 1 && x < 9 )) && echo in
x=5; x=6 echo $x; echo $x; set -u; echo $gone; echo no
set -u; (echo $x); echo $?; echo $(echo $1)$?; bash -c 'set -u; echo $x'; echo $?
printf 'set -u\necho $x\n' > s; bash s; echo $?; bash < s; echo $?; (bash s); (. ./s); echo $?
set -u; echo ${gone-ok} "$@"; set +u; echo "[$gone]"
a=(x "y z" w); echo ${a[1]} ${#a[@]} "${a[*]}" ${!a[@]} ${a[-1]} $a ${a[@]:1:1}
a=(1 2); a+=(3); a[5]=6; unset 'a[0]'; echo ${!a[@]} ${a[@]}; declare -p a; a=(); echo ${#a[@]}
declare -A m=([k]=v [l]=w); m[x y]=z; echo ${m[k]} ${#m[@]} "${m[x y]}"
declare -A m=([k]=v [l]=w); unset 'm[k]'; echo ${m[k]-no} ${#m[@]}
a=(b a); for x in "${a[@]}"; do echo $x; done; echo "${a[@]/a/_}" ${a[@]^} "${a[@]#b}"
a[2+1]=q; echo ${!a[@]} $((a[3] + 1)); x=1; a[x]=r; echo ${a[1]}
a=([2]=c [0]=a b); echo ${!a[@]} ${a[@]}; declare -a e; declare -p e
export PS1=x; echo $_; true a b; echo $_
echo ${#HOME} $0 $BASH_SUBSHELL; (echo $BASH_SUBSHELL; (echo $BASH_SUBSHELL))
""".strip().splitlines()

FILES = r"""
echo a > f; cat f; echo b >> f; cat f; > f; cat f; echo c >| f; cat f
echo a > f > g; cat f g; echo err >&2 2> h; cat h
nosuch 2> f; cat f; nosuch > f 2>&1; cat f; nosuch 2>&1 > g; cat g
{ echo a; nosuch; echo b; } > f 2>&1; cat f; { echo c; } >> f; cat f
echo a &> f; echo b &>> f; cat f; nosuch |& cat; nosuch 2>&1 | cat
nosuch >& f; cat f; { echo a; nosuch; } >& f; cat f; nosuch &> f; wc -l < f
cat < a.txt; cat < nofile; echo $?; cat < a.txt > copy; cat copy
cat << E¶x $HOME $(echo s) \\$q¶E
cat << 'E'; echo more¶x $HOME¶E
cat <<- E¶	x¶		y¶	E
cat <<< "a $((1 + 1))"; cat <<< 'b'; x=5; cat <<< $x
echo x > d; echo $?; echo x > nodir/f; echo $?; : > d/e.txt; cat d/e.txt
x=name; echo 1 > $x; ls; echo 2 > "$x x"; cat name*; echo 3 > $gone; echo $?
echo 3 > *.txt; echo $?; echo 4 > empt*; cat empty
exec > out; echo a; nosuch; exec >&2; cat out
exec 3> f; echo a >&3; echo b >&3; cat f; echo c >&4; echo $?
exec 3>&1 > f; echo in; echo out >&3; cat f >&3
exec < a.txt; read x; echo $x; cat
{ read a; cat; } < a.txt; while read x; do echo "<$x>"; done < numbers > f; cat f
f() { echo e >&2; echo o; }; f 3>&1 1>&2 2>&3 | sed s/^/-/; f 2> /dev/null; f > /dev/null
cat a.txt | tail -n 1; cat a.txt numbers | sort | head -n 2; sort < numbers; wc -l < a.txt
cat a.txt | grep -c o | { read n; echo "n=$n"; }; echo done | cat > f; cat f
cat a.txt > a.txt; cat a.txt; cat numbers >> f; cat numbers >> f; cat f
(echo a; echo b) > f; cat f; if true; then echo c; fi > f; cat f
for x in 1 2; do echo $x; done >> f; cat f
cat <(echo l) <(echo r) a.txt; sort < <(echo p; echo n)
touch n; ls; mkdir m; cd m; pwd > w; ls; cd ..; cat m/w | wc -l; rm -r m; ls
mv a.txt z.txt; cat z.txt; mv d e; cat e/f/g.md; ls e; rm z.txt; ls
umask 077; echo s > secret; mkdir k; umask; umask 22; umask; (umask 0; touch open)
cd d; echo here > h; cd f; pwd; cd ../..; cat d/h; cd nodir; echo $?; cd a.txt; echo $?; cd; pwd
cd d; cd - > o; cd - ; cd -; echo $OLDPWD
cd -; echo $?; cd /; pwd; cd /usr/bin; cd ..; pwd
cd d f; echo $?; cd ''; echo $?; pwd -P; cd .; cd d/..; pwd | wc -l
pushd d; pushd f; dirs; popd; popd; popd; echo $?
pushd d > o; pushd /usr > o; dirs -l; dirs -v; dirs -p; pushd +1 > o; pwd; popd +1; dirs -c; dirs
pushd; pushd nodir; pushd +4; popd -9; echo $?
echo *; echo d/*; echo */; echo *.none; echo [ab]*; echo .*; echo d/*/*.md; echo "b c".*
printf '%s\n' *.txt; for x in *.none; do echo $x; done; echo ?mpty a.t?t
mkdir q; cd q; touch 1 2; echo *; (cd ..; echo *); echo *
exec cat a.txt; echo no
exec nosuch; echo no
tee() { cat > "$1"; cat "$1"; }; echo t | tee f
cat nofile; echo $?; cat nofile 2> /dev/null || echo failed
: > f1; : > f2; echo f?; rm f1 f2; echo f?
echo a > f; mv f g; echo b >> g; cat g; rm g; cat < g
""".strip().splitlines()

BUILTINS = r"""
echo -n a; echo -e 'b\tc\x41'; echo -E 'd\t'; echo -- -n; echo; echo -ne 'x\n' 'y\c z'
printf '%s-%d-%05.1f|%-4s|%x %o %c%%\n' a 7 2.5 b 255 8 xyz; printf '%s\n' a b; printf '[%s]'
printf '%i %u\n' 0x10 010
printf -v x '%03d' 7; echo $x; printf '%s %s\n' 1 2 3
test a = a; echo $?; test a != a; [ 2 -gt 1 ] && echo gt
[ -z "" ] && [ -n x ] && echo zn; [ ]; echo $?
[ a = b -o c = c ] && echo or; [ a = a -a b = c ]; echo $?; [ ! a ]
[ \( a \) ] && echo p; test; echo $?
[ 1 -eq x ]; echo $?; [ a b ]; echo $?; [ a; echo $?; test a b c; echo $?; test a b c d; echo $?
[ -f a.txt ] && [ -d d ] && [ ! -e nofile ] && [ -s a.txt ] && [ ! -s empty ] && echo files
[ a.txt/ ] && [ -e a.txt/ ]; echo $?; [ -x a.txt ]; echo $?
[ -L a.txt ]; [ d -ef ./d/. ] && echo same
x=1; [ -v x ] && [ ! -v gone ] && echo v; [ abc \< abd ] && echo lt; [ -o braceexpand ] && echo o
[[ abc == a*c && ! abc == "a*c" ]] && echo pattern
[[ -n a || -n ${y:=no} ]]; [[ -z a && ${z:=no} ]]; echo "[$y$z]"
[[ a < b || $gone ]] && echo or; [[ -n $gone ]]; echo $?
[[ 3 -gt 2+0 ]] && echo n; [[ (a == a) && -f a.txt ]] && echo g
x='a b'; [[ $x == "a b" ]] && echo q
[[ $gone == "" && -z $gone ]] && echo z; [[ a != b ]]; echo $?; [[ 1 -eq 1/0 ]]; echo $?
set -- -a -b val file; while getopts ab: o; do echo $o $OPTARG; done; shift $OPTIND; echo $#
getopts :ab: o -b; echo $? $o $OPTARG; getopts x o; echo $?; OPTIND=1; getopts a o -z; echo $? $o
getopts ab o -ab; echo $o; getopts ab o -ab; echo $o $OPTIND; getopts ab o -ab; echo $?
getopts a: o -aval -- x; echo $o $OPTARG $OPTIND; getopts a: o -aval -- x; echo $? $OPTIND
type cd if; type -t cd for nosuchthing; echo $?; command -v cd
true; :; false; : ${x:=5}; echo $x; times_() { :; }; echo $?
set -o noglob; echo *; set +o noglob; set -C; echo a > n; echo b > n; cat n
umask -S; umask u=rwx,g=,o=; umask; umask -p
shift; echo $?; shift 1; echo $?; set -- a; shift 0; echo $#
alias; alias g='echo'; alias g; unalias g; unalias g; echo $?
export 1x; echo $?; declare 2y z; echo $?; declare -p z; readonly r; declare -p r
echo a b c | xargs echo; printf '1\n2\n' | xargs -n 1 echo n; echo x | xargs -I{} echo '<{}>'
echo -n a.txt, | xargs -d , cat; printf '' | xargs -r echo no
printf 'a.txt nofile' | xargs -n 1 cat; echo $?
find d -type f; find d -name '*.txt' -exec cat {} \;; find d -type f -exec cat {} +
find . -name e.txt -exec rm {} \;; find d -type f; find d -name nomatch -exec cat {} \;; echo $?
find d -type d -name f -exec rm -r {} \;; ls d
echo "PATH is set: ${PATH:+yes}"; nosuch; echo $?; ./nosuch; echo $?; ./d; echo $?; ./a.txt; echo $?
""".strip().splitlines()

SCRIPTS = r"""
bash -c 'echo $0 $# "$@"' name a 'b c'; bash -c 'exit 3'; echo $?; bash -c 'echo $1' x y
x=1; bash -c 'echo "[$x]"'; export x; bash -c 'echo "[$x]"; x=2'; echo $x; x=3 bash -c 'echo $x'
bash -c 'cd d; pwd' | grep -c /d; bash -c 'echo e >&2' 2> f; cat f; bash -c 'nosuch'; echo $?
echo 'echo in $1; exit 4' > s; bash s arg; echo $?; bash -e s; bash < s; echo $?
printf 'echo $0\necho $((1/0)); echo no\necho on\n' > s; bash s
printf 'f() { echo $1; }\nv=7\nreturn 5\necho no\n' > lib; . ./lib; echo $?; f x; echo $v
printf 'f() { echo $1; }\n' > lib; source lib y; f z; echo $?
echo 'echo $# $1; set -- q; echo $1' > p; set -- a b; . ./p; echo $1; . ./p k; echo $1
echo 'echo plain $0 $1' | bash; echo 'echo s $1' | bash -s arg
bash nofile; echo $?; bash d; echo $?
printf 'set -e\nfalse\necho no\n' > s; bash s; echo $?
bash -c 'set -u; echo $gone; echo no'; echo $?
printf '#!/bin/bash\necho run $1\nexit 2\n' > s; ./s; echo $?; bash s w; echo $?
bash -c 'bash -c "echo deep \$0" z; echo $0' y; (bash -c 'echo sub')
printf 'nosuch\ncd nodir\n' > s; bash s; bash -c 'f() { echo f; }; f'; f; echo $?
""".strip().splitlines()

REFUSED = r"""
for x in 1; echo; done
if true; then echo
echo 'open
echo "open
echo (a)
ls | | cat
case x in a) echo; done
while true; do
echo ) ; ls
&& ls
echo a ;; b
fi
{ echo a
echo $(
f( ) { }
""".strip("\n").splitlines()

CASES = (
    *LISTS_AND_LOOPS, *FUNCTIONS, *VARIABLES, *FILES, *BUILTINS, *SCRIPTS, *REFUSED,
)  # fmt: skip
"""Programs. ¶ is a newline, and ⏎ divides lines that are typed one after the other."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_files(tmp_path)
    return tmp_path


def lines_of(case: str) -> list[str]:
    return [line.replace("¶", "\n") for line in case.split(" ⏎ ")]


@pytest.mark.parametrize("case", CASES)
def test_a_program_does_what_bash_does(case: str, home: Path) -> None:
    lines = lines_of(case)
    with answering(case):
        ours = composed(lines, home)
    theirs = executed(lines, home)
    assert (ours.output, ours.status) == (theirs.output, theirs.status)
    assert ours.files == theirs.files
