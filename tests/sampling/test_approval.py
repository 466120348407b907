"""Approval: nothing but an explicit yes lets a request through."""

from __future__ import annotations

import logging

import pytest

from mcp_host.errors import InputRefused
from mcp_host.sampling import Allow, Approve, Deny, SamplingRequest, always
from mcp_host.sampling.approval import require_approval
from tests.sampling.asking import request, text, user


async def test_always_allows() -> None:
    assert await always(request()) == Allow()


async def test_a_request_that_is_allowed_goes_on() -> None:
    asked = request()
    seen: list[SamplingRequest] = []

    async def approve(shown: SamplingRequest) -> Allow:
        seen.append(shown)
        return Allow()

    await require_approval(approve, asked, subject="sampling for x")

    assert seen == [asked]


@pytest.mark.parametrize(
    ("decision", "message"),
    [(Deny(), "User rejected sampling request"), (Deny("quota used up"), "quota used up")],
    ids=["without a reason", "with a reason"],
)
async def test_a_request_that_is_denied_is_refused_with_the_reason(decision: Deny, message: str) -> None:
    async def approve(request: SamplingRequest) -> Deny:
        return decision

    with pytest.raises(InputRefused) as refusal:
        await require_approval(approve, request(), subject="sampling for x")

    assert (refusal.value.code, str(refusal.value), refusal.value.data) == (-1, message, None)


async def test_an_approver_can_refuse_as_a_handler_does() -> None:
    async def approve(request: SamplingRequest) -> Allow:
        request.refuse("not this server")

    with pytest.raises(InputRefused, match=r"^not this server$") as refusal:
        await require_approval(approve, request(), subject="sampling for x")

    assert refusal.value.code == -1


async def test_an_approver_that_fails_has_allowed_nothing(caplog: pytest.LogCaptureFixture) -> None:
    mistake = KeyError("secret sk-123")

    async def approve(request: SamplingRequest) -> Allow:
        raise mistake

    with pytest.raises(InputRefused) as refusal:
        await require_approval(approve, request(), subject="sampling for x")

    assert (refusal.value.code, str(refusal.value)) == (-32603, "this client failed to ask for approval")
    assert refusal.value.__cause__ is mistake
    [record] = caplog.records
    assert record.getMessage() == "sampling for x: this client failed to ask for approval"
    assert record.exc_info is not None
    assert record.exc_info[1] is mistake


async def yes(request: SamplingRequest) -> object:
    return True


async def nothing(request: SamplingRequest) -> object:
    return None


async def the_class(request: SamplingRequest) -> object:
    return Allow


@pytest.mark.parametrize(
    ("approve", "kind"), [(yes, "bool"), (nothing, "NoneType"), (the_class, "type")], ids=["True", "None", "Allow"]
)
async def test_only_an_allow_allows(approve: Approve, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputRefused) as refusal:
        await require_approval(approve, request(user(text("private words"))), subject="sampling for x")

    assert (refusal.value.code, str(refusal.value)) == (-32603, "this client failed to ask for approval")
    assert caplog.record_tuples == [
        (
            "mcp_host.sampling.approval",
            logging.ERROR,
            f"sampling for x: the approver returned {kind}, no Allow or Deny",
        )
    ]
