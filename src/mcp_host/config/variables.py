"""Variables within the values of a file: each dialect has its own forms, and what they give is not expanded again."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

from mcp_host.concurrency.locked_file import LockedFile
from mcp_host.config.values import EnvironmentVariable, Input, Value
from mcp_host.errors import escaped, excerpt, quoted
from mcp_host.secret import HIDDEN, ExpandedText, Secret

Form: TypeAlias = Literal[
    "${V}", "${V:-d}", "$V", "%V%", "${env:V}", "${input:id}", "${file:/p}", "${workspaceFolder}",
    "${a:b | c:d}", "{env:V}", "{file:/p}",
]  # fmt: skip
Scheme: TypeAlias = Literal["env", "value", "input", "file", "place", "unsupported"]

PLACES = ("workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/")
SHOWN = ("command", "cwd", "env_file", "socket")  # fields that decide what runs: only answers are hidden in them
MAX_FILE = 64 * 1024  # bytes of a file that a variable stands for: a key or a token
MAX_FILES = 100
MAX_PATH = 4096  # characters: links in it are looked for part by part
OF_USER = "~/"  # what the path of a file begins with that is in the user's folder
MAX_TEXT = 128 * 1024  # characters of one value: Linux takes no longer argument or variable

_DOLLAR = r"\$\{|\$(?P<dollar>[A-Za-z_]\w*)"
_PERCENT = r"|%(?P<percent>[A-Za-z_]\w*)%"
_BRACE = r"|(?<!\$)\{(?:env:(?P<env>[^{}]+)|file:(?P<file>[^{}]+))\}"
_START = re.compile(_DOLLAR + _PERCENT + _BRACE, re.ASCII)
_START_IN_URL = re.compile(rf"{_DOLLAR}|(?P<percent>(?!)){_BRACE}", re.ASCII)  # there, % begins an escape
_PAST_HOST = re.compile(r"[^/\\?#]*://[^/\\?#]*[/\\?#]")
_PARTS_HOST = re.compile(r"[/\\?#@]")
_AFTER_BASE = re.compile(r"\Z|(?::\d+)?(?:[?#]|/(?!/))")  # what may follow an answer that is a URL
_BRACKET = re.compile(r"\$\{|\}")
_BARE: Mapping[str, tuple[Form, Scheme]] = {
    "dollar": ("$V", "env"),
    "percent": ("%V%", "env"),
    "env": ("{env:V}", "env"),
    "file": ("{file:/p}", "file"),
}
"""Those that do not begin with ``${``, by the group of the pattern."""
_NAME = r"[A-Za-z_]\w*"
_INNER: tuple[tuple[Form, re.Pattern[str], Scheme], ...] = (
    ("${workspaceFolder}", re.compile("|".join(PLACES)), "place"),
    ("${V}", re.compile(_NAME, re.ASCII), "env"),
    ("${V:-d}", re.compile(rf"({_NAME}):-.*", re.ASCII | re.DOTALL), "env"),
    ("${env:V}", re.compile(r"env:([^|]+)"), "env"),
    ("${input:id}", re.compile(r"input:([^|]+)"), "input"),
    ("${file:/p}", re.compile(r"file:([^|]+)"), "file"),
    ("${a:b | c:d}", re.compile(r"[a-z][a-z0-9+.-]*:.*", re.DOTALL), "unsupported"),
)
"""What is between ``${`` and ``}``: the first that matches is the form."""

_ORIGIN: Mapping[Scheme, str] = {
    "env": "the variable {}",
    "value": "a text of the file",
    "input": "the input {}",
    "file": "the file {}",
    "place": "${{{}}}",
    "unsupported": "{} (not supported)",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a text. Its value is that of the first of *sources* that has one."""

    form: Form | None
    """None: no dialect has this form."""
    sources: tuple[tuple[Scheme, str], ...]
    written: str
    """How it is written in the text, which may have a secret as its default."""

    @property
    def origin(self) -> str:
        """Where its value is from, such as ``the variable TOKEN, or else a text of the file``, without what may be a secret."""
        return ", or else ".join(_ORIGIN[scheme].format(name) for scheme, name in self.sources)

    @property
    def shown(self) -> str:
        """How it is written, without what may be a secret."""
        if self.form in (None, "$V", "%V%", "${a:b | c:d}"):  # part of a password may look like one
            return f"something like {self.form}" if self.form else "something like ${...}"
        if self.form == "${V:-d}":
            return f"${{{self.sources[0][1]}:-...}}"
        return excerpt(self.written)


def parse(name: str, text: str) -> Iterator[str | Variable]:
    """The pieces of *text*, which is that of the field *name*: variables of all dialects, and what is between them."""
    start = _START_IN_URL if name == "url" else _START
    end = 0
    while found := start.search(text, end):
        if found.start() > end:
            yield text[end : found.start()]
        if found[0] != "${":
            end = found.end()
            form, scheme = _BARE[group := str(found.lastgroup)]
            yield Variable(form, ((scheme, found[group]),), found[0])
            continue
        close = _closing(text, found.end())
        if close is None:
            yield text[found.start() :]
            return
        inner, end = text[found.end() : close], close + 1
        yield _braced(inner, text[found.start() : end])
    if end < len(text):
        yield text[end:]


def _closing(text: str, start: int) -> int | None:
    """Where the brace that is open at *start* is closed; None if it is not. Other variables may be inside."""
    depth = 1
    for found in _BRACKET.finditer(text, start):
        depth += 1 if found[0] == "${" else -1
        if not depth:
            return found.start()
    return None


def _braced(inner: str, written: str) -> Variable:
    if "${" not in inner:  # no dialect has variables inside of others
        for form, pattern, scheme in _INNER:
            if found := pattern.fullmatch(inner):
                return Variable(form, _sources(form, scheme, found), written)
    return Variable(None, (), written)


def _sources(form: Form, scheme: Scheme, found: re.Match[str]) -> tuple[tuple[Scheme, str], ...]:
    if form == "${V:-d}":
        name, _, default = found[0].partition(":-")
        return ("env", name), ("value", default)
    if form != "${a:b | c:d}":
        return ((scheme, found[found.re.groups]),)
    sources: list[tuple[Scheme, str]] = []
    for source in found[0].split(" | "):
        name, _, rest = source.strip().partition(":")
        known: dict[str, Scheme] = {"env": "env", "input": "input", "value": "value"}
        sources.append((known[name], rest) if name in known else ("unsupported", name))
    return tuple(sources)


def own(piece: str | Variable, forms: frozenset[Form]) -> Variable | None:
    """*piece* if it is a variable that a dialect with these *forms* expands."""
    return piece if isinstance(piece, Variable) and piece.form in forms else None


class NotSet(Exception):
    """A variable has no value. The text says why. It does not leave this package."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """A value after expansion, and how to show it: with `HIDDEN` in the place of what may be a secret.

    *settled* is what the files say, with `HIDDEN` for what only the environment or an answer gives. An input may be left
    without an answer: if its variable has another source, *settled* has that.
    """

    text: ExpandedText
    shown: Secret
    settled: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What variables stand for, for one server."""

    forms: Callable[[str], frozenset[Form]]
    """The forms of variables in a field."""
    environment: Mapping[str, str] = field(repr=False)
    home: str
    workspace: str | None
    folder: Path
    """Relative paths are from here."""
    inputs: Mapping[str, Input]
    answers: Mapping[Input, str] = field(repr=False)
    files: dict[Path, str] = field(default_factory=dict, repr=False)
    """The texts of those that were read so far. They are not read again."""
    reads_more: bool = True
    """Whether others may be read. If a person has agreed to these, no answer can name another one."""
    real_paths: dict[Path, str] = field(default_factory=dict, repr=False)
    """Where folders and sockets are. Their links are not followed again."""
    links: dict[str, str | None] = field(default_factory=dict)
    """Where those that were read so far lead to, such as ``headers.X-Key: key.txt``; None if they are no links."""
    platform: str = sys.platform

    def expand(self, name: str, value: Value) -> Expansion | None:
        """The *value* of the field *name*. None: an optional one is not set.

        Raises:
            NotSet: A variable has no value.
        """
        if isinstance(value, EnvironmentVariable):
            if value.optional and self._variable(value.name) is None:
                return None
            text = self._environment(value.name, name)
            hidden = value.prefix + HIDDEN
            return Expansion(ExpandedText(value.prefix + text), Secret(hidden), Secret(hidden))
        forms = self.forms(name)
        texts, shown, settled, passwords, length = list[str](), list[str](), list[str](), list[str](), 0
        for piece, following in pairwise([*parse(name, value), ""]):
            text = as_shown = as_settled = written = _written(piece)
            if (variable := own(piece, forms)) is not None:
                text, (scheme, argument), is_secret = self._resolve(variable, name)
                if name == "url" and scheme == "input" and _names_host(texts, text, _written(following)):
                    raise NotSet(f"the input {quoted(argument)} would name another host: it has one of / \\ ? # @")
                as_shown = HIDDEN if is_secret else text
                passwords += [text] if is_secret and scheme == "input" else []
                as_settled = text if scheme in ("file", "value", "place") else self._settled(variable, name)
            length += max(len(written), len(text))
            if length > MAX_TEXT:
                raise NotSet(f"it becomes longer than {MAX_TEXT:,} characters")
            texts.append(text)
            shown.append(as_shown)
            settled.append(as_settled)
        return Expansion(ExpandedText("".join(texts), passwords), Secret("".join(shown)), Secret("".join(settled)))

    def read(self, name: str, path: str) -> str:
        """The text of the file that the field *name* is from. It blocks.

        Raises:
            NotSet: It cannot be read.
        """
        place = self.folder / path
        if (link := f"{name}: {path}") not in self.links:
            if not self.reads_more:  # the path has an answer, which may be a secret
                raise NotSet("it is not the file that was shown: no answer names another")
            if place not in self.files:
                if len(self.files) == MAX_FILES:
                    raise NotSet(f"its variables are from more than {MAX_FILES} files")
                self.files[place] = Secret(_read_small_file(place))
            target = os.path.realpath(place)
            self.links[link] = target if self._is_by_link(place, target) else None
        return str.__str__(self.files[place])

    @property
    def reads_project(self) -> bool:
        """Whether one of the files that were read is in the folder of the project, where its authors write."""
        return self.workspace is not None and any(self._in_project(place) for place in self.files)

    def real_path(self, name: str, path: str) -> str:
        """Where the folder or socket at *path*, which the field *name* has, is, with all links followed.

        Raises:
            NotSet: No path has such a name; or with an answer, it leads by a link of the project to what was not shown.
        """
        if not _can_be_path(path):
            raise NotSet("there can be no such name")
        place = self.folder / path
        if place not in self.real_paths:
            target = os.path.realpath(place)
            if not self.reads_more and self._in_project(place) and self._is_by_link(place, target):
                raise NotSet(f"with the answer, it leads by a link to {escaped(target)}, and may not be what was shown")
            self.real_paths[place] = target
        return self.real_paths[place]

    def _is_by_link(self, place: Path, target: str) -> bool:
        """Whether there is a link in *place*, which leads to *target*. One in the path of the folder that it is in does not count."""
        return target != os.path.normpath(self._in_project(place) or place)

    def _in_project(self, place: Path) -> Path | None:
        """*place* from where it enters the real folder of the project, which it may call ``/proc/self/cwd``; None if it does not."""
        project = os.path.realpath(self.folder)
        real_paths = accumulate(place.parts, lambda real, part: os.path.realpath(Path(real, part)))
        for count, real in enumerate(real_paths, 1):
            if Path(real).is_relative_to(project):
                return Path(real, *place.parts[count:])
        return None

    def _settled(self, variable: Variable, name: str) -> str:
        """What the files say in the place of a value that is not from them."""
        others = replace(variable, sources=tuple(each for each in variable.sources if each[0] != "input"))
        try:
            text, (scheme, _), _ = self._resolve(others, name)
        except NotSet:
            return HIDDEN
        return HIDDEN if scheme == "env" else text

    def _resolve(self, variable: Variable, name: str) -> tuple[str, tuple[Scheme, str], bool]:
        """The value, which of its sources it is from, and whether it may be a secret."""
        problem: NotSet | None = None
        for scheme, argument in variable.sources:
            try:
                text = self._value(scheme, argument, name)
            except NotSet as exc:
                problem = problem or exc
                continue
            if text or variable.form != "${a:b | c:d}":  # there, "the first that is not empty"
                is_hidden = scheme in ("env", "file") and name not in SHOWN
                return text, (scheme, argument), is_hidden or (scheme == "input" and self.inputs[argument].password)
        raise problem or NotSet("none of its sources has a value")

    def _value(self, scheme: Scheme, argument: str, name: str) -> str:
        match scheme:
            case "env":
                return self._environment(argument, name)
            case "value":
                return argument
            case "input":
                return self._answer(argument)
            case "file":
                path = f"{self.home}/{argument.removeprefix(OF_USER)}" if argument.startswith(OF_USER) else argument
                return self.read(name, path).strip()
            case "place":
                return self._place(argument)
            case "unsupported":
                raise NotSet(f"the source {quoted(argument)} of a value is not supported")
        assert_never(scheme)

    def _environment(self, variable: str, name: str) -> str:
        value = self._variable(variable)
        if value is None:
            raise NotSet(f"the environment has no variable {quoted(variable)}")
        if not value and name.startswith("headers."):
            raise NotSet(f"the variable {quoted(variable)} of the environment is empty")
        return value

    def _variable(self, name: str) -> str | None:
        """The value of a variable of the environment, if it is set. Windows knows no case: `os.environ` has PROGRAMFILES there."""
        if self.platform != "win32":
            return self.environment.get(name)
        return next((value for other, value in self.environment.items() if other.upper() == name.upper()), None)

    def _answer(self, id: str) -> str:
        asked = self.inputs.get(id)
        if asked is None:
            raise NotSet(f"the file has no input {quoted(id)}")
        if not asked.is_supported:
            raise NotSet(f"the input {quoted(id)} is of the type {quoted(asked.type)}, which is not supported")
        answer = self.answers.get(asked)
        if answer is None:
            raise NotSet(f"the input {quoted(id)} has no answer")
        return answer

    def _place(self, place: str) -> str:
        if place in ("pathSeparator", "/"):
            return os.sep
        if place == "userHome":
            return self.home
        if self.workspace is None:
            raise NotSet(f"${{{place}}} is not known: pass the folder of the project as workspace=")
        return self.workspace if place == "workspaceFolder" else Path(self.workspace).name


def _written(piece: str | Variable) -> str:
    return piece.written if isinstance(piece, Variable) else str.__str__(piece)


def _names_host(before: Sequence[str], answer: str, following: str) -> bool:
    """Whether an *answer* within a URL decides where its host is, which the text beside it seems to say."""
    if not _PARTS_HOST.search(answer) or _PAST_HOST.match(url := "".join(before)):
        return False
    return bool(url) or not _AFTER_BASE.match(following)


def _can_be_path(path: str) -> bool:
    """Whether the system can have such a path: not too long, with no NUL, and no half of a surrogate pair."""
    try:
        return b"\0" not in os.fsencode(path) and len(path) <= MAX_PATH
    except UnicodeEncodeError:
        return False


def _read_small_file(path: Path) -> str:
    reason = "there is no such file"
    try:
        content = LockedFile(path, max_size=MAX_FILE).read()
    except OSError as exc:
        content, reason = None, str(exc.strerror)
    except ValueError:
        content, reason = None, "there can be no such name"
    if content is None:
        raise NotSet(f"the file {escaped(str(path))} cannot be read: {reason}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    raise NotSet(f"the file {escaped(str(path))} cannot be read: {reason}")
