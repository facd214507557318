"""Output of scripts and programs, compared with sed and gawk of the built system."""

from __future__ import annotations

import re
import shlex
from functools import cache
from itertools import product

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_model.files import load_model
from shioenv_model.memory.functions.edit import edit
from shioenv_model.memory.functions.program import run_program
from shioenv_model.memory.functions.space import Given, Result
from shioenv_model.model import Model

LINES = "alpha beta\n# comment\n\nfoo bar foo\nbeta gamma 12 34\nlast\tline  here\n"
UNENDED = "one\ntwo\nthree"
ACCOUNTS = (
    "root:x:0:0:root:/root:/bin/bash\nalice:x:1001:1001:Alice A:/home/alice:/bin/sh\n"
    "bob:*:1002:100::/home/bob:/bin/bash\n"
)
LOG = (
    "2025-09-01 ERROR [db] timeout 30\n2025-09-02 INFO [web] ok 5.5\n\n"
    "2025-09-03 ERROR [db]  retry   7\n  x 1e2 0x11 abc -3\nlast 010 10 +5 .5\n"
)

SCRIPTS = (
    "s/a/b/",
    "s/a/b/g",
    "s/foo/X/2",
    "/beta/d",
    "2,4p",
    "$d",
    "$!d",
    "1!G;h;$!d",
    "s/\\(.*\\) \\(.*\\)/\\2 \\1/",
    "y/abc/xyz/",
    "/foo/,/last/d",
    "/foo/,$d",
    "2q",
    "2,3!d",
    "=",
    "n;d",
    "N;s/\\n/+/",
    "$!N;P;D",
    "a\\\nhello",
    "2i\\  hi there",
    "1~2d",
    "0~3d",
    "2,+2d",
    "2,~4d",
    "/^$/d;/^#/d",
    "s/[^ ]*/<&>/g",
    "s/x*/-/g",
    "s/\\b/|/g",
    "s/\\w\\+/[&]/2g",
    ":a;N;$!ba;s/\\n/,/g",
    "/beta/c changed",
    "2,3c changed",
    "/beta/{s/a/A/;s/e/E/g}",
    "s#a#/#g",
    "s/$/\\r/",
    "s/^/  /",
    "/foo/s//BAR/g",
    "5,2p",
    "s/a\\|b/X/g",
    "s/\\(foo\\|bar\\)/<\\1>/g",
    "s/.*/\\U&/",
    "s/\\w\\+/\\u&/g",
    "/beta/!s/a/Z/",
    "x;p;x",
    "G",
    "/foo/{n;d}",
    "1,3{/beta/d}",
    "$a end",
    "1i begin",
    "0,/beta/d",
    "s/[[:space:]]\\+/ /g",
    "s/[0-9]\\{2\\}/N/g",
    "/^$/,/beta/{//!d}",
    "s,/,\\,,",
    "s/a/\\n/",
    "s/\\t/TAB/",
    "10q",
    "3q5",
    "$=",
    "s/\\./,/g",
    "/a/I d",
    "s/ALPHA/x/I",
    "s/[/]/x/",
    "y/a\\/b/x\\/y/",
    "2{p;q}",
    "$s/$/!/",
    "/beta/a after beta\n",
    "s/b*/X/2",
    "1d;2d;n;s/o/0/",
    "t;s/a/b/",
    "s/a/b/;ta;s/o/0/;:a;s/t/T/",
    "1,2{h;d};G",
    "p;p",
    "/12/=",
    "s/\\(a\\)\\(l\\)/\\2\\1/",
    "s/a/&&/3;T;s/$/ yes/",
    "5!s/$/;/",
    "s/ /\\\n/",
    "2,/beta/d",
    "/gamma/,3d",
)

UNKNOWN_SCRIPTS = (
    "s/a/b/w out",
    "2r /etc/hostname",
    "s/a/b/e",
    "s/foo/bar",
    "k",
    "}",
    "1,d",
    ":a;ba",
)
"""Scripts that use other files, are broken, or never end."""

