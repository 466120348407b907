"""Error codes beyond those of JSON-RPC itself (which are in `jsonrpc`).

Ours are from the range that JSON-RPC leaves to implementations and MCP does not
claim (it keeps -32020 to -32099); below -32009, for the SDKs of others use the
first few.
"""

USER_REJECTED = -1  # client/sampling: Error Handling, "User rejected sampling request"
RESOURCE_NOT_FOUND = -32002  # 2025-11-25, server/resources: Error Handling
URL_ELICITATION_REQUIRED = -32042  # 2025-11-25, schema: URLElicitationRequiredError
HEADER_MISMATCH = -32020  # 2026-07-28, basic: Error Codes, as the two that follow
MISSING_REQUIRED_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022

TOO_MANY_WAITING = -32010  # ours: no place for one more sampling request
TOOK_TOO_LONG = -32011  # ours: the model or the user did not answer in time
CALL_ENDED = -32012  # ours: the call on whose behalf the server asked is over
ASKED_TOO_MUCH = -32013  # ours: the server has asked for all that one call may ask for
