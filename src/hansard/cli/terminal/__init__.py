"""The terminal: what a follower read from the record, drawn for a person.

    text        untrusted text becomes text that cannot command a terminal, and lines that fit
    blocks      streaming Markdown becomes finished blocks and one that is not finished; what stands between them
    render      blocks become styled lines, code in colour (rich, pygments; loaded at the first block)
    view        followed items become what to print now, and what is live; knows no terminal
    screen      a view with an input, its history and a status line below it (prompt_toolkit); one write a drawing
    completion  what the input may become
    plain       the screen of terminals that can only print lines; what a terminal can do
    picker      choose a session, searching while typing

Only `screen`, `completion` and `picker` import prompt_toolkit; they are loaded when a terminal is really used.
"""
