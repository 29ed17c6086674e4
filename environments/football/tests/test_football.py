"""Scenarios, rewards and repeats, on states that record.py recorded from the real engine."""

import gzip
import importlib.machinery
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import tomllib
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
sys.path.insert(0, os.path.join(ROOT, "berth-plugin-football"))

import match  # noqa: E402
import repeat  # noqa: E402
import reward  # noqa: E402
import scenario  # noqa: E402

with gzip.open(os.path.join(HERE, "matches.json.gz"), "rt") as _file:
    MATCHES = json.load(_file)
with open(os.path.join(ROOT, "levels", "right_1.py")) as _file:
    LEVEL = _file.read()


def replay(recorded):
    """Plays the actions of a recorded match on its states. Returns the frames as recorded ones look."""
    count, repeats, at, frames, lengths = reward.Reward(), repeat.Repeat(), [0], [], []

    def step(action):
        at[0] += 1
        state = recorded["states"][at[0]]
        frames.append([action, count.frame(state, action), dict(count.parts)])
        return None if at[0] == len(recorded["states"]) - 1 or count.done else state

    for action, _, _ in recorded["actions"]:
        before = len(frames)
        repeats.play(action, recorded["states"][at[0]] if frames else None, step)
        lengths.append(len(frames) - before)
    return frames, lengths


class Recorded(unittest.TestCase):
    def test_the_same_actions_give_the_same_frames(self):
        for name, recorded in MATCHES.items():
            frames, lengths = replay(recorded)
            self.assertEqual([f[0] for f in frames], [f[0] for f in recorded["frames"]], name)
            self.assertEqual(lengths, [a[1] for a in recorded["actions"]], name)
            for i, (got, want) in enumerate(zip(frames, recorded["frames"])):
                self.assertAlmostEqual(got[1], want[1], 9, "%s, frame %d" % (name, i))

    def test_forward_adds_up_to_the_way_of_the_ball(self):
        m = MATCHES["a run that loses the ball"]
        forward = sum(f[2].get("forward", 0) for f in m["frames"])
        ours = [s["ball"][0] for s in m["states"][1:] if s["ball_owned_team"] == 0]
        self.assertAlmostEqual(forward, 0.8 * (max(ours) - m["states"][1]["ball"][0]), 9)

    def test_losing_the_ball_pays_the_time_it_was_kept(self):
        m = MATCHES["a run that loses the ball"]
        state, frame = m["states"][-1], m["frames"][-1]
        self.assertEqual(state["ball_owned_team"], 1)
        self.assertEqual(frame[2], {"lost": 1 - state["steps_left"] / 400})
        self.assertAlmostEqual(frame[1], 20 * frame[2]["lost"])

    def test_a_pass_a_shot_and_a_goal(self):
        m = MATCHES["passes and a goal"]
        parts = [p for f in m["frames"] for p in f[2]]
        self.assertEqual([parts.count(p) for p in ("pass", "shot", "goal")], [1, 1, 1])
        at = next(i for i, f in enumerate(m["frames"]) if "pass" in f[2])
        state = m["states"][at + 1]
        x, y = state["ball"]
        least = min(math.dist((x, y), p) / (10 * max(math.cos(math.atan2(p[1] - y, p[0] - x) - math.atan2(-y, 1 - x)), 0) + 1)
                    for p in state["right_team"])
        self.assertAlmostEqual(m["frames"][at][2]["pass"], 20 * least, 9)

    def test_passes_and_shots_alternate_with_the_direction(self):
        m = MATCHES["passes and a goal"]
        frames = [f[0] for f in m["frames"]]
        start = frames.index("short_pass")
        kicks = 0
        for i in range(start, start + 18):
            nobody = m["states"][i]["ball_owned_player"] == -1
            if frames[i] == "builtin_ai":
                self.assertTrue(nobody, "frame %d" % i)
            elif frames[i] == "short_pass":
                kicks += 1
                self.assertEqual((nobody, frames[i + 1]), (False, "right"), "frame %d" % i)
        self.assertGreater(kicks, 1)


