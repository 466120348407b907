"""A server whose tool asks the host's model and lends it a calculator; over stdio, or over HTTP with ``--http``."""

from __future__ import annotations

import argparse

from mcp_host.testing import Context, Server, ToolError

server = Server("calculator", instructions="Give `solve` a problem of arithmetic.")


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def subtract(a: float, b: float) -> float:
    """Subtract the second number from the first."""
    return a - b


def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


def divide(a: float, b: float) -> float:
    """Divide the first number by the second."""
    if b == 0:
        raise ToolError("division by zero")
    return a / b


@server.tool
async def solve(problem: str, context: Context) -> str:
    """Solve a problem of arithmetic: your model thinks, the calculator here calculates."""
    answer = await context.sample_loop(problem, tools=[add, subtract, multiply, divide])
    return answer.text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A calculator that thinks with your model.")
    parser.add_argument("--http", type=int, nargs="?", const=0, metavar="PORT", help="any free port by default")
    port = parser.parse_args().http
    server.run_stdio() if port is None else server.run_http(port)
