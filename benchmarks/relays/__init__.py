"""The relays that are measured beside our proxy. Each takes the command of a stdio server, and serves it over stdio."""
