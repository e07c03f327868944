"""Search: an index of what was said, in a file beside the database that can be made anew at any time (L9)."""
