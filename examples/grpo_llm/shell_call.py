"""A parser for vLLM (--tool-parser-plugin shell_call.py --tool-call-parser shell): all that the model says is one shell command.

Models that were never taught a format of tool calls can act so. Larger ones have parsers of their own in vLLM, such as hermes.
"""

from __future__ import annotations

import json
from typing import Any

from vllm.entrypoints.generate.base.protocol import ExtractedToolCallInformation, FunctionCall, ToolCall
from vllm.tool_parsers.abstract_tool_parser import ToolParser, ToolParserManager


@ToolParserManager.register_module("shell")
class ShellCall(ToolParser):
    """Text is a call of run_terminal_cmd."""

    def extract_tool_calls(self, model_output: str, request: Any) -> ExtractedToolCallInformation:
        """The call that an answer makes; an empty answer makes none."""
        command = model_output.removesuffix(self.model_tokenizer.eos_token).strip()
        if not command:
            return ExtractedToolCallInformation(tools_called=False, tool_calls=[], content="")
        call = FunctionCall(name="run_terminal_cmd", arguments=json.dumps({"command": command, "is_background": False}))
        return ExtractedToolCallInformation(tools_called=True, tool_calls=[ToolCall(type="function", function=call)], content="")
