"""Rollouts of two turns with a tool, by the official clients. Usage: clients.py KEY DIALECT=BASE_URL...; prints what each was told."""

import json
import sys

import anthropic
import openai
from google import genai
from google.genai import errors, types

PARAMETERS = {"type": "object", "properties": {}}


def chat(client, stream):
    tools = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]
    messages = [{"role": "system", "content": "You mend."}, {"role": "user", "content": "Mend it."}]
    if stream:
        with client.chat.completions.stream(model="any", messages=messages, tools=tools) as events:
            text = "".join(e.delta for e in events if e.type == "content.delta")
            first = events.get_final_completion().choices[0]
            assert text == first.message.content, (text, first)
    else:
        first = client.chat.completions.create(model="any", messages=messages, tools=tools).choices[0]
    call = first.message.tool_calls[0]
    turn = {"role": "assistant", "content": first.message.content}
    turn["tool_calls"] = [
        {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
    ]
    messages += [turn, {"role": "tool", "tool_call_id": call.id, "content": "all is well"}]
    last = client.chat.completions.create(model="any", messages=messages, tools=tools, logprobs=True)
    assert len(last.choices[0].logprobs.content) == last.usage.completion_tokens, last
    return [call.function.name, first.finish_reason, last.choices[0].message.content, last.choices[0].finish_reason]


def responses(client, stream):
    tools = [{"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False}]
    items = [{"role": "user", "content": "Mend it."}]

    def ask():
        if not stream:
            return client.responses.create(model="any", instructions="You mend.", input=items, tools=tools)
        with client.responses.stream(model="any", instructions="You mend.", input=items, tools=tools) as events:
            text = thoughts = ""
            for e in events:
                text += e.delta if e.type == "response.output_text.delta" else ""
                thoughts += e.delta if e.type == "response.reasoning_summary_text.delta" else ""
            final = events.get_final_response()
            assert text == final.output_text, (text, final)
            assert thoughts == "".join(s.text for o in final.output if o.type == "reasoning" for s in o.summary), (thoughts, final)
            return final

    first = ask()
    call = next(o for o in first.output if o.type == "function_call")
    items += [o.model_dump(exclude_none=True) for o in first.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "all is well"})
    last = ask()
    return [call.name, first.status, last.output_text, last.status]


def messages(client, stream):
    tools = [{"name": "look", "input_schema": PARAMETERS}]
    said = [{"role": "user", "content": "Mend it."}]

    def ask():
        if not stream:
            return client.messages.create(model="any", max_tokens=100, system="You mend.", messages=said, tools=tools)
        with client.messages.stream(model="any", max_tokens=100, system="You mend.", messages=said, tools=tools) as events:
            text = "".join(events.text_stream)
            final = events.get_final_message()
            assert text == "".join(b.text for b in final.content if b.type == "text"), (text, final)
            return final

    counted = client.messages.count_tokens(model="any", system="You mend.", messages=said, tools=tools).input_tokens
    first = ask()
    assert counted == first.usage.input_tokens > 0, (counted, first)
    assert [b.thinking for b in first.content if b.type == "thinking"] == ["Where is it?"], first
    call = next(b for b in first.content if b.type == "tool_use")
    said.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in first.content]})
    said.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "all is well"}]})
    last = ask()
    return [call.name, first.stop_reason, last.content[0].text, last.stop_reason]


def gemini(client, stream):
    look = types.FunctionDeclaration(name="look", parameters=types.Schema(type="OBJECT", properties={"path": types.Schema(type="STRING")}))
    config = types.GenerateContentConfig(system_instruction="You mend.", tools=[types.Tool(function_declarations=[look])])
    said = [types.Content(role="user", parts=[types.Part(text="Mend it.")])]
    used = []

    def ask():
        if not stream:
            whole = client.models.generate_content(model="any", contents=said, config=config)
            used.append(whole.usage_metadata.prompt_token_count)
            return whole.candidates[0]
        chunks = list(client.models.generate_content_stream(model="any", contents=said, config=config))
        last = chunks[-1].candidates[0]
        last.content.parts = [p for c in chunks for p in c.candidates[0].content.parts if p.text or p.function_call]
        used.append(chunks[-1].usage_metadata.prompt_token_count)
        return last

    counted = client.models.count_tokens(model="any", contents=said).total_tokens  # this client counts contents alone
    first = ask()
    assert used[0] - counted == len("system:You mend.") + 2, (used, counted)  # the server's tokens are bytes between two marks
    call = next(p.function_call for p in first.content.parts if p.function_call)
    answer = types.Part.from_function_response(name=call.name, response={"output": "all is well"})  # it has no id
    said += [first.content, types.Content(role="user", parts=[answer])]
    last = ask()
    return [call.name, first.finish_reason.value, last.content.parts[0].text, last.finish_reason.value]


BREAK = [{"role": "user", "content": "Break off."}]


def breaks(name, client, stream):
    """Whether the client makes an error of an answer whose server breaks off."""
    try:
        if name == "messages":
            answer = client.messages.create(model="any", max_tokens=100, messages=BREAK, stream=stream)
        elif name == "gemini":
            ask = client.models.generate_content_stream if stream else client.models.generate_content
            answer = ask(model="any", contents="Break off.")
        elif name == "chat":
            answer = client.chat.completions.create(model="any", messages=BREAK, stream=stream)
        else:
            answer = client.responses.create(model="any", input=BREAK, stream=stream)
        return f"the answer is {list(answer) if stream else answer}"
    except (openai.APIError, anthropic.APIError, errors.APIError):
        return "broken"


def work(dialect, url, key):
    name, _, how = dialect.partition("-")
    if name == "gemini":
        at = types.HttpOptions(base_url=url.removesuffix("/v1"))
        client = genai.Client(api_key=key, http_options=at)
        told = gemini(client, how == "stream")
        told.append(breaks(name, client, how == "stream"))
        wrong = genai.Client(api_key="wrong", http_options=at)  # it closes with the last name for it
        try:
            wrong.models.generate_content(model="any", contents="a")
        except errors.ClientError as e:
            told.append("refused" if (e.code, e.status) == (401, "UNAUTHENTICATED") else str(e))
    elif name == "messages":
        client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=key)
        told = messages(client, how == "stream")
        told.append(breaks(name, client.with_options(max_retries=0), how == "stream"))
        wrong = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="wrong")
        try:
            wrong.messages.create(model="any", max_tokens=1, messages=[{"role": "user", "content": "a"}])
        except anthropic.AuthenticationError:
            told.append("refused")
    else:
        client = openai.OpenAI(base_url=url, api_key=key)
        told = {"chat": chat, "responses": responses}[name](client, how == "stream")
        told.append(breaks(name, client.with_options(max_retries=0), how == "stream"))
        assert [m.id for m in client.models.list()] == ["small"]
        try:
            openai.OpenAI(base_url=url, api_key="wrong").models.list()
        except openai.AuthenticationError:
            told.append("refused")
    return told


print(json.dumps({d: work(d, url, sys.argv[1]) for d, url in (a.split("=", 1) for a in sys.argv[2:])}))
