"""How often an action of an agent is repeated: a decision on the states of a match, without the engine."""

import math

from reward import PASSES, SHOT

DIRECTIONS = ("left", "top_left", "top", "top_right", "right", "bottom_right", "bottom", "bottom_left")
OTHERS = ("sprint", "release_sprint", "dribble", "release_dribble")
IDLE = "idle"
PLAYED = DIRECTIONS + PASSES + (SHOT,) + OTHERS  # what the benchmark lets agents do
OFFERED = PLAYED + (IDLE,)
PREFIX = "action_"  # of the published names
BUILTIN = "builtin_ai"
LONGEST = 10  # frames of a direction
CLOSE = 0.01  # the least distance of an opponent


def free(state):
    """Whether the player with the ball (or the ball) stays in the field and away from opponents for some frames."""
    at, way = state["ball"], state["ball_direction"]
    if state["ball_owned_team"] == 0:
        player = state["ball_owned_player"]
        at, way = state["left_team"][player], state["left_team_direction"][player]
    if abs(at[0] + 3 * way[0]) >= 1 or abs(at[1] + 3 * way[1]) >= 0.42:
        return False
    for frames in range(6):
        x, y = at[0] + frames * way[0], at[1] + frames * way[1]
        for p, d in zip(state["right_team"], state["right_team_direction"]):
            if math.hypot(x - p[0] - frames * d[0], y - p[1] - frames * d[1]) < CLOSE:
                return False
    return True


class Repeat:
    """Remembers the last action and the last direction of one match."""

    def __init__(self):
        self.last, self.direction = "", "right"

    def play(self, action, state, step):
        """Plays an action with step, a function that plays one frame and returns the state, or None at the end.

        state is the state before, or None before the first frame, whose action is not remembered.
        """
        if state is None:
            step(action)
            return
        last, self.last = self.last, action
        if action in DIRECTIONS:
            self.direction = action
        if action in DIRECTIONS and action == last:
            for _ in range(LONGEST):
                state = step(action)
                if state is None or not free(state):
                    return
        elif action in PASSES + (SHOT,) and state["ball_owned_player"] != -1:
            self.kick(action, state, step)
        else:
            step(action)

    def kick(self, action, state, step):
        """Alternates with the last direction until the ball has left, and then waits until a player has it."""
        team, player = state["ball_owned_team"], state["ball_owned_player"]
        while state is not None:
            if state["ball_owned_player"] == -1:
                state = step(BUILTIN)
            elif (state["ball_owned_team"], state["ball_owned_player"]) == (team, player):
                state = step(action)
                if state is not None:
                    state = step(self.direction)
            else:
                return
