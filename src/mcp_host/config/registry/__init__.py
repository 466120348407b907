"""Servers of a registry: https://registry.modelcontextprotocol.io, or another with its API. Nothing is started.

>>> server = await Registry().get_server("io.github.owner/name")
>>> for choice in server.choices:
...     print(choice.kind, choice.shown, choice.problem)
"""

from mcp_host.config.registry.choices import PreparedServer, Question, ServerChoice
from mcp_host.config.registry.client import PUBLIC_REGISTRY, Registry
from mcp_host.config.registry.server_json import RegistryServer, read_server_json

__all__ = [
    "PUBLIC_REGISTRY",
    "PreparedServer",
    "Question",
    "Registry",
    "RegistryServer",
    "ServerChoice",
    "read_server_json",
]
