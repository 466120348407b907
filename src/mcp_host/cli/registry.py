"""Adding a server of a registry: what it would run or connect to, its questions, and what a file gets of the answers."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mcp_host.cli.inputs import KeyringAnswers, described, typed_answer
from mcp_host.cli.options import Options
from mcp_host.cli.output import Printer, UsageError, near, print_error
from mcp_host.concurrency.locked_file import expand_home
from mcp_host.config import HttpServer, Input, StdioServer
from mcp_host.config.registry import PUBLIC_REGISTRY, PreparedServer, Question, Registry, RegistryServer, ServerChoice
from mcp_host.config.registry.client import LATEST
from mcp_host.config.registry.references import References
from mcp_host.config.secret_words import HIDDEN
from mcp_host.config.values import Value
from mcp_host.errors import escaped, excerpt, quoted
from mcp_host.secret import Secret
from mcp_host.terminal.device import NoTerminal, Terminal, open_terminal
from mcp_host.terminal.text import Layout, Rows

ROWS_SHOWN = 12  # of a description
LEAVES_OUT = "Enter alone leaves it out."
NO_MORE = "It may have several values. Enter alone: no more."
YES = {**dict.fromkeys(("y", "yes"), True), **dict.fromkeys(("n", "no", ""), False)}
ANSWERS_MISSING = (
    "there is no terminal to ask in: pass -e NAME=VALUE, or -e NAME for a variable of the environment, for"
)
ID = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


class Cancelled(Exception):
    """The person has pressed Ctrl-D."""


async def add_from_registry(
    options: Options, name: str, file: Path, write: Callable[[StdioServer | HttpServer], None]
) -> bool:
    """Show the server *name* of a registry, ask its questions, and *write* it into *file*. Returns whether the person wants it.

    Raises:
        UsageError: The registry's URL or an answer cannot be used, one is missing, or the server has nothing that can be used.
        RegistryError, ConnectionClosed, HttpStatusError, McpTimeout: As `Registry.get_server`.
        ConfigError: It cannot be written.
    """
    try:
        registry = Registry(options.registry or PUBLIC_REGISTRY)
    except ValueError as exc:
        raise UsageError(f"--registry: {exc}") from exc
    server = await registry.get_server(name, options.version or LATEST)
    choice = _chosen(server, options.package)
    for text in (*server.notices, *choice.warnings):
        print_error(f"warning: {text}")
    answers = _Answers(options, name, file, choice)
    if not sys.stdin.isatty():
        answers.check_complete()
        result = answers.server()
        if not options.json:
            printer = Printer(sys.stdout)
            printer.rows(_written(result, answers.secrets, printer.layout))
        write(result.transport)
        return True
    try:
        async with open_terminal() as terminal:
            await terminal.show(_described(server, choice, terminal.layout))
            await answers.ask(terminal)
            result = answers.server()
            await terminal.show(_written(result, answers.secrets, terminal.layout))
            if not options.yes and not await terminal.choose(f"Write this into {file}?", "y/N", YES):
                return False
            write(result.transport)
            await answers.keep()
            return True
    except NoTerminal as exc:
        raise UsageError(str(exc)) from exc
    except Cancelled:
        return False


def _chosen(server: RegistryServer, kind: str | None) -> ServerChoice:
    """The first choice of this *kind* that can be used, in the registry's order."""
    found = [choice for choice in server.usable if kind in (None, choice.kind)]
    if found:
        return found[0]
    what = "package or URL" if kind is None else f"choice for --package {kind}"
    reasons = [f"{choice.kind}: {choice.problem or choice.shown}" for choice in server.choices]
    raise UsageError("\n".join([f"{quoted(server.name)} has no {what} that can be used", *map(excerpt, reasons)]))


