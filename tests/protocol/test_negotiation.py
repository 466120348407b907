"""Choosing the era and the revision: tables with one row for each kind of answer."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    NoCommonVersion,
    ProtocolError,
    RequestTimeout,
    ServerError,
    Unauthorized,
)
from mcp_host.protocol.eras import Legacy, Modern
from mcp_host.protocol.jsonrpc import Success
from mcp_host.protocol.negotiation import (
    AllowedVersions,
    UseLegacy,
    UseModern,
    accept_version,
    choose_era,
    common_version,
    may_be_of_other_era,
)

AUTO = AllowedVersions.of("auto")
MODERN = "2026-07-28"
HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


def discovered(*versions: str, **others: Any) -> dict[str, Any]:
    return {"resultType": "complete", "supportedVersions": list(versions), "capabilities": {}} | others


def refused(code: int, data: object = None) -> ServerError:
    return ServerError(code, "no", data)


MODERN_ANSWERS: list[tuple[Success | McpError, bool]] = [
    (Success(1, discovered(MODERN)), True),
    (Success(1, discovered(MODERN, "2025-11-25")), True),
    (Success(1, discovered("2030-01-01", MODERN)), True),
    (Success(1, {"supportedVersions": [MODERN]}), True),
    (Success(1, {"supportedVersions": [None, MODERN]}), True),
    (Success(1, {"resultType": "complete"}), True),
    (refused(-32020), False),
    (refused(-32021, {"requiredCapabilities": {"sampling": {}}}), False),
    (refused(-32022, {"supported": [MODERN], "requested": "x"}), False),
    (HttpStatusError(400, "no", code=-32022, data={"supported": ["2025-11-25", MODERN]}), False),
    (HttpStatusError(400, "no", code=-32020), False),
    (HttpStatusError(500, "no", code=-32021), False),
]


def test_a_recognizably_modern_answer_means_modern(subtests: pytest.Subtests) -> None:
    for reply, known in MODERN_ANSWERS:
        with subtests.test(reply=reply):
            result = reply.result if isinstance(reply, Success) else None

            assert choose_era(reply, AUTO) == UseModern(MODERN, result if known else None)


LEGACY_ANSWERS: list[Success | McpError] = [
    refused(-32601),
    refused(-32602),
    refused(-32600),
    refused(-32000),
    refused(0),
    refused(-32002),
    Success(1, {}),
    Success(1, {"tools": []}),
    Success(1, discovered("2025-11-25", "2025-06-18")),
    refused(-32022, {"supported": ["2025-06-18"]}),
    Success(1, discovered() | {"supportedVersions": None}),
    Success(1, discovered() | {"supportedVersions": MODERN}),
    Success(1, discovered() | {"supportedVersions": {MODERN: {}}}),
    Success(1, discovered() | {"supportedVersions": [20260728]}),
    Success(1, discovered() | {"supportedVersions": []}),
    Success(1, discovered(MODERN) | {"resultType": 7}),
    Success(1, discovered(MODERN) | {"resultType": "input_required"}),
    refused(-32022),
    refused(-32022, {"supported": MODERN}),
    *(HttpStatusError(status, "no") for status in (400, 404, 405, 406, 409, 415, 422, 429, 302)),
    HttpStatusError(400, "no", code=-32601),
    HttpStatusError(404, "no", code=-32001),
    ProtocolError("a page of HTML"),
    RequestTimeout("silent"),
]


def test_any_other_answer_means_legacy(subtests: pytest.Subtests) -> None:
    for row, reply in enumerate(LEGACY_ANSWERS):
        with subtests.test(row=row, reply=ascii(reply)):
            assert isinstance(choose_era(reply, AUTO), UseLegacy)


def rejected(status: int, code: int | None = None) -> Unauthorized:
    """A credential that the server rejects."""
    error = Unauthorized(status, "not you", code=code)
    error.credential_sent = True
    return error


TELLING_NOTHING: list[McpError] = [
    Unauthorized(401, "who are you"),
    Unauthorized(403, "not you", code=-32021),
    rejected(403, code=-32021),
    ConnectFailed("refused", may_have_run=False),
    ConnectionClosed("gone before", may_have_run=False),
]


def test_an_error_that_does_not_tell_the_era_is_raised(subtests: pytest.Subtests) -> None:
    for row, error in enumerate(TELLING_NOTHING):
        with subtests.test(row=row, error=ascii(error)):
            with pytest.raises(type(error)) as raised:
                choose_era(error, AUTO)

            assert raised.value is error


FAILURES = [
    *(HttpStatusError(status, "oh") for status in (500, 501, 505, 520)),
    HttpStatusError(500, "oh", code=-32603),
    ConnectionClosed("reset"),
    rejected(401),
    rejected(403),
    Unauthorized(403, "not you"),
    *(HttpStatusError(status, "later", retry_after=3.0) for status in (408, 425, 429, 502, 503, 504)),
]


def test_a_server_that_fails_during_the_probe_is_legacy_where_that_is_allowed(subtests: pytest.Subtests) -> None:
    """ "Anything else identifies a legacy server" (2026-07-28, basic/versioning)."""
    for row, failure in enumerate(FAILURES):
        with subtests.test(row=row, failure=ascii(failure)):
            assert choose_era(failure, AUTO) == UseLegacy(str(failure), failure)
            with pytest.raises(type(failure)) as raised:
                choose_era(failure, AllowedVersions.of("modern"))

            assert raised.value is failure


@pytest.mark.parametrize(
    ("reply", "era"),
    [
        (Success(1, discovered("2030-01-01")), "auto"),
        (refused(-32022, {"supported": ["1999-01-01"]}), "auto"),
        (refused(-32022, {"supported": ["2025-11-25"]}), "modern"),
        (Success(1, discovered("2025-11-25")), "modern"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_modern_server_without_a_common_version_raises(reply: Success | McpError, era: str) -> None:
    with pytest.raises(NoCommonVersion, match="this client supports"):
        choose_era(reply, AllowedVersions.of(era))


def test_allowed_versions_are_all_of_one_era_or_a_single_one() -> None:
    assert AllowedVersions.of("auto") == AllowedVersions((MODERN,), HANDSHAKE_VERSIONS)
    assert AllowedVersions.of("modern") == AllowedVersions((MODERN,), ())
    assert AllowedVersions.of("legacy") == AllowedVersions((), HANDSHAKE_VERSIONS)
    assert AllowedVersions.of("2026-07-28") == AllowedVersions(("2026-07-28",), ())
    assert AllowedVersions.of("2025-06-18") == AllowedVersions((), ("2025-06-18",))
    with pytest.raises(ValueError, match="'2020-01-01'"):
        AllowedVersions.of("2020-01-01")


def test_only_an_allowed_version_is_accepted() -> None:
    assert accept_version("2024-11-05", AUTO) == Legacy("2024-11-05")
    for version in ("2026-07-28", "2030-01-01", None, 7):
        with pytest.raises(NoCommonVersion):
            accept_version(version, AUTO)
    with pytest.raises(NoCommonVersion):
        accept_version("2025-11-25", AllowedVersions.of("2025-06-18"))


def test_the_preferred_version_among_those_that_a_rejection_names_is_chosen() -> None:
    assert common_version(refused(-32602, {"supported": ["2024-11-05", "2025-06-18"]}), AUTO) == "2025-06-18"
    assert common_version(refused(-32602, {"supported": ["1999-01-01"]}), AUTO) is None
    assert common_version(refused(-32602), AUTO) is None


OF_OTHER_ERA: list[tuple[McpError, bool, bool]] = [  # after a handshake, and in 2026-07-28
    (NoCommonVersion("its initialize has another version"), True, True),
    (refused(-32022), True, True),
    (refused(-32021), True, False),
    (refused(-32601), False, False),
    (Unauthorized(401, "a login is needed"), False, False),
    (HttpStatusError(404, "no"), True, True),
    (HttpStatusError(400, "no", code=-32020), True, False),
    (HttpStatusError(503, "no"), False, False),
    (ConnectionClosed("gone"), False, False),
]


def test_refusals_after_which_the_era_is_probed_again(subtests: pytest.Subtests) -> None:
    for refusal, legacy, modern in OF_OTHER_ERA:
        with subtests.test(str(refusal)):
            assert may_be_of_other_era(refusal, Legacy("2025-11-25")) == legacy
            assert may_be_of_other_era(refusal, Modern(MODERN, {})) == modern
