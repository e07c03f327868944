"""Turns: claim, context, model, tools, end. The engine talks to nobody; it appends to the record.

    runner         which sessions have a turn to run, in which order, in this process
    turns          one turn: the loop, asking a model (also again, and another one), the turn's end
    context        what a model is told, from the conversation; marks around words of others
    requests       the context cut to what one model takes; safer views after a refusal
    prompts        the engine's own words to a model
    calls, asking  running tools; whether a call may be run, by the rules or by a yes
    files          waiting for files, and having voice notes written down
    compaction, summaries, titles    what a model is asked for beside the turns
    recovery       going on with a turn that a crash ended

The pause before a model is asked again is `turns.pause_seconds`; it doubles by `tasks.backoff_seconds`.
"""
