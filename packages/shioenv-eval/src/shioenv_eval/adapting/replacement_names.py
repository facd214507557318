"""Names of a system that replace names which it lacks in an input."""

from __future__ import annotations

import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from random import Random

from shioenv.bash.words import quoted
from shioenv.grammar.bind import values_of
from shioenv.grammar.spelling import SHOWN, VARIABLE, received_form
from shioenv.grammar.symbols import Nonterminal
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System

_TYPES: Sequence[tuple[str, str]] = (
    (r"\.(?:tar|tar\.\w+|tgz|tbz2?|txz)", "TarFile"),
    (r"\.(?:gz|z|bz2|xz)", "GzipFile"),
    (r"\.(?:zip|jar|war)", "ZipFile"),
    (r"\.cpio", "CpioFile"),
    (r"\.(?:csv|tsv)", "CsvFile"),
    (r"\.(?:html?|xhtml|php|xml)", "HtmlFile"),
    (r"\.(?:json|ya?ml)", "JsonFile"),
    (r"\.(?:png|gif|jpe?g|svg|bmp|ico)", "ImageFile"),
    (r"\.log(?:\.\d+)?", "LogFile"),
    (r"\.(?:sh|py|pl|rb|js|awk|bash)|script\w*", "ScriptFile"),
    (r"\.\w{1,5}", "TextFile"),
)
"""The system token of a file by its extension; without an extension it is a text file."""

_DIRECTORY = re.compile(
    r".*(?:dir|directory|directories|folders?)(?:_?\d+|name)?|(?:src|lib|backup|home|downloads?)",
    re.IGNORECASE,
)
"""Names that are clearly names of directories."""

_PATH = re.compile(rf"[./~@%+,:= -]*[\w{VARIABLE}][\w./~@%+,:= {VARIABLE}-]*", re.ASCII)
_GLOB = re.compile(r"[*?\[]")
_EXISTING = ("file", "directory", "path", "tree")
_ALWAYS = ("/dev", "/proc", "/sys", "/run")
"""Directories that the system index does not cover: paths below them count as existing."""
_DISK = re.compile(r"/dev/(?:[shv]d[a-z]\d*|disk\d\w*|nvme\w+)")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_INTERFACE = re.compile(r"(?:eth|en[opsx]|wl|wlan|lo|tun|tap|br|ppp|docker|veth|bond)\w*\d\w*")
_URL = re.compile(r"((?:\w+:)?//)?(?:[^/@]*@)?([^/:?#]+)(.*)", re.DOTALL)


