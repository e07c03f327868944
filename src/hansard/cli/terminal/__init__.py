"""The terminal: what a follower read from the record, drawn for a person.

    sanitize   untrusted text becomes text that cannot command a terminal
    blocks     streaming Markdown becomes finished blocks and one that is not finished
    wrap       text becomes lines that fit
    render     a block becomes styled lines (rich; loaded at the first Markdown block)
    view       followed items become what to print now, and what is live; knows no terminal
    screen     a view with a prompt, a completion menu and a status line below it (prompt_toolkit)
    plain      the same for terminals that can do nothing, and for pipes
    completion what the input may become
    picker     choose a session, searching while typing

Only `screen` and `picker` import prompt_toolkit; this package is loaded when a terminal is really used.
"""
