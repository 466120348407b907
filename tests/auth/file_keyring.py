"""A keyring that keeps its entries in a folder, for several processes: through the real library, unlike a fake of it."""

from __future__ import annotations

import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

LONGEST = 2_560  # bytes, as on Windows, which counts those of UTF-16


class FileKeyring(KeyringBackend):
    priority = 0.1

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        super().__init__()  # type: ignore[no-untyped-call]  # sets the folder from ``KEYRING_PROPERTY_FOLDER``

    def _file(self, service: str, username: str) -> Path:
        return Path(self.folder, service, username)

    def get_password(self, service: str, username: str) -> str | None:
        file = self._file(service, username)
        return file.read_bytes().decode() if file.exists() else None

    def set_password(self, service: str, username: str, password: str) -> None:
        if len(password.encode("utf-16-le")) > LONGEST:
            raise OSError(f"CredWrite: {password}")  # a keyring that tells too much
        file = self._file(service, username)
        file.parent.mkdir(exist_ok=True)
        new = Path(self.folder, "new")
        new.write_bytes(password.encode())
        os.replace(new, file)

    def delete_password(self, service: str, username: str) -> None:
        try:
            self._file(service, username).unlink()
        except FileNotFoundError:
            raise PasswordDeleteError("no such entry") from None


def entries(folder: Path) -> dict[str, str]:
    return {file.name: file.read_bytes().decode() for file in sorted(folder.glob("*/*"))}