class _Answers:
    """The answers to the questions of a choice: those that were given, and those that a person types."""

    def __init__(self, options: Options, server: str, file: Path, choice: ServerChoice) -> None:
        self._name = options.operand
        self._file = file
        self._keeps_inputs = options.config is None  # the user's own file has ``${input:id}``, kept in the keyring
        self._choice = choice
        self._references = References()
        self._answers: dict[str, str] = {}
        self._store: KeyringAnswers | None = None
        self._kept: dict[Input, str] = {}
        questions = {question.name: question for question in choice.questions}
        for name, value in options.env:
            if name not in questions:
                raise UsageError(f"{quoted(server)} asks for no {quoted(name)}{near(name, questions)}")
            answer = self._references.answer(f"${{{name}}}") if value is None else value
            again = questions[name].repeated and name in self._answers
            self._answers[name] = f"{self._answers[name]}\n{answer}" if again else answer
        self._left = [question for question in choice.questions if question.name not in self._answers]

    def check_complete(self) -> None:
        """Check that nothing has to be asked for.

        Raises:
            UsageError: It lists what.
        """
        missing = [question for question in self._left if question.required and question.default is None]
        if missing:
            lines = [f"{each.name} ({each.description})" if each.description else each.name for each in missing]
            raise UsageError("\n".join([ANSWERS_MISSING, *map(excerpt, lines)]))

    async def ask(self, terminal: Terminal) -> None:
        """Ask for what was not given. Secrets go to the keyring, or else stay in the environment."""
        if self._keeps_inputs and any(question.secret for question in self._left):
            keyring = KeyringAnswers.of_person()
            self._store = keyring if keyring is not None and keyring.has_keyring() else None
        for question in self._left:
            if not question.secret:
                if values := await _typed(terminal, question, question.input(self._file)):
                    self._answers[question.name] = "\n".join(values)
            elif self._store is not None:
                await self._ask_for_secret(terminal, question)
            else:
                await terminal.show(terminal.layout.ours(self._refer_to_environment(question), "yellow"))

    async def _ask_for_secret(self, terminal: Terminal, question: Question) -> None:
        name = question.name if ID.fullmatch(question.name) else f"question{self._left.index(question)}"
        asked = question.input(self._file, f"{self._name}.{name}")
        if answer := await _ask(terminal, question, asked):
            self._kept[asked] = answer
            self._answers[question.name] = self._references.answer(f"${{input:{asked.id}}}")

    def _refer_to_environment(self, question: Question) -> str:
        """What becomes of a secret that has nowhere to be kept, as a sentence."""
        about = f"{escaped(question.name)} is a secret, which is not kept here:"
        if not question.required:
            return f"{about} it is left out, since it is optional. To have it, pass -e NAME or -e NAME=VALUE."
        # Not a variable that the registry names: it could be one that has another server's secret.
        variable = re.sub(r"\W", "_", f"{self._name}_{question.name}", flags=re.ASCII).upper()
        self._answers[question.name] = self._references.answer(f"${{{variable}}}")
        return f"{about} it is read from the variable {variable} of the environment."

    def server(self) -> PreparedServer:
        """The server with the answers, and references in the place of what is kept elsewhere.

        Raises:
            RegistryError: An answer is wrong, or the registry's text is none that a file can have.
        """
        return self._references.written(self._choice.prepare(self._answers))

    @property
    def secrets(self) -> Sequence[str]:
        """The answers that are not to be shown. One may be part of another, so the longest are first."""
        given = [(each, self._answers.get(each.name, "")) for each in self._choice.questions if each.secret]
        values = [value for each, answer in given for value in (answer.split("\n") if each.repeated else [answer])]
        return sorted(filter(None, values), key=len, reverse=True)

    async def keep(self) -> None:
        """Keep the secrets that were typed."""
        for asked, answer in self._kept.items():
            assert self._store is not None, "only then a secret is asked for"
            if not await self._store.swap(asked.key, await self._store.load(asked.key), answer):
                print_error(
                    f"warning: the keyring does not keep {asked.id}: it is asked for when the server is started"
                )


