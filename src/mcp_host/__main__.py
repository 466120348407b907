"""`python -Pm mcp_host`: the command `mcp-host`, where the command itself is not on the path."""

from __future__ import annotations

import sys

from mcp_host.cli import main

sys.exit(main())