@dataclass(frozen=True)
class SystemNames:
    """A system's names, as seen from one start directory."""

    tokens: Mapping[str, Sequence[str]]
    """Names by system token."""
    exists: Callable[[str], bool]
    """Whether an absolute path exists."""
    paths: Sequence[str]
    """The regular files under the start directory, relative to it."""
    cwd: str
    """The start directory, with symbolic links resolved."""
    home: str
    """The value of HOME."""
    variables: frozenset[str] = frozenset()
    """Environment variables that are set for every input."""
    elsewhere: tuple[str, ...] | None = None
    """Directories that an input may change to; None if it stays in its start directory."""
    made: frozenset[str] = frozenset()
    """Files that the input creates itself, as the input names them, or patterns for them."""

    @classmethod
    def of(cls, system: System, cwd: str) -> SystemNames:
        """Collect the names of a system for inputs that start in `cwd`.

        Errors: StartDirectoryError.
        """
        tokens = catalogue(system, cwd)
        start = system.resolve(cwd) or "/"
        session = system.declaration.session
        return cls(
            tokens=tokens,
            exists=lambda path: _exists(system, path),
            paths=tuple(
                posixpath.relpath(entry.path, start)
                for entry in system.beneath(start)
                if stat.S_ISREG(entry.mode)
            ),
            cwd=start,
            home=session.environment.get("HOME", "/root"),
            variables=frozenset(session.environment),
        )

    @cached_property
    def _endings(self) -> Mapping[str, Sequence[str]]:
        """Files of `paths` by extension, without paths that need quoting."""
        found: dict[str, list[str]] = {}
        for path in self.paths:
            ending = posixpath.splitext(path)[1]
            if ending and re.fullmatch(r"[\w./-]+", path):
                found.setdefault(ending, []).append(path)
        return found

    def values(self, tokens: Iterable[str]) -> list[str]:
        """Return the system's names for system tokens (`File`), as shell text."""
        return [value for token in tokens for value in values_of(Nonterminal(token), self.tokens)]

    def fits(self, role: str, written: str) -> bool:
        """Whether a word of this role can be kept, because what it names exists on the system.

        `written` is the word as shell text. Roles that do not refer to the system, such as the name
        of a variable, always fit.
        """
        word = received_form(written).translate(SHOWN)
        named = any(character.isalnum() or character == VARIABLE for character in word)
        if not named or word.startswith(("-", "+")):
            return True
        role = _told(role, word)
        if role in ("file", "directory", "path", "tree"):
            quoted_pattern = _GLOB.search(word) is not None and written[:1] in "'\""
            return quoted_pattern or self._path_fits(word)
        if role in ("any", "made"):
            return VARIABLE not in word or not _PATH.fullmatch(word)
        if role == "new":
            parent = posixpath.dirname(word.rstrip("/"))
            return not _PATH.fullmatch(word) or (
                VARIABLE not in word and (not parent or self._is_there(parent))
            )
        if role in ("glob", "directory glob"):
            return self._glob_fits(role, word)
        if role == "interface":
            known = word in self.tokens.get("Interface", ())
            return known or not (_INTERFACE.fullmatch(word) or word == VARIABLE)
        if role == "url":
            match = _URL.fullmatch(word)
            return match is None or match[2] in self._hosts
        if role == "host":
            return word in self._hosts
        known_names = {
            "user": ("Username",), "users": ("Username",), "group": ("Groupname",),
            "owner": ("Username", "Groupname"), "pid": ("Pid",),
        }.get(role)  # fmt: skip
        if known_names is None:
            return True
        known_values = {name for token in known_names for name in self.tokens.get(token, ())}
        names = [name for name in re.split(r"[:.,]", word) if name]
        numbers = role != "pid" and all(name.isdigit() for name in names)
        return numbers or known_values.issuperset(names)

    def draw(self, role: str, written: str, random: Random, used: Sequence[str]) -> str:
        """Return shell text that replaces a word that does not fit.

        Values in `used` are avoided where possible.
        """
        word = received_form(written).translate(SHOWN)
        role = _told(role, word)
        if role == "owner":
            user, sign, group = re.fullmatch(r"([^:.]*)([:.]?)(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
            parts = [("Username", user), ("Groupname", group)]
            drawn = [self._pick(self.values([token]), random, ()) if name else ""
                     for token, name in parts]  # fmt: skip
            return sign.replace(".", ":").join(drawn) if sign else drawn[0]
        if role == "url":
            scheme, host, rest = _URL.fullmatch(word).groups("")  # type: ignore[union-attr]
            name = self._pick(self.values(_host_tokens(host)), random, used)
            return quoted(f"{scheme}{name}{rest}")
        if role == "new":
            return self._new(word, random, used)
        if role in ("glob", "directory glob"):
            return self._glob(role, word, random, used)
        if _GLOB.search(word) and role != "directory" and role in _EXISTING:
            return self._from_start([self._several(word, random)])[0]
        values = self.values(self._tokens_for(role, word))
        if role in (*_EXISTING, "any", "made"):
            values = self._from_start(values)
        return self._pick(values, random, used)

    def _tokens_for(self, role: str, word: str) -> tuple[str, ...]:
        if role == "host":
            return _host_tokens(word)
        if role in ("user", "users", "group", "interface", "pid"):
            return ({"users": "Username", "user": "Username", "group": "Groupname",
                     "interface": "Interface", "pid": "Pid"}[role],)  # fmt: skip
        if _DISK.fullmatch(word):
            return ("Device",)
        return (self._type(role, word),)

    def _type(self, role: str, word: str) -> str:
        """Return the system token for a file or directory of this name."""
        base = posixpath.basename(word.rstrip("/"))
        ending = posixpath.splitext(base)[1]
        told = role == "directory" or word.endswith("/") or _DIRECTORY.fullmatch(base) is not None
        if role != "file" and (told or (role == "tree" and not ending)):
            return "Directory"
        for pattern, token in _TYPES:
            if re.search(f"(?:{pattern})$", base.lower()) and self.values([token]):
                return token
        return "TextFile"

    def _path_fits(self, word: str) -> bool:
        if _GLOB.search(word):
            plain_glob = re.fullmatch(r"[\w./*-]+", word) is not None
            return not plain_glob or self._matches(word)
        if not _PATH.fullmatch(word) or "://" in word or re.match(r"[\w.-]+@?[\w.-]*:", word):
            return True
        return VARIABLE not in word and self._is_there(word)

    def _from_start(self, values: list[str]) -> list[str]:
        """Return names as absolute paths if the input changes directory; else unchanged."""
        if self.elsewhere is None:
            return values
        return [posixpath.normpath(posixpath.join(self.cwd, value)) for value in values]

    def _is_there(self, word: str) -> bool:
        if word == "~" or word.startswith("~/"):
            word = self.home + word[1:]
        if self._is_made(word):
            return True
        for base in (self.cwd, *(self.elsewhere or ())):
            path = posixpath.normpath(posixpath.join(base, word))
            if not _DISK.fullmatch(path) and (path.startswith(_ALWAYS) or self.exists(path)):
                return True
        return False

    def _is_made(self, word: str) -> bool:
        """Whether the input creates the path, one of its parents, or something in it."""
        word = posixpath.normpath(word)
        return any(
            f"{word}/".startswith(f"{name}/")
            or f"{name}/".startswith(f"{word}/")
            or fnmatchcase(word, name)
            for name in self.made
        )

    def _matches(self, pattern: str) -> bool:
        """Whether a pattern matches an existing file or one that the input creates.

        For a pattern outside the start directory, only the directory before its first glob
        character has to exist.
        """
        if pattern.startswith(("/", "~", "..")):
            return self._is_there(posixpath.dirname(_GLOB.split(pattern)[0]) or "/")
        pattern = pattern.removeprefix("./")
        if any(fnmatchcase(name, pattern) for name in self.made):
            return True
        depth = pattern.count("/")
        if self.elsewhere is not None:
            return any(fnmatchcase(path, f"*{pattern}") for path in self.paths)
        return any(path.count("/") == depth and fnmatchcase(path, pattern) for path in self.paths)

    def _several(self, word: str, random: Random) -> str:
        """Return a pattern that matches the files of one extension in one directory.

        It replaces a pattern without matches. The extension of `word` is kept if any file has it.
        """
        ending = posixpath.splitext(word)[1]
        if ending not in self._endings:
            ending = random.choice(sorted(self._endings) or [""])
        directory = posixpath.dirname(random.choice(self._endings.get(ending, [""])))
        return posixpath.join(directory, f"*{ending}")

    def _glob_fits(self, role: str, word: str) -> bool:
        if VARIABLE in word:
            return False
        if not _GLOB.search(word):
            there = self.tokens.get("Directory", ()) if role == "directory glob" else self.paths
            names = {posixpath.basename(path) for path in (*there, *self.made)}
            return word in names or word in (".", "..")
        match = re.fullmatch(r"[^/]*(\.[A-Za-z]\w*)", word)
        return match is None or match[1] in self._endings

    def _glob(self, role: str, word: str, random: Random, used: Sequence[str]) -> str:
        """Return a replacement for a pattern without matches.

        It has the same stem, and an extension of existing files. A word that is not a pattern is
        replaced by an existing name.
        """
        if not _GLOB.search(word):
            token = "Directory" if role == "directory glob" else self._type("file", word)
            names = [posixpath.basename(name) for name in self.tokens.get(token, ())]
            kept = sorted({name for name in names if name.isprintable() and name not in ("", ".")})
            return self._pick([quoted(name) for name in kept], random, used)
        stem = posixpath.splitext(word)[0]
        endings = [f"'{stem}{ending}'" for ending in sorted(self._endings) if "'" not in stem]
        return self._pick(endings, random, used)

    def _new(self, word: str, random: Random, used: Sequence[str]) -> str:
        """Return a path for a new file: the word's last component in an existing directory."""
        base = posixpath.basename(word.rstrip("/"))
        if VARIABLE in base or not base:
            return self._pick(self.values(["NewFile"]), random, used)
        directory = random.choice([name for name in self.values(["Directory"]) if "'" not in name])
        return quoted(posixpath.normpath(posixpath.join(directory, base)))

    @cached_property
    def _hosts(self) -> frozenset[str]:
        return frozenset(
            {*self.tokens.get("Hostname", ()), *self.tokens.get("IpAddress", ()), "127.0.0.1"}
        )

    def _pick(self, values: Sequence[str], random: Random, used: Sequence[str]) -> str:
        left = [value for value in values if value not in used] or list(values)
        return random.choice(left) if left else ""


def _exists(system: System, path: str) -> bool:
    """Whether an absolute path exists; a dangling symbolic link counts."""
    above = system.resolve(posixpath.dirname(path))
    entry = None if above is None else posixpath.join(above, posixpath.basename(path))
    return entry in system.index or system.resolve(path) is not None


def _told(role: str, word: str) -> str:
    """Refine a word's role by its text: `bob:staff` is an owner."""
    return "owner" if role in ("user", "group") and ":" in word else role


def _host_tokens(word: str) -> tuple[str, ...]:
    return ("IpAddress",) if _ADDRESS.fullmatch(word) else ("Hostname",)
