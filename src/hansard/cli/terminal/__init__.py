"""The terminal: what a follower read from the record, drawn for a person.

    text        untrusted text becomes text that cannot command a terminal, and lines that fit
    blocks      streaming Markdown becomes finished blocks and one that is not finished; what stands between them
    render      blocks become styled lines, code in colour (rich, pygments; loaded at the first block)
    view        followed items become what to print now, and what is live; knows no terminal
    screen      a view with an input, a completion menu and a status line below it (prompt_toolkit)
    output      where the screen's bytes go: one write a drawing
    plain       the same for terminals that can only print lines, and for pipes
    history     what was typed before
    completion  what the input may become
    picker      choose a session, searching while typing

Only `screen`, `output`, `history` and `picker` import prompt_toolkit; they are loaded when a terminal is really used.
"""
