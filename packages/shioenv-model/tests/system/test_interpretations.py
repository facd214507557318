"""Meanings of options and of their combinations, learned from commands executed in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.runner import State
from shioenv.system.store import System
from shioenv_model.composition.call import Call
from shioenv_model.memory.example_records import Induced, stored_behavior
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.interpret import Interpreter
from shioenv_model.memory.memory import taken
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.world import world_called
from support.seen import Seen

pytestmark = pytest.mark.xdist_group("interpretations")

SEEN = (
    # listings
    "ls", "ls config", "ls documents logs", "ls README.md", "ls nofile", "ls gone.txt",
    "ls -a config", "ls -a", "ls -A", "ls -A logs", "ls -l config", "ls -l documents/notes.txt",
    "ls -l logs", "ls -d", "ls -d logs", "ls -d documents data", "ls -r logs", "ls -r config",
    "ls -t logs", "ls -t documents", "ls -S logs", "ls -S documents", "ls -F logs", "ls -F config",
    "ls -F bin", "ls -p logs", "ls -p", "ls -p documents", "ls -m logs", "ls -m", "ls -x",
    "ls -x documents", "ls -C", "ls -C data", "ls -R documents", "ls -R www", "ls -h", "ls -h logs",
    "ls -l -h logs", "ls -l -h README.md", "ls -l -h archives", "ls -n config", "ls -n logs",
    "ls -g config", "ls -g logs", "ls -s logs", "ls -s config", "ls -1", "ls -1 logs",
    "ls -1 -l config", "ls -1 -m logs", "ls -v", "ls -v documents", "ls -v -a", "ls -v -a config",
    "ls --time-style=long-iso -l config", "ls --time-style=iso -l logs",
    "ls --time-style=+%Y -l config", "ls --time-style=iso config", "ls --time-style=iso README.md",
    # walks
    "find config", "find documents", "find logs README.md", "find gone", "find nofile",
    "find . -name '*.txt'", "find config -name 'a*'", "find data -name '*.csv'",
    "find documents -iname 'NOTES*'", "find . -iname readme.MD", "find data -iname '*.TXT'",
    "find . -type d", "find config -type l", "find logs -type f", "find . -size +10k",
    "find data -size -2", "find logs -size 0", "find documents -maxdepth 0", "find . -maxdepth 1",
    "find documents -mindepth 1", "find . -mindepth 3", "find . -empty", "find data -empty",
    "find . -newer README.md", "find data -newer data/ids.txt", "find . -mtime -3",
    "find logs -mtime +2", "find . -mmin -600", "find logs -mmin +60", "find . -perm 644",
    "find . -perm -u=x", "find scripts -perm /111", "find . -user root", "find . -user bob",
    "find . -group adm", "find . -group developers", "find . -not -name '*.txt'",
    "find config -not -name 'a*'", "find . -name '*.sh' -o -name '*.py'",
    "find data -name '*.csv' -o -type d", "find config -print0", "find www -print0",
    "find . -xtype l", "find logs -xtype d", "find www -xtype f", "find config -printf '%f\\n'",
    "find www -printf '%s\\n'", "find logs -printf '%f\\n'", "find bin -printf '%m\\n'",
    "find logs -printf '%p\\n'", "find . -printf '%p\\n'", "find www -printf '%m\\n'",
    "find documents -printf '%s %f\\n'", "find logs -printf '%u\\n'", "find . -printf '%u\\n'",
    "find . -delete", "find bin -delete", "find www -name '*.js' -delete",
    # sums
    "du config", "du documents", "du README.md", "du logs documents", "du gone", "du nofile",
    "du data/sparse.img", "du -s config", "du -s documents", "du -s .", "du -h documents",
    "du -h config", "du -h README.md", "du -a config", "du -a www", "du -c config",
    "du -c README.md logs", "du -b config", "du -b README.md", "du -b documents", "du -k logs",
    "du -k documents", "du -d 0 documents", "du -d 1 .", "du -d 1 documents",
    # formats
    "stat -c %a README.md", "stat -c %a logs", "stat -c %a scripts/deploy.sh", "stat -c %n data",
    "stat -c %n config/app.ini", "stat -c %s README.md", "stat -c %s logs/app.log",
    "stat -c %U logs/error.log", "stat -c %U README.md", "stat -c %G logs", "stat -c %G README.md",
    "stat -c %F data", "stat -c %F latest.log", "stat -c %F empty.txt", "stat -c %h data",
    "stat -c %h README.md", "stat -c %y README.md", "stat -c %y data", "stat -c %y data/ids.txt",
    "stat -c %y logs", "stat gone", "stat nofile",
    # dates
    "date", "date +%F", "date -d '1 day ago'", "date -d yesterday", "date -d @0",
    "date -d 2024-02-29", "date -u", "date -u +%T", "date -R", "date -R -u", "date -I",
    "date -r README.md", "date -r logs/app.log", "date +%s",
    "touch new.txt", "touch README.md", "touch README.md new.txt", "touch gone/x", "touch nodir/y",
    "touch -d yesterday README.md", "touch -d '2 days ago' fresh", "touch -d @0 README.md",
    "touch -t 202401020304 README.md", "touch -t 07040303 fresh", "touch -c gone README.md",
    "touch -c README.md", "touch -r README.md fresh", "touch -r logs data",
)  # fmt: skip

ASKED = (
    "ls -xamp", "ls -map", "ls -lah config", "ls -ltr documents", "ls -A logs archives",
    "ls logs gone README.md", "ls -ld data logs", "ls -lR config", "ls -lS documents",
    "ls -sh logs", "ls -lF logs", "ls -rS logs", "ls *.md config", "ls -l bin scripts",
    "ls -Cr data", "ls -tm",
    "ls -l --time-style=+%Y-%m logs", "ls -lgh archives", "ls -1F bin", "ls -av", "ls -nr logs",
    "find logs -type f -size +10k", "find . \\( -name '*.tmp' -o -name '*.bak' \\) -type f",
    "find data -newer data/numbers.txt -name '*.csv'", "find . -type l -xtype l",
    "find . -type f ! -name '*.txt' -maxdepth 2", "find scripts bin -perm /111 -type f",
    "find . -user bob -o -group adm", "find documents -iname '*NOTE*' -mtime -30",
    "find . -type d -empty", "find www gone -name '*.html' -print0",
    "find . -type f -perm 644 -printf '%m %s %f\\n'", "find . -name '*.bak' -delete",
    "du -sh *", "du -ab config", "du -hc config logs", "du -kd 1 documents", "du -h gone config",
    "du -sb documents config", "du -ch data",
    "stat -c '%a %U:%G %n' config/*", "stat -c '%s|%F|%h' latest.log data README.md",
    "stat -c '%y %n' data/ids.txt README.md", "stat -c '%-12n%6s' README.md empty.txt",
    "date -d '11 hour ago'", "date -d '2 hour ago - 3 minute' +%H:%M", "date -d 'next monday'",
    "date -d 'last friday' +%Y-%m-%d", "date -d '2024-02-29 + 1 year'", "date -R -d @1234567890",
    "date -d '2025-01-31 1 month' +%F", "date -u -d tomorrow", "date -I -d '10 days ago'",
    "date --date='Jan 5 2024' +%j", "date -d '5 Mar 2023 14:05'", "date -d '10:30pm' +%T",
    "date '+%A, %d %B %Y'", "date -r README.md +%F",
    "touch -d '-1 year' /tmp/result", "touch -c -d 2020-01-01 README.md gone",
    "touch -t 202001010000.30 data/ids.txt latest.log", "touch -d 'last monday' fresh README.md",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """The sandbox, and the records of it."""

    sandbox: SandboxRunner
    state: State
    interpreter: Interpreter

    def take(self, text: str) -> Taken:
        made = taken(Call.parse(text), self.state, FORMS)
        assert made is not None
        return made

    def interpret(self, text: str, without: int = -1) -> Induced | None:
        return self.interpreter.interpret(self.take(text), without)


FORMS = Forms()


def kept(sandbox: SandboxRunner, text: str) -> Kept:
    """Return the kept record of a command, with its output on each channel."""
    apart = sandbox.execute(text, separate=True)
    told = replace(sandbox.run(text), stdout=apart.stdout, stderr=apart.stderr)
    return stored_behavior(told)


@pytest.fixture(scope="module")
def machine(system: System) -> Iterator[Machine]:
    state = world_called(system.name).state()
    with open_sandbox(system.name) as sandbox:
        commands = []
        for text in SEEN:
            made = taken(Call.parse(text), state, FORMS)
            assert made is not None
            commands.append((text, made, kept(sandbox, text)))
        seen = Seen(commands)
        yield Machine(sandbox, state, Interpreter(seen.with_option, seen.matching))


@pytest.mark.parametrize("text", ASKED)
def test_options_do_together_what_they_mean(machine: Machine, text: str) -> None:
    found = machine.interpret(text)
    assert found is not None, text
    real = kept(machine.sandbox, text)
    assert found.kept.key == real.key, found.name
    assert found.kept.channels == real.channels
    assert found.kept.is_error == real.is_error


@pytest.mark.parametrize(
    "text",
    [
        "ls -q", "find . -regex x", "find . -type e", "find . -size 3x", "find . -name a -o",
        "find . \\( -name a", "du -t 10", "stat -c %i README.md", "stat -f -c %a README.md",
        "date -d 'foo bar'", "date -d '1 day ago' --debug", "touch -d nonsense README.md",
        "find . -type f documents", "cat README.md", "ls -l /dev",
    ],
)  # fmt: skip
def test_what_no_record_shows_is_not_interpreted(machine: Machine, text: str) -> None:
    assert machine.interpret(text) is None


def test_a_record_is_no_example_of_itself(machine: Machine) -> None:
    """Two records show `-d`. One may be left out; it is then no evidence."""
    whole = machine.interpret("du -d 2 documents")
    left = machine.interpret("du -d 2 documents", SEEN.index("du -d 0 documents"))
    assert whole is not None
    assert left is not None
    assert left.agreed < whole.agreed


def test_what_may_be_two_things_is_told_by_one_example(machine: Machine) -> None:
    seen = Seen([(text, machine.take(text), kept(machine.sandbox, text)) for text in AMBIGUOUS])
    interpreter = Interpreter(seen.with_option, seen.matching)
    one = interpreter.interpret(machine.take("ls -u README.md"))
    other = interpreter.interpret(machine.take("ls -l -u README.md"))
    assert one is not None
    assert one.agreed == 2
    assert other is not None
    assert other.agreed == 1


AMBIGUOUS = (
    "ls README.md", "ls empty.txt", "ls config", "ls -u README.md", "ls -u empty.txt",
    "ls -l README.md", "ls -l documents/notes.txt",
)  # fmt: skip
"""Records that do not determine the meaning of `-u`, since they list names alone."""
