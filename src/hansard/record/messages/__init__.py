"""Messages: what was said, how it changed, and what it says now."""
