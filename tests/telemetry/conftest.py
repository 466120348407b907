from __future__ import annotations

import pytest

from tests.telemetry.recorder import Recorder


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
