"""What a model may call, each behind `hansard.ports.tool.Tool`.

builtin         `current_time`, `memory` and `session_search`: every agent has them
mcp             tools of MCP servers; `mcp_ways` starts programs and opens addresses
confined        the program that hides paths from an MCP server before it becomes that server
"""
