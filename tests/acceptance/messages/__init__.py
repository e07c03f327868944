"""What people are told when something is wrong: each fault, with the real commands, against a table of messages."""
