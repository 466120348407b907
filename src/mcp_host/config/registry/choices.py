"""One way to run a server of a registry or to connect to it: what that is, unexpanded, and what it asks its user."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from mcp_host.config.values import HttpServer, Input, StdioServer
from mcp_host.errors import RegistryError, escaped, excerpt
from mcp_host.secret import Secret, SecretValues

QuestionFormat: TypeAlias = Literal["string", "number", "boolean", "filepath"]

BOOLEANS = ("true", "false")
NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
URL = re.compile(r"https?://[\w.:\[\]-]+([/?#]|$)", re.IGNORECASE | re.ASCII)  # no user, and no other host's look


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A value that a server.json leaves to the user.

    *name* is that of the variable, header or argument, without the dashes of an option; no two of a server have the same.
    *default* is taken if there is no answer. Without both, a *required* one is an error, and any other is left out with
    what it is part of. *secret* ones are not to be shown. The answer has to be one of *choices*, if there are any. *placeholder*
    is an example. The answer to a *repeated* one has a line for each value.
    """

    name: str
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    format: QuestionFormat = "string"
    repeated: bool = False

    def input(self, path: Path, id: str | None = None) -> Input:
        """The question as an input of the file at *path*, for `ask_inputs`. Its id is the name by default."""
        return Input(
            path=path,
            id=id or self.name,
            type="pickString" if self.choices else "promptString",
            description=f"{self.description} (such as {self.placeholder})" if self.placeholder else self.description,
            default=self.default,
            password=self.secret,
            options=self.choices,
        )

    def problem(self, answer: str) -> str | None:
        """What is wrong with one value of an answer. It repeats no answer."""
        if self.choices and answer not in self.choices:
            return f"it must be one of {', '.join(excerpt(choice) for choice in self.choices)}"
        if self.format == "number" and not NUMBER.fullmatch(answer):
            return "it must be a number"
        return "it has a NUL character" if "\0" in answer else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An argument, variable of the environment, header or URL: *pieces* are text, and questions whose answers go between.

    *name* is that of the variable or header, or the option before the value. *field* is its place in the server.json. Without
    pieces, it is an option that has no value.
    """

    field: str
    name: str = ""
    pieces: tuple[str | Question, ...] = ()

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, Question))

    def has_secret(self, answers: Mapping[str, str]) -> bool:
        """Whether its value is not to be shown. What the registry itself says is none: all can read it, and it may decide what runs."""
        return any(question.secret and question.name in answers for question in self.questions)

    @property
    def template(self) -> str:
        """Its value with the names of questions in braces."""
        return "".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in self.pieces)

    def words(self, values: Sequence[str] | None = None) -> list[str]:
        """The words of an argument with *values*, by default its template. An option and its value are two, unless it ends in ``=``."""
        values = [self.template] if values is None else values
        if not self.name:
            return list(values)
        if not self.pieces:
            return [self.name]
        if self.name.endswith("="):
            return [self.name + value for value in values]
        return [word for value in values for word in (self.name, value)]

    def fill(self, answers: Mapping[str, str]) -> list[str]:
        """Its values: none if it is left out, and several if it is repeated.

        Raises:
            RegistryError: An answer is missing or wrong.
        """
        columns = {question.name: self._values(question, answers) for question in self.questions}
        count = min(map(len, columns.values()), default=1) and max(map(len, columns.values()), default=1)
        return [
            "".join(
                piece if isinstance(piece, str) else columns[piece.name][min(index, len(columns[piece.name]) - 1)]
                for piece in self.pieces
            )
            for index in range(count)
        ]

    def _values(self, question: Question, answers: Mapping[str, str]) -> list[str]:
        answer = answers.get(question.name, question.default)
        if not answer and question.required:
            raise RegistryError(f"{excerpt(question.name)} has no value, and is required", field=self.field)
        if answer is None:
            return []
        values = answer.split("\n") if question.repeated else [answer]
        for value in values:
            if problem := question.problem(value):
                raise RegistryError(
                    f"the answer to {excerpt(question.name)} cannot be used: {problem}", field=self.field
                )
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedServer:
    """A server whose questions are answered.

    *secrets* are the fields that have a secret answer: "url", or such as "env.API_KEY", "headers.Authorization", "args[3]".
    """

    transport: StdioServer | HttpServer
    secrets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandParts:
    """The command line and environment of a package. With *names_environment*, the command passes on what ``-e NAME`` names."""

    command: str
    runtime: tuple[Part, ...]
    package: tuple[Part, ...]
    env: tuple[Part, ...] = ()
    names_environment: bool = False

    @property
    def shown(self) -> str:
        words = [word for part in self.runtime for word in part.words()]
        words += [word for part in self.env for word in self._named(part.name)]
        words += [word for part in self.package for word in part.words()]
        return shlex.join([self.command, *words])

    def fill(self, answers: Mapping[str, str]) -> PreparedServer:
        args: list[Secret] = []
        secrets: set[str] = set()

        def add(parts: tuple[Part, ...]) -> None:
            for part in parts:
                words = part.words(part.fill(answers))
                if part.has_secret(answers):
                    secrets.update(
                        f"args[{len(args) + index}]" for index, word in enumerate(words) if word != part.name
                    )
                args.extend(map(Secret, words))

        env = {part.name: Secret(value) for part in self.env for value in part.fill(answers)}
        add(self.runtime)
        args += [Secret(word) for name in env for word in self._named(name)]
        add(self.package)
        secrets |= {f"env.{part.name}" for part in self.env if part.has_secret(answers) and part.name in env}
        server = StdioServer(self.command, tuple(args), SecretValues(env))
        return PreparedServer(transport=server, secrets=frozenset(secrets))

    def _named(self, variable: str) -> tuple[str, ...]:
        return ("-e", variable) if self.names_environment else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlParts:
    """The URL and headers of a server that is reached over HTTP."""

    url: Part
    headers: tuple[Part, ...] = ()

    @property
    def shown(self) -> str:
        return self.url.template

    def fill(self, answers: Mapping[str, str]) -> PreparedServer:
        [url] = self.url.fill(answers)
        if not URL.match(url):
            raise RegistryError("it is no plain http(s) URL", field=self.url.field)
        headers = {part.name: Secret(value) for part in self.headers for value in part.fill(answers)}
        secrets = {f"headers.{part.name}" for part in self.headers if part.has_secret(answers) and part.name in headers}
        secrets |= {"url"} if self.url.has_secret(answers) else set()
        return PreparedServer(transport=HttpServer(Secret(url), SecretValues(headers)), secrets=frozenset(secrets))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChoice:
    """A package of a server, or a URL where it runs.

    *kind* is the type of the package's registry: "npm", "pypi", "oci", "nuget"; or "remote". *name* is the package, image or
    URL. If *problem* is set, it says why this one cannot be used. *warnings* say what is not obeyed or deserves a look.
    *questions* are what `prepare` takes answers to, by name.
    """

    kind: str
    name: str
    parts: CommandParts | UrlParts | None = None
    questions: tuple[Question, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def shown(self) -> str:
        """Its command line or URL, with the names of questions in braces. Nothing else is started."""
        return "" if self.parts is None else escaped(self.parts.shown)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of the environment or headers that it sets, with the names of questions in braces."""
        parts = self.parts.env if isinstance(self.parts, CommandParts) else self.parts.headers if self.parts else ()
        return {part.name: part.template for part in parts}

    def prepare(self, answers: Mapping[str, str]) -> PreparedServer:
        """The server with *answers* to its questions, by their names. What an answer has in braces stays.

        Raises:
            RegistryError: An answer is missing or wrong, or the choice has a *problem*.
        """
        if self.parts is None:
            raise RegistryError(self.problem or "it cannot be used")
        return self.parts.fill(answers)
