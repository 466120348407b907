"""Error codes: the only part of an authorization server's error that is shown."""

from __future__ import annotations

import re

MAX_CODE = 40  # characters; the longest of OpenID Connect, unmet_authentication_requirements, has 33
INVALID_REQUEST = "invalid_request"
INVALID_SCOPE = "invalid_scope"
ACCESS_DENIED = "access_denied"
CODE = re.compile(r"[a-z]{1,15}(_[a-z]{1,15})+")


def plain_code(code: object) -> str | None:
    """*code*, if it is of words of lower-case letters that underscores join, as all codes of the specifications are.

    Else None: a text of the server's may say anything, and have secrets in it.
    """
    return code if isinstance(code, str) and len(code) <= MAX_CODE and CODE.fullmatch(code) else None
