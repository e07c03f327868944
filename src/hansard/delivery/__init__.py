"""What is recorded, on its way into chats.

- `dispatch`: from the outbox to the lanes of a channel, one for each chat; the sign that the agent writes
- `stream`: one message in one chat: posted, edited as it grows, until all of it is shown
- `split`: where a long text is cut into posts; no input or output
- `sending`: one post: may this chat be shown it (`may_follow`), when it is its turn, and whether it was shown
- `audit`: what a room shows, compared with the record
"""
