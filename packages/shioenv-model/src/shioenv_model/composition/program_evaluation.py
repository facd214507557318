"""Evaluation of a Bash program: state, control flow, and destinations of output."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

from shioenv.bash.program import (
    Case,
    Command,
    Counting,
    For,
    Function,
    Group,
    If,
    Job,
    Pipeline,
    Program,
    Redirect,
    Redirected,
    Simple,
    Verbatim,
    While,
)
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import with_contents
from shioenv.domain.runner import Answer
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, count
from shioenv_model.bash.definitions import command_text
from shioenv_model.bash.unexpanded import references
from shioenv_model.bash.work import spend
from shioenv_model.composition import shell_builtins, stdin_builtins
from shioenv_model.composition.call import Call
from shioenv_model.composition.changes import composed
from shioenv_model.composition.conditions import Conditional, Wrong
from shioenv_model.composition.frames import (
    Buffer,
    Discard,
    Exit,
    Loop,
    Over,
    Return,
    Stdin,
    Streams,
)
from shioenv_model.composition.scoping import UNKNOWN
from shioenv_model.composition.simple import SimpleCommands, trace

_LISTING = (("ps",), ("pstree",), ("top",))
"""Programs that list concurrent processes."""

BROKEN_PIPE = 141
"""The exit code of a program killed by SIGPIPE."""

_CHILD = 987_654_001
"""The number used for the first background process. No real process has a number so large."""

_JOB = 20
"""Steps charged for each job."""


class Walk(SimpleCommands):
    """Evaluates the program of one input, `text`, and the programs inside it."""

    def answer(self, program: Program) -> Answer:
        """Return the composed answer for the program. Errors: Abstained."""
        self._final = _replacing(program)
        over: Behavior | None = None
        try:
            try:
                self._lines(program)
            except Exit as ended:
                self._here.status = ended.status
                self._here.carry(ended=True)
            self._here.leave_shell()
        except Exit as ended:
            self._here.status = ended.status
            self._here.carry(ended=True)
        except Over as ended:
            over, self._here.status = ended.behavior, ended.behavior.exit_code
        except (Loop, Return):
            raise Abstained("break, continue or return outside of a loop or function") from None
        asking = self._here.asking
        before = self._here.start.before.document
        patch = composed(before, asking.patches, self._here.start.cwd)
        behavior = Behavior(
            exit_code=self._here.status,
            output=bytes(self._here.output.data),
            patch=with_contents(patch, asking.digests, before["fs"].get),
            content_digests=asking.digests,
            timed_out=over is not None and over.timed_out,
            died_by_signal=over.died_by_signal if over else None,
            volatile=asking.volatile,
            shell_state_known=asking.shell_state_known,
        )
        held = {name: asking.state.written.get(name) for name in asking.digests}
        written = {name: content for name, content in held.items() if content is not None}
        carried = self._here.own.carried
        return Answer(behavior, asking.confidence, "composition", written, carried)

    def _trapped(self, name: str) -> int:
        action = self._here.own.traps.get(name)
        if not action or self._trapping:
            return 0
        status, statuses = self._here.status, self._here.result.statuses
        conditions, self._conditions, self._trapping = self._conditions, 0, True
        try:
            self._inside(self._here.program(action))
        except Return as returned:
            self._here.status = returned.status
        finally:
            self._conditions, self._trapping = conditions, False
        done = self._here.status
        self._here.status, self._here.result.statuses = status, statuses
        return done

    def _trace(self, line: str | None) -> None:
        """Print a line under `set -x`. Errors: Abstained for an unknown one (None)."""
        if self._here.is_on("xtrace"):
            if line is None:
                raise Abstained("set -x of a command whose format is not implemented")
            trace(self._here, line.rstrip())

    def _program(self, program: Program) -> None:
        for job in program:
            spend(_JOB)
            self._end_line = self._above + job.end if job.end else self._end_line
            if job.background:
                self._background(job)
            else:
                self._job(job)

    def _lines(self, program: Program) -> None:
        """See `ScriptCommands._lines`."""
        left_out = last = 0
        for job in program:
            if job.end and job.end == left_out:
                continue
            if job.end != last:
                self._know_aliases()
            last = job.end
            try:
                self._program((job,))
            except Discard:
                left_out = job.end

    def _background(self, job: Job) -> None:
        alone = isinstance(stage_of(job.pipelines[0][1].stages[0]), Simple)
        traps = self._here.own.traps
        if "DEBUG" in traps or (alone and "ERR" in traps and self._here.is_on("errtrace")):
            raise Abstained("a trap and a background job")
        before = len(self._here.output.data)
        with (
            self._here.to(Streams(self._here.streams.fds, Stdin(b"", piped=False))),
            self._here.subshell(),
            suppress(Over),
        ):
            self._job(job)  # a job that times out is not waited for
        if len(self._here.output.data) > before:
            self._here.racing = True
        self._here.children[str(_CHILD + len(self._here.children))] = self._here.status
        self._here.status = 0
        self._has_jobs = True

    def _job(self, job: Job) -> None:
        last = len(job.pipelines) - 1
        for number, (operator, pipeline) in enumerate(job.pipelines):
            if (operator == "&&" and self._here.status) or (
                operator == "||" and not self._here.status
            ):
                continue
            condition = number < last or pipeline.negated
            self._conditions += condition
            try:
                self._pipeline(pipeline)
            except Loop as loop:
                loop.status ^= pipeline.negated
                raise
            finally:
                self._conditions -= condition
            failed = self._here.status != 0
            refused, self._refused_whole = self._refused_whole, False
            if pipeline.negated and refused:
                continue  # Bash ignores the ! of a compound command whose redirection fails
            if pipeline.negated:
                self._here.status = int(not failed)
            elif failed and not condition and not self._conditions and not _is_compound(pipeline):
                if not self._here.place.calls or self._here.is_on("errtrace"):
                    self._trapped("ERR")
                if self._here.is_on("errexit"):
                    raise Exit(self._here.status)

    def _pipeline(self, pipeline: Pipeline) -> None:
        if len(pipeline.stages) == 1:
            self._command(pipeline.stages[0])
            if isinstance(pipeline.stages[0], Simple | Verbatim):
                self._here.result.statuses = (self._here.status,)
            return
        if "DEBUG" in self._here.own.traps:
            raise Abstained("a trap DEBUG in a pipeline")
        stages = [
            _merged(stage) if number < len(pipeline.merged) and pipeline.merged[number] else stage
            for number, stage in enumerate(pipeline.stages)
        ]
        for stage in stages[1:]:
            self._redirections.open_early(stage)
        statuses: list[int] = []
        self._refused_whole = False
        over: Over | None = None
        stdin = self._here.streams.stdin
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1
            buffer = self._here.streams.fds[1] if last else Buffer()
            self._here.beside = _beside(stages[number:])
            streams = Streams({**self._here.streams.fds, 1: buffer}, stdin)
            options = self._here.state.before.document["shell_options"]
            stays = last and options.get("lastpipe") and not self._here.is_on("monitor")
            inside = nullcontext() if stays else self._here.subshell()
            with self._here.to(streams), inside:
                try:
                    self._command(stage)
                except Over as ended:
                    over = ended
            statuses.append(self._here.status)
            if isinstance(buffer, Buffer) and not last:
                shared = not isinstance(stage_of(stages[number + 1]), Simple)
                stdin = Stdin(bytes(buffer.data), shared=shared, endless=buffer.endless)
                self._here.asking.know(stdin.data)
                if over is not None and buffer.data:
                    stdin.endless, over = True, None
                    statuses[-1] = BROKEN_PIPE
        if over is not None:
            raise over
        self._here.result.statuses, self._refused_whole, self._here.beside = statuses, False, ()
        failed = [status for status in statuses if status]
        self._here.status = failed[-1] if failed and self._here.is_on("pipefail") else statuses[-1]

    def _command(self, command: Command) -> None:
        if isinstance(command, Simple):
            self._simple(command)
        elif isinstance(command, Redirected):
            self._redirected(command)
        elif isinstance(command, Group):
            self._group(command)
        elif isinstance(command, If):
            self._if(command)
        elif isinstance(command, While):
            self._while(command)
        elif isinstance(command, For):
            with self._on_line(command.line):
                self._for(command)
        elif isinstance(command, Counting):
            with self._on_line(command.line):
                self._counting(command)
        elif isinstance(command, Case):
            with self._on_line(command.line):
                self._case(command)
        elif isinstance(command, Function):
            self._define(command)
        elif isinstance(command, Verbatim):
            self._verbatim(command)
        else:
            raise Abstained("coproc is not supported")

    def _verbatim(self, command: Verbatim) -> None:
        self._here.place.line = self._above + command.line
        if self._debug(command):
            self._here.status = 0
            return
        if self._decided(command):
            return
        found = references(command.text.replace("<(", "< ("))
        if found.substitutes or found.names & UNKNOWN or "?" in found.names:
            raise Abstained("a substitution inside an expression is not supported")
        self._here.put(Call(command.text), command.text.split()[0])

    def _decided(self, command: Verbatim) -> bool:
        """Evaluate an expression by rule; return False, without a change, if that is impossible."""
        here = self._here
        here.asking.refuse_tracing()
        mark = here.asking.mark()
        try:
            if command.parts:
                value = Conditional(
                    lambda: here.state,
                    here.expander,
                    here.number,
                    command.parts,
                    here.is_set,
                    here.remember_match,
                    partial(trace, here) if here.is_on("xtrace") else None,
                ).value()
            else:
                self._trace(f"(( {command.text[2:-2].strip()} ))")
                value = bool(here.expander.number(command.text[2:-2]))
        except Complaint as wrong:
            if "\n" in command.text:
                raise Abstained("an error in an expression of several lines") from None
            said = wrong.said
            if not wrong.ends:
                said = f"{'[[' if command.parts else '(('}: {said}"
            here.complain(said)
            if wrong.ends:
                raise Exit(here.refused_status) from None
            here.status = 1
            return True
        except (Abstained, Wrong):
            if not here.asking.executes and command.parts:
                raise
            here.asking.back_to(mark)
            return False
        here.status = int(not value)
        return True

    def _redirected(self, command: Redirected) -> None:
        self._here.place.line = self._end_line
        opened = self._redirections.open_all(command.redirects)
        if isinstance(opened, int):
            self._here.status, self._refused_whole = opened, True
            return
        with self._here.to(Streams(opened.fds, self._redirections.content(opened))):
            self._command(command.command)

    def _group(self, group: Group) -> None:
        if not group.subshell:
            self._program(group.body)
            return
        with self._here.subshell(), self._on_line(group.line):
            self._program(group.body)

    def _condition(self, program: Program) -> bool:
        self._conditions += 1
        try:
            self._program(program)
        finally:
            self._conditions -= 1
        return self._here.status == 0

    def _if(self, command: If) -> None:
        for condition, body in command.branches:
            if self._condition(condition):
                self._program(body)
                return
        self._here.status = 0
        self._program(command.otherwise)

    def _while(self, command: While) -> None:
        status, wanted = 0, True

        def turn() -> None:
            nonlocal wanted
            wanted = self._condition(command.condition) == command.wanted
            if wanted:
                self._here.asking.count()
                self._program(command.body)

        while self._once(turn) and wanted:
            status = self._here.status
        self._here.status = status if not wanted else self._here.status

    def _for(self, command: For) -> None:
        words = ['"$@"'] if command.words is None else command.words
        self._here.place.line = self._above + command.line
        with self._complaining():
            values = [field for word in words for field in self._here.expander.fields(word)]
        self._here.status = 0
        if command.menu:
            self._select(command, values)
            return
        reference = self._here.value_of(command.name)
        for value in values:
            if self._debug(command):
                raise Abstained("a loop that a trap DEBUG skips")
            self._trace(command_text(command))
            if reference is not None and "n" in reference.flags:
                with self._complaining():
                    self._here.refer(command.name, reference, value)
            else:
                self._here.assign(command.name, value)
            if not self._once(partial(self._program, command.body)):
                break

    def _select(self, command: For, values: Sequence[str]) -> None:
        """Run `select`: read a choice for each iteration, until the body leaves the loop."""
        here = self._here
        if not values:
            return
        menu = shell_builtins.menu(values)
        shows = True
        while True:
            here.asking.count()
            prompt = here.variable("PS3")
            here.write(here.streams.fds[2], os.fsencode(menu if shows else ""))
            here.write(here.streams.fds[2], os.fsencode("#? " if prompt is None else prompt))
            if not here.streams.stdin.data:
                here.write(here.streams.fds[1], b"\n")
                here.status = 1
                return
            stdin_builtins.read(here, Simple((), ("read", "-r"), (), command.line), ["-r"])
            reply = here.variable("REPLY") or ""
            shows = not reply
            if shows:
                continue
            number = count(reply) or 0
            chosen = values[number - 1] if 1 <= number <= len(values) else ""
            here.assign(command.name, chosen)
            if not self._once(partial(self._program, command.body)):
                return

    def _counting(self, command: Counting) -> None:
        def number(expression: str) -> int:
            if expression.strip():
                self._trace(f"(( {expression.strip()} ))")
            return self._here.expander.number(expression)

        first, condition, step = command.expressions
        self._here.place.line = self._above + command.line
        number(first)
        self._here.status = 0
        while not condition.strip() or number(condition):
            self._here.asking.count()
            if not self._once(partial(self._program, command.body)):
                break
            number(step)

    def _once(self, turn: Callable[[], None]) -> bool:
        """Run one iteration of a loop. Return whether the loop continues."""
        place = self._here.place
        place.loops += 1
        try:
            turn()
        except Loop as loop:
            self._here.status = loop.status
            if loop.levels > 1:
                loop.levels -= 1
                raise
            return loop.goes_on
        finally:
            place.loops -= 1
        return True

    def _case(self, command: Case) -> None:
        self._here.place.line = self._above + command.line
        if self._debug(command):
            raise Abstained("a case that a trap DEBUG skips")
        self._trace(command_text(command))
        with self._complaining():
            text = self._here.expander.text(command.word)
        falling = ran = False
        for patterns, body, end in command.items:
            if falling or any(
                self._here.expander.matches(self._here.expander.pattern(each), text)
                for each in patterns
            ):
                if body:
                    self._program(body)
                    ran = True
                if end == ";;":
                    break
                falling = end == ";&"
        if not ran:
            self._here.status = 0


def _replacing(program: Program) -> int:
    """Return the `id` of the command that Bash execs instead of waiting for it; 0 if none.

    It is the input's last command if that is a simple command without redirections, pipeline, `!`
    or `&`.
    """
    last = program[-1].pipelines[-1][1] if program else None
    if last is None or program[-1].background or last.negated or len(last.stages) > 1:
        return 0
    command = last.stages[0]
    return id(command) if isinstance(command, Simple) and not command.redirects else 0


def _is_compound(pipeline: Pipeline) -> bool:
    """Whether a pipeline's failure was already handled at one of its inner commands."""
    command = stage_of(pipeline.stages[0])
    within = isinstance(command, If | While | For | Counting | Case)
    is_group = isinstance(command, Group) and not command.subshell
    return len(pipeline.stages) == 1 and (within or is_group)


def stage_of(command: Command) -> Command:
    """Return the command without its redirections."""
    return stage_of(command.command) if isinstance(command, Redirected) else command


def _beside(stages: Sequence[Command]) -> tuple[tuple[str, ...], ...]:
    """Return the words of the later stages, if a pipeline's first stage lists processes.

    Empty for any other pipeline, and if a later stage contains a substitution.
    """
    simple = [stage for stage in stages if isinstance(stage, Simple)]
    if len(simple) != len(stages) or len(simple) < 2 or simple[0].words[:1] not in _LISTING:
        return ()
    beside = tuple((*stage.assignments, *stage.words) for stage in simple[1:])
    return () if any(references(word).substitutes for words in beside for word in words) else beside


def _merged(stage: Command) -> Command:
    """Return the stage with its standard error piped as well (`|&`)."""
    both = Redirect(2, ">&", "1")
    if isinstance(stage, Simple):
        return replace(stage, redirects=(*stage.redirects, both))
    if isinstance(stage, Redirected):
        return replace(stage, redirects=(*stage.redirects, both))
    return Redirected(stage, (both,))
