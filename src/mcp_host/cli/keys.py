"""The key of the model where the environment has none: in a file that only its user reads, or in the keyring."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from mcp_host.cli.inputs import KeyringAnswers
from mcp_host.cli.options import NAME
from mcp_host.cli.output import UsageError
from mcp_host.concurrency.locked_file import LockedFile, expand_home
from mcp_host.secret import Secret

if TYPE_CHECKING:
    from mcp_host.providers.lookup import KeyNotFound  # imported on demand

MAX_KEY_SIZE = 65_536  # bytes of a file with a key
KEYRING_WAIT = 60.0  # seconds; its person may be asked to unlock it, and hosts wait about as long for a server
KEY = re.compile(r"[!-~]+")  # what a header can have
NO_KEY = "has to have a key and nothing else: one line without blanks, in ASCII"


def key_in_file(path: Path) -> Secret:
    """The key in the file at *path*.

    Raises:
        UsageError: There is none, or other users may read it. The text names the file, and nothing of what is in it.
    """
    file = LockedFile(expand_home(path), private=True, max_size=MAX_KEY_SIZE)
    try:
        content = file.read()
    except OSError as exc:
        raise UsageError(f"--api-key-file: {file.path} cannot be read: {exc.strerror}") from None
    if content is None:
        raise UsageError(f"--api-key-file: there is no file {file.path}")
    if file.exposed:
        raise UsageError(f"--api-key-file: other users may read {file.path}: allow it to yourself only, with chmod 600")
    return _checked(content.decode("ascii", "replace"), f"--api-key-file: {file.path}")


def key_in_keyring(missing: KeyNotFound, *, wait: float = KEYRING_WAIT) -> Secret:
    """The key in the keyring, for an SDK that has found none. It blocks, for *wait* seconds at most.

    Raises:
        UsageError: There is none, or the keyring cannot be used. The text says where a key can be.
    """
    from mcp_host.auth import TokensError  # here, because importing it takes a while

    name = missing.variables[0]
    answer = Future[str | None]()
    Thread(
        target=_look_up, args=(name, answer), daemon=True
    ).start()  # an unlocking that hangs does not keep the process
    try:
        found = answer.result(wait)
    except TimeoutError:
        problem = f"the keyring gives no answer within {wait:g} s"
    except TokensError as exc:
        problem = str(exc)
    else:
        if found is not None:
            return _checked(found, f"the entry {name} of {NAME} in the keyring")
        is_installed = KeyringAnswers.of_person() is not None
        problem = "" if is_installed else "the keyring needs pip install 'mcp-host[oauth]'"
    where = f"{missing}, give --api-key-file FILE, or store it: keyring set {NAME} {name}"
    raise UsageError(f"{where} ({problem})" if problem else where)


def _look_up(name: str, answer: Future[str | None]) -> None:
    try:
        keyring = KeyringAnswers.of_person()
        if keyring is None or not keyring.has_keyring():
            answer.set_result(None)
            return
        from mcp_host.auth.storage.keyring_tokens import password

        answer.set_result(password(NAME, name))
    except Exception as exc:  # for the thread that waits
        answer.set_exception(exc)


def _checked(text: str, place: str) -> Secret:
    """The key in *text*, perhaps with the end of a line after it."""
    key = Secret(text.strip())
    if not KEY.fullmatch(key):
        raise UsageError(f"{place} {NO_KEY if key else 'is empty'}")
    return key
