"""Which clients, certificates and paths `StreamableHttp` takes."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import httpx2

from mcp_host import StreamableHttp

URL = "https://mcp.test/mcp"


def clients(http: httpx.AsyncClient, http2: httpx2.AsyncClient, blocking: httpx.Client) -> None:
    StreamableHttp(URL, client=http)
    StreamableHttp(URL, client=http2)
    StreamableHttp(URL, client=None)
    StreamableHttp(URL, client=blocking)  # type: ignore[arg-type]


def certificates(context: ssl.SSLContext) -> None:
    StreamableHttp(URL, verify=False)
    StreamableHttp(URL, verify="ca.pem")
    StreamableHttp(URL, verify=Path("ca.pem"))
    StreamableHttp(URL, verify=context)
    StreamableHttp(URL, verify=None)  # type: ignore[arg-type]
    StreamableHttp(URL, cert="client.pem")
    StreamableHttp(URL, cert=("client.pem", Path("client.key")))
    StreamableHttp(URL, cert=(Path("client.pem"), "client.key", "secret"))
    StreamableHttp(URL, cert=("client.pem",))  # type: ignore[arg-type]


def sockets() -> None:
    StreamableHttp(URL, uds="/run/mcp.sock")
    StreamableHttp(URL, uds=Path("/run/mcp.sock"))
    StreamableHttp(URL, uds=b"/run/mcp.sock")  # type: ignore[arg-type]
