"""Journals of entries in two legs, and the streams that grow in them. DESIGN.md says why.

calls         open a record, write and read from a coroutine
store         what one process has open of a record; chooses the backend
writer        group commit; `queue` is what waits for it
transaction   add entries, refuse an id with another body, read entries, walk forks
entries       journals and entries as they are stored: rows, lines of the log, the chain of digests
concepts      what a program above registers: kinds of entries, tables, projections, recovery
follow        followers of a journal, and the pages that they are given
verify        compare both legs, the chains and every projection
files         log files and attachments
locks         locks between processes, owners of a home, progress of long work
causes        sentences about rights, disks and locks
backend       the port: what the journal asks of a database; `sqlite` is one
"""