class Parts(unittest.TestCase):
    def state(self, **changes):
        s = json.loads(json.dumps(MATCHES["passes and a goal"]["states"][30]))
        s.update(ball_owned_team=0, ball_owned_player=1, score=[0, 0])
        s.update(changes)
        return s

    def test_a_second_pass_pays_three_quarters(self):
        r, paid = reward.Reward(), []
        r.frame(self.state(), "right")
        for player in (1, 3, 1):
            r.frame(self.state(ball_owned_player=player), "short_pass")
            paid.append(r.parts.get("pass"))
        self.assertIsNone(paid[0])
        self.assertAlmostEqual(paid[2], paid[1] * 0.75)

    def test_a_shot_pays_once_and_keeps_the_match_going(self):
        for published, again in ((False, False), (True, True)):
            r = reward.Reward(published)
            for s, action in ((self.state(), "right"), (self.state(), "shot"), (self.state(ball_owned_player=-1, ball_owned_team=-1), "right")):
                r.frame(s, action)
            r.frame(self.state(), "shot")
            self.assertEqual("shot" in r.parts, again)

    def test_a_goal_pays_once(self):
        r, paid = reward.Reward(), []
        for score in ([0, 0], [0, 0], [1, 0], [1, 0], [1, 1], [2, 1]):
            r.frame(self.state(score=score), "right")
            paid.append(r.parts.get("goal"))
        self.assertEqual(paid, [None, None, 2.0, None, None, 2.0])

    def test_near(self):
        for x, want in ((0.71, 1.0), (0.5, 0.5), (-0.2, 0.0)):
            self.assertEqual(reward.near({"ball": [x, 0]}), want)

    def test_an_opponent_on_the_way_closes_it(self):
        free = {"ball": [0.5, 0.0], "right_team": [[0.5, 0.4]]}
        self.assertAlmostEqual(reward.open_way(free), 0.4, 2)
        shut = {"ball": [0.5, 0.0], "right_team": [[0.505, 0.0]]}
        self.assertLess(reward.open_way(shut), 0.001)

    def test_the_first_action_is_not_remembered(self):
        free = self.state(right_team=[[0.9, 0.4]], right_team_direction=[[0, 0]])
        free["left_team"][1], free["left_team_direction"][1] = [0.0, 0.0], [0.01, 0.0]
        repeats, steps = repeat.Repeat(), []

        def step(action):
            steps.append(action)
            return free

        for state in (None, free, free):
            repeats.play("right", state, step)
        self.assertEqual(len(steps), 1 + 1 + repeat.LONGEST)

    def test_idle_is_one_frame_and_pays_nothing_of_its_own(self):
        repeats, steps = repeat.Repeat(), []
        for state in (None, self.state(), self.state()):
            repeats.play(repeat.IDLE, state, lambda action: steps.append(action) or self.state())
        self.assertEqual(steps, [repeat.IDLE] * 3)
        r = reward.Reward()
        self.assertEqual([r.frame(self.state(), repeat.IDLE) for _ in range(3)], [0.0] * 3)

    def test_a_direction_stops_before_the_line_and_before_opponents(self):
        s = self.state(right_team=[[0.9, 0.4]], right_team_direction=[[0, 0]])
        s["left_team"][1], s["left_team_direction"][1] = [0.9, 0.0], [0.01, 0.0]
        self.assertTrue(repeat.free(s))
        s["left_team"][1] = [0.975, 0.0]
        self.assertFalse(repeat.free(s))
        s["left_team"][1], s["right_team"] = [0.5, 0.0], [[0.55, 0.0]]
        self.assertFalse(repeat.free(s))
        s["right_team"] = [[0.55, 0.02]]
        self.assertTrue(repeat.free(s))


