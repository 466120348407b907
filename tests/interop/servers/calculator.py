"""The calculator of the examples, in one protocol revision: ``calculator.py REVISION MARK``, over stdio."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from calculator_server import solve

from mcp_host.testing import Server

server = Server("calculator", versions=[sys.argv[1]])
server.tool(solve)

if __name__ == "__main__":
    server.run_stdio()
