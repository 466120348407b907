"""The stores of tokens: what each of them promises, then what a file and a keyring add."""

from __future__ import annotations

import json
import logging
import os
import pwd
import stat
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import anyio
import keyring
import keyring.errors
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from keyring.core import load_keyring

from mcp_host.auth.errors import TokensError
from mcp_host.auth.storage.file_tokens import FileTokens
from mcp_host.auth.storage.keyring_tokens import KeyringTokens
from mcp_host.auth.storage.stores import MemoryTokens, TokenStore
from mcp_host.auth.storage.turns import Turns
from mcp_host.concurrency.asking import paused_by_asking
from mcp_host.concurrency.locked_file import LockTimeout, file_lock
from tests.auth.file_keyring import FileKeyring, entries
from tests.auth.rotating import KEY, rotate
from tests.extent import THOROUGH, on_both

SECRET = '{"access_token": "canary-\u00e9\U0001f511"}'
LONG = json.dumps({"access_token": "canary" * 1_000})

Open: TypeAlias = Callable[[], TokenStore]


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a keyring is kept in."""
    folder = tmp_path / "ring"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    keyring.set_keyring(FileKeyring(str(folder)))
    yield folder
    keyring.set_keyring(load_keyring("keyring.backends.fail.Keyring"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture(params=["memory", "file", "keyring"])
def open_store(request: pytest.FixtureRequest, file: Path, ring: Path) -> Open:
    """Opens the store, as another process would, but for the one in memory."""
    memory = MemoryTokens()
    stores: dict[str, Open] = {
        "memory": lambda: memory,
        "file": lambda: FileTokens(file),
        "keyring": lambda: KeyringTokens("my-host"),
    }
    return stores[request.param]


# What each of them promises


async def test_a_value_changes_only_if_it_still_is_the_old_one(open_store: Open) -> None:
    steps = [
        ("absent", None, False),
        (None, None, True),
        (None, SECRET, True),
        (None, "other", False),
        ("other", LONG, False),
        (SECRET, SECRET, True),
        (SECRET, LONG, True),
        (SECRET, None, False),
        (LONG, "", True),
        (None, "other", False),
        ("", None, True),
    ]
    value = None
    for old, new, changes in steps:
        assert await open_store().swap(KEY, old, new) is changes
        value = new if changes else value
        assert await open_store().load(KEY) == value
        assert await open_store().load("another key") is None


@on_both
async def test_a_value_is_taken_once(open_store: Open) -> None:
    store, taken = open_store(), list[str | None]()
    assert await store.take(KEY) is None
    assert await store.swap(KEY, None, LONG)

    async def take(own: TokenStore) -> None:
        taken.append(await own.take(KEY))

    async with anyio.create_task_group() as tasks:
        for own in (store, store, open_store(), open_store()):
            tasks.start_soon(take, own)

    assert sorted(taken, key=str) == [None, None, None, LONG]
    assert await store.load(KEY) is None


@on_both
async def test_tasks_that_rotate_at_the_same_time_lose_no_rotation(open_store: Open) -> None:
    store = open_store()
    async with anyio.create_task_group() as tasks:
        for own in [store] * 6 + [open_store()] * 2:
            for _ in range(3):
                tasks.start_soon(rotate, own)

    assert await store.load(KEY) == "24"


def test_threads_with_an_event_loop_each_share_a_store(open_store: Open) -> None:
    store = open_store()
    backends = ["asyncio", "trio", "asyncio", "trio"]
    threads = [threading.Thread(target=lambda name=name: anyio.run(rotate, store, backend=name)) for name in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert anyio.run(store.load, KEY) == "4"


async def test_no_value_is_in_the_text_of_a_store(open_store: Open, file: Path) -> None:
    store = open_store()
    await store.swap(KEY, None, SECRET)

    assert repr(store) in {"MemoryTokens()", f"FileTokens({str(file)!r})", "KeyringTokens('my-host')"}


KEYS = st.sampled_from(["a", "b"]) | st.text(max_size=3)
VALUES = st.none() | st.text(max_size=5)


@given(st.lists(st.tuples(KEYS, VALUES, VALUES, st.booleans()), max_size=12))
@settings(max_examples=200 if THOROUGH else 20)
def test_a_file_and_memory_are_as_a_dictionary(changes: list[tuple[str, str | None, str | None, bool]]) -> None:
    async def compare(store: TokenStore) -> None:
        expected = dict[str, str]()
        for key, guess, new, taken in changes:
            old = guess if taken else expected.get(key)
            assert await store.swap(key, old, new) is (expected.get(key) == old)
            if expected.get(key) == old:
                expected.pop(key, None)
                expected |= {} if new is None else {key: new}
            assert await store.load(key) == expected.get(key)
            if taken:
                assert await store.take(key) == expected.pop(key, None)

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(compare, FileTokens(Path(folder, "tokens.json")))
    anyio.run(compare, MemoryTokens())


# Files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
async def test_what_is_created_is_for_this_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    await FileTokens("~/config/my-host/tokens.json").swap(KEY, None, SECRET)

    file = tmp_path / "config" / "my-host" / "tokens.json"
    assert [mode(path) for path in (file, file.parent, file.parent.parent)] == [0o600, 0o700, 0o700]
    assert mode(file.parent / "tokens.json.lock") == 0o600
    assert json.loads(file.read_bytes()) == {"version": 1, "tokens": {KEY: SECRET}}


async def test_a_file_that_others_may_read_is_a_warning_once_and_is_closed_to_them_on_the_next_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens.json"
    file.write_text('{"version": 1, "tokens": {"key": "canary"}}')
    file.chmod(0o644)
    store = FileTokens(file)
    assert [await store.load("key"), await store.load("key")] == ["canary", "canary"]
    assert mode(file) == 0o644
    await store.swap("key", "canary", "canary 2")

    assert mode(file) == 0o600
    assert [record.getMessage() for record in caplog.records] == [
        f"other users may read the tokens in {file}, until the next change makes it private (0600)"
    ]


async def test_what_another_version_has_written_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    theirs = {"version": 1, "tokens": {"theirs": {"a": [1]}, "gone": "x"}, "more": [None]}
    file.write_text(json.dumps(theirs))
    file.chmod(0o600)
    store = FileTokens(file)
    assert await store.swap(KEY, None, SECRET)
    assert await store.take("gone") == "x"

    theirs["tokens"] = {"theirs": {"a": [1]}, KEY: SECRET}
    assert json.loads(file.read_bytes()) == theirs
    with pytest.raises(TokensError, match="a value is not a text"):
        await store.load("theirs")


@pytest.mark.parametrize("exists", [True, False])
async def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path: Path, exists: bool) -> None:
    dotfiles, link = tmp_path / "dotfiles", tmp_path / "link.json"
    dotfiles.mkdir()
    if exists:
        (dotfiles / "tokens.json").touch(0o600)
    link.symlink_to("dotfiles/tokens.json")
    assert await FileTokens(link).swap(KEY, None, SECRET)

    assert link.is_symlink()
    assert sorted(os.listdir(dotfiles)) == ["tokens.json", "tokens.json.lock"]
    assert await FileTokens(dotfiles / "tokens.json").load(KEY) == SECRET


UNUSABLE = [
    *(
        (content, "it is not a JSON object")
        for content in (
            *(b'{"version": 1, "tokens": {"key": "canary', b"\xff\xfe\x00canary", b"[" * 100_000, b'["canary"]'),
            b'{"version": ' + b"1" * 10_000 + b"}",
        )
    ),
    (b'{"name": "canary"}', "it does not say that its version is 1"),
    (b'{"version": 2, "tokens": {"key": "canary"}}', "it does not say that its version is 1"),
    (b'{"version": 1, "tokens": ["canary"]}', "'tokens' is not a JSON object"),
]


async def test_a_file_with_something_else_in_it_is_refused_and_stays(tmp_path: Path, subtests: pytest.Subtests) -> None:
    file = tmp_path / "tokens.json"
    store = FileTokens(file)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "load": lambda: store.load("key"),
        "swap": lambda: store.swap("key", None, "x"),
        "take": lambda: store.take("key"),
    }
    for content, reason in UNUSABLE:
        file.write_bytes(content)
        file.chmod(0o600)
        for name, call in calls.items():
            with subtests.test(name, content=ascii(content[:40])):
                with pytest.raises(TokensError) as caught:
                    await call()
                assert str(caught.value) == (
                    f"{file} is no file of tokens that this program reads ({reason}): "
                    "nothing was changed; restore the file, or delete it and log in again"
                )
                causes = caught.value.__cause__, caught.value.__context__
                assert causes == (None, None)  # they would have the text in them
                assert file.read_bytes() == content


async def test_what_is_too_large_is_neither_read_nor_written(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    store = FileTokens(file)
    await store.swap(KEY, None, SECRET)
    with pytest.raises(TokensError, match=r"cannot be saved in .*tokens\.json: it has more than 16777216 bytes$"):
        await store.swap(KEY, SECRET, "x" * 16_777_216)
    assert await store.load(KEY) == SECRET
    os.truncate(file, 16_777_217)
    with pytest.raises(TokensError, match=r"cannot be read in .*tokens\.json: it has more than 16777216 bytes$"):
        await store.load(KEY)


async def fails(file: Path, reason: str) -> None:
    """Reading *file* fails for *reason*, and so does a change."""
    store = FileTokens(file)
    with pytest.raises(TokensError) as read:
        await store.load(KEY)
    with pytest.raises(TokensError) as saved:
        await store.swap(KEY, None, SECRET)
    assert str(read.value) == f"the tokens cannot be read in {file}: {reason}"
    assert str(saved.value) == f"the tokens cannot be saved in {file}: {reason}"


async def test_a_folder_or_a_pipe_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)

    await fails(folder, "Is a directory")
    with anyio.fail_after(60):
        await fails(pipe, "it is not a regular file")


async def test_the_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tokens.json"
    await FileTokens(file).swap(KEY, None, SECRET)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)

    await fails(file, "it belongs to another user")


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_full_disk_leaves_the_old_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    file = tmp_path / "tokens.json"
    store = FileTokens(file)
    await store.swap(KEY, None, SECRET)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(TokensError) as caught:
        await store.swap(KEY, SECRET, "new")
    monkeypatch.undo()

    assert str(caught.value) == f"the tokens cannot be saved in {file}: No space left on device"
    assert await store.load(KEY) == SECRET
    assert sorted(os.listdir(tmp_path)) == ["tokens.json", "tokens.json.lock"]
    assert await store.swap(KEY, SECRET, "new")


@contextmanager
def without_root() -> Iterator[None]:
    """Root may write everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


