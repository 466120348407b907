"""Deciding what an exchange shows: from what was seen to a finding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

from mcp_host.doctor.exchanges import DEFAULTS, FEW_TOKENS, FIELDS, PROGRESS_TOKEN, WEATHER
from mcp_host.doctor.seen import Refused, Seen
from mcp_host.elicitation.form import FORMATS
from mcp_host.errors import excerpt, quoted
from mcp_host.json_schema.schema import Schema
from mcp_host.protocol.jsonrpc import Failure, Params

MOST_PER_TOKEN = 16  # characters; a token of prose has about four
PROGRESS = "notifications/progress"
REJECTED = -1  # "User rejected sampling request"


class Finding(NamedTuple):
    """What was seen of a rule. A *broken* rule fails the check, or is a warning if it is a SHOULD."""

    kind: Literal["kept", "broken", "odd", "skipped"]
    """"odd" is a warning for any rule: it does not break it, but the rest of the exchange could not be seen."""
    seen: str


Judge: TypeAlias = Callable[[Seen], Finding]
Problem: TypeAlias = Callable[[Params], str | None]
"""What is wrong with a result, if anything."""


def kept(seen: str) -> Finding:
    return Finding("kept", seen)


def broken(seen: str) -> Finding:
    return Finding("broken", seen)


def odd(seen: str) -> Finding:
    return Finding("odd", seen)


def skipped(why: str) -> Finding:
    return Finding("skipped", why)


# Of any request


def answered(seen: Seen) -> Finding:
    """Every request got a result. An error is one of the host's model or user, and no broken rule."""
    for answer in seen.answers:
        match answer:
            case None:  # since 2026-07-28 that is all that is seen of an error
                return odd("the call was not retried") if seen.host.stateless else broken("no answer")
            case Refused(code=code):
                return skipped("the user rejected it") if code == REJECTED else odd(str(answer))
    return kept("a result")


def alive(seen: Seen) -> Finding:
    """The ping at the end of the exchange got its answer."""
    match seen.answers[-1]:
        case {}:
            return kept("it answered the ping that followed")
        case None:
            return broken("no answer to the ping that followed")
        case answer:
            return broken(f"the ping that followed got {_shown(answer)}")


def pinged(seen: Seen) -> Finding:
    return kept("an empty result") if seen.answers[0] == {} else broken(_shown(seen.answers[0]))


def refuses(code: int | None) -> Judge:
    """The first request is refused, with this error code. Since 2026-07-28 the call then is not retried."""

    def judge(seen: Seen) -> Finding:
        match seen.answers[0]:
            case None:
                return kept("the call was not retried") if seen.host.stateless else broken("no answer")
            case Refused() as refusal:
                return kept(str(refusal)) if code in (None, refusal.code) else broken(f"{refusal}; not {code}")
        return broken("it was answered with a result")

    return judge


def denied(seen: Seen) -> Finding:
    """The user was asked to reject the request."""
    match seen.answers[0]:
        case None:
            return broken("no answer")
        case Refused() as refusal:
            return kept(str(refusal)) if refusal.code == REJECTED else broken(f"{refusal}; not {REJECTED}")
    return skipped("it was not rejected")


def of_result(problem: Problem, part: str = "", unless: Problem = lambda result: None) -> Judge:
    """Judge the first result, of which *part* is shown, *unless* there is a reason not to.

    Without a result nothing is judged: that there is one is the subject of another check.
    """

    def judge(seen: Seen) -> Finding:
        answer = seen.answers[0]
        if not isinstance(answer, dict):
            return skipped(_shown(answer))
        if (reason := unless(answer)) is not None:
            return skipped(reason)
        found = problem(answer)
        return kept(_shown(answer.get(part) if part else answer)) if found is None else broken(found)

    return judge


def member(name: str, schema: Params, *, optional: bool = False) -> Judge:
    """A member of the result has this shape."""
    shape = Schema(schema)

    def problem(result: Params) -> str | None:
        if name not in result:
            return None if optional else f"{name} is missing"
        return shape.mismatch(result[name])

    return of_result(problem, name)


# Sampling

TEXT: Params = {"type": "string"}
MEDIA: Params = {"properties": {"data": TEXT, "mimeType": TEXT}, "required": ["data", "mimeType"]}
BLOCKS: Mapping[str, Schema] = {
    "text": Schema({"properties": {"text": TEXT}, "required": ["text"]}),
    "image": Schema(MEDIA),
    "audio": Schema(MEDIA),
    "tool_use": Schema(
        {
            "properties": {"id": {**TEXT, "minLength": 1}, "name": TEXT, "input": {"type": "object"}},
            "required": ["id", "name", "input"],
        }
    ),
}
"""The content of an assistant's message, by its type."""
INPUT = Schema(WEATHER["inputSchema"])


