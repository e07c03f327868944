"""The process that runs channels: start, reload, health, leave."""
