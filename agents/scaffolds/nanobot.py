"""Runs the unmodified nanobot, through its own library, on a message from standard
input and prints its events as lines of JSON. It keeps its sessions in its home, and
a later message continues the same session."""

import asyncio
import json
import os
import sys

bundle, home, workdir, session = sys.argv[1:5]  # an empty session is a new one
sys.path.insert(0, bundle + "/python")

from loguru import logger  # noqa: E402

logger.remove()
logger.add(sys.stderr, level="WARNING")

import tiktoken  # noqa: E402


def no_table(name):
    raise LookupError("no table of tokens: bytes are counted")


# Otherwise tiktoken loads the table from a server of OpenAI before each request.
# Without the table, as in a sandbox without a network, nanobot counts bytes.
tiktoken.get_encoding = no_table

from nanobot.agent.hook import AgentHook  # noqa: E402
from nanobot.nanobot import Nanobot  # noqa: E402


def say(**event):
    print(json.dumps(event, default=str), flush=True)


def usage(u):
    return u and {"input_tokens": u.input_tokens, "cached_tokens": u.cache_read_tokens, "output_tokens": u.output_tokens}


class Hook(AgentHook):
    refused = status = None

    def reply(self, context, calls):
        r = context.response
        if r is None:
            return
        if r.finish_reason == "error":
            self.status = r.error_status_code or (0 if r.error_kind else None)  # 0: no response
            return
        self.refused = r.finish_reason if r.finish_reason in ("refusal", "content_filter") else None
        self.status = None
        say(type="message", text=r.content or "", thinking=r.reasoning_content or "", calls=calls, usage=usage(r.usage), stop=r.finish_reason)

    async def before_execute_tools(self, context):
        self.reply(context, [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in context.tool_calls])

    async def after_execute_tool(self, context, tool_call, tool, params, result):
        say(type="result", id=tool_call.id, text=result if isinstance(result, str) else json.dumps(result, default=str), failed=False)

    async def on_execute_tool_error(self, context, tool_call, tool, params, error):
        say(type="result", id=tool_call.id, text=str(error), failed=True)

    async def after_iteration(self, context):
        if not context.tool_calls:
            self.reply(context, [])


async def main():
    # Commands get the environment variables of the sandbox, too.
    with open(home + "/config.json") as f:
        config = json.load(f)
    config["tools"]["exec"] = {"allowedEnvKeys": sorted(k for k in os.environ if k != "BERTH_TOKEN")}
    with open(home + "/config.json", "w") as f:
        json.dump(config, f)
    bot = Nanobot.from_config(home + "/config.json", workspace=home + "/workspace")
    # The project is the folder of the task. The memory of nanobot is in its home.
    key = session or "websocket:berth"
    talk = bot._loop.sessions.get_or_create(key)
    while not session and talk.messages:
        key += "+"
        talk = bot._loop.sessions.get_or_create(key)
    talk.metadata["workspace_scope"] = {"project_path": workdir}
    bot._loop.sessions.save(talk)
    say(type="session", id=key)
    hook = Hook()
    async with bot:
        r = await bot.run(sys.stdin.read(), session_key=key, channel="websocket", chat_id="berth", hooks=[hook])
    wrong = r.error or (r.content if r.stop_reason == "error" else None)
    say(type="end", text=(r.content or "").strip(), reason=r.stop_reason, limit=r.stop_reason == "max_iterations", refused=hook.refused, wrong=wrong, status=hook.status)


os.makedirs(home + "/workspace", exist_ok=True)
asyncio.run(main())
