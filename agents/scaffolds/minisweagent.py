"""Runs the unmodified mini-SWE-agent on a message from standard input and prints
each message of its conversation as a line of JSON at once. It keeps the
conversation in a file, and a later message of the same session continues it."""

import json
import os
import sys

bundle, home, model_name, settings, session = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), sys.argv[5]
os.environ.update(MSWEA_SILENT_STARTUP="1", MSWEA_CONFIGURED="true", MSWEA_COST_TRACKING="ignore_errors", LITELLM_LOCAL_MODEL_COST_MAP="True")
os.environ.update(MSWEA_GLOBAL_CONFIG_DIR=home, MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="2")
given = json.loads(os.environ.pop("BERTH_MODEL"))
sys.path.insert(0, bundle + "/python")

from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.config import get_config_from_spec  # noqa: E402
from minisweagent.environments import get_environment  # noqa: E402
from minisweagent.exceptions import InterruptAgentFlow  # noqa: E402
from minisweagent.models import get_model  # noqa: E402


def say(**event):
    print(json.dumps(event, default=str), flush=True)


def text_of(m):
    text = m.get("content") or ""
    return text if isinstance(text, str) else json.dumps(text, default=str)


refused = None


def replied(m, response):
    global refused
    choice = (response.get("choices") or [{}])[0]
    why = choice.get("finish_reason")
    refused = m.get("refusal") or (why if why in ("content_filter", "refusal") else None)
    calls = [{"id": c["id"], **c["function"]} for c in m.get("tool_calls") or []]
    u = response.get("usage")
    cached = ((u or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    usage = u and {"input_tokens": u["prompt_tokens"], "cached_tokens": cached, "output_tokens": u["completion_tokens"]}
    say(type="message", text=text_of(m), thinking=m.get("reasoning_content") or "", calls=calls, usage=usage)


def tell(m):
    text, extra = text_of(m), m.get("extra", {})
    response = extra.get("response")
    if m["role"] == "assistant":
        replied(m, response or {})
    elif m["role"] == "user" and isinstance(response, dict):
        # A reply without a call that can be run is not in the conversation, only this answer to it.
        replied(response["choices"][0]["message"], response)
        say(type="note", text=text)
    elif m["role"] == "tool":
        say(type="result", id=m["tool_call_id"], text=text)
    elif m["role"] == "exit":
        how = extra["exit_status"]
        wrong = None if how in ("Submitted", "LimitsExceeded") else how + ": " + extra.get("exception_str", "")
        say(type="end", text=(extra.get("submission") or "").strip(), reason=how, stop="final_call" if how == "Submitted" else "",
            limit=how == "LimitsExceeded", wrong=wrong, refused=refused)


class Agent(DefaultAgent):
    def add_messages(self, *messages):
        for m in messages:
            tell(m)
        return super().add_messages(*messages)

    def go_on(self, messages, text):
        self.messages = messages
        self.add_messages(self.model.format_message(role="user", content=text))
        while self.messages[-1].get("role") != "exit":
            try:
                self.step()
            except InterruptAgentFlow as e:
                self.add_messages(*e.messages)
            except Exception as e:
                self.handle_uncaught_exception(e)
                raise


config = get_config_from_spec("mini.yaml")
config["agent"].update(settings["agent"])
config["agent"]["system_template"] += settings["system"]
config["model"].setdefault("model_kwargs", {}).update(given, **settings["model"])
agent = Agent(get_model(model_name, config["model"]), get_environment(config.get("environment", {}), default_type="local"), **config["agent"])
talk = os.path.join(home, "conversation.json")
message = sys.stdin.read()
say(type="session", id="conversation")
try:
    if session and os.path.exists(talk):
        with open(talk) as f:
            agent.go_on([m for m in json.load(f) if m.get("role") != "exit"], message)
    else:
        agent.run(message)
finally:
    with open(talk, "w") as f:
        json.dump(agent.messages, f, default=str)
