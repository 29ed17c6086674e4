"""Observes pages with BrowserGym, for the benchmark of surfaces.

Reads lines: "open URL", and "observe", to which it answers with the nanoseconds
that an observation with a screenshot and the accessibility tree as text took. The
program of the browser is its first argument.
"""

import json
import sys
import time

import browsergym.core.env as env
from browsergym.core.env import BrowserEnv
from browsergym.core.task import OpenEndedTask
from browsergym.utils.obs import flatten_axtree_to_str


class Quiet:
    """In place of the chat, which is a second browser."""

    def __init__(self, *args, **kwargs):
        self.messages = []

    def add_message(self, role, msg):
        self.messages.append({"role": role, "timestamp": 0.0, "message": msg})

    def close(self):
        pass


def main():
    env.Chat = Quiet
    gym = BrowserEnv(
        task_entrypoint=OpenEndedTask,
        task_kwargs={"start_url": "about:blank"},
        viewport={"width": 1280, "height": 720},
        slow_mo=0,
        pre_observation_delay=0,
        pw_chromium_kwargs={"executable_path": sys.argv[1], "chromium_sandbox": False},
    )
    gym.reset()
    print("ready", flush=True)
    for line in sys.stdin:
        what, _, url = line.strip().partition(" ")
        if what == "open":
            gym.page.goto(url)
            print("open", flush=True)
            continue
        began = time.perf_counter_ns()
        seen = gym._get_obs()
        tree = flatten_axtree_to_str(seen["axtree_object"], extra_properties=seen["extra_element_properties"])
        took = time.perf_counter_ns() - began
        print(json.dumps({"took": took, "tree": len(tree), "screenshot": list(seen["screenshot"].shape)}), flush=True)
    gym.close()


main()
