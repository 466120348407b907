"""Error codes: the only part of an authorization server's error that is shown."""

from __future__ import annotations

CODES = frozenset(
    {
        # RFC 6749, sections 4.1.2.1 and 5.2
        *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
        *("invalid_scope", "access_denied", "unsupported_response_type", "server_error", "temporarily_unavailable"),
        *("invalid_target",),  # RFC 8707, section 2
        *("invalid_redirect_uri", "invalid_client_metadata", "invalid_software_statement"),  # RFC 7591, section 3.2.2
        *("unapproved_software_statement",),
        *("invalid_dpop_proof", "use_dpop_nonce"),  # RFC 9449, sections 5 and 8
        *("authorization_pending", "slow_down", "expired_token"),  # RFC 8628, section 3.5
        *("login_required", "consent_required", "interaction_required", "account_selection_required"),  # OpenID Connect
    }
)


def known_code(code: object) -> str | None:
    """*code*, if it is one of a specification. Else None: a text of the server's may say anything, and have secrets in it."""
    return code if isinstance(code, str) and code in CODES else None
