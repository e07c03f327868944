"""What each call does inside a transaction.

Every operation first looks whether it was done before (by id), then checks, then adds entries: so a repeat after an
unknown outcome gives the first result, and a refused call leaves nothing.
"""
