"""What adapters need of an SDK's client: a check when the adapter is made, and private methods. No SDK is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction, unwrap
from operator import attrgetter
from types import FunctionType, MethodType
from typing import Any

from mcp_host.errors import ProviderError

KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "ollama": ("OLLAMA_API_KEY",),
}
"""The environment variables in which SDKs look for a key, by the provider's name."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """What an adapter needs of its SDK, which is not imported: other objects with the same method are clients, too."""

    client: str
    """How to make the client, as Python writes it: ``anthropic.AsyncAnthropic()``."""
    method: str
    """The public method of the client that asks the model. It may have dots."""

    def check(self, client: object) -> None:
        """Check that *client* is an asynchronous client.

        Raises:
            TypeError: It is not. The text says what to pass.
        """
        if isinstance(client, type):
            raise TypeError(f"client is the class {client.__name__}: pass an object of it, such as {self.client}")
        try:
            method = attrgetter(self.method)(client)
        except AttributeError:
            method = None
        if not callable(method):
            raise TypeError(f"client has to be an async client such as {self.client}, not {type(client).__name__}")
        if self._is_blocking(method):
            raise TypeError(f"client is a blocking {type(client).__name__}: pass an async one, such as {self.client}")

    def _is_blocking(self, method: object) -> bool:
        """Whether it is a method of the SDK and not a coroutine function. Methods of others may return awaitables."""
        if not isinstance(method, FunctionType | MethodType):
            return False
        function = unwrap(method)
        package = str(getattr(function, "__module__", "")).partition(".")[0]
        return package == self.client.partition(".")[0] and not iscoroutinefunction(function)


def private_method(client: object, name: str, provider: str) -> Callable[..., Any]:
    """A private method of an SDK's client, where no public one does the same. *name* may have dots.

    Raises:
        ProviderError: This release of the SDK does not have it.
    """
    try:
        method: Callable[..., Any] = attrgetter(name)(client)
    except AttributeError:
        problem = f"this release of the SDK has no {name}, which this adapter needs: install an earlier one"
        raise ProviderError(provider, problem) from None
    return method