PROGRAMS = (
    ("", "{print $1}"),
    ("", "{print $NF, NF, NR}"),
    ("", "NR==2"),
    ("", "NR>1{print $2}"),
    ("", '$2=="ERROR"{c[$3]++} END{for(k in c) print k, c[k]}'),
    ("", "{s+=$NF} END{print s, s/NR}"),
    ("", "END{print NR}"),
    ("", '{$1="";print}'),
    ("", '{$3="X";print NF}'),
    ("", "{NF=2;print}"),
    ("", "{print length, length($1)}"),
    ("", "length>20"),
    ("", "{print toupper(substr($0,1,5))}"),
    ("", '{printf "%-10s|%5d|%05.2f|%x\\n", $1, $NF, $NF, NR}'),
    ("", "BEGIN{print 1/3, 1e6, 123456789012, 0.1+0.2, 100000*100000, 3.0}"),
    ("", 'BEGIN{for(i=1;i<=5;i++) printf "%d ", i*i; print ""}'),
    ("", '{gsub(/o/,"0");print}'),
    ("", '{n=gsub(/[aeiou]/,"<&>");print n, $0}'),
    ("", '{sub(/r+/,"\\\\&");print}'),
    ("", "/ERROR/,/INFO/"),
    ("", "!seen[$2]++"),
    ("", "{a[NR]=$0} END{for(i=NR;i>0;i--)print a[i]}"),
    ("", '{split($1,p,"-"); print p[1] p[2], p[3]}'),
    ("", '{n=split($0,w);for(i=1;i<=n;i++)printf "%s,",w[i];print ""}'),
    ("", '{if($NF>5)print "big",$NF;else print "small",$NF}'),
    ("", "$NF > 5"),
    ("", '$NF > "5"'),
    ("", "$2 ~ /^[A-Z]+$/ {print $2}"),
    ("", "$2 !~ /E/"),
    ("", '{print ($1>$2)?"a":"b"}'),
    ("", "{print -$NF, !$NF, +$NF}"),
    ("", '{x = x $1 ","} END{print x}'),
    ("", "function f(a,b){return a*b} {print f(NR,2)}"),
    ("", "function fact(n){return n<=1?1:n*fact(n-1)} BEGIN{print fact(10), fact(20)}"),
    ("", 'BEGIN{OFS="-"}{$1=$1;print $1,$2}'),
    ("", 'BEGIN{FS=":"}{print $1,$3}'),
    ("", "BEGIN{while(i<3){print i++}; do{print i--}while(i>0)}"),
    ("", "{match($0,/[0-9]+/);print RSTART,RLENGTH,substr($0,RSTART,RLENGTH)}"),
    (
        "",
        'BEGIN{print index("hello","l"), substr("hello",2,3), substr("hello",-1,3), '
        'substr("hello",4,10), substr("hello",0)}',
    ),
    ("", 'BEGIN{print length("abc") length("de"), 1 " " 2, 1+1 "x"}'),
    ("", 'BEGIN{printf "%s %s\\n", "a", "b"; printf("%d%%\\n", 50)}'),
    ("", "BEGIN{print 2^10, 2**3, 7%3, -7%3, 2^3^2, -2^2}"),
    (
        "",
        'BEGIN{a["x"]=1; if("x" in a)print "yes"; if(!("y" in a))print "no"; delete a["x"]; '
        "print length(a)}",
    ),
    (
        "",
        'BEGIN{a[1,2]=3; for(k in a){split(k,p,SUBSEP);print p[1],p[2]}; if((1,2) in a)print "in"}',
    ),
    ("", '{print $1, $2 ; next; print "no"}'),
    ("", 'NR==2{exit 3} {print} END{print "end"}'),
    ("", 'BEGIN{exit} END{print "end"}'),
    ("", '{print NR": "$0}'),
    ("", "{ print $1\n  print $2 }"),
    ("", "NR%2==0"),
    ("", "NR%2"),
    ("", "{max=$NF>max?$NF:max} END{print max}"),
    ("", 'BEGIN { printf "%c%c%c\\n", 65, "BCD", 256 }'),
    ("", 'BEGIN{print substr("hello",2)}'),
    ("", '{print gensub(/([a-z]+)/,"<\\\\1>","g")}'),
    ("", '{print gensub(/o/,"0",2)}'),
    ("", "{$2=toupper($2)}1"),
    ("", "{print FILENAME, FNR}"),
    ("", "BEGIN{print length()}"),
    ("", '{print;print ""}'),
    ("", '$1=="x"||NR==1'),
    ("", "NF"),
    ("", "NF>3{print $4}"),
    ("", '{ sum[$2] += $NF; n[$2]++ } END { for (r in sum) printf "%s %.2f\\n", r, sum[r]/n[r] }'),
    ("", '{ for (i = NF; i > 0; i--) printf "%s%s", $i, (i > 1 ? OFS : ORS) }'),
    ("", 'BEGIN { x["a"]; for (k in x) print k; print 1==1.0, "a"<"b", 10<9, "10"<"9" }'),
    ("", '{ print ($2 == "ERROR") + 0 }'),
    ("", "/db/ && /30/"),
    ("", "/db/ || NR == 2"),
    ("", "! /db/"),
    ("", '{ $5 = ""; print; print NF }'),
    (
        "",
        'BEGIN { print sprintf("%3d|%-3d|%+d", 5, 5, 5) ; print int(3.9), int(-3.9), sqrt(16), '
        "exp(0), log(1) }",
    ),
    ("", 'BEGIN { if (!(3 in a)) print "no"; print length(a) }'),
    ("", '{ c += gsub(/a/, "") } END { print c }'),
    ("", "{print $1 $2}"),
    ("", 'BEGIN{print "a\\tb\\\\n\\"q\\""}'),
    (
        "",
        'BEGIN{s="a.b.c"; n=split(s,p,"."); print n,p[3]; n=split(s,q,/\\./); print n; '
        'n=split("abc",r,""); print n, r[2]}',
    ),
    ("", 'BEGIN{printf "%5.1f|%e|%g|%g\\n", 3.14159, 12345.678, 1e-5, 1e10}'),
    ("", 'BEGIN{print 1e300*10, 017, 1==1, "A" < "a"}'),
    ("", 'BEGIN{print substr("x",1.5), substr("hello",1.5,2)}'),
    ("", "BEGIN{print -0, 0*-1, 1-1}"),
    ("", 'BEGIN{print toupper("äö"), length("äö")}'),
    ("", '{a[$2]=a[$2] ? a[$2] "," $1 : $1} END{for(k in a) print k": "a[k]}'),
    ("", "$NF~/^[0-9.]+$/{t+=$NF}END{print t+0}"),
    ("", "{ print substr($0, index($0, $3)) }"),
    ("", "{ $1 = $1 } 1"),
    ("", "NR==FNR{a[$1];next} $1 in a"),
    ("", 'BEGIN{RS=""}{print NR": "$1, NF}'),
    ("", 'BEGIN{RS=";"}{print}'),
    ("", "BEGIN{print length(12345), index(12345,34), 12 34}"),
    ("", 'BEGIN{print (1>2) ? "a" : "b"}'),
    ("", "{print $NF-1, $NF -1}"),
    ("", '{print NR, $0 ~ "ERROR"}'),
    ("", 'BEGIN{$0="a b c"; print NF, $2; $5="e"; print; print NF}'),
    ("", 'BEGIN{$3="c"; print; print NF}'),
    ("", "END{print $0, NF}"),
    ("", 'BEGIN { regex = "^[0-9]+"; if ("12ab" ~ regex) print "m" }'),
    ("", '{ t = $1; sub(/-.*/, "", t); print t }'),
    ("", '{ printf("%s\\n", $1) }'),
    ("", '{printf "%s %s", $1, $2} END {print ""}'),
    ("-F:", "{print $1,$7}"),
    ("-F:", "$3>=1000{print $1}"),
    ("-F:", "{print $NF}"),
    ("-F:", "$7~/bash$/{c++}END{print c}"),
    ("-F:", '{OFS="|";$1=$1;print}'),
    ("-F:", "{a[$7]++}END{for(k in a)print a[k],k}"),
    ("-F:", '{printf "%-8s %s\\n",$1,$3}'),
    ("-F:", '$2 == "*"'),
    ("-F[: /]+", "{print $3, NF}"),
    ("-Ft", "{print $1}"),
    ("-F\\t", "{print $1}"),
    ("-F|", "{print NF}"),
    ("-F.", "{print $1}"),
    ("-F, *", "{print $2}"),
)

