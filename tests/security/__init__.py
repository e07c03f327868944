"""Every entry of the security findings, as a test that failed first."""
