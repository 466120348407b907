"""Each check finds the host that breaks its rule, and no other check does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from anyio import fail_after
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.doctor import Doctor, seen
from mcp_host.doctor.checks import CHECKS, Check, decide
from mcp_host.doctor.exchanges import FIELDS
from mcp_host.doctor.judges import answered, named
from mcp_host.doctor.seen import Refused, Seen
from mcp_host.protocol.jsonrpc import Notification
from tests.doctor.hosts import FILLED_IN, FULL, HELLO, LEGACY, MODERN, Answer, Host, Reports, Wire, progress
from tests.extent import saturated

IN_TIME = 25.0
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
ERROR = Refused(-32000, "no")


def answers(exchange: str, answer: Callable[[Wire], Answer] | Answer) -> Host:
    return Host(answers={exchange: answer})


def with_(exchange: str, **members: Any) -> Host:
    """The right answer with other members."""
    return answers(exchange, lambda right: right | members)


def without(exchange: str, member: str) -> Host:
    return answers(exchange, lambda right: {name: value for name, value in right.items() if name != member})


def use(**members: Any) -> Wire:
    return {"type": "tool_use", "id": "1", "name": "get_weather", "input": {"city": "Paris"}} | members


def uses(*blocks: Wire) -> Host:
    return with_("tool-choice-required", content=list(blocks))


def filled_in(**values: object) -> Host:
    return with_("form", content=FILLED_IN | values)


def silent(exchange: str) -> Host:
    return answers(exchange, None)


def bad_ping(exchange: str) -> Host:
    return Host(pings={exchange: ERROR})


def lacking(capability: str, exchange: str, answer: Answer) -> Host:
    """A host without one capability, which answers nevertheless what needs it."""
    name, _, part = capability.partition(".")
    rest: Wire = {key: value for key, value in FULL[name].items() if key != part}
    capabilities = FULL | {name: rest} if part else {key: value for key, value in FULL.items() if key != name}
    return Host(capabilities=capabilities, answers={exchange: answer})


# fmt: off
WRONG: Mapping[str, Host] = {
    "initialized": Host(initializes=False),
    "client-info": Host(named=False),
    "progress-token": Host(token=True),
    "elicitation-modes": Host(capabilities=FULL | {"elicitation": {"voice": {}}}),
    "roots-changed": Host(capabilities=FULL | {"roots": {}}, reports=[Reports("roots", {}, "notifications/roots/list_changed")]),
    "ping": with_("ping", pong=True),
    "unknown-method": answers("unknown-method", Refused(-32602, "no")),
    "unknown-notification": bad_ping("unknown-notification"),
    "unknown-cancelled": bad_ping("unknown-cancelled"),
    "tools-changed": Host(pings={"tools-changed": None}),
    "new-request-ids": Host(same_ids=True),
    "request-state": Host(loses_state="unknown-content", answers={"unknown-content": HELLO}),
    "all-inputs": Host(one_by_one=True),

    "roots": silent("roots"),
    "roots-list": with_("roots", roots=[{"name": "home"}]) ,
    "roots-uri": with_("roots", roots=[{"uri": "https://example.com"}]),
    "undeclared-roots": lacking("roots", "undeclared-roots", ERROR),

    "sampling": silent("sampling"),
    "sampling-role": with_("sampling", role="system"),
    "sampling-content": with_("sampling", content={"type": "hologram"}),
    "sampling-model": without("sampling", "model"),
    "sampling-stop-reason": with_("sampling", stopReason=None),
    "max-tokens": with_("few-tokens", content={"type": "text", "text": "one " * 1000}),
    "takes-preferences": answers("preferences", ERROR),
    "takes-context": answers("context", ERROR),
    "takes-turns": answers("turns", ERROR),
    "takes-several-blocks": answers("several-blocks", ERROR),
    "takes-meta": answers("meta", ERROR),
    "takes-image": answers("image", ERROR),
    "takes-audio": answers("audio", ERROR),
    "parallel": silent("parallel"),
    "sampling-progress": Host(reports=[progress(2), progress("3")]),
    "progress-tokens": Host(reports=[progress(1), progress(2, "other")]),
    "late-progress": Host(reports=[progress(1), progress(2, exchange="parallel")]),
    "cancelled": Host(answers_cancelled=HELLO),
    "after-cancelled": bad_ping("cancelled"),
    "denied": answers("denied", ERROR),
    "unknown-content": answers("unknown-content", HELLO),

    "takes-tool-choice-required": answers("tool-choice-required", ERROR),
    "tool-choice-required": answers("tool-choice-required", HELLO),
    "tool-use-role": with_("tool-choice-required", role="user"),
    "tool-use": uses(use(id="")),
    "tool-use-ids": uses(use(), use()),
    "tool-use-names": uses(use(name="get_time")),
    "tool-use-input": uses(use(input={})),
    "tool-use-stop-reason": with_("tool-choice-required", stopReason="endTurn"),
    "takes-tool-choice-none": answers("tool-choice-none", ERROR),
    "tool-choice-none": with_("tool-choice-none", content=use()),
    "takes-tool-choice-auto": answers("tool-choice-auto", ERROR),
    "takes-tool-choice-absent": answers("tool-choice-absent", ERROR),
    "takes-tool-results": answers("tool-results", ERROR),
    "takes-tool-errors": answers("tool-errors", ERROR),
    "missing-result": answers("missing-result", HELLO),
    "mixed-results": answers("mixed-results", HELLO),
    "orphan-result": answers("orphan-result", HELLO),
    "undeclared-tools": lacking("sampling.tools", "undeclared-tools", HELLO),

    "form": silent("form"),
    "form-action": with_("form", action="accepted"),
    "form-content": filled_in(extra={}),
    "form-text": filled_in(text="too long by far for this field"),
    "form-email": filled_in(email="nobody"),
    "form-uri": filled_in(uri="nowhere"),
    "form-date": filled_in(date="2026-02-30"),
    "form-date-time": filled_in(**{"date-time": "2026-11-22"}),
    "form-number": filled_in(number=101),
    "form-integer": filled_in(integer=1.5),
    "form-boolean": filled_in(boolean="yes"),
    "form-choice": filled_in(choice="blue"),
    "form-titled-choice": filled_in(**{"titled-choice": "Red"}),
    "form-choices": filled_in(choices=[]),
    "form-titled-choices": filled_in(**{"titled-choices": ["Red"]}),
    "form-without-mode": silent("form-without-mode"),
    "form-defaults": with_("form-defaults", content={}),
    "form-decline": with_("form-decline", content={"name": "x"}),
    "form-cancel": with_("form-cancel", content={"name": "x"}),
    "undeclared-form": lacking("elicitation.form", "undeclared-form", {"action": "accept"}),
    "url": silent("url"),
    "url-action": with_("url", action="opened"),
    "url-content": with_("url", content={}),
    "unknown-elicitation": bad_ping("unknown-elicitation"),
    "undeclared-url": lacking("elicitation.url", "undeclared-url", ERROR),
}
# fmt: on
"""By check: the host that breaks its rule, and no other."""


def revisions(check: Check) -> list[str]:
    return [revision for revision in (LEGACY, MODERN) if check.applies(stateless=revision == MODERN)]


def is_error(host: Host, check: Check, revision: str) -> bool:
    """Whether the host may have had an error, of its model for example, and broken no rule."""
    return revision == MODERN or host.answers[check.exchange] is ERROR


async def verdicts(host: Host, revision: str) -> dict[str, str]:
    doctor = Doctor()
    with fail_after(IN_TIME):
        await host.run(doctor, revision)
    [checkup] = doctor.checkups
    assert doctor.complete
    return {outcome.check.name: outcome.verdict for outcome in checkup.outcomes()}


async def test_each_check_finds_the_host_that_breaks_its_rule_and_no_other_does(subtests: pytest.Subtests) -> None:
    for check in CHECKS:
        for revision in revisions(check):
            with subtests.test(check=check.name, revision=revision):
                host = WRONG[check.name]
                found = await verdicts(host, revision)

                wrong = {name: verdict for name, verdict in found.items() if verdict in ("failed", "warning")}
                fails = check.level == "MUST" and not (check.judge is answered and is_error(host, check, revision))
                assert wrong == {check.name: "failed" if fails else "warning"}


def test_every_check_has_a_host_that_breaks_its_rule() -> None:
    assert {check.name for check in CHECKS} == {*WRONG}


@pytest.mark.parametrize(
    ("revision", "skipped"),
    [
        (LEGACY, {"roots-changed", "undeclared-roots", "undeclared-tools", "undeclared-form", "undeclared-url"}),
        (MODERN, {"undeclared-tools"}),
    ],
)
async def test_a_host_that_keeps_every_rule_passes(revision: str, skipped: set[str]) -> None:
    found = await verdicts(Host(), revision)

    assert {name for name, verdict in found.items() if verdict != "passed"} == skipped
    assert {name for name, verdict in found.items() if verdict != "skipped"} == found.keys() - skipped


@given(st.data())
@saturated
def test_no_answer_breaks_a_judge(data: st.DataObject) -> None:
    check = data.draw(st.sampled_from(CHECKS))
    blocks = st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "text", "id", "name", "input", "uri"), JSON))
    values = JSON | blocks | st.lists(blocks, max_size=2) | st.dictionaries(st.sampled_from([*FIELDS]), JSON)
    names = ("role", "content", "model", "stopReason", "action", "roots")
    answers = st.fixed_dictionaries({}, optional=dict.fromkeys(names, values)) | st.just(ERROR) | st.none()
    revision = data.draw(st.sampled_from([LEGACY, MODERN]))
    known = seen.Host(name="a", version="1", revision=revision, stateless=revision == MODERN, capabilities=FULL)
    known.notifications = [
        Notification("notifications/progress", {"progress": data.draw(JSON), "progressToken": 1})
    ] * 2

    decide(check, known, Seen(known, data.draw(st.lists(answers, min_size=2, max_size=2))))


def test_an_answer_that_is_too_large_to_be_checked_breaks_its_rule() -> None:
    known = seen.Host(name="a", version="1", revision=LEGACY, stateless=False, capabilities=FULL)
    [check] = [check for check in CHECKS if check.name == "roots-list"]

    outcome = decide(check, known, Seen(known, [{"roots": [{"uri": "file:///home"}] * 400_000}]))

    assert (outcome.verdict, outcome.seen) == ("failed", "too large to be checked: it takes more than 500000 steps")


def test_the_name_of_a_host_is_shown_without_its_control_characters() -> None:
    known = seen.Host(name="\x1b[2J", version="1", revision=MODERN, stateless=True, capabilities={})

    assert named(Seen(known, [])).seen == "\\x1b[2J 1"


async def test_what_a_host_does_not_declare_is_skipped() -> None:
    found = await verdicts(Host(capabilities={}), MODERN)

    passed = {name for name, verdict in found.items() if verdict == "passed"}
    assert (passed, {*found.values()}) == ({"client-info"}, {"passed", "skipped"})


def test_no_two_checks_of_a_revision_have_one_name() -> None:
    for revision in (LEGACY, MODERN):
        names = [check.name for check in CHECKS if revision in revisions(check)]
        assert len(names) == len({*names})


def test_the_form_has_a_field_of_each_type() -> None:
    assert {*FIELDS} == {*FILLED_IN}
