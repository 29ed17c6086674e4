"""The reward of a frame, as MageBench counts it: a function of the states of a match, without the engine.

A state is a dictionary with ball, left_team, right_team (places), their directions, ball_owned_team (-1: nobody, 0:
ours, 1: theirs), ball_owned_player, score and steps_left. x runs from -1 to 1, where their goal is, and y from -0.42 to
0.42. Places and directions (way in a frame) are lists of x and y.
"""

import math

FRAMES = 400  # of a match
SCALE = 20.0
PASSES = ("long_pass", "high_pass", "short_pass")
SHOT = "shot"
_GOAL = (1.0, 0.0)
_GOAL_POINTS = ((1.0, 0.0), (1.0, 0.044), (1.0, -0.044), (1.0, -0.02), (1.0, 0.022))
_WAY = 100  # points of the way of a shot


def owner(state):
    """The number of our player who has the ball, or -1."""
    return state["ball_owned_player"] if state["ball_owned_team"] == 0 else -1


def distance(a, b):
    return math.hypot(a[0] - b[0], a[1] - b[1])


def passed(state):
    """How many opponents are behind the ball."""
    return sum(p[0] < state["ball"][0] for p in state["right_team"])


def clear(state):
    """How far opponents are from the ball; those on the way to the goal count as up to eleven times as near."""
    at = state["ball"]
    goal = (_GOAL[0] - at[0], _GOAL[1] - at[1])
    least = math.inf
    for p in state["right_team"]:
        way = (p[0] - at[0], p[1] - at[1])
        size = math.hypot(*way) * math.hypot(*goal)
        cos = (way[0] * goal[0] + way[1] * goal[1]) / size if size > 0 else 0.0
        least = min(least, math.hypot(*way) / (10 * max(cos, 0.0) + 1))
    return least


def open_way(state):
    """The distance of the nearest opponent to the way of a shot, for the best point of the goal."""
    at, best = state["ball"], 0.0
    for goal in _GOAL_POINTS:
        way = [(at[0] + (goal[0] - at[0]) * i / _WAY, at[1] + (goal[1] - at[1]) * i / _WAY) for i in range(1, _WAY + 1)]
        best = max(best, min(distance(p, w) for p in state["right_team"] for w in way))
    return best


def near(state):
    """How near a shot is to the goal, from 0 to 1."""
    x = state["ball"][0]
    return 1.0 if 1 - x < 0.3 else max(x, 0.0)


class Reward:
    """Counts the rewards of one match. The parts of the last frame are in parts, before scaling.

    With published, a shot is forgotten as soon as nobody has the ball, as in the program of the benchmark: then each
    shot pays, and losing the ball after one ends the match.
    """

    def __init__(self, published=False):
        self.published = published
        self.best = None  # None: before the first frame
        self.behind, self.goals, self.scale, self.last = 0, 0, 1.0, -1
        self.passing = self.shot = self.done = False
        self.parts = {}

    def frame(self, state, action):
        """Returns the reward of a frame, which action led to. self.done is set when the ball is lost."""
        self.parts = {}
        if self.best is None:
            self.best, self.behind, self.goals = state["ball"][0], passed(state), state["score"][0]
            return 0.0
        holder = owner(state)
        if holder != -1:
            self.gain(state)
        if state["score"][0] > self.goals:
            self.parts["goal"] = 2.0
        self.goals = state["score"][0]
        if state["ball_owned_team"] == 1 and not self.shot:
            self.parts["lost"] = 1 - state["steps_left"] / FRAMES
            self.done = True
        if holder != -1:
            if self.passing and self.last not in (-1, holder):
                self.parts["pass"] = 20 * clear(state) * self.scale
                self.scale *= 0.75
                self.passing = False
            self.last = holder
        if action in PASSES:
            self.passing = True
        if action == SHOT and holder != -1 and not self.shot:
            self.parts["shot"] = min(100 * open_way(state) * near(state), 2 / 3)
            self.shot = True
        if self.published and state["ball_owned_player"] != self.last:
            self.shot = False
        return SCALE * sum(self.parts.values())

    def gain(self, state):
        """Counts what the team gains while it has the ball."""
        self.parts["forward"] = 0.8 * max(0.0, state["ball"][0] - self.best)
        self.best = max(self.best, state["ball"][0])
        behind = passed(state)
        self.parts["passed"] = (behind - self.behind) / 11
        self.behind = behind
