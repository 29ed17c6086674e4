"""Plays levels in gym-sokoban 0.0.6, for the tests of our game.

Input is a line of JSON for each level: its text, num_boxes, max_steps and actions (u, d,
l, r). Output is a line for each action: the grid, the reward, whether the game is over,
and the picture with one pixel a cell, as hexadecimal digits.
"""

import json
import sys

import numpy as np
from gym_sokoban.envs.sokoban_env import SokobanEnv

FIXED = {"#": 0, " ": 1, "$": 1, "@": 1, ".": 2, "*": 2, "+": 2}
STATE = {"#": 0, " ": 1, "$": 4, "@": 5, ".": 2, "*": 3, "+": 5}
CHARS = "# .*$@"


def grid(env):
    rows = []
    for fixed, state in zip(env.room_fixed, env.room_state):
        row = (("+" if f == 2 and s == 5 else CHARS[s]) for f, s in zip(fixed, state))
        rows.append("".join(row))
    return "\n".join(rows) + "\n"


def main():
    for line in sys.stdin:
        level = json.loads(line)
        rows = level["level"].split("/")
        env = SokobanEnv(max_steps=level["max_steps"], num_boxes=level["num_boxes"], reset=False)
        env.room_fixed = np.array([[FIXED[c] for c in row] for row in rows])
        env.room_state = np.array([[STATE[c] for c in row] for row in rows])
        env.player_position = np.argwhere(env.room_state == 5)[0]
        env.num_env_steps, env.reward_last, env.boxes_on_target = 0, 0, 0
        for letter in level["actions"]:
            move = 1 + "udlr".index(letter)
            seen, reward, done, _ = env.step(move, observation_mode="tiny_rgb_array")
            print(json.dumps([grid(env), reward, bool(done), seen.tobytes().hex()]))


main()
