"""The other frameworks, which need not be installed; what their agents get is in `tests/interop/test_frameworks.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mcp_host import ClientGroup

MISSING = {
    "for_pydantic_ai": (
        "pydantic_ai.exceptions",
        "for_pydantic_ai needs pydantic-ai: pip install 'pydantic-ai-slim>=2.68'",
    ),
    "for_openai_agents": (
        "mcp.types",
        "for_openai_agents needs the OpenAI Agents SDK: pip install 'openai-agents>=0.24'",
    ),
    "for_langchain": (
        "langchain_core.messages.content",
        "for_langchain needs LangChain: pip install 'langchain-core>=1.7'",
    ),
    "for_google_adk": (
        "google.adk.agents.readonly_context",
        "for_google_adk needs the Agent Development Kit: pip install 'google-adk>=2.13'",
    ),
}


async def test_a_framework_that_is_not_installed_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    group = ClientGroup({})
    for method, (module, text) in MISSING.items():
        with subtests.test(method):
            monkeypatch.setitem(sys.modules, module, None)
            monkeypatch.delitem(sys.modules, f"mcp_host.frameworks.{method.removeprefix('for_')}", raising=False)
            with pytest.raises(ImportError) as caught:
                await getattr(group, method)()

            assert str(caught.value) == text


def test_a_group_imports_nothing_for_frameworks() -> None:
    code = "import sys, mcp_host.group; print([name for name in sys.modules if name.startswith('mcp_host.frameworks')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed == "[]\n"
