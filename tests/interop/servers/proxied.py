"""A proxy in front of our own test server, over stdio: ``proxied.py stdio``."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp_host.proxy import Proxy

OURS = str(Path(__file__).with_name("ours.py"))

if __name__ == "__main__":
    Proxy([sys.executable, OURS, "stdio"]).run_stdio()