async def _typed(terminal: Terminal, question: Question, asked: Input) -> list[str]:
    """What a person types: for a repeated question one value after the other, until Enter alone."""
    values: list[str] = []
    while not values or question.repeated:
        answer = await _ask(terminal, question, asked, again=bool(values))
        if not answer:
            break
        values.append(_absolute(answer) if question.format == "filepath" and answer != asked.default else answer)
        asked = replace(asked, default=None)
    return values


async def _ask(terminal: Terminal, question: Question, asked: Input, *, again: bool = False) -> str | None:
    """The answer to a question, until it fits. None: it is left out, or with *again* there is no more.

    Raises:
        Cancelled: The person pressed Ctrl-D.
    """
    required = question.required and not again
    without = "" if required or asked.default is not None else NO_MORE if again else LEAVES_OUT
    await terminal.show(_question(question, asked, without, terminal.layout))
    while True:
        line = await terminal.ask("> ", hidden=asked.password)
        if line is None:
            raise Cancelled
        if not line and asked.default is None and not required:
            return None
        try:
            return _fitting(question, asked, line)
        except ValueError as exc:
            await terminal.show(terminal.layout.ours(str(exc), "yellow"))


def _fitting(question: Question, asked: Input, line: str) -> str:
    """The answer in a line that was typed.

    Raises:
        ValueError: It does not fit.
    """
    if not line and asked.default is None:
        raise ValueError("This value is required. Ctrl-D cancels.")
    answer = typed_answer(asked, line)
    if problem := question.problem(answer):
        raise ValueError(f"This cannot be used: {problem}.")
    return answer


def _question(question: Question, asked: Input, without: str, layout: Layout) -> Rows:
    yield ""
    yield from layout.cut(layout.theirs(question.name, style="bold"), 1)
    yield from described(asked, layout)
    yield from layout.ours(without, "dim") if without else ()


def _absolute(path: str) -> str:
    """A path for a server, which is started in another folder."""
    return os.path.abspath(expand_home(path))


def _described(server: RegistryServer, choice: ServerChoice, layout: Layout) -> Rows:
    """What the registry says of the server, and what it would run or connect to."""
    yield from layout.cut(layout.theirs(f"{server.name} {server.version}", style="bold"), ROWS_SHOWN)
    for text in filter(None, (server.title, server.description, server.repository)):
        yield from layout.cut(layout.theirs(text), ROWS_SHOWN)
    others = ", ".join(dict.fromkeys(each.kind for each in server.usable if each.kind != choice.kind))
    more = f" (there is also --package {others})" if others else ""
    heading = f"The {'URL' if choice.kind == 'remote' else f'{choice.kind} package'}{more}:"
    yield from _lines(heading, choice.shown, choice.environment, layout)


def _written(prepared: PreparedServer, secrets: Sequence[str], layout: Layout) -> Rows:
    """What is written into the file, without the *secrets*. All else is shown: the registry has written it, and it may decide what runs."""

    def shown(field: str, value: Value) -> Secret:
        text = str(value)
        for secret in secrets if field in prepared.secrets else ():
            text = text.replace(secret, HIDDEN)
        return Secret(text)

    server = prepared.transport.map(shown)
    yield ""
    if isinstance(server, StdioServer):
        command = shlex.join([server.command, *server.args])
        yield from _lines("This command is started for it:", command, server.env, layout)
    else:
        yield from _lines("It is at this URL:", str.__str__(server.url), server.headers, layout)


def _lines(heading: str, shown: str, values: Mapping[str, object], layout: Layout) -> Rows:
    """The values come first: however many they are, what is started is in sight when a person is asked."""
    if values:
        yield from layout.ours("It gets these values:")
    for name, value in values.items():
        yield from layout.theirs(f"{name}={value}", hang=2)
    yield from layout.ours(heading)
    yield from layout.theirs(shown, hang=2)
