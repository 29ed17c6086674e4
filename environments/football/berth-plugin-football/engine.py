"""One match of Google Research Football, played in its own process: a program that reads requests on stdin.

A request and its reply are lines of JSON. It is run by the Python of the engine's folder, and one process renders at
most one match. The engine prints on stdout, so replies go to a copy of it.
"""

import base64
import json
import os
import sys
import types

WIDTH, HEIGHT = 1280, 720
NEEDED = ("ball", "ball_direction", "left_team", "left_team_direction", "right_team", "right_team_direction")


def module(scenario):
    """The scenario as the module that the engine imports by name. It only has what was read from the text."""
    import gfootball_engine as libgame

    def build_scenario(builder):
        for name, value in scenario["config"].items():
            setattr(builder.config(), name, value)
        builder.SetBallPosition(*scenario["ball"])
        for team, players in ((libgame.e_Team.e_Left, scenario["left"]), (libgame.e_Team.e_Right, scenario["right"])):
            builder.SetTeam(team)
            for x, y, role, lazy, controllable in players:
                builder.AddPlayer(x, y, getattr(libgame.e_PlayerRole, "e_PlayerRole_" + role), lazy, controllable)

    made = types.ModuleType("gfootball.scenarios.berth")
    made.build_scenario = build_scenario
    return made


class Match:
    """The engine with one match."""

    def __init__(self, scenario, seed, folder):
        import gfootball.scenarios
        from gfootball.env import config, football_action_set, football_env

        sys.modules["gfootball.scenarios.berth"] = gfootball.scenarios.berth = module(scenario)
        self.actions = {repr(a): i for i, a in enumerate(football_action_set.full_action_set)}
        self.env = football_env.FootballEnv(config.Config({
            "action_set": "full", "players": ["agent:left_players=1"], "real_time": False, "level": "berth",
            "game_engine_random_seed": seed, "render": False, "tracesdir": folder, "dump_full_episodes": False,
            "render_resolution_x": WIDTH, "render_resolution_y": HEIGHT}))
        self.seen, self.done = self.env.reset(), False

    def state(self):
        seen = self.seen[0] if isinstance(self.seen, list) else self.seen
        state = {k: [round(float(v), 9) for v in seen[k][:2]] if "ball" in k else
                 [[round(float(v), 9) for v in p] for p in seen[k]] for k in NEEDED}
        for k in ("ball_owned_team", "ball_owned_player", "steps_left", "game_mode", "active"):
            state[k] = int(seen[k])
        state["score"] = [int(v) for v in seen["score"]]
        return state

    def step(self, action):
        self.seen, _, self.done, _ = self.env.step(self.actions[action])
        return {"state": self.state(), "done": bool(self.done)}

    def picture(self):
        """The picture of this moment as PNG. Rendering is switched on for it alone: it costs a hundred steps."""
        import cv2

        frame = self.env.render(mode="rgb_array")
        self.env.disable_render()
        ok, data = cv2.imencode(".png", frame)
        if not ok:
            raise RuntimeError("the picture could not be written as PNG")
        return {"png": base64.b64encode(data.tobytes()).decode()}


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    match = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "start" in request:
                match = Match(request["start"], request["seed"], request["folder"])
                reply = {"state": match.state(), "done": False}
            elif "step" in request:
                reply = match.step(request["step"])
            else:
                reply = match.picture()
        except Exception as e:  # the plugin says it
            reply = {"error": "%s: %s" % (type(e).__name__, e)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