def blocks_of(result: Params) -> list[Any]:
    """The content of a message, as a list."""
    content = result.get("content")
    return content if isinstance(content, list) else [content]


def uses_in(result: Params) -> list[Params]:
    return [block for block in blocks_of(result) if isinstance(block, dict) and block.get("type") == "tool_use"]


def bad_content(result: Params) -> str | None:
    for block in blocks_of(result):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in BLOCKS:
            return f"not a block of an answer: {_shown(block)}"
        if (mismatch := BLOCKS[kind].mismatch(block)) is not None:
            return f"{kind}: {mismatch}"
    return None


def too_long(result: Params) -> str | None:
    texts = [block.get("text", "") for block in blocks_of(result) if isinstance(block, dict)]
    length = sum(len(text) for text in texts if isinstance(text, str))
    return f"{length} characters for {FEW_TOKENS} tokens" if length > FEW_TOKENS * MOST_PER_TOKEN else None


def no_use(result: Params) -> str | None:
    return None if uses_in(result) else "the answer uses no tool"


def not_even_completed(result: Params) -> str | None:
    return "it was cut off" if result.get("stopReason") == "maxTokens" else None


def any_use(result: Params) -> str | None:
    return f"the answer uses {quoted(uses_in(result)[0].get('name'))}" if uses_in(result) else None


of_uses = partial(of_result, part="content", unless=no_use)
"""Judge a result that uses tools; whether it has to is the subject of another check."""


def repeated_id(result: Params) -> str | None:
    ids = [quoted(use.get("id")) for use in uses_in(result)]
    return f"an id is used twice: {', '.join(ids)}" if len({*ids}) < len(ids) else None


def unknown_tool(result: Params) -> str | None:
    names = [use.get("name") for use in uses_in(result)]
    return next((f"{quoted(name)} was not offered" for name in names if name != WEATHER["name"]), None)


def bad_input(result: Params) -> str | None:
    return next(filter(None, [INPUT.mismatch(use.get("input")) for use in uses_in(result)]), None)


def wrong_stop_reason(result: Params) -> str | None:
    reason = result.get("stopReason")
    return None if reason == "toolUse" else f"the stop reason is {_shown(reason)}"


def wrong_role(result: Params) -> str | None:
    return None if result.get("role") == "assistant" else f"the role is {_shown(result.get('role'))}"


def not_cancelled(seen: Seen) -> Finding:
    """A host that has answered the ping which followed has read the cancellation: no result may come after that."""
    responses = seen.host.unexpected
    errors = [each for each in responses[seen.unexpected_before :] if isinstance(each, Failure)]
    if errors:
        return broken(f"error {errors[0].code}: {excerpt(errors[0].message)}")
    if responses[seen.unexpected_at_end :]:
        return broken("a result came after the answer to the ping that followed")
    crossed = len(responses) > seen.unexpected_before
    return skipped("the result crossed the cancellation") if crossed else kept("no response came")


# Progress


def of_progress(problem: Callable[[list[Params], int], str | None]) -> Judge:
    """Judge the params of all progress notifications, and how many came before the answer."""

    def judge(seen: Seen) -> Finding:
        sent = seen.host.notifications
        reports = [each.params for each in sent if each.method == PROGRESS]
        early = len([each for each in sent[: seen.notifications_at_end] if each.method == PROGRESS])
        if not reports:
            return skipped("no progress was reported")
        found = problem(reports, early)
        return kept(f"{early} reports") if found is None else broken(found)

    return judge


def not_increasing(reports: list[Params], early: int) -> str | None:
    values = [report.get("progress") for report in reports[:early]]
    pairs = pairwise(value if isinstance(value, int | float) else math.nan for value in values)
    return None if all(one < other for one, other in pairs) else f"the values are {quoted(values)}"


def foreign_token(reports: list[Params], early: int) -> str | None:
    tokens = [report.get("progressToken") for report in reports]
    return next((f"no request has the token {_shown(token)}" for token in tokens if token != PROGRESS_TOKEN), None)


def late_progress(reports: list[Params], early: int) -> str | None:
    return "progress was reported after the answer" if len(reports) > early else None


# Elicitation

ACTIONS: Params = {"enum": ["accept", "decline", "cancel"]}
CONTENT = Schema(
    {
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": ["string", "number", "boolean"]}, {"type": "array", "items": {"type": "string"}}]
        },
    }
)


