"""Each variant and its base do the operations of a turn, and the results are checked as in every benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import cycle, islice, product

import pytest

from benchmarks.clients import bare, ours
from benchmarks.clients.drive import Driver, Model, Open, Session
from benchmarks.clients.variants import CLOCKS, VARIANTS, compare, take_turns
from benchmarks.job import Server
from benchmarks.scenarios import SEVERAL_SERVERS, Scenario
from benchmarks.variants import BURST, COMPARISONS
from benchmarks.workers import http_server
from mcp_host.errors import Unauthorized
from tests.extent import THOROUGH


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http_server() as url:
        yield url


def turns() -> Iterator[tuple[str, Scenario, str]]:
    """Each scenario, variant and clock of each comparison once; with THOROUGH, each with each."""
    for name, comparison in COMPARISONS.items():
        variants = [variant.name for variant in comparison.variants]
        if THOROUGH:
            pairs = list(product(comparison.scenarios, variants))
        elif name == "adapters-cpu":  # those of adapters-time by the other clock
            pairs = [(comparison.scenarios[0], variants[0])]
        else:
            longer = max(len(comparison.scenarios), len(variants))
            pairs = list(islice(zip(cycle(comparison.scenarios), cycle(variants), strict=False), longer))
        for scenario, variant in pairs:
            yield name, scenario, variant


@pytest.mark.parametrize(
    ("scenario", "variant", "clock"),
    [
        pytest.param(scenario, variant, COMPARISONS[name].clock, id=f"{name}-{variant}-{scenario.name}")
        for name, scenario, variant in turns()
    ],
)
def test_a_variant_has_a_ratio_to_its_base_for_each_turn(
    scenario: Scenario, variant: str, clock: str, url: str
) -> None:
    """With a token that ends, the client itself checks that each burst of calls is behind one refresh."""
    few = replace(scenario, operations=1, warm_up=1, in_flight=min(scenario.in_flight, 8), size=min(scenario.size, 8))
    ratios = asyncio.run(take_turns(*VARIANTS[variant], few.job(url), CLOCKS[clock], turns=2))

    assert len(ratios) == 2
    assert min(ratios) > 0


def test_each_of_the_two_is_opened_first_in_half_of_the_turns(url: str) -> None:
    job = replace(BURST, operations=1, warm_up=0, size=2).job(url)
    opened = list[str]()

    def noted(name: str) -> Open:
        def open(server: Server, model: Model | None) -> AbstractAsyncContextManager[Session]:
            opened.append(name)
            return ours.open(server, model)

        return open

    assert len(asyncio.run(compare(noted("base"), noted("variant"), job, CLOCKS["cpu"], turns=2))) == 4
    assert opened == ["base", "variant", "variant", "base"]


def test_a_turn_has_at_least_64_requests() -> None:
    scenarios = {scenario.name: scenario for each in COMPARISONS.values() for scenario in each.scenarios}
    jobs = {name: scenario.job("http://127.0.0.1:1") for name, scenario in scenarios.items()}

    assert {name: job.operations * (job.size or 1) for name, job in jobs.items()} == {
        "stdio-echo": 64,
        "stdio-sampling": 96,
        "stdio-sampling-tools": 96,
        "stdio-input-round": 64,
        "http-echo": 64,
        "http-sse-echo": 64,
        "http-echo-64": 64,
        "http-sampling": 96,
        "http-burst": 100,
    }


def test_each_of_several_servers_is_called(url: str) -> None:
    few = replace(SEVERAL_SERVERS[0], operations=1, warm_up=0, stdio_servers=1, http_servers=3).job(url)

    assert len({str(server) for server in (few.servers or {}).values()}) == 4
    for client in (ours, bare):
        assert asyncio.run(Driver(client.open, few, client.open_group).run())["cpu"] > 0


def test_a_client_without_a_token_is_refused(url: str) -> None:
    with pytest.raises(Unauthorized):
        asyncio.run(Driver(ours.open, BURST.job(f"{url}/protected")).run())
