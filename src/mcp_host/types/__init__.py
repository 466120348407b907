"""Everything that a client and a server send to each other, under the names of the official schema."""

# ruff: noqa: F403  # each module lists its names in `__all__`

from importlib import import_module
from typing import TYPE_CHECKING

from mcp_host.types.base import *
from mcp_host.types.content import *
from mcp_host.types.messages import *
from mcp_host.types.tools import *

if TYPE_CHECKING:
    from mcp_host.types.elicitation import *
    from mcp_host.types.features import *
    from mcp_host.types.requests import *
    from mcp_host.types.sampling import *
else:  # hidden, because a type checker would accept any misspelt name
    _MODULES = ("base", "content", "messages", "tools")
    _ON_DEMAND = ("sampling", "features", "elicitation", "requests")  # few hosts use them: they would slow the start

    def __getattr__(name: str) -> object:
        if name == "__all__":
            modules = [import_module(f"{__name__}.{stem}") for stem in (*_MODULES, *_ON_DEMAND)]
            return [listed for module in modules for listed in module.__all__]
        for stem in _ON_DEMAND:
            module = import_module(f"{__name__}.{stem}")
            if name in module.__all__:
                return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __getattr__("__all__")
