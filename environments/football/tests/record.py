"""Records the states of matches of the real engine for the tests: record.py ENGINE > matches.json."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "berth-plugin-football"))

import match  # noqa: E402
import scenario  # noqa: E402

PLAYS = {
    "passes and a goal": ["right"] * 5 + ["short_pass", "right", "right", "shot"],
    "a run that loses the ball": ["right"] * 60,
    "a pass back": ["left", "left", "high_pass"] + ["left"] * 40,
}


def main(engine):
    with open(os.path.join(HERE, "..", "levels", "right_1.py")) as f:
        level = scenario.read(f.read())
    found = {}
    for name, actions in PLAYS.items():
        m = match.Match(engine, level, 7)
        states, step = [m.state], m.step
        m.step = lambda action: (step(action), states.append(m.state))[0]
        outcomes = []
        for action in actions:
            if not m.done and len(m.frames) < 60:
                reward, frames = m.act(action)
                outcomes.append([action, len(frames), reward])
        found[name] = {"actions": outcomes, "frames": [[a, r, p] for a, r, p in m.frames], "states": states}
        m.close()
    json.dump(found, sys.stdout, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1])
