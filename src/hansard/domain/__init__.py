"""Pure values and rules: no input, no output, no clock, no database.

    messages, text, ids     what was said; what of it can be recorded; what things are called
    sessions                sessions, turns and their states; routes
    chats                   chats and session keys as text, and back; when a chat begins a new session
    arrivals, deliveries    what comes in from a platform, and what goes out to it
    people, access          who is who, who asked, circles; who may do what: ranks, commands, codes of strangers
    permissions, trust      which tools may be run for whom; which text is untrusted
    policy                  the settings of people and rooms, ready for the engine
    questions               how a tool call is shown to people, and what they may answer
                            (what counts as a plain yes: record/questions.py)
    requests                what a model is asked and answers
    budgets, limits         what people may use, and did; the limits of the record
    notices                 the wording of what Hansard itself tells people in chats
    search                  when a text matches a query, and what is shown of it
    markup                  Markdown as harmless HTML
    http_answers            which answers of servers are taken
    settings/               the schema of config.toml

Pauses between tries (`backoff_seconds`) and fair queues are in `hansard/tasks.py`. Whether a chat may be shown a post
is decided in `delivery/sending.py`.
"""
