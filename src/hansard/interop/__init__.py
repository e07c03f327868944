"""Into the record and out of it: exports, imports, adapters for other programs."""
