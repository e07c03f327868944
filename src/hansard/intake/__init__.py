"""What people say, on its way into the record.

- `receive`: what happens on a platform, event by event
- `speak`: what is said in a session that the person names: at the terminal, by a command
- `commands/`: slash commands, for the terminal and for chats. registry: the table, ranks, how each is run; sessions:
  /new, /resume, /title, /fork …; turns: /undo, /retry, /stop, /yes …; agent: /model, /memory …; people: /link, /unlink;
  scene: where a command is given and what it replies
- `files`: attachments, fetched beside receiving
- `invitations`: invitations into chats, answered beside receiving
- `beside`: jobs that are done beside receiving, again after a crash
"""
