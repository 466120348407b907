"""The key of ``--model``: from the environment, a file that only its user reads, or the keyring."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import keyring
import keyring.errors
import pytest
from keyring.core import load_keyring

from mcp_host.cli.arguments import parse
from mcp_host.cli.inputs import KeyringAnswers
from mcp_host.cli.keys import MAX_KEY_SIZE, key_in_file, key_in_keyring
from mcp_host.cli.models import make_model
from mcp_host.cli.output import UsageError
from mcp_host.providers.lookup import PROVIDERS, KeyNotFound
from tests.auth.file_keyring import FileKeyring
from tests.cli.conftest import Run

OF_PERSON = KeyringAnswers.of_person  # the tests of the command have none
CANARY = "sk-canary"
MODEL = "anthropic:claude-sonnet-5"
MISSING = KeyNotFound(PROVIDERS["anthropic"])
WHERE = (
    "the SDK anthropic finds no key: set the environment variable ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN,"
    " give --api-key-file FILE, or store it: keyring set mcp-host ANTHROPIC_API_KEY"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.touch(0o600)
    return file


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileKeyring]:
    """The person's keyring."""
    folder = tmp_path / "ring"
    folder.mkdir()
    monkeypatch.setattr(KeyringAnswers, "of_person", OF_PERSON)
    ring = FileKeyring(str(folder))
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(load_keyring("keyring.backends.fail.Keyring"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The keys that an SDK has been given. It finds one in the environment, too."""
    keys: list[str | None] = []

    async def create() -> None: ...  # pragma: no cover

    def client(*, api_key: str | None = None) -> object:
        found = api_key or os.environ.get("ANTHROPIC_API_KEY")
        if found:
            keys.append(found)
        return SimpleNamespace(api_key=found, messages=SimpleNamespace(create=create))

    monkeypatch.setitem(sys.modules, "anthropic", SimpleNamespace(AsyncAnthropic=client))
    for name in PROVIDERS["anthropic"].keys:
        monkeypatch.delenv(name, raising=False)
    return keys


def make(*argv: str) -> None:
    make_model(parse(["call", "http://x", "t", "--model", MODEL, *argv]))


def test_the_key_of_a_file_is_its_only_line(file: Path, subtests: pytest.Subtests) -> None:
    for content in (CANARY, f"{CANARY}\n", f"{CANARY}\r\n", f" {CANARY}\n\n"):
        with subtests.test(content):
            file.write_text(content)
            key = key_in_file(file)
            assert (key, repr(key)) == (CANARY, "'**********'")


def test_a_file_without_a_key_is_named_and_not_what_is_in_it(file: Path, subtests: pytest.Subtests) -> None:
    no_key = f"{file} has to have a key and nothing else: one line without blanks, in ASCII"
    contents: list[tuple[bytes, str]] = [
        (b"", f"{file} is empty"),
        (b"\r\n", f"{file} is empty"),
        (f"{CANARY}\n{CANARY}\n".encode(), no_key),
        (f"{CANARY}\0".encode(), no_key),
        (CANARY.encode("utf-8-sig"), no_key),
        (CANARY.encode("utf-16"), no_key),
        (CANARY.encode() * MAX_KEY_SIZE, f"{file} cannot be read: it has more than {MAX_KEY_SIZE} bytes"),
    ]
    for content, says in contents:
        with subtests.test(says, content=content[:30]):
            file.write_bytes(content)
            with pytest.raises(UsageError) as caught:
                key_in_file(file)
            assert (str(caught.value), caught.value.__cause__) == (f"--api-key-file: {says}", None)


def test_what_is_no_file_of_a_key_is_named(tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, says in (
        ("none", "there is no file {}"),
        ("folder", "{} cannot be read: Is a directory"),
        ("pipe", "{} cannot be read: it is not a regular file"),
    ):
        with subtests.test(name), pytest.raises(UsageError) as caught:
            key_in_file(tmp_path / name)
        assert str(caught.value) == f"--api-key-file: {says.format(tmp_path / name)}"


def test_a_file_that_other_users_may_read_is_refused(file: Path, subtests: pytest.Subtests) -> None:
    file.write_text(CANARY)
    for mode in (0o640, 0o604, 0o644, 0o660):
        file.chmod(mode)
        with subtests.test(oct(mode)), pytest.raises(UsageError) as caught:
            key_in_file(file)
        assert str(caught.value) == (
            f"--api-key-file: other users may read {file}: allow it to yourself only, with chmod 600"
        )
    file.chmod(0o400)
    assert key_in_file(file) == CANARY


def test_the_file_may_be_in_the_folder_of_the_person_and_a_link(home: Path, file: Path) -> None:
    """Hosts start servers without a shell, which would know what ``~`` is."""
    file.write_text(CANARY)
    (home / "link").symlink_to(file)

    assert key_in_file(Path("~/link")) == CANARY


COMMANDS = (["call", "http://x", "t"], ["read", "http://x", "a:b"], ["prompt", "http://x", "p"], ["chat", "http://x"])


def test_each_command_with_a_model_takes_a_file(
    run: Run, file: Path, keys: list[str | None], subtests: pytest.Subtests
) -> None:
    for command in (*COMMANDS, ["proxy", "http://x"], ["demo"]):
        with subtests.test(command[0]):
            done = run(*command, "--model", MODEL, "--api-key-file", str(file), prompt="Hello")
            assert done == (2, "", f"mcp-host: --api-key-file: {file} is empty\n")
    for model in ([], ["--model", "arithmetic"]):
        code, _, err = run("call", "http://x", "t", "--api-key-file", str(file), *model)
        assert (code, "--api-key-file is for a --model of a provider" in err) == (2, True)
    assert keys == []


def test_a_file_comes_before_the_environment_and_that_before_the_keyring(
    file: Path, ring: FileKeyring, keys: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("of-file\n")
    ring.set_password("mcp-host", "ANTHROPIC_API_KEY", "of-keyring\n")
    make()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-environment")
    make()
    make("--api-key-file", str(file))

    assert keys == ["of-keyring", "of-environment", "of-file"]


def test_without_a_key_the_places_for_one_are_named(
    ring: FileKeyring, keys: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value) == WHERE
    keyring.set_keyring(load_keyring("keyring.backends.fail.Keyring"))
    with pytest.raises(UsageError) as caught:
        make()
    assert str(caught.value) == WHERE
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "keyring", None)
        with pytest.raises(UsageError) as caught:
            make()
    assert str(caught.value) == f"{WHERE} (the keyring needs pip install 'mcp-host[oauth]')"


def test_a_keyring_that_fails_is_named_without_what_it_says(
    ring: FileKeyring, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    name = "the keyring (file keyring FileKeyring)"
    for error, says in (
        (keyring.errors.KeyringLocked("Failed to unlock the collection!"), "Failed to unlock the collection!"),
        (TimeoutError(CANARY), "TimeoutError"),
    ):

        def fail(*_: str, error: Exception = error) -> str:
            raise error

        monkeypatch.setattr(FileKeyring, "get_password", fail)
        with subtests.test(says), pytest.raises(UsageError) as caught:
            key_in_keyring(MISSING)
        assert str(caught.value) == f"{WHERE} ({name} fails: {says})"


@pytest.mark.parametrize(("entry", "says"), [(f"{CANARY} {CANARY}", "has to have a key"), ("", "is empty")])
def test_an_entry_that_is_no_key_is_named_and_not_what_is_in_it(ring: FileKeyring, entry: str, says: str) -> None:
    ring.set_password("mcp-host", "ANTHROPIC_API_KEY", entry)

    with pytest.raises(UsageError, match=f"^the entry ANTHROPIC_API_KEY of mcp-host in the keyring {says}") as caught:
        key_in_keyring(MISSING)
    assert CANARY not in str(caught.value)


def test_a_keyring_that_gives_no_answer_keeps_neither_the_command_nor_its_process(
    ring: FileKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unlocking without a desktop may hang."""
    asked, answered = threading.Event(), threading.Event()
    waiting: list[threading.Thread] = []

    def hang(*_: str) -> None:
        waiting.append(threading.current_thread())
        asked.set()
        answered.wait()

    monkeypatch.setattr(FileKeyring, "get_password", hang)
    with pytest.raises(UsageError) as caught:
        key_in_keyring(MISSING, wait=0)
    assert str(caught.value) == f"{WHERE} (the keyring gives no answer within 0 s)"

    assert asked.wait(25)
    assert waiting[0].daemon
    answered.set()
    waiting[0].join(25)
