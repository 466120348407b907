"""OpenTelemetry's SDK, with what it recorded as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext, Tracer

from mcp_host.telemetry import OpenTelemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A span. *parent* and *links* are the names of other spans, or span ids in hexadecimal if they are remote."""

    name: str
    kind: str
    attributes: dict[str, Any]
    status: str = "UNSET"
    parent: str | None = None
    links: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


class Recorder:
    """Records spans and metrics. Pass its `middleware` to a client."""

    def __init__(self, *, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(sampler)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader])

    @property
    def tracer(self) -> Tracer:
        """The tracer of an application."""
        return self.tracer_provider.get_tracer("application")

    def middleware(self, *, record_content: bool = False) -> OpenTelemetry:
        return OpenTelemetry(
            tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, record_content=record_content
        )

    def spans(self) -> list[Recorded]:
        """The spans that have ended, in the order in which they began. Those of connecting are left out."""
        ended = self.raw()
        names = {_context(span).span_id: span.name for span in ended}

        def name(context: SpanContext) -> str:
            known: str | None = names.get(context.span_id)
            return f"{context.span_id:016x}" if known is None else known

        return [
            Recorded(
                name=span.name,
                kind=span.kind.name,
                attributes=dict(span.attributes or {}),
                status=": ".join(filter(None, [span.status.status_code.name, span.status.description])),
                parent=None if span.parent is None else name(span.parent),
                links=[name(link.context) for link in span.links],
                events=[event.name for event in span.events],
            )
            for span in ended
            if span.name not in ("initialize", "server/discover")
        ]

    def raw(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def traceparent(self, name: str) -> str:
        """The `traceparent` of the only span of this name."""
        [span] = [span for span in self.raw() if span.name == name]
        return traceparent(span)

    def metrics(self) -> dict[str, Metric]:
        data = self._reader.get_metrics_data()
        resources = [] if data is None else data.resource_metrics
        return {
            metric.name: metric
            for resource in resources
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> list[HistogramDataPoint]:
        """The series of a histogram, in the order in which they began."""
        points = []
        for point in self.metrics()[name].data.data_points:
            assert isinstance(point, HistogramDataPoint)
            points.append(point)
        return points

    def series(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """The attributes of each series of a histogram, and the number of its values."""
        return [(dict(point.attributes or {}), point.count) for point in self.points(name)]


def traceparent(span: ReadableSpan) -> str:
    """How requests within *span* name it."""
    context = _context(span)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _context(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context
