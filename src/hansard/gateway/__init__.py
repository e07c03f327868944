"""The process that runs the channels.

- `process`: start, serve, take up a changed configuration, drain
- `channel`: one channel that is served: what is received from it and shown on it
- `health`: how the gateway does, over HTTP: health as JSON, metrics; `gateway.json`
- `logs`: its log: one JSON object a line, and the file that holds it
"""