async def test_a_folder_that_is_read_only_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "tokens.json")
        await FileTokens(file).swap(KEY, None, SECRET)
        if os.geteuid() == 0:
            os.chown(file, 65534, -1)
        for path in (file.parent, Path(f"{file}.lock")):
            path.chmod(0o555)
        with without_root():
            assert await FileTokens(file).load(KEY) == SECRET
            with pytest.raises(TokensError) as caught:
                await FileTokens(file).swap(KEY, SECRET, "new")
            assert await FileTokens(file).load(KEY) == SECRET
        file.parent.chmod(0o700)
    assert str(caught.value) == f"the tokens cannot be saved in {file}: Permission denied ({file}.lock)"


async def test_a_new_file_is_on_the_disk_before_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens.json"
    fsync, replace, steps = os.fsync, os.replace, list[str]()

    def sync(descriptor: int) -> None:
        steps.append("fsync of the folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync of the file")
        fsync(descriptor)

    def rename(source: Path, target: Path) -> None:
        assert SECRET[:20] in json.loads(source.read_bytes())["tokens"][KEY]
        steps.append(f"{source.name} becomes {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    await FileTokens(file).swap(KEY, None, SECRET)

    assert steps == ["fsync of the file", "tokens.json.new becomes tokens.json", "fsync of the folder"]


async def test_what_a_killed_process_or_an_attacker_has_left_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    other = tmp_path / "other"
    lock, new = tmp_path / "tokens.json.lock", tmp_path / "tokens.json.new"
    other.write_text("theirs")
    lock.write_text("4711")
    new.symlink_to(other)
    assert await FileTokens(file).swap(KEY, None, SECRET)

    assert (other.read_text(), file.is_symlink()) == ("theirs", False)
    lock.unlink()
    lock.symlink_to(other)
    with pytest.raises(TokensError, match=r"symbolic links \(.*tokens\.json\.lock\)$"):
        await FileTokens(file).swap(KEY, SECRET, "new")


async def test_a_swap_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    store = FileTokens(file)
    assert await store.swap(KEY, None, None)
    assert await store.take(KEY) is None
    assert not file.exists()
    await store.swap(KEY, None, SECRET)
    before = file.stat()
    assert await store.swap(KEY, SECRET, SECRET)
    assert not await store.swap(KEY, None, "new")

    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@on_both
async def test_a_caller_that_waits_for_another_process_blocks_no_task_and_no_reader(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    store = FileTokens(file, lock_wait=60)
    await store.swap(KEY, None, SECRET)
    swapped = list[bool]()

    async def swap() -> None:
        swapped.append(await store.swap(KEY, SECRET, "new"))

    async with anyio.create_task_group() as tasks:
        with file_lock(f"{file}.lock"):
            tasks.start_soon(swap)
            for _ in range(10):
                assert await store.load(KEY) == SECRET
            assert swapped == []

    assert swapped == [True]


@on_both
async def test_a_cancelled_waiter_leaves_nothing_locked_and_nothing_written(tmp_path: Path) -> None:
    async def cancel(seconds: float) -> None:
        scope.cancel()
        await checkpoint()

    file = tmp_path / "tokens.json"
    store = FileTokens(file)
    store._turns = Turns(10, sleep=cancel)  # between two attempts: no thread is at work
    with file_lock(f"{file}.lock"):
        for _ in range(3):
            with anyio.CancelScope() as scope:
                await store.swap(KEY, None, SECRET)
            assert scope.cancelled_caught

    assert await store.load(KEY) is None
    with file_lock(f"{file}.lock", wait=0):
        pass


@pytest.mark.parametrize("wait", [0, 0.02])  # seconds, real ones: a thread waits, for as long on any machine
async def test_a_lock_that_is_not_released_is_an_error(tmp_path: Path, wait: float) -> None:
    file = tmp_path / "tokens.json"
    with file_lock(f"{file}.lock"), pytest.raises(TokensError) as caught:
        await FileTokens(file, lock_wait=wait).swap(KEY, None, SECRET)

    assert str(caught.value) == f"the tokens cannot be used: another process keeps {file}.lock locked"


def test_a_lock_is_awaited(tmp_path: Path) -> None:
    lock, held = tmp_path / "lock", ExitStack()
    held.enter_context(file_lock(lock))

    with file_lock(lock, sleep=lambda _: held.close()), pytest.raises(LockTimeout), file_lock(lock, wait=0):
        pass


def test_a_child_that_was_forked_meanwhile_keeps_no_lock(tmp_path: Path) -> None:
    """A lock is of all processes that have its file open, until one of them releases it."""
    lock = tmp_path / "lock"
    with file_lock(lock):
        (own,) = [descriptor for descriptor in range(3, 1_000) if is_open(descriptor, lock)]
        copy = os.dup(own)
    with file_lock(lock, wait=0):
        os.close(copy)


def is_open(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


@pytest.mark.parametrize("home", [None, "home"], ids=["none", "a relative one"])
def test_no_token_of_a_user_without_a_home_folder_is_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    monkeypatch.chdir(tmp_path)

    assert repr(FileTokens("~/.my-host/tokens.json")) == "FileTokens('/.my-host/tokens.json')"


async def test_a_relative_path_in_a_folder_that_was_deleted_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    tokens = FileTokens("tokens.json")

    assert await tokens.load("a") is None
    with pytest.raises(TokensError, match=r"^the tokens cannot be saved in tokens\.json: "):
        await tokens.swap("a", None, "1")


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="path is the path of a file, not int"):
        FileTokens(1)  # type: ignore[arg-type]  # the test
    with pytest.raises(ValueError, match="lock_wait"):
        FileTokens("tokens.json", lock_wait=-1)
    with pytest.raises(TypeError, match="service is the name of your host, not int"):
        KeyringTokens(1)  # type: ignore[arg-type]  # the test


# Keyrings


async def test_a_long_value_takes_several_entries_and_leaves_none(ring: Path) -> None:
    store = KeyringTokens("my-host")
    values = [None, LONG, LONG + "2", "\U0001f511" * 2_000, "short", LONG, None]
    for old, new in pairwise(values):
        assert await store.swap(KEY, old, new)
        assert await store.load(KEY) == new
        assert all(len(entry) <= 640 for entry in entries(ring).values())
        assert len(entries(ring)) == {None: 0, "short": 1, LONG: 11, LONG + "2": 11}.get(new, 5)
        assert not any("example" in name or "canary" in name for name in entries(ring))


async def test_a_keyring_may_ask_a_person(ring: Path) -> None:
    store, asked = KeyringTokens("my-host"), list[str]()

    @contextmanager
    def pause() -> Iterator[None]:
        asked.append("asks")
        yield
        asked.append("has asked")

    with paused_by_asking(pause):
        await store.load(KEY)
        await store.swap(KEY, None, "x")
        await store.take(KEY)

    assert asked == 3 * ["asks", "has asked"]


async def test_a_value_that_is_too_long_for_a_keyring_is_an_error(ring: Path) -> None:
    with pytest.raises(TokensError, match="tokens of 640001 characters are too long for a keyring"):
        await KeyringTokens("my-host").swap(KEY, None, "x" * 640_001)

    assert entries(ring) == {}


async def test_damaged_entries_count_as_none_and_can_be_replaced(ring: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = KeyringTokens("my-host")
    await store.swap(KEY, None, LONG)
    (part,) = (name for name in entries(ring) if name.endswith(".a.3"))
    os.unlink(f"{ring}/my-host/{part}")
    assert await store.load(KEY) is None
    assert await store.swap(KEY, None, LONG)
    assert await store.load(KEY) == LONG

    assert {(record.levelno, record.getMessage()) for record in caplog.records} == {
        (logging.WARNING, "tokens of 'my-host' in the keyring are damaged, and are not used")
    }


async def test_an_entry_that_says_no_place_of_its_parts_counts_as_none(ring: Path, subtests: pytest.Subtests) -> None:
    store = KeyringTokens("my-host")
    await store.swap(KEY, None, "short")
    (entry,) = entries(ring)
    for text in ("", "a", "c3", "a99999", "{}"):
        with subtests.test(text):
            FileKeyring(str(ring)).set_password("my-host", entry, text)
            assert await store.load(KEY) is None

    assert await store.swap(KEY, None, "new")
    assert await store.load(KEY) == "new"


async def refusal(store: TokenStore) -> str:
    with pytest.raises(TokensError) as caught:
        await store.swap(KEY, None, SECRET)
    return str(caught.value)


async def test_a_keyring_that_cannot_be_used_says_so(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, name = KeyringTokens("my-host"), "the keyring (file keyring FileKeyring)"

    def locked(*_: str) -> str:
        raise keyring.errors.KeyringLocked("Failed to unlock the collection!")

    with monkeypatch.context() as patch:
        patch.setattr(FileKeyring, "get_password", locked)
        assert await refusal(store) == f"{name} fails: Failed to unlock the collection!"

    def fail(*arguments: object) -> None:
        raise RuntimeError(f"set_password{arguments}")

    with monkeypatch.context() as patch:
        patch.setattr(FileKeyring, "set_password", fail)
        with pytest.raises(TokensError) as caught:
            await store.swap(KEY, None, SECRET)
        assert (str(caught.value), caught.value.__cause__) == (f"{name} fails: RuntimeError", None)

    keyring.set_keyring(load_keyring("keyring.backends.null.Keyring"))
    assert await refusal(store) == "the keyring (null Keyring) does not keep what is stored in it"
    keyring.set_keyring(load_keyring("keyring.backends.fail.Keyring"))
    assert await refusal(store) == "this machine has no keyring that can be used: FileTokens needs none"


@pytest.mark.parametrize("new", ["n" * 300, "n" * 2000, None], ids=["short", "of several entries", "none"])
@pytest.mark.parametrize("old", ["o" * 200, "o" * 2000], ids=["short", "of several entries"])
async def test_a_keyring_that_does_not_keep_a_new_value_keeps_the_old_one(
    ring: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str | None
) -> None:
    store, keep = KeyringTokens("my-host"), FileKeyring.set_password
    assert await store.swap(KEY, None, old)

    def cut(self: FileKeyring, service: str, username: str, password: str) -> None:
        keep(self, service, username, password if "n" not in password else password[:250])

    with monkeypatch.context() as patch:
        patch.setattr(FileKeyring, "set_password", cut)
        patch.setattr(FileKeyring, "delete_password", lambda *_: None)
        with pytest.raises(TokensError, match=r"does not keep what is stored in it$"):
            await store.swap(KEY, old, new)

    assert await store.load(KEY) == old


async def test_settings_of_keyring_that_name_none_are_an_error(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring.core, "_keyring_backend", None)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "no.such.Keyring")

    said = await refusal(KeyringTokens("my-host"))

    settings = "the settings of keyring (PYTHON_KEYRING_BACKEND, keyringrc.cfg)"
    assert said == f"{settings} name none that can be loaded: ModuleNotFoundError"


async def test_a_lock_of_the_keyring_that_cannot_be_made_is_an_error(ring: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")

    said = await refusal(KeyringTokens("my-host"))
    assert said.startswith(f"the lock of the keyring in {tmp_path}/home/.local/state/mcp-host/")
    assert said.endswith(".lock cannot be used: File exists")


@on_both
async def test_a_caller_that_is_cancelled_does_not_wait_for_the_person_any_longer(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = threading.Event(), threading.Event()
    get_password = FileKeyring.get_password

    def ask(self: FileKeyring, service: str, username: str) -> str | None:
        asked.set()
        assert answered.wait(60)
        return get_password(self, service, username)

    monkeypatch.setattr(FileKeyring, "get_password", ask)
    store = KeyringTokens("my-host")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.load, KEY)
        await anyio.to_thread.run_sync(asked.wait, 60)
        tasks.cancel_scope.cancel()
    assert not answered.is_set()
    answered.set()

    assert await store.swap(KEY, None, SECRET)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)

    with pytest.raises(ImportError, match=r"KeyringTokens needs keyring: pip install 'mcp-host\[oauth\]'"):
        KeyringTokens("my-host")
