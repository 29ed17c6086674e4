"""How plugins reach models: through Berth's gateway, never a provider directly."""

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Model:
    """One model as a session or a judgment may use it. It answers until the turn or the judgment is over."""

    name: str  # as the provider knows it
    dialect: str  # anthropic, openai, openai-chat, gemini, or script, which answers in every dialect
    token: str  # where the dialect has its key
    url: str  # base URL on the host, for any HTTP client or SDK
    inside: str  # base URL in the sandbox; empty: not offered there
    socket: str  # "unix:/path" or the same URL
    parameters: dict  # that the experiment wants in each request


def models(endpoints):
    return {
        key: Model(m.name, m.dialect, m.token, m.host_url or m.host, m.inside, m.host,
                   json.loads(m.parameters_json or b"{}"))
        for key, m in endpoints.items()
    }
