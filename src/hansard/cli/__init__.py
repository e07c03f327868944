"""The `hansard` command. One file a command; they are loaded by name, so that none pays for another.

- `main`: options that all commands share, and which way to talk
- `process`: the table of commands, exit codes, signals, standard output
- `printing`: what commands print: JSON, headings, progress; the numbers that they take
- `existing`: opening a record that must be there already
- `talk`: a conversation at the command line, which three modules have: `chat` in a terminal (`terminal/` draws it),
  `lines` through pipes, `once` for `hansard -p`

Slash commands such as `/new` are `hansard.intake.commands`: they are the same in a terminal and in chats.
"""
