"""OAuth for people, for machines and for web hosts: an `httpx.Auth` like any other.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""
