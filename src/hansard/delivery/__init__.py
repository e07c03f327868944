"""Record to channel: what waits is shown, in order, and its receipts are recorded."""
