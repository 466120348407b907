"""A small file that several processes may read and replace, and the lock that keeps the others out."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EFBIG, EINVAL, EPERM
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_WAIT = 10.0  # seconds to wait for another process that is writing
POLL_INTERVAL = 0.01  # seconds between attempts to get a lock: systems offer no wait with a timeout


class LockTimeout(TimeoutError):
    """Another process keeps the lock for too long."""


@contextmanager
def file_lock(
    path: str | os.PathLike[str], wait: float = LOCK_WAIT, *, sleep: Callable[[float], object] = time.sleep
) -> Iterator[None]:
    """Keep others who do this out, in this process, too. It blocks for *wait* seconds at most, and looks again after each *sleep*.

    *path* is a file that is there for this only, and stays. The system releases the lock if the process is killed.

    Raises:
        LockTimeout: Another process keeps the lock for too long.
        OSError: The file cannot be created or locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        end = time.monotonic() + wait
        while not _lock(descriptor):
            if time.monotonic() >= end:
                raise LockTimeout(f"another process keeps {os.fspath(path)} locked")
            sleep(POLL_INTERVAL)
        try:
            yield
        finally:
            _unlock(descriptor)  # closing is not enough while a child that was forked meanwhile has it open
    finally:
        os.close(descriptor)


class LockedFile:
    """A reader gets the whole of what one writer has written. The methods block, and raise `OSError`.

    *lock_wait* is in seconds, *max_size* in bytes. A *private* file has the mode 0600 whenever it is written, and
    its folder, if it is created, 0700. It is refused if it belongs to another user. The lock is a file beside it, or *lock_path*.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lock_wait: float = LOCK_WAIT,
        private: bool = False,
        max_size: int | None = None,
        lock_path: Path | None = None,
    ) -> None:
        self.path = Path(path)
        with suppress(FileNotFoundError):  # of a relative path in a folder that was deleted, which no method finds
            self.path = Path(os.path.realpath(path))  # if it is a link, its target is replaced
        self.lock_path = lock_path or Path(f"{self.path}.lock")
        self._new = Path(f"{self.path}.new")
        self._lock_wait = lock_wait
        self._private = private
        self._max_size = max_size
        self.exposed = False
        """Whether other users were allowed to read the private file when it was read last."""

    def read(self) -> bytes | None:
        """What the file contains; None if there is none."""
        try:
            file = open(self.path, "rb", opener=_open_without_waiting)  # noqa: SIM115  # it is closed below
        except FileNotFoundError:
            return None
        with file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(EINVAL, "it is not a regular file", str(self.path))
            if self._private and sys.platform != "win32":
                if status.st_uid != os.geteuid():
                    raise PermissionError(EPERM, "it belongs to another user", str(self.path))
                self.exposed = bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
            if self._max_size is None:
                return file.read()
            content = file.read(self._max_size + 1)
            self._check_size(content)
            return content

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others who do this out, in this process, too. The lock is a file, which stays.

        Raises:
            LockTimeout: Another process keeps the lock for too long.
        """
        if self._private:
            create_private_folder(self.path.parent)
        with file_lock(self.lock_path, self._lock_wait):
            yield

    def write(self, content: bytes) -> None:
        """Replace the file, within `locked`. If this fails, or the process is killed, the old one stays."""
        self._check_size(content)
        mode = 0o600
        if not self._private:
            with suppress(FileNotFoundError):
                mode = self.path.stat().st_mode & 0o777
        try:
            self._new.unlink(missing_ok=True)  # of a process that was killed
            with open(self._new, "xb", opener=_open_for_this_user) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if mode != 0o600:
                os.chmod(self._new, mode)
            os.replace(self._new, self.path)
        except BaseException:
            with suppress(OSError):
                self._new.unlink(missing_ok=True)
            raise
        _sync_folder(self.path.parent)

    def _check_size(self, content: bytes) -> None:
        if self._max_size is not None and len(content) > self._max_size:
            raise OSError(EFBIG, f"it has more than {self._max_size} bytes", str(self.path))


def state_file(name: str) -> Path:
    """Where a file of this user is that programs keep what they remember in: ``~/.local/state/mcp-host/NAME``, say."""
    is_windows = sys.platform == "win32"
    variable, default = ("LOCALAPPDATA", "AppData/Local") if is_windows else ("XDG_STATE_HOME", ".local/state")
    return folder_of_user(os.environ, variable, home_folder() / default) / "mcp-host" / name


def folder_of_user(environment: Mapping[str, str], variable: str, default: Path) -> Path:
    """The folder that a *variable* names. A relative one is ignored, as XDG wants it: it could be within a project."""
    folder = os.path.expanduser(environment.get(variable, ""))
    return Path(folder) if os.path.isabs(folder) else default


def home_folder() -> Path:
    """The folder of this user. If there is none, or a relative one, it is the root, as in Docker: no project has files there."""
    home = os.path.expanduser("~")
    return Path(home if os.path.isabs(home) else os.path.abspath(os.sep))


def expand_home(path: str | os.PathLike[str]) -> Path:
    """*path* with a user's folder in the place of a ``~`` at its beginning."""
    parts = Path(path).parts
    return home_folder().joinpath(*parts[1:]) if parts[:1] == ("~",) else Path(os.path.expanduser(path))


def create_private_folder(folder: Path) -> None:
    """Create *folder* and those above it that are missing, for this user only."""
    if not folder.is_dir():
        create_private_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for a writer


def _open_for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Let a new name in *folder* outlast a power cut, where the system can."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # the file is replaced already, and some file systems cannot do this
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter on Windows
        return False
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
