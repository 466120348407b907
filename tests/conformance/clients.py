"""Runs of the conformance suite against this client: itself, and through a proxy."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tests.conformance.suite import HERE, emptied, run_suite
from tests.conformance.verdict import Check, Outcome, Run, faults, passed, read_checks
from tests.installation import Unusable

CLIENT = 60.0  # seconds for a client; the slowest takes three
WHOLE_RUN = 90.0  # with the suite around it

RUNS = [
    Run("2025-11-25", "initialize", 1),
    Run("2025-11-25", "tools_call", 2),
    Run("2025-11-25", "elicitation-sep1034-client-defaults", 5),
    Run("2025-11-25", "sse-retry", 3),
    Run("2025-11-25", "json-schema-2020-12-preservation", 9),
    Run("2026-07-28", "tools_call", 2),
    Run("2026-07-28", "request-metadata", 8),
    Run("2026-07-28", "sep-2322-client-request-state", 5),
    Run("2026-07-28", "http-standard-headers", 9),  # 2 more are for the handshake
    Run("2026-07-28", "http-custom-headers", 18),
    Run("2026-07-28", "http-invalid-tool-headers", 12, error_allowed=True),
    Run("2026-07-28", "json-schema-ref-no-deref", 1),
    Run("2026-07-28", "json-schema-2020-12-preservation", 9),
    Run("2025-11-25", "auth/metadata-default", 19),
    Run("2025-11-25", "auth/metadata-var1", 19),
    Run("2025-11-25", "auth/metadata-var2", 19),
    Run("2025-11-25", "auth/metadata-var3", 19),
    Run("2025-11-25", "auth/basic-cimd", 14),
    Run("2025-11-25", "auth/scope-from-www-authenticate", 15),
    Run("2025-11-25", "auth/scope-from-scopes-supported", 15),
    Run("2025-11-25", "auth/scope-omitted-when-undefined", 15),
    Run("2025-11-25", "auth/scope-step-up", 24),
    Run("2025-11-25", "auth/scope-retry-limit", 12, error_allowed=True),
    Run("2025-11-25", "auth/token-endpoint-auth-basic", 20),
    Run("2025-11-25", "auth/token-endpoint-auth-post", 20),
    Run("2025-11-25", "auth/token-endpoint-auth-none", 20),
    Run("2025-11-25", "auth/pre-registration", 14),
    Run("2026-07-28", "auth/metadata-default", 18),
    Run("2026-07-28", "auth/metadata-var1", 18),
    Run("2026-07-28", "auth/metadata-var2", 18),
    Run("2026-07-28", "auth/metadata-var3", 18),
    Run("2026-07-28", "auth/basic-cimd", 12),
    Run("2026-07-28", "auth/scope-from-www-authenticate", 14),
    Run("2026-07-28", "auth/scope-from-scopes-supported", 14),
    Run("2026-07-28", "auth/scope-omitted-when-undefined", 14),
    Run("2026-07-28", "auth/scope-step-up", 27),
    Run("2026-07-28", "auth/scope-retry-limit", 13, error_allowed=True),
    Run("2026-07-28", "auth/token-endpoint-auth-basic", 19),
    Run("2026-07-28", "auth/token-endpoint-auth-post", 19),
    Run("2026-07-28", "auth/token-endpoint-auth-none", 19),
    Run("2026-07-28", "auth/pre-registration", 12),
    Run("2026-07-28", "auth/resource-mismatch", 2, error_allowed=True),
    Run("2026-07-28", "auth/offline-access-scope", 12),
    Run("2026-07-28", "auth/offline-access-not-supported", 14),
    Run("2026-07-28", "auth/authorization-server-migration", 27),
    Run("2026-07-28", "auth/iss-supported", 14),
    Run("2026-07-28", "auth/iss-not-advertised", 14),
    Run("2026-07-28", "auth/iss-supported-missing", 8, error_allowed=True),
    Run("2026-07-28", "auth/iss-wrong-issuer", 8, error_allowed=True),
    Run("2026-07-28", "auth/iss-unexpected", 8, error_allowed=True),
    Run("2026-07-28", "auth/iss-normalized", 8, error_allowed=True),
    Run("2026-07-28", "auth/metadata-issuer-mismatch", 3, error_allowed=True),
    Run("2025-03-26", "auth/2025-03-26-oauth-metadata-backcompat", 13),
    Run("2025-03-26", "auth/2025-03-26-oauth-endpoint-fallback", 8),
    Run("2025-11-25", "auth/client-credentials-jwt", 9, is_extension=True),
    Run("2025-11-25", "auth/client-credentials-basic", 9, is_extension=True),
    Run("2025-11-25", "auth/enterprise-managed-authorization", 10, is_extension=True),
    Run("2025-11-25", "auth/dpop", 12, is_extension=True),
    Run("2025-11-25", "auth/dpop-nonce", 14, is_extension=True),
    Run("2025-11-25", "auth/wif-jwt-bearer", 9, is_extension=True),
]

SAME_WIRE = "its server speaks 2025-11-25 there, too"
SKILLS = "skills are not supported yet"
NOT_RUN = {
    "2025-06-18 initialize": SAME_WIRE,
    "2025-06-18 tools_call": SAME_WIRE,
    "2025-06-18 auth/token-endpoint-auth-basic": SAME_WIRE,
    "2025-06-18 auth/token-endpoint-auth-post": SAME_WIRE,
    "2025-06-18 auth/token-endpoint-auth-none": SAME_WIRE,
    "extension sep-2640-client-no-prefetch": SKILLS,
    "extension sep-2640-client-verify-digest": SKILLS,
    "extension sep-2640-client-verify-size": SKILLS,
    "extension sep-2640-client-verify-frontmatter": SKILLS,
}
"""Why some of what the suite lists is not run."""

NOT_PROXIED = "the login is that of the proxy's own connection, which is such a client"
PROXIED = [replace(run, proxied=True) for run in RUNS if not run.scenario.startswith("auth/")]
"""Through a proxy, all are run but those of a login: `NOT_PROXIED` says why."""


def require_all(scenarios: Collection[str]) -> None:
    """Make sure that each of the suite's *scenarios* is run, or not run for a reason that holds.

    Raises:
        Unusable: One of them is neither run nor named, or one that is named is not listed.
    """
    runs = {run.listed_as for run in RUNS}
    if missing := sorted({*scenarios} - runs - NOT_RUN.keys()):
        raise Unusable(f"the suite lists scenarios that are neither run nor in NOT_RUN: {', '.join(missing)}")
    if gone := sorted((runs | NOT_RUN.keys()) - {*scenarios}):
        raise Unusable(f"the suite does not list these scenarios: {', '.join(gone)}")


async def play(run: Run, node: str) -> Outcome:
    """Let the suite start its server, and the client against it."""
    folder, begun = emptied(str(run)), time.monotonic()
    await run_suite(node, arguments(run, folder), folder, WHOLE_RUN)
    checks, ended = found_in(folder)
    found = faults(run, checks, ended)
    return Outcome(str(run), passed(checks), run.checks, "checks", found, folder, time.monotonic() - begun)


def arguments(run: Run, folder: Path) -> list[str]:
    """The suite hands its ``--command`` to a shell, which it kills in the end: hence the ``exec``."""
    client = [sys.executable, str(HERE / "witness.py"), str(folder / "ended"), str(CLIENT)]
    client += [sys.executable, str(HERE / "client.py"), *(["--proxy"] if run.proxied else [])]
    return [
        *("client", "--scenario", run.scenario),
        *(() if run.is_extension else ("--spec-version", run.version)),
        *("--timeout", str(int(WHOLE_RUN * 1000)), "--command", f"exec {shlex.join(client)}"),
    ]


def found_in(folder: Path) -> tuple[list[Check], int | None]:
    """What a run has left: the suite's checks, and how the client ended; None where it did not in its time."""
    checks: list[Check] = []
    for file in folder.glob("**/checks.json"):
        checks += read_checks(file.read_text())
    ended = folder / "ended"
    text = ended.read_text() if ended.is_file() else "timeout"
    return checks, None if text == "timeout" else int(text)
