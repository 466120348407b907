"""Log messages that a server sends to its client. Deprecated by the specification from revision 2026-07-28."""

from typing import Literal, TypeAlias

from mcp_host.types.messages import NotificationParams, RequestParams, TypedNotification, TypedRequest

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class LoggingMessageNotificationParams(NotificationParams):
    """One log message; *data* is any JSON value, often a string."""

    level: LoggingLevel
    logger: str | None = None
    data: object


class LoggingMessageNotification(TypedNotification):
    """The server logs something."""

    method: Literal["notifications/message"] = "notifications/message"
    params: LoggingMessageNotificationParams


class SetLevelRequestParams(RequestParams, until="2025-11-25"):
    """The least severe level the client wants to hear of."""

    level: LoggingLevel


class SetLevelRequest(TypedRequest, until="2025-11-25"):
    """Log from this level on. Since 2026-07-28 the level rides on each request instead."""

    method: Literal["logging/setLevel"] = "logging/setLevel"
    params: SetLevelRequestParams
