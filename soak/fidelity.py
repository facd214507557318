"""Find visible differences between the sandbox's file system and a plain copy of the system.

Each input runs three ways: in the sandbox, by a fresh bash over the same layers, and by a fresh
bash on a plain copy of the system on the host's own file system, which is restored after each
input. Each difference is assigned a cause: a number is the inode, link count or size of the same
file on both sides, or a line is on both sides in another place. Failing that, the input itself
shows what it reads. Unexplained differences are violations.

With --lower DIR the third way is the sandbox itself over the copy of the system in DIR (`rootfs`,
`proc`, ... on any file system): it shows the effects of the lower file system alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from common import Progress, drawn, parser, report
from shioenv.errors import SandboxError
from shioenv.sandbox.base import Execution, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.probe import proven_shell
from shioenv.system.idmap import find_idmap
from shioenv.system.store import System, find_system

BATCH = 10

LOOKS = r"""
ls -la
ls -la /
ls -lai
ls -laR
ls -las
ls -f
ls -U /etc
ls -1U /usr/bin | head -20
ls -ld / /home . documents
ls -lc
ls -lu README.md; cat README.md >/dev/null; ls -lu README.md
stat README.md
stat documents
stat /
stat -c '%h %s %b %B %o' . / documents README.md
stat -c '%i %d' README.md documents
stat -c '%W %w' README.md
stat -f .
stat -f -c '%T %s %b %n %l' .
stat -c %h data/ids.txt data/ids_copy.txt
find . -links 1 -type d
find / -xdev -maxdepth 1 -links +2
find / -maxdepth 2 -xdev -type d -links 2
find . -links +1 -type f
find . -samefile data/ids.txt
find . -type f -size +1k
find . -type d -size +1
find . -type d -empty
find . -ls
find . -printf '%y %n %s %b %D %F %p\n'
find . -xdev -newer README.md
find . -inum 1
find . | head -30
find . -depth -type f | tail -20
du -a
du -s .
du -sh documents data
du -ab documents
du --inodes .
du -x /home
du -sl data
df .
df -h
df -T /
df -i .
df --output=source,fstype,target .
mount
mount | head -1
findmnt
findmnt -n -o SOURCE,FSTYPE,TARGET /
cat /proc/mounts | head -1
cat /proc/self/mountinfo | head -1 | cut -d' ' -f4-
grep -c . /proc/self/mountinfo
mountpoint / ; mountpoint .
touch new; ls -la
touch new; stat -c '%h %s %b %n' . new
touch new; ls -lai new
mkdir d; ls -ld d .; stat -c %s d
mkdir -p d/e/f; stat -c '%h %n' d d/e d/e/f
mkdir d; touch d/a d/b d/c; ls -la d; ls -f d
for i in 9 3 7 1 5; do touch f$i; done; ls -U
for i in 9 3 7 1 5; do touch documents/f$i; done; ls -f documents
for i in $(seq 50); do touch n$i; done; find . -maxdepth 1 -name 'n*' | head
mkdir d; cp documents/* d 2>/dev/null; ls -f d
mkdir d; for i in c a b; do echo $i > d/$i; done; tar cf - d | tar tf -
tar cf - data | tar tvf - | grep -i ids
tar cf x.tar data; tar tvf x.tar | sort -k6; ls -l x.tar
tar cf - documents | wc -c
tar cf x.tar data; mkdir y; tar xf x.tar -C y; ls -la y/data; stat -c %h y/data/ids.txt
cp -al data linked; ls -la linked; stat -c '%h %n' data/* linked/*
cp -a documents copied; ls -la copied; du -s copied
cp -r data c; stat -c '%h %n' c/*
cp --reflink=always README.md x; echo $?
cp --reflink=auto README.md x; cmp README.md x && echo same
cp --sparse=always README.md x; du x
cp -l README.md x; stat -c %h README.md x
ln README.md x; ls -li README.md x | awk '{print $3, $1 == i ? "same" : "first"; i = $1}'
ln README.md x; echo more >> x; cat README.md; stat -c '%h %s' README.md x
ln data/ids.txt x; stat -c '%h %n' x data/ids.txt data/ids_copy.txt
echo more >> data/ids.txt; cat data/ids_copy.txt
echo more >> data/ids.txt; stat -c '%h %s %n' data/ids.txt data/ids_copy.txt
chmod 600 data/ids.txt; stat -c '%a %h %n' data/ids.txt data/ids_copy.txt
rm data/ids.txt; stat -c '%h' data/ids_copy.txt
mv data/ids.txt x; stat -c '%h %n' x data/ids_copy.txt
sed -i s/1/X/ data/ids.txt; diff data/ids.txt data/ids_copy.txt
test data/ids.txt -ef data/ids_copy.txt; echo $?
echo x >> data/ids.txt; test data/ids.txt -ef data/ids_copy.txt; echo $?
cp data/ids.txt data/ids_copy.txt
mv data/ids.txt data/ids_copy.txt; ls data/ids*
ln README.md documents/x; rm README.md; cat documents/x; stat -c %h documents/x
mv documents renamed; ls -la renamed; ls -d documents
mv documents renamed; stat -c '%h' . renamed
mv -v documents renamed
mv documents data/inside; ls -la data | head -5; find data -type d
mv documents renamed; mv renamed documents; ls -la
mv -T documents archives
mv -n documents data
mkdir e; mv -T documents e; ls e | head -3
mv documents documents/x
mv /etc/apt /etc/apt2; ls /etc/apt2
mv README.md documents; ls documents
mv README.md data/ids.txt; cat data/ids.txt
perl -e 'rename("documents", "renamed") or print "$!\n"'
perl -e 'rename("README.md", "x") or print "$!\n"; print -e "x" ? "yes\n" : "no\n"'
perl -e 'mkdir "e"; rename("documents", "e") or print "$!\n"'
mkdir d; perl -e 'rename("d", "e") or print "$!\n"'; ls -d e
rm -r documents; ls -la
rm -r documents; stat -c %h .
rm -rv documents
rm -r documents; mkdir documents; ls -la documents
rm -rf /home/ubuntu; ls -la /home
rm -rf /home/ubuntu/* ; ls -la
rmdir tmp; ls -ld tmp
rmdir documents
rm README.md; touch README.md; stat -c '%s %a %U' README.md
rm README.md; mkdir README.md; stat -c '%F' README.md
rm -r documents; ln -s data documents; ls documents | head -2
unlink README.md; ls README.md
chmod 700 documents; ls -ld documents; stat -c %h documents
chmod 000 README.md; cat README.md | head -1
chmod -R go-rwx data; ls -la data
chmod a+x documents/*.txt; ls -l documents
chown 1000:1000 README.md; ls -ln README.md
chown -R nobody data; ls -la data; du -s data
chgrp adm .; ls -ld .
chmod 4755 README.md; ls -l README.md; chown root README.md; ls -l README.md
exec 3<README.md; chmod 000 README.md; head -c 10 <&3
exec 3<README.md; echo changed > README.md; cat <&3
exec 3<README.md; echo changed >> README.md; tail -1 <&3
exec 3>>README.md; rm README.md; echo x >&3; ls README.md
exec 3<README.md; rm README.md; head -1 <&3; ls -l /proc/self/fd/3 | sed 's/.*-> //'
exec 3<README.md; mv README.md x; ls -l /proc/self/fd/3 | sed 's/.*-> //'
exec 3<>README.md; echo over >&3; head -1 README.md
exec 3<README.md 4>>README.md; echo tail >&4; tail -1 <&3
exec 3<README.md; touch -d 2001-01-01 README.md; stat -L -c %y /proc/self/fd/3
exec 3<README.md; chmod 600 README.md; stat -L -c %a /proc/self/fd/3
cd documents; rm -r ../documents; pwd; ls; ls ..  | head -2
cd documents; mv ../documents ../x; pwd -P; ls | head -2
flock README.md echo locked
exec 9<README.md; flock -n 9 && flock -n README.md true; echo $?
exec 9<README.md; flock -n 9; echo x >> README.md; flock -n README.md true; echo $?
truncate -s 10 README.md; cat README.md; echo; stat -c '%s %b' README.md
truncate -s 1M sparse; stat -c '%s %b' sparse; du sparse; du -b sparse
truncate -s +4096 README.md; stat -c %s README.md
fallocate -l 100K f; stat -c '%s %b' f
fallocate -p -o 0 -l 4096 README.md; echo $?
fallocate -n -l 1M README.md; stat -c '%s' README.md
dd if=/dev/zero of=z bs=1k count=3 seek=100 2>/dev/null; stat -c '%s %b' z; ls -ls z
dd if=/dev/zero of=z bs=1 count=1 2>/dev/null; du z; ls -s z
head -c 5000 /dev/zero > z; stat -c '%b %o' z; du -k z
echo x > z; stat -c '%b %B %o' z
printf '' > z; stat -c '%b' z; file z
cp --sparse=always images/photo.png p; stat -c %b p
echo a > z; for i in 1 2 3; do cat z z >> y; done; wc -c y
lsattr README.md
lsattr -d .
chattr +i README.md; echo $?; echo x >> README.md; echo $?
chattr +a README.md; lsattr README.md
setfattr -n user.x -v y README.md; getfattr -d README.md
getfacl README.md
file -i README.md documents images/*
file *
python3 -c 'import os; print([(e.name, e.is_dir()) for e in os.scandir(".")][:5])'
perl -e 'use Fcntl; sysopen(F, "README.md", O_RDWR) or die; print F "XX"' ; head -1 README.md
perl -e 'opendir D, "."; print join " ", readdir D'
perl -e 'opendir D, "."; print telldir D; readdir D; print " ", telldir(D) > 0 ? 1 : 0, "\n"'
perl -e 'unlink "documents" or print "$!\n"'
perl -e 'link "documents", "x" or print "$!\n"'
perl -e 'symlink "x", "documents" or print "$!\n"'
touch -d 2001-02-03 README.md documents; ls -ld README.md documents
touch -r README.md data; stat -c %y data
touch documents/notes.txt; find . -newer README.md -mmin -5 | sort
echo x > documents/new; find . -mmin -5 | sort
find . -mmin +5 -type d -newermt 2025-10-01 | sort
cp README.md x; ls -l --time-style=full-iso README.md | wc -w
ls -lt | head -5
mkdir d; ls -lt | head -3
install -m 755 -d a/b; ls -lR a
install README.md x; ls -l x
split -n 3 README.md p; ls -l p*
sort -o README.md README.md; cat README.md
sed -i 's/a/b/' README.md documents/*.txt; ls -la documents
sed -i.bak s/a/b/ README.md; ls -la README*
tee -a README.md documents/notes.txt < config/app.ini; wc -l README.md documents/notes.txt
gzip README.md; ls -l README*
gzip -k documents/*.txt; ls documents
gunzip -k archives/*.gz; ls -la archives
zip -r z.zip documents; unzip -l z.zip | tail -1
find documents -type f -print0 | cpio -0 -o 2>&1 | wc -c
find data | cpio -pdm out 2>&1; ls -la out/data
rsync -a documents/ r; ls -la r
mkfifo p; ls -l p; stat -c %F p
mknod n p; ls -l n
mknod c c 1 3; ls -l c
mknod b b 8 0
ln -s README.md s; ls -l s; stat -c '%s %b %h' s; readlink -f s
ln -s nowhere s; ls -lL s
mktemp -d -p . dXXXX | wc -c
readlink -f documents/../README.md; realpath .
test -e README.md -a ! -e gone && echo y
mount -t tmpfs none documents; ls -la documents; df documents | tail -1
mount --bind documents data; ls data | head -3
mkdir m; mount -t tmpfs -o size=1m t m; echo x > m/x; ls -la m; umount m; ls -la m
mkdir l u w m; mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m; echo $?
unshare -m true; echo $?
sync; sync README.md; echo $?
sync -f .; echo $?
shred -u README.md; ls README.md
shred -n 1 README.md; stat -c %s README.md
yes | head -c 300M > big; stat -c %s big
tail -c 20 README.md; tail -F -n 1 --pid=$$ README.md & sleep 0.05; kill %1
diff -r documents data | head -5
comm -3 <(ls documents) <(ls -U documents | sort)
echo */ ; echo *.md ; echo /*
ls -d /*/ | wc -l; echo /etc/*.conf | head -c 200
""".strip("\n").splitlines()
"""Inputs about properties that overlay and tmpfs are known or suspected to distort."""

_CLOCK = re.compile(rb"\d{1,2}:\d\d(:\d\d(\.\d+)?)?|\d{4}-\d\d-\d\d|\d{9,10}(\.\d+)?|\d\d\.\d{10}")
_DATE = re.compile(rb"\b[A-Z][a-z][a-z] [ \d]\d (?:\d\d:\d\d| \d{4})(?= )")
_PIECE = re.compile(rb"[A-Za-z0-9.]+|[^A-Za-z0-9.\s]+")
_LOWER_INODE = 0x00FF_FFFF_FFFF_FFFF
"""Overlayfs marks the layer of an inode in the high bits."""


class Cause(StrEnum):
    """A reason for different outputs of one input on two file systems."""

    LINKS = "link count of a changed directory, or of /"
    SIZE = "size of a directory"
    BLOCKS = "blocks: total, du, ls -s, %b"
    ORDER = "order of directory entries"
    INODE = "inode numbers"
    DEVICE = "device numbers"
    MOUNTS = "df, mount, stat -f: the file system itself"
    TIME = "times: now, ctime, birth, atime"
    WIDTH = "column width only"
    RENAME = "rename of a directory of the system (EXDEV)"
    HARD_LINK = "hard link across layers"
    FULL = "the declared disk is full"
    ATTRIBUTES = "attributes, reflink or holes that a file system has or not"


_BY_INPUT = tuple(
    (cause, re.compile(pattern))
    for cause, pattern in (
        (Cause.HARD_LINK, r"\bln\b.*(-ef|samefile|-\w*i\b|%i)"),
        (Cause.INODE, r"\b(ls|dir|vdir)\b.* -\w*i|--inode|%i"),
        (Cause.MOUNTS, r"\b(df|lsblk|mount|findmnt|mountpoint)\b|/mounts|mountinfo"),
        (Cause.MOUNTS, r"\bstat .*(-f|--file-sys)|%T"),
        (Cause.BLOCKS, r"\bdu\b"),
        (Cause.RENAME, r"\bmv\b|\brename\b"),
        (Cause.LINKS, r"\bfind\b.* -links "),
        (Cause.SIZE, r"\bfind\b.* -size "),
        (Cause.TIME, r"\bfind\b.* -([acm](min|time|newer)|newer)|\bzip\b"),
        (Cause.ATTRIBUTES, r"lsattr|chattr|reflink|fallocate|[gs]etfattr|telldir|sparse"),
        (Cause.FULL, r"\d[MGT]\b|\bdd |truncate|shred"),
        (Cause.ORDER, r"\b(ls|dir|vdir) .*-\w*[fUR]|\b(find|tar|cpio)\b|grep -\w*[rR]"),
    )
)
"""For outputs that no comparison of their parts explains: causes by patterns of inputs."""


@dataclass(frozen=True, slots=True)
class Node:
    """A file's attributes as programs can read them, with owners in the system's own ids."""

    mode: int
    uid: int
    gid: int
    size: int
    links: int
    inode: int
    mtime: int
    atime: int
    ctime: int

    @property
    def directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)


Tree = dict[bytes, Node]
Outcome = tuple[int, int, int, int, bytes | str | None] | None
"""A path's state after a run: mode, owner, group, size (0 for directories), target or digest; None
where it is gone."""


_idmap = cache(find_idmap)


def _node(status: os.stat_result) -> Node:
    idmap = _idmap()
    return Node(
        status.st_mode,
        status.st_uid - idmap.first_uid,
        status.st_gid - idmap.first_gid,
        status.st_size,
        status.st_nlink,
        status.st_ino,
        status.st_mtime_ns,
        status.st_atime_ns,
        status.st_ctime_ns,
    )


def walk(root: Path, below: bytes = b"/") -> Tree:
    """Return every file of the system at `root`, in or at the directory `below`, by its path in it.

    Leaves no trace, access times included.
    """
    top = os.fsencode(root)
    found = {below: _node(os.lstat(top + below))}
    waiting = [below.rstrip(b"/")]
    while waiting:
        directory = waiting.pop()
        fd = os.open(top + directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
        with os.scandir(fd) as entries:
            for entry in entries:
                path = directory + b"/" + os.fsencode(entry.name)
                found[path] = _node(entry.stat(follow_symlinks=False))
                if found[path].directory:
                    waiting.append(path)
        os.close(fd)
    return found


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one way of running an input."""

    exit_code: int
    output: bytes
    changed: Mapping[bytes, Outcome]
    """Every changed path."""
    touched: Mapping[bytes, tuple[int, int, int]]
    """Inode, links and size of every path that a run wrote to."""


class Plain:
    """A plain copy of a system for running inputs, restored after each."""

    def __init__(self, system: System, directory: Path) -> None:
        self.root = directory / "rootfs"
        self._system = system
        self._source = directory / "pristine"
        self._base: Tree = {}
        self._now: Tree = {}
        self._sandbox: NamespaceSandbox | None = None
        self._pristine = walk(system.rootfs)
        self._inside: dict[bytes, list[bytes]] = defaultdict(list)
        for path in self._pristine:
            self._inside[os.path.dirname(path)].append(path)  # noqa: PTH120 (a path of bytes)
        self._source.mkdir()
        archive = subprocess.Popen(
            ["tar", "-cSf", "-", "--atime-preserve=system", "-C", str(system.rootfs), "."],
            stdout=subprocess.PIPE,
        )
        subprocess.run(
            ["tar", "-xpSf", "-", "--numeric-owner", "-C", str(self._source)],
            stdin=archive.stdout,
            check=True,
        )
        archive.wait()
        self._make()

    def close(self) -> None:
        """End the sandbox over the copy; the copy itself is the caller's."""
        if self._sandbox:
            self._sandbox.close()

    def _make(self) -> None:
        self.close()
        shutil.rmtree(self.root, ignore_errors=True)
        subprocess.run(["cp", "-a", str(self._source), str(self.root)], check=True)
        self._set_times(self._pristine)
        self._base = walk(self.root)
        self._now = self._base
        self._sandbox = NamespaceSandbox(
            self._system, mode=proven_shell(self._system).mode, plain=self.root
        )

    def _set_times(self, paths: Iterable[bytes]) -> None:
        for path in sorted(paths, reverse=True):
            node = self._pristine[path]
            times = (node.atime, node.mtime)
            os.utime(os.fsencode(self.root) + path, ns=times, follow_symlinks=False)

    @property
    def tree(self) -> Tree:
        """Return everything in the pristine copy."""
        return self._base

    def run(self, text: str, cwd: str) -> Answer:
        """Run a fresh bash on the pristine copy."""
        assert self._sandbox
        self._restore()
        started = time.time_ns() - 50_000_000  # file systems count time in ticks
        execution = self._sandbox.run_fresh(Request(text, cwd=cwd))
        self._now = self._look(started)
        changed: dict[bytes, Outcome] = {}
        touched: dict[bytes, tuple[int, int, int]] = {}
        for path in self._touched():
            before, after = self._base.get(path), self._now.get(path)
            if after:
                touched[path] = (after.inode, after.links, after.size)
            if before and after and before.ctime == after.ctime:
                continue
            outcome = self._outcome(path, after, self.root)
            old = self._outcome(path, before, self._source)
            if outcome != old:
                changed[path] = _without_same_digest(outcome, old)
        return Answer(execution.exit_code, execution.output, changed, touched)

    def _look(self, since: int) -> Tree:
        """Return everything in the copy now. Files with an older change time are unchanged, or gone
        with a directory that changed.
        """
        top = os.fsencode(self.root)
        moment = f"@{since / 1e9:.9f}"
        command = f"find {self.root} ( -newerct {moment} -o ! -type d -newerat {moment} ) -print0"
        listed = subprocess.run(command.split(), check=True, capture_output=True).stdout.split(
            b"\0"
        )[:-1]
        now = dict(self._base)
        for path in (name[len(top) :] or b"/" for name in listed):
            now[path] = _node(os.lstat(top + path))
            if now[path].directory and path not in self._base:
                now.update(walk(self.root, path))  # moved here with everything in it
            for inside in self._inside.get(path, ()):
                if not os.path.lexists(top + inside):
                    gone = [one for one in now if one == inside or one.startswith(inside + b"/")]
                    for one in gone:
                        del now[one]
        return now

    def _touched(self) -> set[bytes]:
        now, base = self._now, self._base
        if now is base:
            return set()
        return {path for path in now.keys() | base.keys() if now.get(path) != base.get(path)}

    def _outcome(self, path: bytes, node: Node | None, root: Path) -> Outcome:
        if node is None:
            return None
        held: bytes | str | None = None
        if stat.S_ISLNK(node.mode):
            held = os.readlink(os.fsencode(root) + path)  # noqa: PTH115 (a path of bytes)
        if stat.S_ISREG(node.mode):
            with open(os.fsencode(root) + path, "rb") as file:  # noqa: PTH123 (a path of bytes)
                held = hashlib.file_digest(file, "sha256").hexdigest()
        return (node.mode, node.uid, node.gid, 0 if node.directory else node.size, held)

    def _restore(self) -> None:
        """Restore the copy, by the change times of everything in it."""
        now, base, touched = self._now, self._base, self._touched()
        if not touched:
            return
        if len(touched) > 1000:
            self._make()
            return
        twins = defaultdict(set)
        for path, node in base.items():
            if node.links > 1 and not node.directory:
                twins[self._pristine[path].inode].add(path)
        for group in twins.values():
            if group & touched:
                touched |= group
        top, source = os.fsencode(self.root), os.fsencode(self._source)
        for path in sorted(touched, reverse=True):
            before, after = base.get(path), now.get(path)
            if after and (
                before is None
                or before.mode >> 12 != after.mode >> 12
                or (not before.directory and before.ctime != after.ctime)
                or (before.links > 1 and not before.directory)
            ):
                (os.rmdir if after.directory else os.unlink)(top + path)
        copied: dict[int, bytes] = {}
        for path in sorted(touched & base.keys()):
            there, inode = os.path.lexists(top + path), self._pristine[path].inode
            if base[path].directory:
                if not there:
                    os.mkdir(top + path)  # noqa: PTH102 (a path of bytes)
            elif not there and inode in copied:
                os.link(copied[inode], top + path)
            elif not there:
                subprocess.run([b"cp", b"-a", source + path, top + path], check=True)
                copied[inode] = top + path
        idmap = _idmap()
        for path in touched & base.keys():
            node = self._pristine[path]
            if node.directory:
                os.chown(top + path, node.uid + idmap.first_uid, node.gid + idmap.first_gid)
                os.chmod(top + path, stat.S_IMODE(node.mode))  # noqa: PTH101 (a path of bytes)
        self._set_times(touched & base.keys())
        again = {path: _node(os.lstat(top + path)) for path in touched & base.keys()}
        if any(_comparable(node) != _comparable(base[path]) for path, node in again.items()):
            self._make()
            return
        self._base = self._now = {**base, **again}

    def check(self) -> None:
        """Raise AssertionError unless the restored copy is pristine."""
        self._restore()
        found, base = walk(self.root), self._base
        assert found.keys() == base.keys(), sorted(found.keys() ^ base.keys())[:5]
        wrong = [p for p, node in found.items() if _comparable(node) != _comparable(base[p])]
        assert not wrong, sorted(wrong)[:5]


def _comparable(node: Node) -> Node:
    """Return the attributes to restore; reading a directory changes its access time."""
    atime = 0 if node.directory else node.atime
    return dataclasses.replace(node, inode=0, ctime=0, atime=atime)


def _without_same_digest(outcome: Outcome, old: Outcome) -> Outcome:
    """As in the sandbox's records: a regular file with unchanged content has no digest."""
    if outcome is None or old is None or not stat.S_ISREG(outcome[0]) or outcome[4] != old[4]:
        return outcome
    return (*outcome[:4], None)


def overlay_answer(execution: Execution) -> Answer:
    """Return the answer of a run over layers."""
    changed: dict[bytes, Outcome] = {}
    touched = {}
    for change in execution.changes:
        sides: list[Outcome] = []
        for side in (change.before, change.after):
            held = None if side is None else side.target or side.digest
            sides.append(
                None
                if side is None
                else (
                    side.mode,
                    side.uid,
                    side.gid,
                    0 if stat.S_ISDIR(side.mode) else side.size,
                    held,
                )
            )
        if sides[0] != sides[1]:
            changed[change.path] = sides[1]
        if change.after:
            touched[change.path] = (change.after.inode, change.after.links, change.after.size)
    return Answer(execution.exit_code, execution.output, changed, touched)


@dataclass(frozen=True, slots=True)
class Trial:
    """One input, run each way: once, or twice where the results differed."""

    text: str
    cwd: str
    served: tuple[Answer, ...]
    """By a served bash, as for every record."""
    fresh: tuple[Answer, ...]
    """By a newly executed bash."""
    oracle: tuple[Answer, ...]
    """By a newly executed bash on the other file system."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The two file systems whose outputs are compared."""

    lower: Tree
    other: Tree
    mine: Answer
    theirs: Answer
    text: str

    def causes(self) -> set[Cause] | None:
        """Return the causes of different outputs; empty for equal outputs, None for an unknown
        cause.
        """
        a, b = self.mine.output, self.theirs.output
        if a == b:
            return set()
        found = self._lines(a.splitlines(), b.splitlines())
        if found is None:
            found = self._reordered(a.splitlines(), b.splitlines())
        if found is None:
            for cause, pattern in _BY_INPUT:
                if pattern.search(self.text):
                    return {cause}
        return found

    def tree_causes(self) -> set[Cause] | None:
        """Return the causes of different files afterwards."""
        mine, theirs = self.mine.changed, self.theirs.changed
        paths = [p for p in mine.keys() | theirs.keys() if mine.get(p, 0) != theirs.get(p, 0)]
        if not paths:
            return set()
        for cause, pattern in _BY_INPUT:
            if cause is not Cause.HARD_LINK and pattern.search(self.text):
                return {cause}
        return self.causes() or None  # output written to a file

    def _reordered(self, a: list[bytes], b: list[bytes]) -> set[Cause] | None:
        if len(a) != len(b):
            return None
        if sorted(b" ".join(a).split()) == sorted(b" ".join(b).split()):
            return {Cause.ORDER}
        found = self._lines(_by_last_word(a), _by_last_word(b))
        return None if found is None else found | {Cause.ORDER}

    def _lines(self, a: list[bytes], b: list[bytes]) -> set[Cause] | None:
        if len(a) != len(b):
            return None
        found: set[Cause] = set()
        for mine, theirs in zip(a, b, strict=True):
            if mine == theirs:
                continue
            if mine.split() == theirs.split():
                found.add(Cause.WIDTH)
                continue
            if _DATE.findall(mine) != _DATE.findall(theirs):
                found.add(Cause.TIME)
            pieces, others = _DATE.sub(b"DATE", mine).split(), _DATE.sub(b"DATE", theirs).split()
            if len(pieces) != len(others):
                return None
            for one, other in zip(pieces, others, strict=True):
                causes = self._words(one, other, mine)
                if causes is None:
                    return None
                found |= causes
        return found

    def _words(self, a: bytes, b: bytes, line: bytes) -> set[Cause] | None:
        if a == b:
            return set()
        if (cause := self._word(a, b, line)) is not None:
            return {cause}
        pieces, others = _PIECE.findall(a), _PIECE.findall(b)
        if len(pieces) != len(others) or len(pieces) < 2:
            return None
        found = set()
        for one, other in zip(pieces, others, strict=True):
            if one == other:
                continue
            if (cause := self._word(one, other, line)) is None:
                return None
            found.add(cause)
        return found

    def _word(self, a: bytes, b: bytes, line: bytes) -> Cause | None:
        if _CLOCK.fullmatch(a) and _CLOCK.fullmatch(b) and len(a) == len(b):
            return Cause.TIME
        if b"Device" in line or re.search(r"\b(stat|find)\b.*%[dD]", self.text):
            return Cause.DEVICE
        if not (a.isdigit() and b.isdigit()):
            return Cause.BLOCKS if _blocks(self.text, line) and a[:1].isdigit() else None
        one, other = int(a), int(b)
        if any(one == links and other == self.links(path) for path, links in self.merged_links()):
            return Cause.LINKS
        if self._same_inode(one, other):
            return Cause.INODE
        sizes = {size for path, (_, _, size) in self.mine.touched.items()} | {40, 60}
        sizes |= {node.size for node in self.lower.values() if node.directory}
        if one in sizes and other % 4096 == 0:
            return Cause.SIZE
        return Cause.BLOCKS if _blocks(self.text, line) else None

    def merged_links(self) -> Iterator[tuple[bytes, int]]:
        """Directories that overlay merged from two, with their visible link count."""
        yield b"/", 1
        for path, (_, links, _) in self.mine.touched.items():
            yield path, links

    def links(self, path: bytes) -> int:
        """The other side's true link count."""
        if path in self.theirs.touched:
            return self.theirs.touched[path][1]
        return self.other[path].links if path in self.other else 0

    def _same_inode(self, one: int, other: int) -> bool:
        mine = {inode & _LOWER_INODE: path for path, (inode, _, _) in self.mine.touched.items()}
        path = mine.get(one & _LOWER_INODE)
        if path is None:
            inode = one & _LOWER_INODE
            path = next((p for p, node in self.lower.items() if node.inode == inode), None)
        if path is None:
            return bool(re.search(r"-\w*i|%i|stat|inode", self.text)) and one > 10 and other > 10
        known = self.theirs.touched.get(path)
        node = self.other.get(path)
        return other & _LOWER_INODE == (known[0] & _LOWER_INODE if known else node and node.inode)


def _blocks(text: str, line: bytes) -> bool:
    looks = re.search(r"\bdu\b|\bls .*-\w*s|--size|%[bkB]|-ls\b|block", text)
    return bool(line.startswith(b"total ") or b"Blocks:" in line or looks)


def _by_last_word(lines: Iterable[bytes]) -> list[bytes]:
    return sorted(lines, key=lambda line: line.split()[-1:])


def as_shown(system: System, tree: Tree) -> Tree:
    """Return the system's files with the numbers of its in-memory tree, as a sandbox shows them."""
    with NamespaceSandbox(system, Limits(output_bytes=1 << 24)) as sandbox:
        listed = sandbox.run(Request("find / -xdev -printf '%i %s %n %p\\0'", cwd="/")).output
    shown = dict(tree)
    for row in listed.split(b"\0")[:-1]:
        inode, size, links, path = row.split(b" ", 3)
        if path in shown and path != b"/":
            shown[path] = dataclasses.replace(
                shown[path], inode=int(inode) & _LOWER_INODE, size=int(size), links=int(links)
            )
    return shown


class Verdict(StrEnum):
    """The verdict of a trial."""

    SAME = "identical"
    UNSTEADY = "differ by themselves, set aside"
    KNOWN = "differ, cause known"
    SHELL = "differ from a fresh bash over the same layers"
    UNKNOWN = "differ, cause unknown"


def judge(trial: Trial, lower: Tree, other: Tree) -> tuple[Verdict, set[Cause]]:
    """Compare the ways and find causes; the trees are the pristine ones of both sides."""
    served, fresh, oracle = trial.served[0], trial.fresh[0], trial.oracle[0]
    if not _same(served, fresh):
        causes = Sides(lower, lower, served, fresh, trial.text).causes()
        told = causes is None or causes - {Cause.TIME, Cause.DEVICE}
        if told and _same(served, trial.served[-1]) and _same(fresh, trial.fresh[-1]):
            return Verdict.SHELL, set()
    if _same(fresh, oracle):
        return Verdict.SAME, set()
    sides = Sides(lower, other, fresh, oracle, trial.text)
    causes, tree = sides.causes(), sides.tree_causes()
    steady = _same(fresh, trial.fresh[-1]) and _same(oracle, trial.oracle[-1])
    if not steady and causes != {Cause.TIME}:
        return Verdict.UNSTEADY, set()
    if causes is None or tree is None or not causes | tree:
        return Verdict.UNKNOWN, set()
    return Verdict.KNOWN, causes | tree


class Comparison:
    """The sandbox, and beside it a plain copy, or the sandbox over another lower layer."""

    def __init__(self, system: System, stack: ExitStack, *, lower: Path | None) -> None:
        mode = proven_shell(system).mode
        self._sandbox = stack.enter_context(NamespaceSandbox(system, mode=mode))
        self.lower = as_shown(system, walk(system.rootfs))
        self._oracle: Callable[[str, str], Answer]
        if lower:
            moved = dataclasses.replace(system, path=lower)
            sandbox = stack.enter_context(NamespaceSandbox(moved, mode=mode))
            self.other = as_shown(moved, walk(moved.rootfs))
            self._oracle = lambda text, cwd: overlay_answer(
                sandbox.run_fresh(Request(text, cwd=cwd))
            )
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
            directory.chmod(0o755)
            plain = Plain(system, directory)
            stack.callback(plain.close)
            stack.callback(plain.check)
            self.other = plain.tree
            self._oracle = plain.run

    def _served(self, text: str, cwd: str) -> Answer:
        return overlay_answer(self._sandbox.run(Request(text, cwd=cwd)))

    def _fresh(self, text: str, cwd: str) -> Answer:
        return overlay_answer(self._sandbox.run_fresh(Request(text, cwd=cwd)))

    def run(self, text: str, cwd: str) -> Trial:
        """Run one input each way, and again where the ways differ."""
        served, fresh = self._served(text, cwd), self._fresh(text, cwd)
        oracle = self._oracle(text, cwd)
        if _same(served, fresh) and _same(fresh, oracle):
            return Trial(text, cwd, (served,), (fresh,), (oracle,))
        return Trial(
            text,
            cwd,
            (served, self._served(text, cwd)),
            (fresh, self._fresh(text, cwd)),
            (oracle, self._oracle(text, cwd)),
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """The judged result of one input."""

    text: str
    verdict: Verdict
    causes: set[Cause]
    writes: bool
    violation: dict[str, Any] | None


_comparison: Comparison
_stack: ExitStack


def _open(system: str, lower: Path | None) -> None:
    global _comparison, _stack
    _stack = ExitStack()
    _comparison = Comparison(find_system(system), _stack, lower=lower)


def _close(_: int) -> None:
    _stack.close()


def _tried(text: str, cwd: str) -> Trial:
    """Return the trial; try again after a second where the host lacked resources for a sandbox."""
    try:
        return _comparison.run(text, cwd)
    except SandboxError:
        time.sleep(1)
        return _comparison.run(text, cwd)


def _compare(inputs: Sequence[tuple[str, str]]) -> list[Judged]:
    judged = []
    for text, cwd in inputs:
        trial = _tried(text, cwd)
        verdict, causes = judge(trial, _comparison.lower, _comparison.other)
        told = verdict in (Verdict.SHELL, Verdict.UNKNOWN)
        violation = _violation(verdict, trial) if told else None
        judged.append(Judged(text, verdict, causes, bool(trial.fresh[0].changed), violation))
    return judged


def _violation(verdict: Verdict, trial: Trial) -> dict[str, Any]:
    mine = trial.served[0] if verdict is Verdict.SHELL else trial.fresh[0]
    theirs = trial.fresh[0] if verdict is Verdict.SHELL else trial.oracle[0]
    differs = {
        path.decode("utf-8", "replace"): (
            mine.changed.get(path, "unchanged"),
            theirs.changed.get(path, "unchanged"),
        )
        for path in sorted(mine.changed.keys() | theirs.changed.keys())
        if mine.changed.get(path, 0) != theirs.changed.get(path, 0)
    }
    return {
        "what": verdict.value,
        "input": trial.text,
        "cwd": trial.cwd,
        "exit": (mine.exit_code, theirs.exit_code),
        "sandbox": mine.output[:1500].decode("utf-8", "replace"),
        "other": theirs.output[:1500].decode("utf-8", "replace"),
        "files": dict(list(differs.items())[:5]),
    }


def _same(a: Answer, b: Answer) -> bool:
    return a.exit_code == b.exit_code and a.output == b.output and a.changed == b.changed


def steady_inputs(system: System, seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Return drawn inputs that no grammar declares volatile, with their start directories."""
    found = 0
    for one in drawn(system=system, seed=seed, count=2 * count + 100):
        if not one.volatile and found < count:
            found += 1
            yield one.text, one.cwd


def main() -> int:
    """The comparison."""
    options = parser(__doc__, count=2000)
    options.add_argument("--lower", type=Path, help="compare with the system in this directory")
    options.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    options.add_argument("--looks", action="store_true", help="only the inputs written by hand")
    given = options.parse_args()
    system = find_system(given.system)
    home = system.declaration.session.start_directories[0]
    inputs = [(text, home) for text in LOOKS]
    if not given.looks:
        inputs += steady_inputs(system, given.seed, given.count)
    started = time.monotonic()
    progress = Progress("compared", len(inputs))
    verdicts: Counter[Verdict] = Counter()
    causes: Counter[Cause] = Counter()
    examples: dict[Cause, str] = {}
    violations: list[dict[str, Any]] = []
    writing = 0
    context = multiprocessing.get_context("spawn")
    batches = [inputs[at : at + BATCH] for at in range(0, len(inputs), BATCH)]
    opened = (system.name, given.lower)
    with ProcessPoolExecutor(given.workers, context, _open, opened) as pool:
        for done in pool.map(_compare, batches):
            for one in done:
                verdicts[one.verdict] += 1
                causes.update(one.causes)
                for cause in one.causes:
                    examples[cause] = min(examples.get(cause, one.text), one.text, key=len)
                if one.violation is not None:
                    violations.append(one.violation)
                writing += one.writes
            progress.step(len(done))
        for _ in pool.map(_close, range(given.workers)):
            pass
    judged = len(inputs) - verdicts[Verdict.UNSTEADY]
    facts = {
        "system": system.digest,
        "inputs": len(inputs),
        "written by hand": len(LOOKS),
        "change files": writing,
        **{verdict.value: verdicts[verdict] for verdict in Verdict},
        "identical of those judged": f"{verdicts[Verdict.SAME] / judged:.2%}",
        "seconds": round(time.monotonic() - started),
    }
    rows = [(cause.value, n, examples[cause]) for cause, n in causes.most_common()]
    return report(
        facts,
        violations,
        as_json=given.json,
        tables=[("causes", ("cause", "inputs", "shortest example"), rows)],
    )


if __name__ == "__main__":
    sys.exit(main())
