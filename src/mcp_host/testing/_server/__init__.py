"""What a test server does with the messages of a client, on any transport.

A `Session` is one connection. Its `Dispatcher` answers the client's requests and sends the
server's. The `Catalog` has what the server offers, made of typed functions, and answers the
requests for it. `Stateless` answers requests of revision 2026-07-28, on a connection or an HTTP
endpoint. `RemoteClient` is the client, and writes messages for its revision.
"""