UNKNOWN_PROGRAMS = (
    '{print $1 > "file"}', '{print | "sort"}', 'BEGIN {while (1) x++}', "{print", "{print $1,}",
    'BEGIN {"date" | getline d; print d}', 'BEGIN {system("ls")}',
    'BEGIN {print ENVIRON["HOME"]}',
    "BEGIN {print substr(1)}", "BEGIN {next}", "BEGIN {a[1]; print a}", "{print $(-1)}",
    "BEGIN {print 1 / 0}", "function f(x) {return f(x)} BEGIN {f(1)}",
)  # fmt: skip
"""Programs that use files or the environment, are broken, or never end."""


EDITED = (
    "sed -i 's/8080/9090/' config/app.ini",
    "sed -i.orig 's/^enabled = no/enabled = yes/' config/app.ini",
    "sed -i 's/a/b/' latest.log",
    "sed -n -i 2p config/app.ini config/hosts.list",
    "sed -n -i.b 1p scripts/setuid_tool",
    "sed -i 's/nothing/everything/' data/ids.txt",
    "cat data/ids.txt; sed -i 1d data/ids.txt; cat data/ids.txt",
    "cd data; sed -i 1d ids.txt; cat ids.txt",
    "sed -E -i 's/(port) = ([0-9]+)/\\2 \\1/' config/app.ini",
)

