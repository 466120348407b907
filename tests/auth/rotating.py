"""``python -m tests.auth.rotating file|keyring PLACE TIMES``: rotate a counter, and print each new value that is stored."""

from __future__ import annotations

import sys

import anyio

from mcp_host.auth.storage.file_tokens import FileTokens
from mcp_host.auth.storage.keyring_tokens import KeyringTokens
from mcp_host.auth.storage.stores import TokenStore

KEY = "https://auth.example.com mcp"


def open_store(kind: str, place: str) -> TokenStore:
    """*place* is a path, or the name of a service."""
    return FileTokens(place, lock_wait=60) if kind == "file" else KeyringTokens(place)


async def rotate(store: TokenStore) -> str:
    """Add one to what is stored, however many others do so at the same time."""
    while True:
        old = await store.load(KEY)
        new = str(1 if old is None else int(old) + 1)
        if await store.swap(KEY, old, new):
            return new


async def main(kind: str, place: str, times: str) -> None:
    store = open_store(kind, place)
    for _ in range(int(times)):
        print(await rotate(store), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
