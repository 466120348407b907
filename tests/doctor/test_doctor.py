"""Our own client under the check-up, and how a check-up goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from anyio import fail_after

from mcp_host import Client, Elicitation, FormRequest, Sampling
from mcp_host.doctor import Doctor
from mcp_host.doctor.seen import Refused
from mcp_host.errors import InputNotGiven, ServerError
from mcp_host.sampling import Allow, Deny, SamplingRequest
from mcp_host.types import CreateMessageResult, ElicitResult
from tests.doctor.hosts import FILLED_IN, HELLO, LEGACY, MODERN, RIGHT, Host
from tests.extent import on_both

IN_TIME = 25.0
SKIPPED = {
    LEGACY: {
        *("roots-changed", "takes-context", "sampling-progress", "progress-tokens", "late-progress"),
        *("undeclared-roots", "undeclared-tools", "undeclared-form", "undeclared-url"),
    },
    MODERN: {"takes-context", "undeclared-tools"},
}


def approve(request: SamplingRequest) -> Allow | Deny:
    last = request.messages[-1].content[0]
    return Deny() if last.type == "text" and "REJECT" in last.text else Allow()


async def model(request: SamplingRequest) -> CreateMessageResult | str:
    if request.must_use_tools:
        return CreateMessageResult.from_wire(RIGHT["tool-choice-required"])
    return "Hello."


async def fill_in(request: FormRequest) -> ElicitResult:
    if "decline" in request.message:
        return ElicitResult(action="decline")
    if "without an answer" in request.message:
        return ElicitResult(action="cancel")
    fields: Any = request.requested_schema["properties"]
    values = {"name": "x"} | FILLED_IN | request.defaults
    return request.accept(**{name: values[name] for name in fields})


async def visit(request: object) -> ElicitResult:
    return ElicitResult(action="accept")


@on_both
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_our_own_client_keeps_every_rule(revision: str) -> None:
    doctor = Doctor(versions=[revision])
    sampling = Sampling(with_tools=model, approve=approve)
    elicitation = Elicitation(form=fill_in, url=visit)
    reports: list[str | None] = []
    with fail_after(IN_TIME):
        async with Client(doctor, sampling=sampling, elicitation=elicitation, roots=["file:///home"]) as client:
            while not doctor.complete:
                try:
                    await client.call_tool("check_host", on_progress=lambda progress: reports.append(progress.message))
                except InputNotGiven:  # what is refused ends the call
                    assert revision == MODERN
            result = await client.call_tool("check_host")

    [checkup] = doctor.checkups
    wrong = [outcome for outcome in checkup.outcomes() if outcome.verdict in ("failed", "warning")]
    assert wrong == []
    assert {outcome.check.name for outcome in checkup.outcomes() if outcome.verdict == "skipped"} == SKIPPED[revision]
    assert reports == [*checkup.seen]
    assert result.text == doctor.text()
    assert (doctor.complete, doctor.failed) == (True, False)


@pytest.mark.fake_clock
async def test_a_host_that_answers_nothing_is_given_up_after_the_timeout() -> None:
    doctor = Doctor(versions=[LEGACY], timeout=60)

    with fail_after(10_000):
        await Silent().run(doctor, LEGACY)

    verdicts = {outcome.check.name: (outcome.verdict, outcome.seen) for outcome in doctor.checkups[0].outcomes()}
    passed = {name for name, (verdict, _) in verdicts.items() if verdict == "passed"}
    assert passed == {"initialized", "progress-token", "elicitation-modes", "cancelled"}
    assert verdicts["ping"] == ("failed", "none")
    assert verdicts["unknown-cancelled"] == ("warning", "no answer to the ping that followed")
    for name in ("unknown-method", "roots", "sampling", "parallel", "form"):
        assert verdicts[name] == ("failed", "no answer")
    assert verdicts["denied"] == ("warning", "no answer")


class Silent(Host):
    """A host that answers no request."""

    def _respond(self, id: object, method: str, params: dict[str, object]) -> bool:
        return True


async def test_a_result_may_cross_its_cancellation_and_an_error_is_one_of_the_cancellation(
    subtests: pytest.Subtests,
) -> None:
    rejected = Refused(0, "Request cancelled")
    for host, expected in (
        (Host(answers_cancelled=HELLO, crosses=True), ("skipped", "the result crossed the cancellation")),
        (Host(answers_cancelled=rejected, crosses=True), ("warning", "error 0: Request cancelled")),
        (Host(answers_cancelled=rejected), ("warning", "error 0: Request cancelled")),
    ):
        with subtests.test(host=host):
            doctor = Doctor()
            with fail_after(IN_TIME):
                await host.run(doctor, LEGACY)

            outcomes = doctor.checkups[0].outcomes()
            [found] = [(each.verdict, each.seen) for each in outcomes if each.check.name == "cancelled"]
            assert found == expected


async def test_a_model_that_is_cut_off_need_not_use_a_tool() -> None:
    doctor = Doctor()
    cut_off = {"tool-choice-required": lambda right: {**RIGHT["url"], "content": [], "stopReason": "maxTokens"}}  # type: ignore[dict-item]
    with fail_after(IN_TIME):
        await Host(answers=cut_off).run(doctor, MODERN)

    verdicts = {outcome.check.name: (outcome.verdict, outcome.seen) for outcome in doctor.checkups[0].outcomes()}
    assert verdicts["tool-choice-required"] == ("skipped", "it was cut off")
    assert verdicts["tool-use-ids"] == ("skipped", "the answer uses no tool")


async def test_a_user_may_reject_everything() -> None:
    rejected = Refused(-1, "User rejected sampling request")
    decline = {"action": "decline"}
    doctor = Doctor()
    with fail_after(IN_TIME):
        await Host(answers={"sampling": rejected, "denied": lambda right: right, "form": decline}).run(doctor, LEGACY)

    verdicts = {outcome.check.name: (outcome.verdict, outcome.seen) for outcome in doctor.checkups[0].outcomes()}
    assert not doctor.failed
    assert verdicts["sampling"] == ("skipped", "the user rejected it")
    assert verdicts["sampling-model"] == ("skipped", "error -1: User rejected sampling request")
    assert verdicts["denied"] == ("skipped", "it was not rejected")
    assert verdicts["form-text"] == ("skipped", "the answer is 'decline'")


async def test_only_the_one_tool_can_be_called() -> None:
    with fail_after(IN_TIME):
        async with Client(Doctor()) as client:
            assert [tool.name for tool in await client.list_tools()] == ["check_host"]
            with pytest.raises(ServerError, match="Unknown tool: other"):
                await client.call_tool("other")
            with pytest.raises(ServerError, match="Method not found: other/method"):
                await client.request("other/method", {})


async def test_the_report_is_written_in_the_format_of_its_suffix(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    for suffix in ("txt", "json", "xml"):
        doctor = Doctor(report=tmp_path / f"report.{suffix}")
        with fail_after(IN_TIME):
            wrong = Host(answers={"sampling": HELLO | {"model": 1}}, named=False, capabilities={"sampling": {}})
            await wrong.run(doctor, MODERN)
        texts[suffix] = (tmp_path / f"report.{suffix}").read_text()
        assert doctor.failed

    assert texts["txt"] == doctor.text()
    assert texts["txt"].startswith("a host without a name, 2026-07-28: ")
    problem = "1 is not of type 'string'"
    rule = "`model` is the name of the model"
    section = "https://modelcontextprotocol.io/specification/2026-07-28/schema#createmessageresult"
    assert f"failed   sampling-model (MUST): {problem}\n         {rule}\n         {section}\n" in texts["txt"]
    [host] = json.loads(texts["json"])["hosts"]
    assert (host["revision"], host["complete"], host["counts"]["failed"]) == (MODERN, True, 1)
    [failed] = [check for check in host["checks"] if check["verdict"] == "failed"]
    assert failed == {
        "name": "sampling-model",
        "verdict": "failed",
        "level": "MUST",
        "rule": rule,
        "section": section,
        "seen": problem,
    }
    [suite] = ElementTree.fromstring(texts["xml"])
    assert suite.attrib["failures"] == "1"
    kinds = {case.attrib["name"]: [each.tag for each in case] for case in suite}
    assert (kinds["sampling-model"], kinds["client-info"], kinds["form"]) == (["failure"], ["system-out"], ["skipped"])
    assert kinds["takes-turns"] == []


def test_only_revisions_whose_rules_are_known_can_be_served() -> None:
    for versions in ([], ["2024-11-05"]):
        with pytest.raises(ValueError, match="versions are among 2026-07-28, 2025-11-25"):
            Doctor(versions=versions)
