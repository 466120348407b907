"""What both APIs of OpenAI have in common."""

from __future__ import annotations

import pytest

from mcp_host.providers.openai import arguments_of, pdf
from mcp_host.types import BlobResourceContents


def test_nearly_all_of_a_request_passes_by_the_types_of_the_sdk() -> None:
    """Its comparison with them would hold up the event loop. What it needs itself are arguments; the host's fields win."""
    options = {"timeout": 5, "extra_headers": {"a": "b"}, "extra_body": {"user": "u"}}

    assert arguments_of({"model": "gpt-5.2", "input": ["hi"], **options}) == {
        "model": "gpt-5.2",
        "timeout": 5,
        "extra_headers": {"a": "b"},
        "extra_body": {"input": ["hi"], "user": "u"},
    }


@pytest.mark.parametrize(
    ("uri", "name"),
    [("file:///a/b.pdf", "b.pdf"), ("file:///a/b", "b.pdf"), ("http://[", "document.pdf"), ("", "document.pdf")],
)
def test_a_pdf_file_has_a_name_whatever_its_uri_is(uri: str, name: str) -> None:
    assert pdf(BlobResourceContents(uri=uri, blob="aGk="))["filename"] == name
