"""Models, each behind `hansard.ports.model.Model`, and voice notes behind `hansard.ports.model.Transcriber`.

pydantic        OpenAI, Anthropic, Google and servers like theirs, by pydantic-ai; `clients` makes the connections
bodies, rules   what was said as each provider has it, and what each provider takes
endings         whether an answer ended whole, by its bytes and its finish reason; `failures` says what went wrong
demo            a small model on this machine: `demo_files` fetches it, `demo_server` is its process
scripted        answers from a file, for tests and examples
discovery       the model to use when none is configured
transcription   voice notes as text
"""
