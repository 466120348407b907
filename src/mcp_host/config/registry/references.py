"""Answers that are references: a file of servers gets a variable, such as ``${input:id}``, instead of a secret."""

from __future__ import annotations

from dataclasses import replace
from secrets import token_hex

from mcp_host.config.dialects import DIALECTS, GENERIC
from mcp_host.config.registry.choices import PreparedServer
from mcp_host.config.values import Value
from mcp_host.config.variables import own, parse
from mcp_host.errors import RegistryError
from mcp_host.secret import Secret


class References:
    """The references of one server. Each is answered with a random stand-in, so that what a registry wrote cannot become one."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}

    def answer(self, variable: str) -> str:
        """The answer to `ServerChoice.prepare` for which the file has *variable*."""
        stand_in = token_hex(16)
        self._written[stand_in] = variable
        return stand_in

    def written(self, server: PreparedServer) -> PreparedServer:
        """*server* with its variables.

        Raises:
            RegistryError: It has others, which the file would expand: a registry could learn of a secret in the environment.
        """
        return replace(server, transport=server.transport.map(self._text))

    def _text(self, field: str, value: Value) -> Secret:
        text = str(value)
        forms = DIALECTS[GENERIC].forms(field)
        for piece in parse(field, text):
            if variable := own(piece, forms):
                raise RegistryError(f"it has {variable.shown}, which a file of servers would expand", field=field)
        for stand_in, written in self._written.items():
            text = text.replace(stand_in, written)
        return Secret(text)
