"""Tic-tac-toe between a host's model and its user: one tool of a server that samples and elicits all game long.

Read `rules.py` first, then `server.py`; `player.py` stands for the host's model, `__main__.py` is the host.
"""
