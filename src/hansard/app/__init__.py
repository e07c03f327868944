"""Configuration, wiring and life cycle: the only place that knows everyone."""
