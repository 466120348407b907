"""Logging out: what is forgotten, what the authorization server is asked to revoke, and what is told about a login."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mcp_host.auth import FileTokens, MemoryTokens
from tests.auth.authorization_server import Protected
from tests.auth.test_oauth import call, oauth, site

__all__ = ["site"]


@pytest.fixture
def revoking(site: Protected) -> Protected:
    site.server.metadata["revocation_endpoint"] = f"{site.server.issuer}/revoke"
    return site


async def test_both_tokens_are_revoked_and_nothing_is_kept(revoking: Protected) -> None:
    auth, site = oauth(), revoking
    await call(site, auth)
    saved = await auth.saved(site.url)
    assert saved is not None
    assert saved.token is not None

    assert await auth.logout(site.url) is True

    asked = [fields for name, fields in site.server.log if name == "revoke"]
    assert asked == [
        {"token": saved.token.refresh_token, "token_type_hint": "refresh_token", "client_id": saved.client.id},
        {"token": saved.token.access_token, "token_type_hint": "access_token", "client_id": saved.client.id},
    ]
    assert (site.server.tokens, await auth.saved(site.url)) == ({}, None)


async def test_after_it_a_login_is_needed(revoking: Protected) -> None:
    auth = oauth()
    await call(revoking, auth)
    await auth.logout(revoking.url)
    await call(revoking, auth)

    assert revoking.server.count("authorize") == 2


async def test_a_server_that_revokes_nothing_says_so_in_the_steps(site: Protected) -> None:
    auth = oauth()
    await call(site, auth)

    assert await auth.logout(site.url) is False

    assert str(auth.steps[-1]) == f"revocation at {site.server.issuer}: not offered"
    assert await auth.saved(site.url) is None


async def test_a_revocation_that_fails_keeps_nothing_either(revoking: Protected) -> None:
    async def refuse(request: Request) -> Response:
        return JSONResponse({"error": "server_error"}, 503)

    auth, site = oauth(), revoking
    site.server.answers["revoke"] = refuse
    await call(site, auth)

    assert await auth.logout(site.url) is False

    kinds = ("refresh_token", "access_token")
    where = f"at {site.server.issuer}/revoke: HTTP 503 (server_error)"
    assert [str(step) for step in auth.steps[-2:]] == [f"revocation ({kind}) {where}" for kind in kinds]
    assert await auth.saved(site.url) is None


async def test_without_a_login_there_is_nothing_to_revoke(site: Protected) -> None:
    auth = oauth()

    assert await auth.logout(site.url) is False
    assert await auth.saved(site.url) is None
    assert site.server.log == []


async def test_what_another_process_has_gotten_meanwhile_is_forgotten_too(revoking: Protected) -> None:
    class Busy(MemoryTokens):
        """Another process swaps first, once."""

        others: str | None = None

        async def swap(self, key: str, old: str | None, new: str | None) -> bool:
            if key.startswith("token") and new is None and self.others is not None:
                await super().swap(key, old, self.others)
                self.others = None
            return await super().swap(key, old, new)

    tokens, other = Busy(), MemoryTokens()
    site = revoking
    await call(site, oauth(tokens=other))
    auth = oauth(tokens=tokens)
    await call(site, auth)
    key = f"token {site.url} {site.server.issuer}"
    tokens.others = await other.load(key)

    assert await auth.logout(site.url) is True

    assert await tokens.load(key) is None
    assert len(site.server.tokens) == 1  # the one that was replaced in the store


async def test_what_is_saved_shows_no_secret(site: Protected, tmp_path: Path) -> None:
    auth = oauth(tokens=FileTokens(tmp_path / "tokens.json"))
    await call(site, auth)
    saved = await auth.saved(site.url)
    assert saved is not None
    assert saved.token is not None
    shown = repr(replace(saved, key={"d": "s3cret"}, client=replace(saved.client, secret="s3cret")))

    assert "s3cret" not in shown
    assert saved.token.access_token not in shown
    assert str(saved.token.refresh_token) not in shown