class Scenarios(unittest.TestCase):
    def test_a_level_is_read(self):
        s = scenario.read(LEVEL)
        self.assertEqual((len(s["left"]), len(s["right"]), s["ball"], s["config"]["game_duration"]), (11, 11, [0.38, 0.05], 400))
        self.assertEqual(s["left"][1], [0.36, 0.05, "CF", False, True])

    def test_the_published_form_is_read(self):
        head = "import gfootball_engine as libgame\ne_PlayerRole_GK = libgame.e_PlayerRole.e_PlayerRole_GK\nTeam = libgame.e_Team\n"
        self.assertEqual(scenario.read(LEVEL.replace("from . import *\n", head)), scenario.read(LEVEL))

    def test_what_is_no_scenario_is_refused_with_its_line(self):
        start = LEVEL.index("    builder.SetBall")
        for text, want in (
            (LEVEL[:start] + "    __import__('os').system('touch /tmp/owned')\n", "line 13: want a setting"),
            ("x = open('/etc/passwd')\n" + LEVEL, "line 1: only imports"),
            (LEVEL.replace("0.38, 0.05", "1e999, 0.05"), "line 13: want a number"),
            (LEVEL.replace("0.38, 0.05", "3.8, 0.05"), "line 13: want a number from -1.1"),
            (LEVEL.replace("e_PlayerRole_CF", "e_PlayerRole_XX", 1), "line 17: the role is"),
            (LEVEL.replace("game_duration", "game_length"), "line 5: there is no setting game_length"),
            (LEVEL + "    builder.AddPlayer(0, 0, e_PlayerRole_CF)\n", "at most 11 players"),
            (LEVEL.replace("True", "1", 1), "is True or False"),
            ("def build_scenario(builder):\n  pass\n", "line 2: want a setting"),
            ("", "no function build_scenario"), ("def", "line 1: "), ("#" * 70000, "64 KiB"), ("(" * 5000, ""), ("\0", ""),
        ):
            with self.assertRaisesRegex(scenario.BadScenario, want.replace("(", r"\(")):
                scenario.read(text)


class Tasks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        head = "import gfootball_engine as libgame\ne_PlayerRole_GK = libgame.e_PlayerRole.e_PlayerRole_GK\nTeam = libgame.e_Team\n"
        self.names = ["R%d_%s_%d.py" % (r, kind, n) for r in range(1, 10) for kind in "PRT" for n in range(1, 5)]
        for name in self.names:
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(LEVEL.replace("from . import *\n", head))

    def make(self, *flags):
        out = os.path.join(self.folder, "tasks")
        return out, subprocess.run([sys.executable, os.path.join(ROOT, "make-tasks"), self.folder, out, *flags], capture_output=True, text=True)

    def test_the_published_folder_becomes_tasks(self):
        out, made = self.make()
        self.assertEqual((made.stdout, len(os.listdir(out))), ("108 tasks are in %s\n" % out, 108), made.stderr)
        with open(os.path.join(out, "r9-t-4", "task.toml")) as f:
            self.assertEqual(scenario.read(tomllib.loads(f.read())["metadata"]["berth"]["surface"]["level"]), scenario.read(LEVEL))

    def test_a_list_names_scenarios(self):
        file = os.path.join(self.folder, "mini.json")
        for names, want in (('["Football/R1_P_2.py", "Football/R9_R_2.py"]', ""), ('["R10_P_1.py"]', "1 files that are not in"), ("{", "no JSON"), ("[1]", "no list of names")):
            with open(file, "w") as f:
                f.write(names)
            out, made = self.make("--names=" + file)
            self.assertEqual(made.returncode == 0, not want, made.stderr)
            self.assertIn(want, made.stderr)
            self.assertEqual(sorted(os.listdir(out)), ["r1-p-2", "r9-r-2"])


    def surface(self, *flags):
        out, made = self.make("--names=" + self.list, *flags)
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(os.path.join(out, "r1-p-1", "task.toml")) as f:
            return tomllib.loads(f.read())["metadata"]["berth"]["surface"]

    def test_steps_actions_and_names_are_chosen(self):
        self.list = os.path.join(self.folder, "one.json")
        with open(self.list, "w") as f:
            f.write('["Football/R1_P_1.py"]')
        played = list(repeat.PLAYED)
        for flags, steps, sees, actions, settings in (
            ((), 400, "state", played, None), (("--pictures",), 20, "image", played, None), (("--pictures", "--steps", "400"), 400, "image", played, None),
            (("--steps=7", "--frames"), 7, "state", played, {"repeats": False}), (("--actions=idle",), 400, "state", ["idle"], None),
            (("--published-names", "--actions=shot,action_idle"), 400, "state", ["action_shot", "action_idle"], {"published_names": True}),
            (("--published-names",), 400, "state", ["action_" + a for a in played], {"published_names": True}),
        ):
            made = self.surface(*flags)
            self.assertEqual((made["steps"], made["observations"], made["actions"], made.get("settings")), (steps, [sees], actions, settings), flags)
        self.assertNotIn(repeat.IDLE, played)
        for flag, want in (("--steps=401", "from 1 to 400"), ("--steps=0", "from 1 to 400"), ("--steps=many", "invalid int"), ("--actions=jump", "no action jump: choose from left")):
            made = self.make(flag)[1]
            self.assertEqual((made.returncode, want in made.stderr), (2, True), made.stderr)


