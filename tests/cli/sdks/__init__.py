"""Stand-ins for providers' SDKs. With this folder on PYTHONPATH, a program imports them in place of the SDKs.

tests/interop/providers has the tests with the SDKs themselves.
"""
