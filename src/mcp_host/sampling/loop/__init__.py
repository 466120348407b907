"""Tool loops: asking a model, running the tools that it calls, and so on until it stops."""
