"""What stop reasons mean for the tool calls of an answer, in the spelling of MCP and of the APIs of models.

==================================  =========================================================
stop reason                         the tool calls of the answer
==================================  =========================================================
maxTokens, max_tokens, length       dropped: the last may be cut off. It is sent as maxTokens
refusal, content_filter             dropped
stopSequence, stop_sequence         dropped
any other, or none                  they are whole. It is sent as toolUse
==================================  =========================================================
"""

from mcp_host.types.sampling import MAX_TOKENS, STOP_SEQUENCE

TRUNCATED = frozenset({MAX_TOKENS, "max_tokens", "length"})
REFUSALS = frozenset({"refusal", "content_filter"})  # of a draft of SEP-1577, and of OpenAI's API
CUT_OFF = TRUNCATED | REFUSALS | {STOP_SEQUENCE, "stop_sequence"}
