"""Channels: one folder a platform, each behind `hansard.ports.channel.Channel`. None of them sees the record."""
