"""What a client costs, measured side by side with its peers: ``make bench``. How and why is in docs/performance.md."""
