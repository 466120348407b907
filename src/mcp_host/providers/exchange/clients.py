"""Whether an object is the client that an adapter calls: a mistake shows when the adapter is made, not at the first request."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import iscoroutinefunction, unwrap
from operator import attrgetter
from types import FunctionType, MethodType


@dataclass(frozen=True, slots=True)
class Sdk:
    """What an adapter needs of its SDK, which is not imported: other objects with the same method are clients, too."""

    client: str
    """How to make the client, as Python writes it: ``anthropic.AsyncAnthropic()``."""
    method: str
    """The public method of the client that asks the model. It may have dots."""

    def check(self, client: object) -> None:
        """Refuse what is no client, and a blocking one.

        Raises:
            TypeError: It is one of these. The text says what to pass.
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
        """Whether a method of the SDK itself is known to be no coroutine function. Of those of others, some return awaitables."""
        if not isinstance(method, FunctionType | MethodType):
            return False
        function = unwrap(method)
        package = str(getattr(function, "__module__", "")).partition(".")[0]
        return package == self.client.partition(".")[0] and not iscoroutinefunction(function)
