"""The benchmark's own machinery: subjects → workers → experiments (interleaved rounds) → figures → aims → report."""
