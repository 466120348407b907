"""Asking a person in a terminal: the terminal itself, text that fits it, and forms of JSON Schema in words."""