MARK = "== the end =="


def printed(observer: SandboxRunner, asked: list[tuple[list[str], str]]) -> list[Result]:
    """Return the output of the real programs for each text, errors included, and their exit
    codes."""
    lines = [
        f"printf %s {shlex.quote(text)} | {shlex.join(words)}; printf '{MARK}%s\\n' $?"
        for words, text in asked
    ]
    said = observer.run("\n".join(lines)).output.decode("utf-8", "surrogateescape")
    parts = re.split(rf"{MARK}(\d+)\n", said)
    return [(text, int(code)) for text, code in zip(parts[::2], parts[1::2], strict=False)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_edits_as_sed_does(observer: SandboxRunner, script: str) -> None:
    """Every predicted output of the editor equals sed's, with and without `-n`, in both
    syntaxes."""
    told: list[Result] = []
    asked: list[tuple[list[str], str]] = []
    for text, quiet, syntax in product((LINES, UNENDED), ("", "quiet"), ("basic", "extended")):
        flags = {"syntax": syntax, "quiet": quiet, "apart": ""}
        try:
            said = edit(Given(text, {}), {"script": script}, flags)
        except ValueError:
            continue
        assert said is not None
        told.append(said)
        options = ["-n"] * bool(quiet) + ["-E"] * (syntax == "extended")
        asked.append((["sed", *options, script], text))
    assert len(told) >= 4
    assert printed(observer, asked) == told


@pytest.mark.parametrize("script", UNKNOWN_SCRIPTS)
def test_a_script_that_is_not_known_is_left_alone(script: str) -> None:
    """There is no answer for it."""
    with pytest.raises(ValueError, match=r".+"):
        edit(Given(LINES, {}), {"script": script}, {"syntax": "basic", "quiet": "", "apart": ""})


@pytest.mark.parametrize(("option", "program"), PROGRAMS)
def test_a_program_prints_what_gawk_prints(
    observer: SandboxRunner, option: str, program: str
) -> None:
    """Every predicted output of a run equals gawk's."""
    roles = {"program": program} | ({"separator": option[2:]} if option else {})
    told = [run_program(Given(text, {}), roles, {}) for text in (ACCOUNTS, LOG)]
    words = ["gawk", *[option] * bool(option), program]
    assert printed(observer, [(words, text) for text in (ACCOUNTS, LOG)]) == told


@pytest.mark.parametrize("program", UNKNOWN_PROGRAMS)
def test_a_program_that_is_not_known_is_left_alone(program: str) -> None:
    """There is no answer for it."""
    with pytest.raises((ValueError, LookupError, ArithmeticError)):
        run_program(Given(LOG, {}), {"program": program}, {})


@cache
def default_model() -> Model:
    return load_model()


@pytest.mark.parametrize("command", EDITED)
def test_a_file_edited_in_place_is_what_the_editor_makes_of_it(
    observer: SandboxRunner, command: str
) -> None:
    """The patch and the contents are those of the machine."""
    real, said = observer.run(command), default_model().run(command)
    assert said.output == real.output
    assert said.patch == real.patch
    assert said.content_digests == real.content_digests


TEXTS_AND_LISTINGS = (
    "cat documents/report.txt | grep -w the", "cat README.md | grep -ic the", "ls -l | wc",
    "ls -a | wc -lw", "cat README.md | wc -c -w", "wc -lw < README.md", "rm README.md; dir",
    "touch 'a b'; vdir -r mail", "rm -r data; dir -F", "cd logs; rm app.log; dir -a",
    "rm -r *; dir",
)  # fmt: skip


@pytest.mark.parametrize("command", TEXTS_AND_LISTINGS)
def test_texts_and_directories_that_no_record_has_are_answered_by_functions(
    observer: SandboxRunner, command: str
) -> None:
    real, said = observer.run(command), default_model().run(command)
    assert (said.output, said.exit_code) == (real.output, real.exit_code)


@pytest.mark.parametrize(
    "text",
    [
        "cat --version nosuch", "comm --help documents/notes.txt -1",
        "sort --help -n missing | tail -1", "ls --version -la /nosuch > /dev/null; echo $?",
        "mv --help a b c", "tar --version cf x", "echo --help x", "printf --help x",
    ],
)  # fmt: skip
def test_words_behind_help_are_never_read(text: str, observer: SandboxRunner) -> None:
    said, right = default_model().answer(text).behavior, observer.run(text)
    assert (said.output, said.exit_code) == (right.output, right.exit_code)
