"""The file service of sandboxes: it runs `find`, `cat`, `mv` and the like in the sandbox."""

from __future__ import annotations

import posixpath
import tempfile
from typing import IO, Any, Final

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from e2b.envd.filesystem import filesystem_pb as pb
from protobuf.wkt import Timestamp

from shioenv_agents.e2b.requests import (
    CURRENT,
    as_connect_errors,
    given_user,
    refusal_of,
    sandbox_path,
)
from shioenv_agents.e2b.sandboxes import ClientSandbox
from shioenv_agents.e2b.watching import Watching
from shioenv_agents.tasks.entered_machine import Finished

_FIELDS: Final = r"%y\0%Y\0%s\0%m\0%M\0%u\0%g\0%T@\0%l\0%P\0"
"""What `find` prints of each file, in the order of `_entry`."""

_COUNT: Final = _FIELDS.count("%")

_TYPES: Final = {"f": pb.FileType.FILE, "d": pb.FileType.DIRECTORY, "l": pb.FileType.SYMLINK}

_TIMES: Final = (-62_135_596_800, 253_402_300_799)
"""The first and the last second that the protocol can name: those of the years 1 and 9999."""

EXISTS: Final = 17
"""The exit status of `_MAKE` for a directory that exists."""

_STAT: Final = f"exec find \"$1\" -maxdepth 0 -printf '{_FIELDS}'"
_LIST: Final = (
    '[ -e "$1" ] && [ ! -d "$1" ] && { echo "Not a directory: $1" >&2; exit 1; }\n'
    f'exec find "$1/" -mindepth 1 -maxdepth "$2" -printf \'{_FIELDS}\''
)
_MAKE: Final = f'[ -d "$1" ] && exit {EXISTS}; exec mkdir -p -- "$1"'
_MOVE: Final = '[ -e "$1" ] && mkdir -p -- "${2%/*}/"; exec mv -f -T -- "$1" "$2"'
_REMOVE: Final = 'exec rm -rf -- "$1"'
_READ: Final = (
    '[ -e "$1" ] && [ ! -f "$1" ] && { echo "$1: Is a directory, or no file" >&2; exit 1; }\n'
    'exec cat -- "$1"'
)
_WRITE: Final = (
    '[ ! -e "$1" ] || [ -f "$1" ] || { echo "$1: Is a directory" >&2; exit 1; }\n'
    'mkdir -p -- "${1%/*}/" && exec cat > "$1"'
)


async def _run(sandbox: ClientSandbox, user: str | None, text: str, *given: str) -> Finished:
    """Run a text of Bash with arguments. Errors: ConnectError if it fails."""
    with as_connect_errors():
        done = await sandbox.finish("/bin/bash", "-c", text, "files", *given, user=user)
    if done.exit_code:
        raise refusal_of(done)
    return done


async def read_file(sandbox: ClientSandbox, path: str, user: str | None, most: int) -> IO[bytes]:
    """Return a temporary file with the contents of a machine's file. Errors: ConnectError."""
    into = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with as_connect_errors():
            program = ("/bin/bash", "-c", _READ, "files", sandbox_path(sandbox, path))
            done = await sandbox.finish(*program, user=user, into=into, most=most)
        if not done.whole:
            raise ConnectError(Code.RESOURCE_EXHAUSTED, f"the file exceeds {most:,} bytes")
        if done.exit_code:
            raise refusal_of(done)
        into.seek(0)
    except BaseException:
        into.close()
        raise
    return into


async def write_file(sandbox: ClientSandbox, path: str, user: str | None, given: IO[bytes]) -> str:
    """Write a machine's file, and return its absolute path. Errors: ConnectError."""
    place = sandbox_path(sandbox, path)
    with as_connect_errors():
        program = ("/bin/bash", "-c", _WRITE, "files", place)
        done = await sandbox.finish(*program, user=user, given=given)
    if done.exit_code:
        raise refusal_of(done)
    return place


