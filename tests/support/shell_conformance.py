"""Scripts that every shell must run alike, and the comparison of two shells.

The oracle is `RepeatedShell`. `OTHERWISE` lists the scripts for which a resident shell is right and
the oracle is not, with reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import pointer
from shioenv.errors import ShellEndedError
from shioenv.live.shell import Shell

Script: TypeAlias = tuple[str, ...]

SCRIPTS: Final[tuple[Script, ...]] = (
    # variables, the directory, options
    ("x=1", "echo $x", "x=$((x + 1))", "echo $x", "unset x", "echo [$x]"),
    ("export A=1 B=2", "env | grep '^[AB]='", "declare -p A", "A=3 env | grep ^A", "echo $A"),
    ("a=(1 2 3)", "a+=(4)", 'echo "${a[@]}" ${#a[@]}', "unset 'a[1]'", "declare -p a"),
    ("declare -A m=([k]=v)", "m[two]=2", 'for k in "${!m[@]}"; do echo $k; done | sort'),
    ("readonly r=1", "r=2", "echo $r $?", "unset r", "echo $r"),
    ("cd documents", "pwd", "cd ..", "cd -", "cd /nowhere", "echo $? $PWD $OLDPWD"),
    ("pushd /tmp", "dirs", "pushd /etc", "popd", "pwd", "dirs -c", "dirs"),
    ("cd /tmp && mkdir -p deep/er", "cd deep/er", "rm -r ../../deep", "pwd", "ls", "cd /", "pwd"),
    ("umask", "umask 077", "touch private", "ls -l private", "umask 022", "umask"),
    ("set -u", "echo ${nothing:-fine}", "set +u", "echo [$nothing]"),
    ("set -o pipefail", "false | true", "echo $?", "set +o pipefail", "false | true", "echo $?"),
    ("set -f", "echo *", "set +f", "echo *.md"),
    ("set -C", "echo 1 > f", "echo 2 > f", "echo $?", "cat f", "echo 3 >| f", "cat f"),
    ("shopt -s nullglob", "echo none*", "shopt -u nullglob", "echo none*"),
    ("shopt -s extglob", "echo !(*.md|*.txt)", "shopt extglob"),
    ("shopt -s expand_aliases", "alias ll='ls -l'", "ll README.md", "unalias ll", "ll"),
    ("set -- a b c", "echo $# $1 $3", "shift 2", "echo $# $1", "set --", "echo $#"),
    ("IFS=:", "x=a:b:c", "for p in $x; do echo $p; done", "IFS=$' \\t\\n'", "echo $x"),
    ("HISTFILE=/tmp/h", "history", "set -o history", "echo in", "set +o history"),
    ("ulimit -n 100", "ulimit -n", "ulimit -Hn", "ulimit -n 200", "echo $?"),
    ("printf -v v %05d 42", "echo $v", "read w <<< 'a b'", "echo $w", "mapfile -t l < README.md",
     "echo ${#l[@]}"),
    ("getopts ab: o -a -b 1", "echo $o $OPTIND", "getopts ab: o -a -b 1", "echo $o $OPTARG"),
    ("let x=5", "((x++))", "echo $x", "((x > 10))", "echo $?"),
    ("hash", "ls > /dev/null", "hash", "hash -r", "hash", "type ls"),
    # exit codes
    ("true", "echo $?", "false", "echo $?", "(exit 7)", "echo $?", "! true", "echo $?"),
    ("ls /nowhere", "echo $?", "nosuchcommand", "echo $?", "./README.md", "echo $?"),
    ("true | false | true", 'echo "${PIPESTATUS[@]}"', "false", "echo $PIPESTATUS"),
    ("kill -9 $BASHPID & wait $!", "echo $?", "(kill -15 $BASHPID)", "echo $?"),
    ("test -f README.md", "echo $?", "[[ -d documents ]]", "echo $?", "[ 1 -gt 2 ]", "echo $?"),
    # errors of a line do not affect later lines
    ("echo 'open", "echo after"), ("( echo", "echo after"), ("if true", "echo after"),
    ("echo )", "echo $?", "echo after"), ("for x in", "echo after"), ("cat <<END\nx", "echo after"),
    ("echo ${", "echo $?"), ("echo $((1/0))", "echo $?"), ("case x in", "echo $?", "echo after"),
    # functions
    ("f() { echo f $1; return 3; }", "f a", "echo $?", "declare -f f", "unset -f f", "f"),
    ("f() { local x=in; g; }", "g() { echo $x; }", "x=out", "f", "echo $x"),
    ("f() { echo $FUNCNAME $LINENO; }", "f", "export -f f", "bash -c f"),
    ("fib() { (($1 < 2)) && echo $1 || echo $(($(fib $(($1-1))) + $(fib $(($1-2))))); }", "fib 7"),
    ("f() { cd /tmp; }", "f", "pwd", "(f; cd /)", "pwd"),
    ("ls() { echo mine; }", "ls", "command ls README.md", "\\ls", "unset -f ls", "ls README.md"),
    ("cd() { echo no; }", "cd /", "pwd", "builtin cd /", "pwd"),
    ("eval() { echo no; }", "eval echo yes", "unset -f eval", "eval echo yes"),
    ("f() { return $1; }", "f 1", "echo $?", "f 300", "echo $?", "return 1", "echo $?"),
    # here-documents and redirections
    ("cat <<END\none $HOME\nEND", "cat <<'END'\none $HOME\nEND", "cat <<-END\n\ttab\n\tEND"),
    ("echo one > f", "echo two >> f", "cat f", "cat < f | tr a-z A-Z", ": > f", "wc -c f"),
    ("ls /nowhere 2> err", "cat err", "ls /nowhere > all 2>&1", "cat all", "rm err all"),
    ("exec 3> f", "echo three >&3", "exec 3>&-", "cat f"),
    ("exec 4< README.md", "read -u 4 line", "echo $line", "read -u 4 line", "exec 4<&-"),
    ("echo x | tee a b > c", "cat a b c", "cmp a b", "echo $?"),
    ("exec 5<> f", "echo ab >&5", "cat <&5", "exec 5>&-", "cat f"),
    ("echo a >&2", "echo b", "{ echo c; echo d >&2; } 2>&1", "echo e 2>&- >&2", "echo $?"),
    ("cat", "read x", "echo [$x] $?", "wc -c"),
    ("cat < nothing", "echo $?", "> /nowhere/f", "echo $?", "echo f > /", "echo $?"),
    ("mkfifo p", "cat p & echo through > p; wait", "rm p", "ls p"),
    ("diff <(echo a) <(echo b)", "echo $?", "cat <(echo in)", "echo > >(cat); wait"),
    # control
    ("for i in 1 2 3; do\n  x=$i\ndone", "echo $x", "while ((x < 6)); do ((x++)); done", "echo $x"),
    ("for i in 1 2 3; do [ $i = 2 ] && break; done", "echo $i", "break", "echo $?", "continue"),
    ("case README in R*) x=yes;; *) x=no;; esac", "echo $x", "select_=1", "echo $select_"),
    ("until [ -e made ]; do touch made; done", "ls made", "[ -e made ] && rm made || echo no"),
    ("x=$(echo sub; exit 4)", "echo $? $x", "y=`echo old`", "echo $y"),
    ("(cd /tmp; x=in)", "pwd", "echo [$x]", "{ cd /tmp; x=in; }", "pwd", "echo [$x]"),
    ("echo $BASH_SUBSHELL", "(echo $BASH_SUBSHELL)", "echo $((2**10)) $((017)) $((0x1f))"),
    # traps
    ("trap 'echo bye' EXIT", "trap -p", "exit 3"),
    ("trap 'echo usr1' USR1", "kill -USR1 $$", "echo after", "trap - USR1", "trap -p"),
    ("trap 'echo err' ERR", "false", "true", "trap - ERR", "false"),
    ("trap 'echo debug' DEBUG", "true", "trap - DEBUG", "true"),
    ("trap '' TERM", "kill $$", "echo alive", "trap - TERM"),
    ("trap 'echo ret' RETURN", "f() { :; }", "f", "trap - RETURN"),
    ("trap 'echo int' INT", "kill -INT $$", "echo after"),
    # the end
    ("exit",), ("exit 5",), ("x=1", "exit $x"), ("(exit 5)", "exit"), ("logout",),
    ("set -e", "true", "false", "echo never"), ("set -e", "false || true", "echo on"),
    ("set -e", "if false; then :; fi", "echo on", "f() { false; echo in; }", "f"),
    ("set -u", "echo $nothing", "echo on"), ("exec true",), ("exec ls README.md",),
    ("exec bash -c 'echo other; exit 2'",), ("kill -9 $$",), ("kill $$",), ("exec /nowhere",),
    ("set -n", "echo never"), ("exec 2>&1", "ls /nowhere"), ("suspend",), ("exit a",),
    ("return 3", "echo $?"), ("exec < README.md", "read x", "echo $x"), ("kill -HUP $$",),
    # files
    ("touch a", "mv a b", "cp b c", "ln b d", "ln -s b e", "ls -l b c d e | wc -l", "rm b c d e"),
    ("mkdir -p a/b/c", "touch a/b/c/f", "mv a/b z", "find a z", "rm -r a z", "ls a"),
    ("echo one > documents/notes.txt", "cat documents/notes.txt", "rm documents/notes.txt"),
    ("chmod 600 README.md", "stat -c %a README.md", "chmod +x README.md", "ls -l README.md"),
    ("chown ubuntu README.md", "stat -c %U README.md", "chgrp 100 README.md", "id -nG ubuntu"),
    ("cp -r documents d2", "diff -r documents d2", "rm -r documents", "mv d2 documents"),
    ("tar cf t.tar documents", "tar tf t.tar | wc -l", "mkdir x", "tar xf t.tar -C x", "ls x"),
    ("gzip -k README.md", "zcat README.md.gz | cmp - README.md", "rm README.md.gz"),
    ("sed -i s/a/b/ README.md", "sha256sum README.md", "git status", "sort -o f README.md"),
    ("truncate -s 1M big", "du -k --apparent-size big", "truncate -s 2K big", "stat -c %s big"),
    ("cp README.md r", "rm README.md", "cp r README.md", "cmp r README.md", "rm r"),
    ("mkdir d", "touch -d 2020-01-02 d/f", "ls -l --time-style=long-iso d", "rmdir d", "rm -r d"),
    ("ln -s nowhere l", "cat l", "readlink l", "ls -l l | cut -c1-10", "rm l"),
    ("find . -name '*.txt' | sort | head -3", "find . -empty -type f | wc -l"),
    ("mv documents docs", "ls docs", "mv docs documents", "ls -d documents docs"),
    # the machine
    ("hostname", "hostname other", "hostname", "uname -n"),
    ("ip link set lo down", "ip -br link show lo | wc -l", "ip link set lo up"),
    ("id -un", "whoami", "groups", "tty", "echo $$ $PPID $BASHPID"),
    ("ps -o comm= -p $$", "ps -e | wc -l", "echo $!", "true & wait", "echo $!"),
    ("date +%F", "date +%H", "uptime -s | cut -c1-10"),
    ("useradd tom", "grep ^tom /etc/passwd", "id tom", "userdel tom", "id tom"),
    ("echo '127.0.0.9 nine' >> /etc/hosts", "getent hosts nine"),
    ("mount -t tmpfs t /mnt", "touch /mnt/f", "ls /mnt", "umount /mnt", "ls /mnt"),
    # jobs that end
    ("sleep .01 & wait", "jobs", "echo $?"), ("(echo late) &", "wait", "jobs"),
    ("{ sleep .02; echo done > f; } &", "cat f"), ("true & false & wait -n; wait", "echo $?"),
    ("x=$(sleep .01 & echo now)", "echo $x"), ("coproc cat", "echo in >&${COPROC[1]}",),
    ("sleep .01 &", "wait $!", "echo $?"), ("yes | head -2", "seq 3 | while read n; do x=$n; done",
     "echo [$x]"),
    # the mechanism must be invisible to lines
    ("ls /proc/$$/fd", "echo $-", "cat /proc/$$/cmdline | tr '\\0' ' '", "grep ^Seccomp "
     "/proc/$$/status"),
    ("echo $LINENO", "echo\necho $LINENO", "caller", "echo ${#BASH_SOURCE[@]} ${#FUNCNAME[@]}"),
    ("echo $0 $BASH", "echo $SHLVL", "bash -c 'echo $SHLVL'", "echo $BASH_EXECUTION_STRING"),
    ("set", "declare -F", "alias", "trap", "export -p | wc -l", "shopt -s | wc -l"),
    ("echo $_", "true last", "echo $_", "SECONDS=0", "echo $SECONDS"),
    ("RANDOM=5", "echo $RANDOM", "echo $RANDOM", "x=$RANDOM", "echo $x"),
    (". /dev/stdin", "source /dev/stdin", "echo $?", ". README.md", "echo $?"),
    ("echo 'echo sourced; y=2; return 4' > s", ". ./s", "echo $? $y", "bash s", "echo $?"),
    ("echo 'echo $0 $# $PPID; x=in; cat; exit 3' > s; chmod +x s", "./s a", "echo $? [$x]", "(./s)",
     "seq 2 | ./s | cat", "./s & wait", "x=$(./s)", "echo $x", "exec ./s b"),
    ("enable -n echo", "echo x", "enable echo", "enable -n .", ". ./s", "enable ."),
    ("exec 200>&1 2>/dev/null", "echo x", "ls nowhere", "echo y >&200"),
    ("unset PATH", "ls", "echo still", "PATH=/bin", "ls README.md"),
    ("unset HOME", "cd", "echo ~", "HOME=/tmp", "cd", "pwd"),
    ("LC_ALL=C ls -d README.md bin", "LANG=C.UTF-8", "printf '%s' ä | wc -m"),
    ("printf 'a\\0b' | od -c", "echo -e 'x\\ty'", "printf '%q\\n' 'a b'"),
    ("eval 'x=1; echo $x'", "eval 'echo \"'", "echo $?", "command -v eval"),
    ("echo {1..5} {a..c}", "echo *.md ~ $(pwd)", 'echo "$(echo "$(echo deep)")"'),
    ("[[ abc =~ b(c) ]]", 'echo "${BASH_REMATCH[1]}"', "x=abc", "echo ${x/b/B} ${x^^} ${#x}"),
    ("{ time true; } 2> /dev/null", "echo $?", "wait 99999", "echo $?", "kill -l 9"),
    ("python3 -c 'print(1)'", "python3 -c 'import sys; sys.exit(3)'", "echo $?"),
    ("awk 'BEGIN { print 1 + 1 }'", "perl -e 'print 1'", "sort -R /dev/null", "expr 2 \\* 3"),
    ("seq 1 300 | tail -1", "yes | head -1000 | wc -l", "head -c 1000 /dev/zero | wc -c"),
    # signals and waiting
    ("trap 'echo int' INT", "kill -INT $BASHPID", "(kill -INT $BASHPID) & wait $!", "echo $?"),
    ("sleep 9 & p=$!", "kill $p", "wait $p", "echo $?", "kill $p"),
    ("bash -c 'kill -INT $$'", "echo $?", "bash -c 'kill -QUIT $$'", "echo $?", "echo on"),
    ("timeout .1 sleep 9", "echo $?", "timeout -s KILL .1 sleep 9", "echo $?", "timeout 9 true"),
    ("trap 'echo term' TERM", "(kill $$)", "trap", "trap '' TERM", "bash -c 'kill $PPID'", "trap"),
    ("f() { trap 'echo in' USR1; kill -USR1 $$; }", "f", "kill -USR1 $$", "trap - USR1", "trap"),
    ("trap 'x=$?' ERR", "(exit 9)", "echo $x", "f() { false; }", "f", "set -E", "f", "echo $x"),
    ("set -o errtrace", "trap 'echo at $LINENO' ERR", "false", "true\nfalse", "! true"),
    ("trap 'echo d$BASH_COMMAND' DEBUG", "x=1", "for i in 1 2; do :; done", "trap - DEBUG", "x=2"),
    ("read -t .1 x < <(sleep 1)", "echo $?", "wait", "read -n 2 y <<< abc", "echo $y"),
    # jobs
    ("set -m", "sleep .01 & wait", "jobs", "set +m"),
    ("sleep 8 & sleep 9 &", "jobs -p | wc -l", "kill %1", "wait %1", "echo $?", "kill %2", "wait"),
    ("sleep 9 &", "disown", "jobs", "kill $!", "echo $?"),
    ("(sleep .01; exit 4) & p=$!", "wait -n $p", "echo $?", "wait $p", "echo $?"),
    ("{ echo a; sleep .01; echo b; } | cat & wait", "echo $?", "jobs"),
    ("x=0", "while read n; do x=$((x + n)); done < <(seq 4)", "echo $x", "echo $(jobs) [$!]"),
    ("mkfifo a b", "cat a > b & cat b > c & echo on > a; wait", "cat c", "rm a b c"),
    # here-documents, here-strings, descriptors
    ("cat <<A; cat <<B\none\nA\ntwo\nB", "x=$(cat <<E\nin $((1 + 1))\nE\n)", "echo $x"),
    ("f() { cat <<E\n$1\nE\n}", "f a", "declare -f f", "f b > out", "cat out"),
    ("while read a b; do echo $b $a; done <<E\n1 2\n3 4\nE", "tac <<< $'1\\n2'", "wc -c <<< ''"),
    ("exec 3>&1", "echo to >&3", "{ echo err >&2; } 2>&3", "exec 3>&-", "echo x >&3", "echo $?"),
    ("exec {fd}> f", "echo $((fd > 9))", "echo one >&$fd", "exec {fd}>&-", "cat f", "echo >&$fd"),
    ("exec 3< README.md 4< README.md", "read -u 3 a", "read -u 3 b", "read -u 4 c",
     '[ "$a" = "$c" ]', "echo $?", "exec 3<&- 4<&-", "read -u 3 d"),
    ("echo a > f; exec 5>> f", "echo b >&5", "echo c > f", "echo d >&5", "cat f", "exec 5>&-"),
    ("ls nowhere README.md > o 2> e", "wc -l o e", "ls nowhere &> both", "cat both", "rm o e both"),
    ("echo a | tee f >&2", "cat f - <<< b", "cat f f > g", "cat < f > h; cmp f h", "echo $?"),
    # set -e, and failing lines
    ("set -e", "x=$(false) || echo caught", "local y=1 || echo no", "((0)) || echo zero", "((0))"),
    ("set -e", "f() { false; echo in; }", "f || echo caught", "! f", "f", "echo never"),
    ("set -e", "trap 'echo bye $?' EXIT", "true", "(false)", "echo never"),
    ("set -e", "while false; do :; done", "until true; do :; done", "false & wait $!", "echo no"),
    ("set -eu", "echo ${x-none}", "[ -n \"${x:-}\" ] || echo empty", "echo $x", "echo never"),
    ("set -u", "echo $((n + 1))", "x=(); echo ${#x[@]}", "echo ${x[3]}", "echo ${y:?w}", "echo on"),
    ("echo ${x:?gone}", "echo $?", ": ${x:=made}", "echo $x", "unset x", "echo ${x:+never}."),
    ("f() { return 3; echo never; }; f; echo $?", "f() { break; }", "for i in 1 2; do f; done"),
    ("cd nowhere || echo stay", "cd nowhere && echo no; pwd", "cd '' ; pwd", "cd / && cd nowhere"),
    ("if cd documents; then pwd; fi", "if cd nowhere; then :; else pwd; fi", "cd -- ..", "pwd"),
    # exec, eval and other shells
    ("exec 2> err", "ls nowhere", "exec 2>&1", "wc -l err"), ("exec -a other bash -c 'echo $0'",),
    ("exec nosuchcommand",), ("exec < /dev/null", "cat", "echo on"), ("exec > f",),
    ("eval x=1 y=2", "echo $x$y", "eval 'for i in 1 2; do' 'echo $i; done'", "eval exit 4"),
    ("bash", "echo $SHLVL", "bash -c 'x=1; exit 2'", "echo $? [$x]", "sh -c 'echo $0 $1' a b"),
    ("env -i bash -c 'env | sort'", "env X=1 bash -c 'echo $X'", "echo [$X]", "env -u A ls -d /"),
    ("su ubuntu -c 'id -un; pwd'", "id -un", "su -s /bin/sh nobody -c id", "chroot / id -u"),
    ("python3 - <<E\nimport os\nos.chdir('/'); print(os.getcwd())\nE", "pwd",
     "python3 -c 'open(\"made\", \"w\").write(\"x\")'", "cat made"),
    # files across lines
    ("ln -s documents l", "cd l", "pwd", "pwd -P", "cd ..", "pwd", "cd -P l", "cd -", "rm l"),
    ("mkdir d; cd d", "mv ../d ../e", "pwd", "pwd -P", "touch f", "cd ../e", "ls", "rm -r ../e"),
    ("touch -r README.md f", "[ f -nt README.md ] || echo same", "chmod 0 f", "cat f", "rm -f f"),
    ("cp README.md a; ln a b", "rm a", "stat -c %h b", "mv b a", "cmp a README.md", "echo $?"),
    ("seq 9 > n", "sed -n 2,3p n", "split -l 4 n p", "cat pa?", "rm pa?", "head -c 3 n | od -c"),
    ("mkdir -m 1777 t", "ls -ld t | cut -c1-10", "touch t/{a,b}", "rm -rf t/a", "find t | sort"),
    ("dd if=/dev/zero of=z bs=1k count=3 2> /dev/null", "wc -c z", "truncate -s 1 z", "od -c z"),
    ("install -m 640 README.md i", "stat -c '%a %U' i", "rm i", "mktemp -u tmp.XX | wc -c", "ls i"),
    # as people type
    ("n=0", "for f in *.md; do n=$((n + 1)); done", "echo $n", "ls *.md | wc -l", "unset n f"),
    ("grep -c . README.md", "x=$(grep -c . README.md)", "[ $x -gt 1 ] && echo many", "echo $x"),
    ("PS1='> '", "PROMPT_COMMAND='echo never'", "echo $PS1", "set -o vi", "set -o | grep ^vi",
     "history | wc -l", "fc -l", "!!", "echo on"),
    ("source /etc/profile", "echo $?", "type -t source", ". /etc/os-release", "echo $ID"),
    ("printf '%s\\n' a b | paste -s -", "column -t <<< 'a b'", "xargs -n 1 <<< '1 2'", "nl <<< x"),
    ("w() { while :; do x=${x}a; ((${#x} > 5)) && return; done; }", "w", "echo $x", "w", "echo $x",
     "unset x", "w", "echo ${x@Q}", "declare -p x", "unset -f w", "w", "echo $?", "true", "echo $?",
     "x=b", "echo $x", "unset x", "echo [$x]", "x=c; (x=d); echo $x", "{ x=e; }; echo $x"),
    # long ones
    ("mkdir site", "cd site", "printf '<p>%s</p>\\n' one two > index.html", "ls", "wc -l *",
     "cp index.html old.html", "sed -i 's/one/ONE/' index.html", "diff old.html index.html",
     "echo $?", "for p in a b c; do sed s/two/$p/ old.html > $p.html; done", "ls | wc -l",
     "grep -l '<p>b' *", "cat [abc].html | sort | uniq -c", "mv a.html z.html", "ls -1",
     "chmod 640 z.html", "stat -c %a z.html", "ln -s z.html latest", "cat latest", "rm z.html",
     "cat latest", "echo $?", "rm latest", "tar cf ../s.tar .", "cd ..", "rm -r site", "ls site",
     "tar xf s.tar --one-top-level=site", "find site -type f | wc -l", "rm -r site s.tar"),
    ("mkdir -p app/{src,test}", "cd app", "echo 'x = 1' > src/a.py", "cp src/a.py test/b.py",
     "sed -i s/1/2/ test/b.py", "diff src/a.py test/b.py", "echo $?", "chmod -R go-r .",
     "find . -type f -perm 600 | sort", "tar czf ../app.tgz .", "cd ..", "rm -r app",
     "mkdir app2", "tar xzf app.tgz -C app2", "cat app2/test/b.py", "ls -R app2 | wc -l",
     "mv app2 app", "du -s app | cut -f2", "rm app.tgz", "ls -d app*"),
    ("log() { echo \"[$1] $2\" >> log; }", "log info start", "for i in 1 2 3; do log warn $i; done",
     "grep -c warn log", "n=$(wc -l < log)", "echo $n", "while read l; do m=$l; done < log",
     "echo $m", "sed -i /warn/d log", "cat log", "trap 'log info sig' USR1", "kill -USR1 $$",
     "tail -1 log", "trap - USR1", "unset -f log", "log x y", "rm log"),
    ("set -e; set -o pipefail", "x=$(echo 1)", "((x)) && echo yes", "cat README.md | head -1 > h",
     "test -s h", "grep -q nothing h || echo none", "set +e", "false", "set -e", "rm h", "false",
     "echo never"),
    ("git init -q r 2>&1 | head -1", "cd r || mkdir r && cd r", "echo a > a", "cp a b", "ls",
     "cd ..", "stack=()", "stack+=(one)", "stack+=(two)", "echo ${#stack[@]} ${stack[-1]}",
     "unset 'stack[-1]'", "echo ${stack[*]}", "exec 7> out", "echo 1 >&7", "cat out", "echo 2 >&7",
     "exec 7>&-", "cat out", "rm -r out r", "pwd"),
    ("crontab -l", "which sh", "stat -c %n /", "df / | wc -l", "free | wc -l"),
)  # fmt: skip
"""Scripts, each run line by line until its shell has ended."""

_TRAPPED: Final = "a repeated shell ends with each line, so each line runs the trap"
_REDIRECTED: Final = "what exec alone does to descriptors counts for its line in a repeated shell"
_SHOWN: Final = "a resident shell shows its lines so far as its arguments, as recorded rows do"
_LEFT: Final = "nothing lives on in a repeated shell: what a line leaves running ends it"

OTHERWISE: Final[dict[Script, str]] = {
    ("trap 'echo bye' EXIT", "trap -p", "exit 3"): _TRAPPED,
    ("set -e", "trap 'echo bye $?' EXIT", "true", "(false)", "echo never"): _TRAPPED,
    ("exec 200>&1 2>/dev/null", "echo x", "ls nowhere", "echo y >&200"): _REDIRECTED,
    ("exec 2> err", "ls nowhere", "exec 2>&1", "wc -l err"): _REDIRECTED,
    ("exec 3>&1", "echo to >&3", "{ echo err >&2; } 2>&3", "exec 3>&-", "echo x >&3", "echo $?"):
        _REDIRECTED,
    ("ls /proc/$$/fd", "echo $-", "cat /proc/$$/cmdline | tr '\\0' ' '",
     "grep ^Seccomp /proc/$$/status"): _SHOWN,
    ("coproc cat", "echo in >&${COPROC[1]}"): _LEFT,
    ("sleep 9 & p=$!", "kill $p", "wait $p", "echo $?", "kill $p"): _LEFT,
    ("sleep 8 & sleep 9 &", "jobs -p | wc -l", "kill %1", "wait %1", "echo $?", "kill %2", "wait"):
        _LEFT,
    ("sleep 9 &", "disown", "jobs", "kill $!", "echo $?"): _LEFT,
    ("read -t .1 x < <(sleep 1)", "echo $?", "wait", "read -n 2 y <<< abc", "echo $y"): _LEFT,
}  # fmt: skip
"""Scripts for which a resident shell differs from the oracle, each with the reason."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A difference between two shells in one line of a script."""

    number: int
    """The line's number in its script, from 1."""
    line: str
    what: str
    """The field that differs: `exit_code`, `output`, `patch`, ..."""
    one: object
    other: object


