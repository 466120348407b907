"""Tool loops: asking a model, running the tools that it calls, and so on until it stops.

What applications use is in `mcp_host.sampling`. Loops of servers need the engine only.
"""
