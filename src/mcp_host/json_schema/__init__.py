"""Checking values against the JSON Schemas of servers, in a bounded number of steps."""
