"""Subscriptions: since revision 2026-07-28, changes are listened for on a stream of their own."""

from typing import Literal

from mcp_host.types.base import Array, JSONObject, Model
from mcp_host.types.messages import NotificationParams, RequestParams, Result, TypedNotification, TypedRequest


class SubscriptionFilter(Model, since="2026-07-28"):
    """What to hear of: three kinds of list, and single resources by URI."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: Array[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, since="2026-07-28"):
    """What the client would like to hear of."""

    notifications: SubscriptionFilter


class SubscriptionsListenRequest(TypedRequest, since="2026-07-28"):
    """Tell me of changes, until one of us ends the stream."""

    method: Literal["subscriptions/listen"] = "subscriptions/listen"
    params: SubscriptionsListenRequestParams


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, since="2026-07-28"):
    """What the server will tell of: no more than was asked for."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotification(TypedNotification, since="2026-07-28"):
    """The subscription stands."""

    method: Literal["notifications/subscriptions/acknowledged"] = "notifications/subscriptions/acknowledged"
    params: SubscriptionsAcknowledgedNotificationParams


class SubscriptionsListenResult(Result, since="2026-07-28"):
    """The server has ended the subscription; *meta* is a `SubscriptionsListenResultMetaObject` that says which."""

    meta: JSONObject
