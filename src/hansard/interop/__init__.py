"""Out of the record and into it.

transcripts     a session as people read it; every export begins here
exports         Markdown, HTML, examples for fine-tuning
jsonl           Hansard's own export; `jsonl_import` takes it back in
hermes          the import of a Hermes home: `hermes_sources` reads its files, `hermes_merge` makes one session of
several copies, `hermes_parts` has the values that they share
"""
