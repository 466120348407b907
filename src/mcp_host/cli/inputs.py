"""Asking at the terminal for what a file of servers leaves open: keys, and choices among words."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from mcp_host.cli.options import NAME
from mcp_host.config import AnswerStore, Input
from mcp_host.errors import excerpt
from mcp_host.terminal.device import MAX_UNCLEAR, NoTerminal, checked_line, open_terminal
from mcp_host.terminal.text import NAME_SHOWN, Layout, Rows, clean, width

TEXT_SHOWN = 600  # characters of a description
DEFAULT_SHOWN = 400  # columns of a default that Enter takes
CHOICES_SHOWN = 40


class KeyringAnswers:
    """The keyring of the person, for answers. What it does not keep is asked for again; so is all of it, if it *asks_again*."""

    def __init__(self, keyring: AnswerStore | None = None, *, asks_again: bool = False) -> None:
        self._keyring = keyring
        self._asks_again = asks_again

    @classmethod
    def of_person(cls, *, asks_again: bool = False) -> KeyringAnswers | None:
        """None: the library for it is not installed."""
        return None if find_spec("keyring") is None else cls(asks_again=asks_again)

    def has_keyring(self) -> bool:
        """Whether there is one for the library to use: without a desktop, Linux often has none."""
        if self._keyring is not None:
            return True
        import keyring
        from keyring.backends import fail, null

        try:
            return not isinstance(keyring.get_keyring(), fail.Keyring | null.Keyring)
        except Exception:  # of the modules that its settings name
            return False

    async def load(self, key: str) -> str | None:
        from mcp_host.auth import TokensError

        try:
            return None if self._asks_again else await self._opened().load(key)
        except TokensError:
            return None

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        from mcp_host.auth import TokensError

        try:
            if self._asks_again:
                old = await self._opened().load(key)
            return await self._opened().swap(key, old, new)
        except TokensError:
            return False

    async def forget(self, keys: Iterable[str]) -> None:
        """Keep no answer any more for these inputs."""
        for key in keys:
            if (answer := await self.load(key)) is not None:
                await self.swap(key, answer, None)

    def _opened(self) -> AnswerStore:
        if self._keyring is None:
            from mcp_host.auth import KeyringTokens  # here, because importing it takes a while

            self._keyring = KeyringTokens(NAME)
        return self._keyring


async def ask_for_input(wanted: Input) -> str | None:
    """Ask for an input of a file; a password is not shown. None if there is no answer, or no terminal to ask in."""
    try:
        async with open_terminal() as terminal:
            await terminal.show(_rows(wanted, terminal.layout))
            for _ in range(MAX_UNCLEAR):
                line = await terminal.ask("> ", hidden=wanted.password)
                if line is None:
                    return None
                try:
                    return typed_answer(wanted, line)
                except ValueError as exc:
                    await terminal.show(terminal.layout.ours(str(exc), "yellow"))
    except NoTerminal:
        pass
    return None


def typed_answer(wanted: Input, line: str) -> str:
    """The answer in a line that was typed; Enter alone takes the default.

    Raises:
        ValueError: It is none.
    """
    answer = checked_line(line) or _offered(wanted)
    if not answer:
        raise ValueError("Nothing was typed. Ctrl-D leaves it out.")
    if not wanted.accepts(answer):
        raise ValueError("Type one of the words above.")
    return answer


def _rows(wanted: Input, layout: Layout) -> Rows:
    yield ""
    yield from layout.ours("A file of servers asks for a value", "bold")
    yield from layout.theirs(f" in {wanted.path}", lead=excerpt(wanted.id, NAME_SHOWN), hang=4)
    yield from described(wanted, layout)


def described(wanted: Input, layout: Layout) -> Rows:
    """What is known of an input besides its name."""
    if wanted.description:
        yield from layout.theirs(excerpt(wanted.description, TEXT_SHOWN))
    if wanted.options:
        yield from layout.ours("one of", "cyan")
        yield from layout.cut(layout.theirs("\n".join(wanted.options)), CHOICES_SHOWN)
    if wanted.default is not None:
        is_offered = wanted.default == _offered(wanted)
        yield from layout.ours(
            "Enter takes" if is_offered else "The default, which is too long for Enter to take", "cyan"
        )
        yield from layout.theirs(excerpt(wanted.default, DEFAULT_SHOWN))
    if wanted.password:
        yield from layout.ours("What you type is not shown.", "dim")


def _offered(wanted: Input) -> str:
    """What Enter takes: the default, if all of it is in sight, which could be a command. A person can type more."""
    default = wanted.default or ""
    return default if "\n" not in default and width(clean(default)) <= DEFAULT_SHOWN else ""
