"""What runs at the same time: tasks, deadlines, shared jobs, files that processes share, signals that end a program, and what asyncio and trio do differently."""
