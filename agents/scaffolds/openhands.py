"""Runs OpenHands as `openhands --headless` does, with the same agent, on a message
from standard input and prints its events as lines of JSON. It keeps the
conversation in its home, and a later message continues it."""

import json
import os
import sys
import uuid

bundle, home, session = sys.argv[1], sys.argv[2], sys.argv[3] or str(uuid.uuid4())
sys.path.insert(0, bundle + "/python")
with open(home + "/settings.json") as f:
    settings = json.load(f)
theirs = {k: v for k, v in os.environ.items() if k != "BERTH_TOKEN"}
for k in [k for k in os.environ if k.startswith(("LLM_", "LMNR_", "OTEL_", "OPENHANDS_", "LITELLM_", "LOG_", "DEBUG"))]:
    del os.environ[k]  # variables of the image name other models and folders, or enable tracing
os.environ.update(OPENHANDS_PERSISTENCE_DIR=home, OPENHANDS_SUPPRESS_BANNER="1", LITELLM_LOCAL_MODEL_COST_MAP="True", LOG_LEVEL="ERROR")
os.environ.update(LLM_API_KEY=os.environ["BERTH_TOKEN"], LLM_BASE_URL=settings["url"], LLM_MODEL=settings["provider"] + "/" + settings["model"])
os.environ.update({k: theirs[k] for k in settings["env"] or []})

import litellm  # noqa: E402
from openhands.sdk import LLM, Conversation, Workspace  # noqa: E402
from openhands.sdk.conversation.exceptions import ConversationRunError  # noqa: E402
from openhands.sdk.event import ActionEvent, AgentErrorEvent, ObservationEvent, UserRejectObservation  # noqa: E402
from openhands.sdk.hooks import HookConfig  # noqa: E402
from openhands.sdk.llm import content_to_str  # noqa: E402
from openhands.sdk.llm.utils.model_features import get_features  # noqa: E402
from openhands.sdk.security.confirmation_policy import NeverConfirm  # noqa: E402
from openhands.sdk.security.llm_analyzer import LLMSecurityAnalyzer  # noqa: E402
from openhands.sdk.skills import load_skills_from_dir, skill  # noqa: E402
from openhands.tools.preset.default import register_builtins_agents  # noqa: E402
from openhands_cli.setup import load_agent_specs  # noqa: E402

# Otherwise it clones a repository of skills and chooses an API by the model's name.
skill.load_public_skills = lambda **_: []
LLM.uses_responses_api = lambda self: settings["dialect"] == "openai"


def say(type, **event):
    print(json.dumps({"type": type, **event}, default=str), flush=True)


end = {"text": "", "reason": "", "limit": False, "refused": "", "wrong": ""}
used = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0}  # since the last report


def heard(ask):
    """Reports each reply of the model as it comes. Replies to condensers and
    sub-agents count in the usage and are not messages."""

    def answered(self, *args, **kwargs):
        r = ask(self, *args, **kwargs)
        u, m, raw = self.metrics.token_usages[-1], r.message, r.raw_response
        for k, n in zip(used, (u.prompt_tokens, u.cache_read_tokens, u.completion_tokens)):
            used[k] += n
        if self is not talk.agent.llm:
            return r
        reasons = [c.finish_reason for c in getattr(raw, "choices", [])]
        reasons += [getattr(c, "type", "") for o in getattr(raw, "output", []) for c in getattr(o, "content", None) or []]
        reasons += [getattr(getattr(raw, "incomplete_details", None), "reason", "")]
        end["refused"] = next((w for w in reasons if w in ("refusal", "content_filter")), "")
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in m.tool_calls or []]
        say("message", text="".join(content_to_str(m.content)), thinking=m.reasoning_content or "", calls=calls, usage=used)
        used.update(dict.fromkeys(used, 0))
        return r

    return answered


def happened(e):
    if isinstance(e, ActionEvent) and e.tool_name == "finish" and e.action:
        end["text"] = e.action.message
    elif isinstance(e, ObservationEvent):
        say("result", id=e.tool_call_id, text="".join(content_to_str(e.observation.to_llm_content)), failed=e.observation.is_error)
    elif isinstance(e, AgentErrorEvent):
        say("result", id=e.tool_call_id, text=e.error, failed=True)
    elif isinstance(e, UserRejectObservation):
        say("result", id=e.tool_call_id, text=e.rejection_reason, failed=True)


LLM.completion, LLM.responses = heard(LLM.completion), heard(LLM.responses)
register_builtins_agents(enable_browser=False)
agent = load_agent_specs(session, mcp_servers=settings["servers"], env_overrides_enabled=True, critic_disabled=True)
os.environ.clear()
os.environ.update(theirs)  # commands get these variables

skills = {name: s for kind in load_skills_from_dir(home + "/skills") for name, s in kind.items()}
context = agent.agent_context
context = context.model_copy(update={
    "skills": [s for s in context.skills if s.name not in skills] + list(skills.values()),
    "system_message_suffix": "\n\n".join(t for t in (context.system_message_suffix, settings["system"]) if t),
})
tools = [t for t in agent.tools if t.name not in settings["without"]]
for t in tools:
    if t.name == "terminal":
        t.params.update(terminal_type="subprocess", shell_path=settings["shell"] or None)
# The gateway retries, and knows when to. The core enforces the deadline of the turn.
llm, effort = {"num_retries": 0, "timeout": 3600}, settings["effort"]
# OpenHands asks every model for a high effort and has LiteLLM leave that out by the
# name of the model, which LiteLLM does not do for the provider below.
listed = litellm.model_cost.get(settings["model"], {"supports_reasoning": True})
knows = get_features(agent.llm.model).supports_reasoning_effort and listed.get("supports_reasoning")
if effort or not knows:
    llm["reasoning_effort"] = effort or None
if settings["dialect"] == "openai-chat":
    # With OpenAI as the provider, LiteLLM would use another API for some models.
    llm.update(model="hosted_vllm/" + settings["model"], model_canonical_name=agent.llm.model)
elif effort and not knows:
    sys.exit(f"OpenHands cannot set a reasoning effort for {settings['model']}")
condenser = agent.condenser.model_copy(update={"llm": agent.condenser.llm.model_copy(update=llm)})
agent = agent.model_copy(update={"llm": agent.llm.model_copy(update=llm), "condenser": condenser, "agent_context": context, "tools": tools})
talk = Conversation(
    agent=agent, workspace=Workspace(working_dir=os.getcwd()), persistence_dir=home + "/conversations", conversation_id=uuid.UUID(session),
    visualizer=None, callbacks=[happened], hook_config=HookConfig.load(working_dir=os.getcwd()), **settings["conversation"],
)
talk.set_security_analyzer(LLMSecurityAnalyzer())
talk.set_confirmation_policy(NeverConfirm())
say("session", id=session)
talk.send_message(sys.stdin.read())
try:
    talk.run()
except ConversationRunError as e:
    e = e.__cause__ or e
    end["wrong"] = f"{type(e).__name__}: {e}"
    while e is not None and "status" not in end:
        if isinstance(getattr(e, "status_code", None), int):
            end["status"] = e.status_code
        e = e.__cause__ or e.__context__
end["reason"] = talk.state.execution_status.value
if end["reason"] == "error" and not end["wrong"]:
    # It asks a model that refuses without a word again, until the limit is reached.
    end["limit"] = not end["refused"]
say("end", **end)
talk.close()
