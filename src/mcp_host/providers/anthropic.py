"""Anthropic Messages: https://docs.claude.com/en/api/messages."""