def not_accepted(result: Params) -> str | None:
    return None if result.get("action") == "accept" else f"the answer is {_shown(result.get('action'))}"


of_accepted = partial(of_result, part="content", unless=not_accepted)
"""Judge a form that was accepted."""


def content_of(result: Params) -> Params:
    content = result.get("content")
    return content if isinstance(content, dict) else {}


def bad_form(result: Params) -> str | None:
    return CONTENT.mismatch(result.get("content"))


def field(name: str) -> Judge:
    """The value of one field of the form fits its schema, and its format."""
    schema, shape = FIELDS[name], Schema(FIELDS[name])

    def problem(result: Params) -> str | None:
        value = content_of(result).get(name)
        mismatch = shape.mismatch(value)
        if mismatch is None and "format" in schema and not FORMATS[schema["format"]](str(value)):
            return f"{quoted(value)} is no {schema['format']}"
        return mismatch

    return of_accepted(problem)


def without_defaults(result: Params) -> str | None:
    missing = [name for name, schema in DEFAULTS.items() if content_of(result).get(name) != schema["default"]]
    return f"not the default: {', '.join(missing)}" if missing else None


def chosen(action: str) -> Judge:
    """The user did what the form asks for; no content goes with it."""

    def judge(seen: Seen) -> Finding:
        answer = seen.answers[0]
        if not isinstance(answer, dict) or answer.get("action") != action:
            return skipped(f"the user did something else: {_shown(answer)}")
        return broken("there is content") if answer.get("content") else kept(action)

    return judge


def url_content(result: Params) -> str | None:
    return "there is content" if "content" in result else None


# Roots


def foreign_uri(result: Params) -> str | None:
    roots = result.get("roots")
    uris = [root.get("uri") for root in roots if isinstance(root, dict)] if isinstance(roots, list) else []
    texts = [uri for uri in uris if isinstance(uri, str)]
    return next((f"{quoted(uri)} is no file:// URI" for uri in texts if not uri.startswith("file://")), None)


ROOT_LIST: Params = {
    "type": "array",
    "items": {"type": "object", "properties": {"uri": TEXT, "name": TEXT}, "required": ["uri"]},
}


# Of the host, over all its calls


def modes(seen: Seen) -> Finding:
    declared = seen.host.capabilities.get("elicitation")
    if declared is None:
        return skipped("elicitation is not declared")
    any_mode = seen.host.declares("elicitation.form") or seen.host.declares("elicitation.url")
    return kept(_shown(declared)) if any_mode else broken(_shown(declared))


def initialized(seen: Seen) -> Finding:
    return kept("it came") if seen.host.initialized else broken("it did not come before the call")


def named(seen: Seen) -> Finding:
    return kept(excerpt(f"{seen.host.name} {seen.host.version}")) if seen.host.name else broken("there is no name")


def bad_token(seen: Seen) -> Finding:
    wrong = [token for token in seen.host.tokens if isinstance(token, bool) or not isinstance(token, str | int)]
    if not seen.host.tokens:
        return skipped("the calls have no progress token")
    return broken(f"the token is {_shown(wrong[0])}") if wrong else kept(_shown(seen.host.tokens[0]))


def roots_changed(seen: Seen) -> Finding:
    if all(each.method != "notifications/roots/list_changed" for each in seen.host.notifications):
        return skipped("no change was announced")
    declared = seen.host.declares("roots") and seen.host.capabilities["roots"].get("listChanged")
    return kept("declared, and sent") if declared else broken("sent, and not declared")


def new_ids(seen: Seen) -> Finding:
    same = [id for id, retry in seen.host.retries if id == retry]
    if not seen.host.retries:
        return skipped("no call was retried")
    return broken(f"the retry has the id {_shown(same[0])} again") if same else kept("the ids differ")


def states(seen: Seen) -> Finding:
    if seen.host.retries_without_state:
        return broken("a retry has no requestState")
    return kept("every retry has it") if seen.host.retries else skipped("no call was retried")


def whole_round(seen: Seen) -> Finding:
    """Two inputs that were requested together came together."""
    if len(seen.answered_by) < len(seen.answers):
        return skipped("no answer")
    return kept("both came") if len({*seen.answered_by}) == 1 else broken("they came in several retries")


def _shown(value: object) -> str:
    """An answer of the host, or a part of one."""
    if value is None:
        return "none"
    return str(value) if isinstance(value, Refused) else quoted(value)
