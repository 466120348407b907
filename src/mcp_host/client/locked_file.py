"""A small file that several processes may read and replace."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

if sys.platform == "win32":  # pragma: no cover
    import msvcrt
else:
    import fcntl

LOCK_WAIT = 10.0  # seconds to wait for another process that is writing
POLL_INTERVAL = 0.01  # seconds between attempts to get a lock: systems offer no wait with a timeout


class LockedFile:
    """A reader gets the whole of what one writer has written. The methods block, and raise `OSError`.

    *lock_wait* is in seconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, lock_wait: float = LOCK_WAIT) -> None:
        self.path = Path(os.path.realpath(path))  # if it is a link, its target is replaced
        self._lock_wait = lock_wait

    def read(self) -> bytes | None:
        """What the file contains; None if there is none."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others who do this out, in this process, too. The lock is a file beside this one, which stays.

        Raises:
            TimeoutError: Another process keeps the lock for too long.
        """
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            end = time.monotonic() + self._lock_wait
            while not _lock(descriptor):
                if time.monotonic() >= end:
                    raise TimeoutError(f"another process keeps {self.path}.lock locked")
                time.sleep(POLL_INTERVAL)
            yield
        finally:
            os.close(descriptor)  # which unlocks it, as the end of a process does

    def write(self, content: bytes) -> None:
        """Replace the file. If this fails, the old one stays."""
        descriptor, new = mkstemp(dir=self.path.parent, prefix=f"{self.path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            with suppress(FileNotFoundError):
                os.chmod(new, self.path.stat().st_mode & 0o777)
            os.replace(new, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":  # pragma: no cover
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter on Windows
        return False
    return True
