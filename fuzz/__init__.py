"""Fuzzing: `make fuzz`. What is fuzzed is in `targets`."""
