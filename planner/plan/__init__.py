"""The plan: tasks as columns, what follows from them, and how they are changed."""