_COMPARED = (
    *("exit_code", "output", "patch", "timed_out", "limits_hit", "died_by_signal"),
    "shell_state_known",
)


def differences(one: Shell, other: Shell, script: Sequence[str]) -> Iterator[Disagreement]:
    """Run a script in two new shells, line by line, and yield their differences.

    The run stops after the line that ends one of the shells. Contents of new files are not
    compared: archives hold times, and time passes between the lines of the first shell.
    """
    for number, line in enumerate(script, 1):
        if other.ended:
            yield Disagreement(number, line, "ended", one.ended, other.ended)
            return
        mine, theirs = one.run(line), other.run(line)
        for what in _COMPARED:
            values = getattr(mine, what), getattr(theirs, what)
            if values[0] != values[1]:
                yield Disagreement(number, line, what, *values)
        digests = _digests_of_old_files(mine), _digests_of_old_files(theirs)
        if digests[0] != digests[1]:
            yield Disagreement(number, line, "content_digests", *digests)
        if one.ended:
            return


def _digests_of_old_files(behavior: Behavior) -> dict[str, str]:
    """Return the digests of changed files that existed before."""
    added = {operation[1] for operation in behavior.patch.operations if operation[0] == "a"}
    digests = behavior.content_digests.items()
    return {name: digest for name, digest in digests if pointer("fs", name) not in added}


def refuses_lines(shell: Shell) -> bool:
    """Whether an ended shell raises ShellEndedError for a further line."""
    try:
        shell.run("echo never")
    except ShellEndedError:
        return True
    return False
