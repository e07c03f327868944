"""Every history is valid: the providers' rules, journals of all kinds, and what becomes of them in a request."""
