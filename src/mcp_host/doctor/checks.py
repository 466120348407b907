"""The rules that are checked, each with its section of the specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mcp_host.doctor import judges
from mcp_host.doctor.exchanges import EXCHANGES, FIELDS
from mcp_host.doctor.judges import Finding, Judge
from mcp_host.doctor.seen import Host, Seen
from mcp_host.errors import TooManySteps

Era: TypeAlias = Literal["both", "legacy", "modern"]
Level: TypeAlias = Literal["MUST", "SHOULD"]
Verdict: TypeAlias = Literal["passed", "failed", "warning", "skipped"]

SPECIFICATION = "https://modelcontextprotocol.io/specification"


@dataclass(frozen=True, slots=True)
class Check:
    """One rule, and how an exchange shows whether it is kept."""

    name: str
    exchange: str
    level: Level
    section: str
    """The page and the heading, below the URL of a revision."""
    rule: str
    judge: Judge
    era: Era = "both"

    def applies(self, *, stateless: bool) -> bool:
        """Whether the rule is one of 2026-07-28, which is *stateless*, or else of 2025-11-25."""
        legacy = self.era == "legacy" or EXCHANGES[self.exchange].legacy
        return not legacy if stateless else self.era != "modern"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a check."""

    check: Check
    verdict: Verdict
    seen: str


def decide(check: Check, host: Host, seen: Seen | None) -> Outcome:
    """The outcome of a *check* of *host*; *seen* is None if the exchange did not take place."""
    if (reason := omitted(check.exchange, host)) is not None:
        return Outcome(check, "skipped", reason)
    try:
        finding = Finding("skipped", "not run") if seen is None else check.judge(seen)
    except TooManySteps as exc:  # the report of all else must not fail for it
        finding = judges.broken(f"too large to be checked: {exc}")
    verdict: Verdict = "skipped"
    match finding.kind:
        case "kept":
            verdict = "passed"
        case "broken":
            verdict = "failed" if check.level == "MUST" else "warning"
        case "odd":
            verdict = "warning"
    return Outcome(check, verdict, finding.seen)


def omitted(exchange: str, host: Host) -> str | None:
    """Why an exchange does not take place with *host*; None if it does."""
    row = EXCHANGES[exchange]
    if row.legacy and host.stateless:
        return "not of this revision"
    if row.needs and not host.declares(row.needs):
        return f"{row.needs} is not declared"
    if row.lacks and host.declares(row.lacks):
        return f"{row.lacks} is declared"
    return None


PING = "basic/utilities/ping#behavior-requirements"
CANCELLATION = "basic/utilities/cancellation"
PROGRESS = "basic/utilities/progress"
SAMPLING = "client/sampling"
ELICITATION = "client/elicitation"
ROOTS = "client/roots"
RESULT = "schema#createmessageresult"
MRTR = "basic/patterns/mrtr#client-requirements-basic-workflow"
BALANCE = f"{SAMPLING}#tool-use-and-result-balance"
CONTENT_RULE = "Both parties SHOULD validate message content"
ROLES: dict[str, object] = {"enum": ["user", "assistant"]}
TEXT: dict[str, object] = {"type": "string"}


def takes(name: str, what: str, section: str) -> Check:
    """A request with *what* gets a result."""
    return Check(f"takes-{name}", name, "MUST", section, f"A request with {what} is answered", judges.answered)


def fills(name: str) -> Check:
    rule = "Clients SHOULD validate all responses against the provided schema"
    return Check(f"form-{name}", "form", "SHOULD", f"{ELICITATION}#form-mode-security", rule, judges.field(name))


