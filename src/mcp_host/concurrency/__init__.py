"""What runs at the same time: tasks, deadlines, shared jobs, files that processes share, and what asyncio and trio do differently."""
