"""One file a command; they are loaded by name, so that none pays for another."""
