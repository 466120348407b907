"""Parameters of tools that HTTP headers repeat, on either side of a proxy (since 2026-07-28)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pydantic_core import PydanticSerializationError, to_json

from mcp_host.errors import quoted
from mcp_host.protocol.headers import ANNOTATION, parameter_headers
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, Params
from mcp_host.serving.errors import RequestError
from mcp_host.types import JSONObject

logger = logging.getLogger(__name__)


class MirroredParameters:
    """Those of the tools that a host has listed."""

    def __init__(self) -> None:
        self.schemas: dict[str, JSONObject] = {}
        """The input schemas of tools with such parameters, by name."""

    def note(self, page: Params, *, first: bool) -> Params:
        """Take note of a *page* of `tools/list`; gives it without the tools that have an invalid annotation.

        "Clients using the Streamable HTTP transport MUST reject" those.
        """
        if first:
            self.schemas = {}
        tools = page.get("tools")
        if not isinstance(tools, list) or not _annotated(tools):
            return page
        return page | {"tools": [tool for tool in tools if self._note(tool)]}

    def _note(self, tool: object) -> bool:
        match tool:
            case {"name": str() as name, "inputSchema": dict() as schema}:
                try:
                    if parameter_headers(schema):
                        self.schemas[name] = schema
                except ValueError as exc:
                    logger.warning("the tool %s is left out: %s", quoted(name), exc)
                    return False
        return True

    def headers(self, params: Params) -> Mapping[str, str]:
        """The headers of a `tools/call`.

        Raises:
            RequestError: An argument cannot be sent in one.
        """
        schema, arguments = self.schemas.get(params["name"]), params.get("arguments")
        if schema is None or not isinstance(arguments, dict):
            return {}
        try:
            values = {each.header: each.value(arguments) for each in parameter_headers(schema)}
        except ValueError as exc:
            raise RequestError(INVALID_PARAMS, f"an argument that goes into a header cannot: {exc}") from None
        return {header: value for header, value in values.items() if value is not None}


def _annotated(tools: list[object]) -> bool:
    """Whether any of them can have an annotation."""
    try:
        return ANNOTATION.encode() in to_json(tools)  # this takes a sixth of the time of a walk
    except PydanticSerializationError:  # they nest too deeply, or cannot be encoded in UTF-8
        return True
