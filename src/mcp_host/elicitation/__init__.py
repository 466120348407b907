"""Elicitation: asking the user on behalf of a server, by a form or by a URL to visit."""

from mcp_host.elicitation.elicitation import (
    Elicitation,
    FormHandler,
    FormRequest,
    OnElicitationComplete,
    UrlHandler,
    UrlRequest,
    read_elicitations,
)

__all__ = [
    "Elicitation",
    "FormHandler",
    "FormRequest",
    "OnElicitationComplete",
    "UrlHandler",
    "UrlRequest",
    "read_elicitations",
]
