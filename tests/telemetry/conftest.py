from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.telemetry.recorder import Recorder


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(autouse=True)
def opentelemetry_logs_nothing(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """It logs attributes of a wrong type, and contexts that are left in another context than they were entered."""
    yield

    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [record.getMessage() for record in records if record.name.startswith("opentelemetry")] == []
