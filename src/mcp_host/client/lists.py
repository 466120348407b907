"""Reading the items of a list that a server sends page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from anyio.lowlevel import checkpoint

from mcp_host.errors import ProtocolError
from mcp_host.protocol.jsonrpc import Params
from mcp_host.types.base import Model

ModelT = TypeVar("ModelT", bound=Model)

AT_A_TIME = 256  # items that are read before others have their turn


async def read_items(
    method: str, key: str, model: type[ModelT], page: Params, warn: Callable[[str], None]
) -> list[ModelT]:
    """The items of one page. One that is malformed is left out, which *warn* is told, and does not hide the others.

    Raises:
        ProtocolError: The page has no list.
    """
    wire = page.get(key)
    if not isinstance(wire, list):
        raise ProtocolError(f"the result of {method} has no list {key!r}")
    items: list[ModelT] = []
    for start in range(0, len(wire), AT_A_TIME):
        if start:
            await checkpoint()  # a page may have a hundred thousand
        some = wire[start : start + AT_A_TIME]
        try:
            items += model.list_from_wire(some)
        except ProtocolError:
            items += _those_that_can_be_read(model, some, start, lambda why: warn(f"left out of {method}, {why}"))
    return items


def _those_that_can_be_read(
    model: type[ModelT], wire: list[object], start: int, left_out: Callable[[str], None]
) -> Iterator[ModelT]:
    for position, item in enumerate(wire, start):
        try:
            yield model.from_wire(item)
        except ProtocolError as exc:
            left_out(f"position {position}: {exc}")