class FileService(Watching):
    """The file service of sandboxes, with the methods that the protocol names."""

    async def stat(self, request: pb.StatRequest, ctx: RequestContext[Any, Any]) -> pb.StatResponse:
        """Return the facts of a file."""
        return pb.StatResponse(entry=await self._entry_of(request.path, ctx))

    async def list_dir(
        self, request: pb.ListDirRequest, ctx: RequestContext[Any, Any]
    ) -> pb.ListDirResponse:
        """Return the entries of a directory, sorted by path."""
        sandbox = CURRENT.get()
        place, depth = sandbox_path(sandbox, request.path), str(request.depth or 1)
        done = await _run(sandbox, given_user(ctx), _LIST, place, depth)
        if not done.whole:
            raise ConnectError(Code.RESOURCE_EXHAUSTED, "the directory has too many entries")
        entries = _entries(done.output, place)
        return pb.ListDirResponse(entries=sorted(entries, key=lambda entry: entry.path))

    async def make_dir(
        self, request: pb.MakeDirRequest, ctx: RequestContext[Any, Any]
    ) -> pb.MakeDirResponse:
        """Make a directory, and missing ones above it."""
        sandbox = CURRENT.get()
        place, user = sandbox_path(sandbox, request.path), given_user(ctx)
        with as_connect_errors():
            done = await sandbox.finish("/bin/bash", "-c", _MAKE, "files", place, user=user)
        if done.exit_code == EXISTS:
            raise ConnectError(Code.ALREADY_EXISTS, f"the directory exists: {place:.300}")
        if done.exit_code:
            raise refusal_of(done)
        return pb.MakeDirResponse(entry=await self._entry_of(request.path, ctx))

    async def move(self, request: pb.MoveRequest, ctx: RequestContext[Any, Any]) -> pb.MoveResponse:
        """Rename a file or directory, and make the directories above its new name."""
        sandbox = CURRENT.get()
        places = [sandbox_path(sandbox, path) for path in (request.source, request.destination)]
        await _run(sandbox, given_user(ctx), _MOVE, *places)
        return pb.MoveResponse(entry=await self._entry_of(request.destination, ctx))

    async def remove(
        self, request: pb.RemoveRequest, ctx: RequestContext[Any, Any]
    ) -> pb.RemoveResponse:
        """Remove a file, or a directory with everything in it, if it exists."""
        sandbox = CURRENT.get()
        await _run(sandbox, given_user(ctx), _REMOVE, sandbox_path(sandbox, request.path))
        return pb.RemoveResponse()

    async def _entry_of(self, path: str, ctx: RequestContext[Any, Any]) -> pb.EntryInfo:
        sandbox = CURRENT.get()
        place = sandbox_path(sandbox, path)
        done = await _run(sandbox, given_user(ctx), _STAT, place)
        entries = _entries(done.output, place)
        if len(entries) != 1:
            raise ConnectError(Code.INTERNAL, "the machine's answer cannot be read")
        return entries[0]


def _entries(printed: bytes, place: str) -> list[pb.EntryInfo]:
    """Parse what `find` printed of files at or below a place. Errors: ConnectError."""
    words = printed.decode("utf-8", "replace").split("\0")[:-1]
    rows = [words[start : start + _COUNT] for start in range(0, len(words), _COUNT)]
    try:
        return [_entry(place, row) for row in rows]
    except (ValueError, OverflowError):  # untrusted: root in the sandbox can replace `find`
        raise ConnectError(Code.INTERNAL, "the machine's answer cannot be read") from None


def _entry(place: str, row: list[str]) -> pb.EntryInfo:
    kind, target_kind, size, mode, permissions, owner, group, modified, target, below = row
    path = posixpath.join(place, below) if below else place
    is_link = kind == "l"
    seconds, _, fraction = modified.partition(".")
    return pb.EntryInfo(
        name=posixpath.basename(path),
        type=_TYPES.get(target_kind if is_link and target_kind in _TYPES else kind),
        path=path,
        size=int(size) & (1 << 63) - 1,
        mode=int(mode, 8) & 0o7777,
        permissions=permissions,
        owner=owner,
        group=group,
        modified_time=Timestamp(
            seconds=min(max(int(seconds), _TIMES[0]), _TIMES[1]), nanos=int(f"{fraction[:9]:0<9}")
        ),
        symlink_target=target if is_link else None,
        is_symlink=is_link,
    )
