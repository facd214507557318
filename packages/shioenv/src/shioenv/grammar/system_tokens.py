"""System tokens, the capitalised nonterminals with values from a system, and vocabularies.

A catalogue, which is built from a system, maps most tokens to existing values. Some tokens
represent things that must *not* exist, or search terms. These have small fixed vocabularies, so
that inputs remain comparable between systems.
"""

from __future__ import annotations

from collections.abc import Mapping

VOCABULARY: Mapping[str, tuple[str, ...]] = {
    "NewFile": ("new.txt", "out.txt", "result.log", "copy.csv", "scratch.dat", "documents/new.md"),
    "NewDirectory": ("newdir", "build", "output", "backup.d", "documents/drafts", "tmp_work"),
    "MissingFile": ("missing.txt", "nofile", "documents/missing.md", "old/data.csv"),
    "MissingDirectory": ("missing_dir", "nodir", "documents/none", "/opt/absent"),
    "MissingUser": ("nobody2", "guest1", "oracle"),
}
"""Tokens with a fixed vocabulary. If a catalogue has values for a token, they take precedence."""

FALLBACK: Mapping[str, tuple[str, ...]] = {
    "Word": ("error", "the", "user", "ubuntu", "data", "failed", "backup", "10"),
    "Pattern": (
        "^[0-9]", "error", "[A-Z]", "^#", "user", "o.*r", "[aeiou]$", "\\.", "ERROR", "^$",
        "[0-9][0-9]*", "a",
    ),
    "Glob": ("*.txt", "*.log", "*.csv", "*.sh", "d*", "*a*", "[a-m]*", "?????"),
}  # fmt: skip
"""Default values, suitable for the shipped systems, for tokens that a catalogue may omit."""

SYSTEM_TOKENS: Mapping[str, str] = {
    "File": "a regular file under the start directory",
    "TextFile": "a text file",
    "CsvFile": "a file of comma-separated values",
    "LogFile": "a log",
    "ScriptFile": "a script",
    "TarFile": "a tar archive, compressed or not",
    "GzipFile": "a file compressed by gzip",
    "ZipFile": "a zip archive",
    "CpioFile": "a cpio archive",
    "HtmlFile": "a web page",
    "JsonFile": "a JSON document",
    "ImageFile": "a picture",
    "HiddenFile": "a file whose name starts with a dot",
    "HardLink": "a file that has a second name",
    "Fifo": "a named pipe: reading it never returns",
    "EmptyFile": "an empty file",
    "Symlink": "a symbolic link",
    "Executable": "a program under the start directory",
    "Directory": "a directory under the start directory, or itself",
    "GlobalFile": "an absolute path of a regular file",
    "GlobalDirectory": "an absolute path of a directory",
    "GlobalExecutable": "an absolute path of a program",
    "NewFile": "a name that does not exist and may be created",
    "NewDirectory": "a directory's name that does not exist and may be created",
    "MissingFile": "a name that does not exist, for inputs that should fail",
    "MissingDirectory": "a directory's name that does not exist, for inputs that should fail",
    "MissingUser": "a user who does not exist",
    "Username": "a user who can log in",
    "Groupname": "a group",
    "Interface": "a network interface",
    "MountPoint": "where a file system is mounted",
    "BlockDevice": "a block device of the machine profile",
    "EnvVar": "the name of an environment variable",
    "Pid": "a process number",
    "Device": "a character device: /dev/null and its like",
    "Hostname": "a host name that resolves",
    "IpAddress": "an address of the system itself",
    "Word": "a word that occurs in text files",
    "Pattern": "a basic regular expression that matches something",
    "Glob": "a shell pattern, always quoted",
}
"""The meaning of every system token."""

ALWAYS_QUOTED = frozenset({"Glob"})
"""Tokens whose values are always quoted, so that the shell does not expand them."""

STAND_IN: Mapping[str, tuple[str, ...]] = {
    "File": ("documents/notes.txt", "data/users.csv", "logs/app.log"),
    "TextFile": ("documents/notes.txt", "documents/report.txt"),
    "CsvFile": ("data/data.csv", "data/users.csv"),
    "LogFile": ("logs/app.log", "logs/syslog.log"),
    "ScriptFile": ("scripts/backup.sh", "scripts/deploy.sh"),
    "TarFile": ("archives/archive.tar", "archives/backup.tar.gz"),
    "GzipFile": ("archives/backup.tar.gz", "archives/app.log.1.gz"),
    "ZipFile": ("archives/site.zip",),
    "CpioFile": ("archives/scripts.cpio",),
    "HtmlFile": ("documents/index.html", "www/index.html"),
    "JsonFile": ("config/config.json",),
    "ImageFile": ("images/photo.png", "images/icon.gif"),
    "HiddenFile": (".bashrc", ".profile"),
    "HardLink": ("data/shared/plan.txt",),
    "Fifo": ("logs/pipe",),
    "Device": ("/dev/null", "/dev/zero"),
    "Hostname": ("localhost", "ubuntu"),
    "IpAddress": ("127.0.0.1",),
    "EmptyFile": ("empty.txt",),
    "Symlink": ("latest.log", "config/current", "images/photo_link.png"),
    "Executable": ("scripts/backup.sh",),
    "Directory": (".", "documents", "data", "logs", "scripts"),
    "GlobalFile": ("/etc/passwd", "/etc/hosts", "/etc/group"),
    "GlobalDirectory": ("/etc", "/var/log", "/tmp"),
    "GlobalExecutable": ("/usr/bin/env", "/bin/sh"),
    "Username": ("root", "ubuntu"),
    "Groupname": ("root", "users"),
    "Interface": ("lo", "eth0"),
    "MountPoint": ("/", "/proc"),
    "BlockDevice": ("vda",),
    "EnvVar": ("HOME", "PATH", "LANG"),
    "Pid": ("1",),
}
"""Values for use without a system: enough for validation, sampling and documentation."""
