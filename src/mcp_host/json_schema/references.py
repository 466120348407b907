"""References within one schema."""

from __future__ import annotations


def target(reference: str, root: object) -> dict[str, object]:
    """What a reference such as ``#/$defs/Color`` leads to in the schema *root*; empty if it leads nowhere there."""
    found = root if reference.startswith("#") else None
    for part in reference.split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
