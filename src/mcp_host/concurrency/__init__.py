"""What runs at the same time: tasks, deadlines, shared jobs, and what asyncio and trio do differently."""
