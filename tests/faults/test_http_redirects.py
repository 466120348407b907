"""Redirects out of the origin, with a real server at their end: it is never connected to.

Which redirects are followed, and what is said of the others, is in `tests/transports/test_http_statuses.py`.
"""

from __future__ import annotations

from mcp_host.errors import HttpStatusError
from tests.faults.fault import fault
from tests.faults.http_server import connected, errors_of, mcp, refused, says, subjects, tides
from tests.transports.http_peers import serving
from tests.transports.legacy_peers import Answer

SECRETS = {"Authorization": "Bearer secret", "X-Api-Key": "secret"}


def to(location: str, status: int = 307) -> Answer:
    return says(b"", status, location=location)


@fault("H33")
async def test_a_call_does_not_follow_a_redirect_to_another_origin() -> None:
    async with serving(mcp()) as other:
        found = await errors_of(
            {str(status): to(other.url, status) for status in (301, 302, 303, 307, 308)}, headers=SECRETS
        )

    for status, error in found.items():
        assert isinstance(error, HttpStatusError)
        assert str(error.status) == status
        assert f"refused to follow a redirect to {other.url}" in str(error)
    assert other.connections == 0


@fault("H33")
async def test_a_handshake_does_not_follow_a_redirect_to_another_origin() -> None:
    async with serving(mcp()) as other:
        redirect = to(other.url)
        for era in ("auto", "legacy", "modern"):
            error = await refused(mcp(discover=redirect, initialize=redirect), era=era, headers=SECRETS)
            assert "another origin" in str(error), era

    assert other.connections == 0


@fault("H33")
async def test_the_servers_stream_and_the_delete_do_not_follow_a_redirect_to_another_origin() -> None:
    async with serving(mcp()) as other:
        script = mcp(get=to(other.url), delete=to(other.url), initialized=to(other.url))
        async with connected(script, headers=SECRETS) as (client, peer):
            await tides(client)
            await peer.hears("GET", 1)

    assert {"get", "delete", "initialized"} < set(subjects(peer))
    assert other.connections == 0
