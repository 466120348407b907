"""Answers that are references: a file of servers gets a variable, such as ``${input:id}``, instead of a secret."""

from __future__ import annotations

import re
from dataclasses import replace

from mcp_host.config.dialects import DIALECTS, GENERIC
from mcp_host.config.registry.choices import PreparedServer
from mcp_host.config.values import Value
from mcp_host.config.variables import own, parse
from mcp_host.errors import RegistryError
from mcp_host.transports._http.secret import Secret

STAND_IN = re.compile("\ue000([0-9]+)\ue001")  # of the private use area: neither a registry nor a person writes it


class References:
    """The references of one server. Each is answered with a stand-in, so that what a registry wrote cannot become one."""

    def __init__(self) -> None:
        self._written: list[str] = []

    def answer(self, variable: str) -> str:
        """The answer to `ServerChoice.prepare` for which the file has *variable*."""
        self._written.append(variable)
        return f"\ue000{len(self._written) - 1}\ue001"

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
        return Secret(STAND_IN.sub(lambda found: self._written[int(found[1])], text))