# fmt: off
CHECKS: Sequence[Check] = (
    Check("initialized", "call", "MUST", "basic/lifecycle#initialization",
        "After successful initialization, the client MUST send an `initialized` notification", judges.initialized, "legacy"),
    Check("client-info", "call", "SHOULD", "basic/index#meta",
        "Clients SHOULD include `clientInfo` on every request", judges.named, "modern"),
    Check("progress-token", "call", "MUST", f"{PROGRESS}#progress-flow",
        "Progress tokens MUST be a string or integer value", judges.bad_token, "legacy"),
    Check("elicitation-modes", "call", "MUST", f"{ELICITATION}#capabilities",
        "Clients declaring the `elicitation` capability MUST support at least one mode", judges.modes),
    Check("roots-changed", "call", "MUST", "basic/lifecycle#operation",
        "Both parties MUST only use capabilities that were successfully negotiated", judges.roots_changed, "legacy"),

    Check("ping", "ping", "MUST", PING, "The receiver MUST respond promptly with an empty response", judges.pinged),
    Check("unknown-method", "unknown-method", "MUST", "basic/index#messages",
        "All messages MUST follow the JSON-RPC 2.0 specification: error -32601 for an unknown method", judges.refuses(-32601)),
    Check("unknown-notification", "unknown-notification", "MUST", "basic/index#notifications",
        "The receiver of a notification MUST NOT send a response, and continues", judges.alive),
    Check("unknown-cancelled", "unknown-cancelled", "SHOULD", f"{CANCELLATION}#error-handling",
        "Cancellation of unknown request IDs SHOULD be ignored", judges.alive),
    Check("tools-changed", "tools-changed", "MUST", "basic/index#notifications",
        "A notification that the list of tools has changed ends nothing", judges.alive),

    Check("new-request-ids", "call", "MUST", MRTR,
        "The JSON-RPC `id` MUST be different between the initial request and the retry", judges.new_ids, "modern"),
    Check("request-state", "call", "MUST", MRTR, "The client MUST echo back the exact value of `requestState`", judges.states, "modern"),
    Check("all-inputs", "parallel", "MUST", MRTR,
        "The client MUST construct the requested inputs before retrying the original request", judges.whole_round, "modern"),

    Check("roots", "roots", "MUST", f"{ROOTS}#listing-roots", "`roots/list` is answered", judges.answered),
    Check("roots-list", "roots", "MUST", "schema#listrootsresult", "The result has an array of roots, each with a `uri`",
        judges.member("roots", judges.ROOT_LIST)),
    Check("roots-uri", "roots", "MUST", f"{ROOTS}#root", "`uri` MUST be a `file://` URI", judges.of_result(judges.foreign_uri, "roots")),
    Check("undeclared-roots", "undeclared-roots", "SHOULD", f"{ROOTS}#error-handling",
        "Client does not support roots: `-32601`", judges.refuses(-32601)),

    Check("sampling", "sampling", "MUST", f"{SAMPLING}#creating-messages", "`sampling/createMessage` is answered", judges.answered),
    Check("sampling-role", "sampling", "MUST", f"{SAMPLING}#messages", "`role` is \"user\" or \"assistant\"",
        judges.member("role", ROLES)),
    Check("sampling-content", "sampling", "MUST", RESULT, "`content` is a block, or an array of blocks",
        judges.of_result(judges.bad_content, "content")),
    Check("sampling-model", "sampling", "MUST", RESULT, "`model` is the name of the model", judges.member("model", TEXT)),
    Check("sampling-stop-reason", "sampling", "MUST", RESULT, "`stopReason` is a string, if it is there",
        judges.member("stopReason", TEXT, optional=True)),
    Check("max-tokens", "few-tokens", "SHOULD", "schema#createmessagerequestparams",
        "`maxTokens` is the requested maximum number of tokens", judges.of_result(judges.too_long, "content"), "legacy"),
    Check("max-tokens", "few-tokens", "MUST", f"{SAMPLING}#sampling-parameters",
        "The client MUST respect the `maxTokens` parameter", judges.of_result(judges.too_long, "content"), "modern"),
    takes("preferences", "hints, a system prompt and other parameters, which the client may ignore,", f"{SAMPLING}#model-preferences"),
    takes("context", "`includeContext`, for a client that declares `sampling.context`,", f"{SAMPLING}#capabilities"),
    takes("turns", "several turns", f"{SAMPLING}#messages"),
    takes("several-blocks", "an array of blocks", "schema#samplingmessage"),
    takes("meta", "`_meta`, whose values the client MUST NOT make assumptions about,", "basic/index#meta"),
    takes("image", "an image", f"{SAMPLING}#image-content"),
    takes("audio", "audio", f"{SAMPLING}#audio-content"),
    Check("parallel", "parallel", "MUST", "basic/index#responses", "Each of two requests at the same time gets its answer", judges.answered),
    Check("sampling-progress", "sampling-progress", "MUST", f"{PROGRESS}#progress-flow",
        "The `progress` value MUST increase with each notification", judges.of_progress(judges.not_increasing)),
    Check("progress-tokens", "sampling-progress", "MUST", f"{PROGRESS}#behavior-requirements",
        "Progress notifications MUST only reference tokens that were provided in an active request", judges.of_progress(judges.foreign_token)),
    Check("late-progress", "sampling-progress", "MUST", f"{PROGRESS}#implementation-notes",
        "Progress notifications MUST stop after completion", judges.of_progress(judges.late_progress)),
    Check("cancelled", "cancelled", "SHOULD", f"{CANCELLATION}#behavior-requirements",
        "Receivers of cancellation SHOULD not send a response for the cancelled request", judges.not_cancelled),
    Check("after-cancelled", "cancelled", "MUST", f"{CANCELLATION}#timing-considerations",
        "Both parties MUST handle race conditions of cancellation gracefully", judges.alive),
    Check("denied", "denied", "SHOULD", f"{SAMPLING}#error-handling", "User rejected sampling request: `-1`", judges.denied),
    Check("unknown-content", "unknown-content", "SHOULD", f"{SAMPLING}#security-considerations", CONTENT_RULE, judges.refuses(None)),

    takes("tool-choice-required", "tools, one of which the model must use,", f"{SAMPLING}#sampling-with-tools"),
    Check("tool-choice-required", "tool-choice-required", "MUST", f"{SAMPLING}#tool-choice-modes",
        "`{mode: \"required\"}`: Model MUST use at least one tool before completing", judges.of_result(judges.no_use, "content", judges.not_even_completed)),
    Check("tool-use-role", "tool-choice-required", "MUST", f"{SAMPLING}#message-roles",
        "Tool use requests are sent with the \"assistant\" role", judges.of_uses(judges.wrong_role)),
    Check("tool-use", "tool-choice-required", "MUST", "schema#toolusecontent",
        "A tool use has an `id`, a `name` and an `input`", judges.of_uses(judges.bad_content)),
    Check("tool-use-ids", "tool-choice-required", "MUST", BALANCE,
        "Each tool use is matched by a tool result: its `id` is unique", judges.of_uses(judges.repeated_id)),
    Check("tool-use-names", "tool-choice-required", "MUST", f"{SAMPLING}#tools-in-sampling",
        "The tools are those of the request", judges.of_uses(judges.unknown_tool)),
    Check("tool-use-input", "tool-choice-required", "SHOULD", "schema#toolusecontent",
        "The arguments conform to the tool's input schema", judges.of_uses(judges.bad_input)),
    Check("tool-use-stop-reason", "tool-choice-required", "SHOULD", RESULT,
        "`stopReason` \"toolUse\": The model wants to use one or more tools", judges.of_uses(judges.wrong_stop_reason)),
    takes("tool-choice-none", "tools that the model must not use", f"{SAMPLING}#sampling-with-tools"),
    Check("tool-choice-none", "tool-choice-none", "MUST", f"{SAMPLING}#tool-choice-modes",
        "`{mode: \"none\"}`: Model MUST NOT use any tools", judges.of_result(judges.any_use, "content")),
    takes("tool-choice-auto", "tools that the model may use", f"{SAMPLING}#sampling-with-tools"),
    takes("tool-choice-absent", "tools and no `toolChoice`, one with `$defs` in its schema,", "basic/index#json-schema-usage"),
    takes("tool-results", "two tool uses and their results", f"{SAMPLING}#multi-turn-tool-loop"),
    takes("tool-errors", "results that are an error, an image and structured content", "schema#toolresultcontent"),
    Check("missing-result", "missing-result", "SHOULD", f"{SAMPLING}#error-handling",
        "Tool result missing in request: `-32602`", judges.refuses(-32602), "legacy"),
    Check("mixed-results", "mixed-results", "SHOULD", f"{SAMPLING}#error-handling",
        "Tool results mixed with other content: `-32602`", judges.refuses(-32602), "legacy"),
    Check("missing-result", "missing-result", "SHOULD", f"{SAMPLING}#security-considerations", CONTENT_RULE, judges.refuses(None), "modern"),
    Check("mixed-results", "mixed-results", "SHOULD", f"{SAMPLING}#security-considerations", CONTENT_RULE, judges.refuses(None), "modern"),
    Check("orphan-result", "orphan-result", "SHOULD", f"{SAMPLING}#security-considerations", CONTENT_RULE, judges.refuses(None)),
    Check("undeclared-tools", "undeclared-tools", "MUST", "schema#createmessagerequestparams",
        "The client MUST return an error if `tools` is provided but `sampling.tools` is not declared", judges.refuses(None)),

    Check("form", "form", "MUST", f"{ELICITATION}#form-mode-elicitation-requests", "A form is answered", judges.answered),
    Check("form-action", "form", "MUST", f"{ELICITATION}#response-actions", "`action` is accept, decline or cancel",
        judges.member("action", judges.ACTIONS)),
    Check("form-content", "form", "MUST", "schema#elicitresult", "Values are texts, numbers, booleans or arrays of texts",
        judges.of_accepted(judges.bad_form)),
    *map(fills, FIELDS),
    Check("form-without-mode", "form-without-mode", "MUST", f"{ELICITATION}#elicitation-requests",
        "Clients MUST treat requests without a `mode` field as form mode", judges.answered),
    Check("form-defaults", "form-defaults", "SHOULD", f"{ELICITATION}#requested-schema",
        "Clients that support defaults SHOULD pre-populate form fields with these values", judges.of_accepted(judges.without_defaults)),
    Check("form-decline", "form-decline", "SHOULD", f"{ELICITATION}#response-actions",
        "Decline: the `content` field is typically omitted", judges.chosen("decline")),
    Check("form-cancel", "form-cancel", "SHOULD", f"{ELICITATION}#response-actions",
        "Cancel: the `content` field is typically omitted", judges.chosen("cancel")),
    Check("undeclared-form", "undeclared-form", "MUST", f"{ELICITATION}#error-handling",
        "A mode not declared in client capabilities: `-32602`", judges.refuses(-32602)),
    Check("url", "url", "MUST", f"{ELICITATION}#url-mode-elicitation-requests", "A URL is answered", judges.answered),
    Check("url-action", "url", "MUST", f"{ELICITATION}#response-actions", "`action` is accept, decline or cancel",
        judges.member("action", judges.ACTIONS)),
    Check("url-content", "url", "MUST", f"{ELICITATION}#response-actions", "For URL mode: the `content` field is omitted",
        judges.of_result(judges.url_content)),
    Check("unknown-elicitation", "unknown-elicitation", "MUST", f"{ELICITATION}#completion-notifications-for-url-mode-elicitation",
        "Clients MUST ignore notifications referencing unknown or already-completed IDs", judges.alive),
    Check("undeclared-url", "undeclared-url", "MUST", f"{ELICITATION}#error-handling",
        "A mode not declared in client capabilities: `-32602`", judges.refuses(-32602)),
)
# fmt: on
