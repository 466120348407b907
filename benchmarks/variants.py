"""What a part of our client costs: each variant has the part, and takes turns with its base, which has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks import installation
from benchmarks.installation import say
from benchmarks.job import Job
from benchmarks.report import Costs, ratios_table
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.workers import Process

BATCH = 64  # requests at least in one turn; each takes about 10 ms


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant: its name in `benchmarks.clients.variants`, and its title in the table."""

    name: str
    title: str

    def ratios(self, job: Job, rounds: int, clock: str) -> Costs:
        """Its cost divided by that of its base, in each turn of all rounds. Each round has a new process."""
        ratios: list[float] = []
        for _ in range(rounds):
            with Process[list[float]](
                (installation.OURS.python, "-m", "benchmarks.clients.variants", self.name, clock)
            ) as process:
                outcome = process.do(job)
            if not isinstance(outcome, list):
                return outcome["failed"]
            ratios += outcome
        return ratios


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table. *goal* is the highest ratio, *clock* one of `benchmarks.clients.variants`."""

    scenarios: Sequence[Scenario]
    variants: Sequence[Variant]
    goal: float | None = None
    clock: str = "cpu"

    def table(self, url: str, rounds: int) -> str:
        rows: list[tuple[str, list[Costs]]] = []
        for scenario in self.scenarios:
            cells: list[Costs] = []
            for variant in self.variants:
                say(f"{scenario.name}, {variant.name}")
                cells.append(variant.ratios(scenario.job(url), rounds, self.clock))
            rows.append((scenario.title, cells))
        return ratios_table([variant.title for variant in self.variants], rows, self.goal)


def batches(*names: str) -> list[Scenario]:
    """The scenarios with these names, in batches: the operations of one turn."""
    rows = map(SCENARIOS.__getitem__, names)
    return [replace(row, operations=BATCH // (row.size or 1)) for row in rows]  # or one, or as many as are in flight


BURST = Scenario("http-burst", "100 HTTP (JSON) calls at once", "ms / 1k", None, "burst", "json", warm_up=2, size=100)

ADAPTERS = Comparison(
    batches("stdio-sampling", "stdio-sampling-tools", "http-sampling"),
    [
        Variant("anthropic", "`AnthropicModel`"),
        Variant("openai", "`OpenAIModel`"),
        Variant("openai-chat", "`OpenAIChatModel`"),
        Variant("gemini", "`GeminiModel`"),
        Variant("ollama", "`OllamaModel`"),
    ],
    goal=1.15,
    clock="time",
)

COMPARISONS = {
    "middleware": Comparison(
        batches("stdio-echo", "stdio-sampling", "stdio-input-round", "http-echo"),
        [
            Variant("function", "a function that passes requests on"),
            Variant("otel-api", "`OpenTelemetry()` without an SDK"),
            Variant("otel-sdk", "`OpenTelemetry()` with an SDK that exports to memory"),
        ],
    ),
    "adapters-time": ADAPTERS,
    "adapters-cpu": replace(ADAPTERS, clock="cpu"),
    "oauth": Comparison(
        batches("http-echo", "http-sse-echo", "http-echo-64"),
        [Variant("oauth", "`OAuth`, over our own pool"), Variant("oauth-httpx", "`OAuth`, over httpx")],
        goal=1.05,
    ),
    "refresh": Comparison(
        [BURST],
        [Variant("refresh", "over our own pool"), Variant("refresh-httpx", "over httpx")],
    ),
}
"""By the name of the table in docs/performance.md."""
