"""The backend of a home: SQLite and log files. The only package that knows a database driver.

backend       a home that is open for writing, behind the port
readonly      a home that is only read: where it lies, or in a private copy
database      `state.db`: opened, or rebuilt when it is damaged; made durable, watched
opening       whether it is damaged: which files fit, whether heads have their entries, where both legs differ
rebuilding    how a damaged one is set aside, and what only it holds is saved
migrations    make the tables: new, from an older schema, or folded again
tails         what a log holds beyond the database
reconcile     what becomes of a log that is not as the database says
group         one group commit: the database and its log lines
keeper        fsyncs of logs, checkpoints
watching      hearing of commits by other processes
reading       snapshots, the pool of readers; a database beside the record
stamps        which state of the database a file holds
connection    open a database; its pragmas, its errors
disk          is the file system fit; the reserve for a full disk
foreign       databases of other programs
"""
