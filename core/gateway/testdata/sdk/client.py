"""What the vendors' Python libraries make of a gateway: one JSON line each."""

import base64
import json
import os
import sys

URL, KEY, MODEL = os.environ["GATEWAY_URL"], os.environ["GATEWAY_KEY"], "m1"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def say(name, **facts):
    print(json.dumps({"client": name, **facts}, sort_keys=True, ensure_ascii=False), flush=True)


def anthropic():
    from anthropic import Anthropic

    c = Anthropic(base_url=URL, api_key=KEY)
    tools = [{"name": "bash", "description": "runs a command", "input_schema": SCHEMA}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, image]}]
    counted = c.messages.count_tokens(model=MODEL, messages=messages, tools=tools)
    first = c.messages.create(model=MODEL, max_tokens=100, messages=messages, tools=tools)
    call = next(b for b in first.content if b.type == "tool_use")
    messages += [
        {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in first.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "world"}]},
    ]
    with c.messages.stream(model=MODEL, max_tokens=100, messages=messages, tools=tools) as s:
        text = "".join(s.text_stream)
        last = s.get_final_message()
    say(
        "anthropic", counted=counted.input_tokens > 0, kinds=[b.type for b in first.content], stop=first.stop_reason,
        call=[call.name, call.input], text=text, usage=[first.usage.input_tokens, first.usage.output_tokens, last.usage.output_tokens],
    )


def openai_responses():
    from openai import OpenAI

    c = OpenAI(base_url=URL + "/v1", api_key=KEY)
    tools = [{"type": "function", "name": "bash", "description": "runs a command", "parameters": SCHEMA, "strict": False}]
    image = {"type": "input_image", "image_url": "data:image/png;base64," + PIXEL, "detail": "auto"}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "look"}, image]}]
    first = c.responses.create(model=MODEL, input=items, tools=tools)
    call = next(o for o in first.output if o.type == "function_call")
    items += [o.model_dump(exclude_none=True) for o in first.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "world"})
    text = ""
    with c.responses.stream(model=MODEL, input=items, tools=tools) as s:
        for e in s:
            if e.type == "response.output_text.delta":
                text += e.delta
        last = s.get_final_response()
    say(
        "openai responses", kinds=[o.type for o in first.output], call=[call.name, json.loads(call.arguments)], text=text,
        same=last.output_text == text, usage=[first.usage.input_tokens, first.usage.output_tokens, last.usage.output_tokens],
    )


def openai_chat():
    from openai import OpenAI

    c = OpenAI(base_url=URL + "/v1", api_key=KEY)
    tools = [{"type": "function", "function": {"name": "bash", "description": "runs a command", "parameters": SCHEMA}}]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PIXEL}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, image]}]
    first = c.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    m = first.choices[0].message
    call = m.tool_calls[0]
    messages += [m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "world"}]
    text, chunks = "", 0
    for chunk in c.chat.completions.create(model=MODEL, messages=messages, tools=tools, stream=True):
        chunks += 1
        text += chunk.choices[0].delta.content or ""  # there is always a choice
    say(
        "openai chat", models=[x.id for x in c.models.list()], call=[call.function.name, json.loads(call.function.arguments)], text=text,
        finish=first.choices[0].finish_reason, pieces=chunks > 3, usage=[first.usage.prompt_tokens, first.usage.completion_tokens],
    )


def gemini():
    from google import genai
    from google.genai import types

    c = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=URL))
    tool = types.Tool(function_declarations=[types.FunctionDeclaration(name="bash", parameters_json_schema=SCHEMA)])
    config = types.GenerateContentConfig(
        tools=[tool], automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
    )
    image = types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png")
    contents = [types.Content(role="user", parts=[types.Part(text="look"), image])]
    counted = c.models.count_tokens(model=MODEL, contents=contents)
    first = c.models.generate_content(model=MODEL, contents=contents, config=config)
    call = first.function_calls[0]
    contents += [
        first.candidates[0].content,
        types.Content(role="user", parts=[types.Part.from_function_response(name="bash", response={"output": "world"})]),
    ]
    text = "".join(p.text or "" for p in c.models.generate_content_stream(model=MODEL, contents=contents, config=config))
    say(
        "google-genai", counted=counted.total_tokens > 0, call=[call.name, dict(call.args)], text=text,
        usage=[first.usage_metadata.prompt_token_count, first.usage_metadata.candidates_token_count],
    )


only = os.environ.get("SDK_ONLY")  # the name of one, or nothing
for do in (anthropic, openai_responses, openai_chat, gemini):
    if not only or do.__name__ == only:
        do()
sys.exit(0)
