"""The JSON-RPC session: connecting, dispatch, the requests of the server, and input rounds."""