class Chance(unittest.TestCase):
    def test_it_depends_on_the_scenario_and_the_repetition(self):
        other = LEVEL.replace("0.38", "0.37")
        got = [match.chance(level, seed) for level in (LEVEL, other) for seed in (1, 2)]
        self.assertEqual(got, [match.chance(level, seed) for level in (LEVEL, other) for seed in (1, 2)])
        self.assertEqual(len(set(got)), 4)
        self.assertTrue(all(0 <= n < 2**31 for n in got))


@unittest.skipUnless(importlib.util.find_spec("grpc"), "the plugin needs grpcio, which this Python does not have")
class Plugin(unittest.TestCase):
    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("football", os.path.join(ROOT, "berth-plugin-football", "berth-plugin-football"))
        self.plugin = importlib.util.module_from_spec(importlib.util.spec_from_loader("football", loader))
        sys.modules["football"] = self.plugin
        loader.exec_module(self.plugin)

    def test_actions_have_the_names_that_the_task_wants(self):
        for settings, prefix in (({}, ""), ({"published_names": True}, "action_")):
            needs = self.plugin.Football().needs(self.plugin.Config(engine="/nowhere"), self.plugin.Settings(**settings), LEVEL)
            self.assertEqual([a.name for a in needs.actions], [prefix + name for name in repeat.OFFERED])
            self.assertTrue(all("action_" not in a.doc for a in needs.actions))

    def test_a_name_is_played_as_its_action(self):
        class Played:
            done, state, frames = False, {"score": [0, 0], "steps_left": 1}, []

            def act(self, action):
                self.action = action
                return 0.0, []

            def digest(self):
                return ""

        for settings, name, action in (({}, "shot", "shot"), ({"published_names": True}, "action_idle", "idle")):
            opened = self.plugin.Opened(self.plugin.Config(), self.plugin.Settings(**settings))
            opened.match = Played()
            self.plugin.Football().act(opened, name, None)
            self.assertEqual(opened.match.action, action)
            with self.assertRaisesRegex(self.plugin.NotNow, "no action"):
                self.plugin.Football().act(opened, "action_" + name, None)


_GONE = match.missing(os.environ.get("BERTH_FOOTBALL", match.DEFAULT))


@unittest.skipIf(_GONE, " ".join(_GONE or ()))
class Engine(unittest.TestCase):
    def test_a_recorded_match_is_played_again(self):
        recorded = MATCHES["passes and a goal"]
        m = match.Match(os.environ.get("BERTH_FOOTBALL", match.DEFAULT), scenario.read(LEVEL), 7)
        try:
            got = [[a, len(f), r] for a, (r, f) in ((a, m.act(a)) for a, _, _ in recorded["actions"])]
            self.assertEqual(m.state["score"], [1, 0])
            self.assertEqual([g[:2] for g in got], [a[:2] for a in recorded["actions"]])
        finally:
            m.close()


if __name__ == "__main__":
    unittest.main()
