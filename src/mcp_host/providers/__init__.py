"""Adapters: sampling handlers that ask real models, through your own client of the provider's SDK."""
