"""The servers of a group: by name, in their order, and by what the names of their tools begin with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mcp_host.errors import CallerError, quoted
from mcp_host.group.member import Member
from mcp_host.group.names import SEPARATOR, server_prefix

if TYPE_CHECKING:
    from mcp_host.sampling import Approvals


class Members:
    """The servers of a group. What *approvals* allow of one is forgotten when it leaves."""

    def __init__(self, approvals: Approvals | None) -> None:
        self.by_name: dict[str, Member] = {}
        self.by_prefix: dict[str, Member] = {}
        self._approvals = approvals

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self.by_name.values()))

    def __len__(self) -> int:
        return len(self.by_name)

    def __str__(self) -> str:
        return ", ".join(map(quoted, self.by_name)) or "(there are none)"

    def add(self, new: Member) -> None:
        """Raises `ValueError` if there is one of that name, or of one that leads to the same names of tools."""
        prefix = server_prefix(new.name)
        if (other := self.by_prefix.get(prefix)) is not None:
            raise ValueError(
                f"the group has a server {quoted(new.name)} already"
                if other.name == new.name
                else f"the servers {quoted(other.name)} and {quoted(new.name)} would have tools of the same names"
            )
        self.by_name[new.name] = self.by_prefix[prefix] = new

    def remove(self, member: Member) -> None:
        del self.by_name[member.name], self.by_prefix[server_prefix(member.name)]
        self._forget(member.name)

    def replace(self, new: Member) -> None:
        """Replace the server of the same name by *new*."""
        self._forget(new.name)
        self.by_name[new.name] = self.by_prefix[server_prefix(new.name)] = new

    def sort(self, names: Iterable[str]) -> None:
        """Put these in this order, and all others after them."""
        order = {name: place for place, name in enumerate(names)}
        self.by_name = dict(sorted(self.by_name.items(), key=lambda item: order.get(item[0], len(order))))

    def get(self, name: str) -> Member:
        """Raises `CallerError` if there is none of that *name*."""
        if (member := self.by_name.get(name)) is None:
            raise CallerError(f"{quoted(name)} is none of the servers {self}")
        return member

    def from_file(self, name: str) -> Member | None:
        """The server *name*, if it is one of a file."""
        member = self.by_name.get(name)
        return None if member is None or member.file_server is None else member

    def left_out(self, names: Iterable[str]) -> list[str]:
        """A sentence for each of these servers of files in whose place one of the application is used."""
        used = {name: self.by_prefix.get(server_prefix(name)) for name in names}
        return [
            f"{quoted(name)} of a file is left out: the server {quoted(member.name)} of the application is used"
            for name, member in used.items()
            if member is not None and member.file_server is None
        ]

    def owner_of(self, name: str) -> Member:
        """The server of the tool or prompt *name*. Raises `CallerError` if it is of none."""
        if not isinstance(name, str):
            raise TypeError(f"name must be text, not {type(name).__name__}")
        if (member := self.by_prefix.get(name.partition(SEPARATOR)[0])) is None or SEPARATOR not in name:
            raise CallerError(f"{quoted(name)} is of none of the servers {self}")
        return member

    def _forget(self, server: str) -> None:
        if self._approvals is not None:
            self._approvals.forget(server)
