"""Scenario files of gfootball, read as text. They are programs in Python, and none of them is ever run."""

import ast
import math

LONGEST = 64 << 10  # bytes of a scenario
MOST_PLAYERS = 11  # of a team
ROLES = ("GK", "CB", "LB", "RB", "DM", "CM", "LM", "RM", "AM", "CF")
TEAMS = {"e_Left": "left", "e_Right": "right"}
FLAGS = ("deterministic", "offsides", "end_episode_on_score", "end_episode_on_out_of_play", "end_episode_on_possession_change")
DIFFICULTIES = ("left_team_difficulty", "right_team_difficulty")


class BadScenario(ValueError):
    """A text that is not a scenario. The message names the line."""


def read(text):
    """Returns a scenario: {"config": {…}, "ball": [x, y], "left": [player], "right": [player]}.

    A player is [x, y, role, lazy, controllable]. Everything but the statements that the published files consist of is
    refused, so a scenario cannot hide code.
    """
    if len(text.encode("utf-8", "replace")) > LONGEST:
        raise BadScenario("the scenario has more than %d KiB" % (LONGEST >> 10))
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        raise BadScenario("line %d: %s" % (e.lineno or 1, e.msg)) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise BadScenario("the scenario cannot be read: %s" % (str(e) or "it is nested too deeply")) from None
    found = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            if found or node.name != "build_scenario" or node.decorator_list or [a.arg for a in node.args.args] != ["builder"]:
                raise _bad(node, "the only function is build_scenario(builder)")
            found = node
        elif not _preamble(node):
            raise _bad(node, "only imports and names of roles may stand outside of build_scenario")
    if not found:
        raise BadScenario("the scenario has no function build_scenario")
    return _Reader().body(found)


def _bad(node, text):
    return BadScenario("line %d: %s" % (node.lineno, text))


def _preamble(node):
    """Whether a statement gives names to parts of the engine, which is all that stands before the function."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)


class _Reader:
    def __init__(self):
        self.config, self.ball, self.team, self.teams = {}, None, "left", {"left": [], "right": []}

    def body(self, function):
        for node in function.body:
            self.statement(node)
        if self.ball is None:
            self.ball = [0.0, 0.0]
        for name, players in self.teams.items():
            if not players:
                raise BadScenario("the %s team has no player" % name)
            if players[0][2] != "GK":
                raise BadScenario("the first player of the %s team is not a goalkeeper (e_PlayerRole_GK)" % name)
        self.config.setdefault("game_duration", 400)
        return {"config": self.config, "ball": self.ball, **self.teams}

    def statement(self, node):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return self.setting(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return None  # a comment
        call = node.value if isinstance(node, ast.Expr) else None
        name = _method(call)
        if name == "SetBallPosition":
            self.ball = [_place(a, limit) for a, limit in zip(_arguments(call, 2, 2), (1.1, 0.5))]
        elif name == "SetTeam":
            self.team = self.named(call)
        elif name == "AddPlayer":
            self.player(call)
        else:
            raise _bad(node, "want a setting of builder.config(), SetBallPosition, SetTeam or AddPlayer")
        return None

    def setting(self, node):
        target, value = node.targets[0], node.value
        if not (isinstance(target, ast.Attribute) and _method(target.value) == "config"):
            raise _bad(node, "only settings of builder.config() are assigned")
        name = target.attr
        if name in FLAGS:
            if not (isinstance(value, ast.Constant) and isinstance(value.value, bool)):
                raise _bad(node, "%s is True or False" % name)
            self.config[name] = value.value
        elif name in DIFFICULTIES:
            self.config[name] = _number(value, 0, 1)
        elif name == "game_duration":
            self.config[name] = int(_number(value, 1, 10000))
        else:
            raise _bad(node, "there is no setting %s: there are %s" % (name[:60], ", ".join(("game_duration",) + FLAGS + DIFFICULTIES)))

    def named(self, call):
        (a,) = _arguments(call, 1, 1)
        if isinstance(a, ast.Attribute) and a.attr in TEAMS:
            return TEAMS[a.attr]
        raise _bad(call, "the team is Team.e_Left or Team.e_Right")

    def player(self, call):
        x, y, role, *rest = _arguments(call, 3, 5)
        name = role.id if isinstance(role, ast.Name) else role.attr if isinstance(role, ast.Attribute) else ""
        if name.replace("e_PlayerRole_", "") not in ROLES or not name.startswith("e_PlayerRole_"):
            raise _bad(call, "the role is e_PlayerRole_ and one of %s" % ", ".join(ROLES))
        flags = [False, True]
        for i, a in enumerate(rest):
            flags[i] = a
        for k in call.keywords:
            if k.arg not in ("lazy", "controllable"):
                raise _bad(call, "AddPlayer has no argument %s" % k.arg)
            flags[("lazy", "controllable").index(k.arg)] = k.value
        flags = [f.value if isinstance(f, ast.Constant) else f for f in flags]
        if not all(isinstance(f, bool) for f in flags):
            raise _bad(call, "lazy and controllable are True or False")
        players = self.teams[self.team]
        if len(players) == MOST_PLAYERS:
            raise _bad(call, "a team has at most %d players" % MOST_PLAYERS)
        players.append([_place(x, 1.1), _place(y, 0.5), name[len("e_PlayerRole_"):], *flags])


def _method(call):
    """The name of a method of builder that is called, or an empty text."""
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        if call.func.value.id == "builder":
            return call.func.attr
    return ""


def _arguments(call, least, most):
    if not least <= len(call.args) <= most:
        raise _bad(call, "%s has %d arguments" % (call.func.attr, len(call.args)))
    return call.args


def _number(node, least, most):
    sign, inner = 1, node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        sign, inner = (-1 if isinstance(node.op, ast.USub) else 1), node.operand
    value = inner.value if isinstance(inner, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (isinstance(value, int) or math.isfinite(value)):
        raise _bad(node, "want a number")
    if not least <= sign * value <= most:
        raise _bad(node, "want a number from %g to %g" % (least, most))
    return float(sign * value)


def _place(node, limit):
    return _number(node, -limit, limit)
