"""The server's side of the protocol, on any transport: shared by the test server, the proxy and the check-up of hosts.

A `Service` is what is served. A `Session` is one connection: its `Dispatcher` answers the client's
requests and sends the server's. `Stateless` answers requests of revision 2026-07-28, on a
connection or an HTTP endpoint. `RemoteClient` is the client, and writes messages for its revision.
`http` has the ASGI application; `stdio` serves a parent process, and `in_process` a client in this one.
"""
