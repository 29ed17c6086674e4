"""Tests of what a plugin's configuration may be."""

import json
import os
import sys
import tempfile
import unittest
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from berth_plugin import BadReward, MissingFile, Problem, Request, Score, Verdict, option  # noqa: E402
from berth_plugin import config, verifier  # noqa: E402


@dataclass
class Mount:
    source: str = option(doc="Where it is.")
    deep: list[int] = option([], doc="Numbers.")


@dataclass
class Config:
    name: str = option(doc="Required.")
    tolerance: float = option(0.5, doc="A number.")
    mode: Literal["strict", "loose"] = option("strict")
    wait: timedelta = option(timedelta(seconds=90))
    tags: dict[str, str] = option({})
    mount: list[Mount] = option([])
    anything: Any = option(None)

    def validate(self):
        if self.tolerance < 0:
            yield Problem("Tolerance is negative", "Got %g." % self.tolerance, "tolerance")


def wrong(given):
    return [(p.path, p.summary) for p in config.read(Config, json.dumps(given).encode())[1]]


class ConfigTest(unittest.TestCase):
    def test_values_and_defaults_are_read(self):
        got, problems = config.read(Config, b'{"name": "a", "wait": "1h30m", "mount": [{"source": "/x", "deep": [1]}]}')
        self.assertEqual(problems, [])
        self.assertEqual(got, Config("a", 0.5, "strict", timedelta(minutes=90), {}, [Mount("/x", [1])], None))

    def test_every_problem_is_reported_with_its_place(self):
        self.assertEqual(wrong({"nmae": 1}), [("nmae", "Unknown option nmae"), ("name", "Missing option name")])
        self.assertEqual(wrong({"name": 1, "mode": "x", "wait": "90", "tolerance": True}),
                         [("name", "Wrong value"), ("tolerance", "Wrong value"), ("mode", "Wrong value"), ("wait", "Wrong value")])
        self.assertEqual(wrong({"name": "a", "mount": [{"deep": ["x"]}]}),
                         [("mount[0].source", "Missing option source"), ("mount[0].deep[0]", "Wrong value")])
        self.assertEqual(wrong({"name": "a", "tags": {"k": 1}}), [('tags["k"]', "Wrong value")])
        self.assertEqual(wrong({"name": "a", "tolerance": -1}), [("tolerance", "Tolerance is negative")])
        self.assertEqual(wrong([1])[0][1], "Wrong value")

    def test_a_plugin_without_a_configuration_takes_none(self):
        self.assertEqual(config.read(None, b"{}"), (None, []))
        self.assertEqual(len(config.read(None, b'{"a": 1}')[1]), 1)
        self.assertEqual(len(config.read(None, b'{"a": [')[1]), 1)

    def test_the_schema_says_all_of_it(self):
        fields = {f["name"]: f for f in config.schema(Config)["fields"]}
        self.assertEqual(fields["name"], {"name": "name", "type": "string", "doc": "Required.", "required": True})
        self.assertEqual(fields["mode"]["enum"], ["strict", "loose"])
        self.assertEqual((fields["wait"]["type"], fields["wait"]["default"]), ("duration", "90s"))
        self.assertEqual((fields["tags"]["type"], fields["mount"]["type"]), ("map(string)", "list(block)"))
        self.assertEqual([f["type"] for f in fields["mount"]["fields"]], ["string", "list(int)"])

    def test_durations_are_those_of_the_contract(self):
        for text, seconds in (("90s", 90), ("1h30m", 5400), ("1.5s", 1.5), ("250ms", 0.25), ("0", 0), ("-2m", -120)):
            self.assertEqual(config._duration(text), timedelta(seconds=seconds), text)
        for text in ("90", "", "5 minutes", "1h 30m", "s", "1d"):
            self.assertRaises(ValueError, config._duration, text)


class ViewTest(unittest.TestCase):
    """What an agent left may be anything."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.view = self.folder.name
        os.makedirs(os.path.join(self.view, "attempt", "artifacts"))
        self.request = Request(self.view, "", 0, None, {}, {}, "", {}, 0, "", None)

    def path(self, name):
        return os.path.join(self.view, "attempt", "artifacts", name)

    def test_a_regular_file_is_read(self):
        with open(self.path("answer.txt"), "w") as f:
            f.write("42")
        self.assertEqual(self.request.read("attempt/artifacts/answer.txt"), b"42")

    def test_a_missing_artifact_says_whether_it_is_declared(self):
        def why(name):
            with self.assertRaises(MissingFile) as caught:
                self.request.read(name)
            return str(caught.exception).partition("No such file or directory")[2]

        self.assertEqual(why("attempt/artifacts/clean.csv"), ": the task declares no artifacts")
        with open(self.path("manifest.json"), "w") as f:
            f.write('[{"destination": "artifacts/answer.txt"}, {"destination": "artifacts/out"}]')
        self.assertEqual(why("attempt/artifacts/clean.csv"), ': the task declares no artifact "clean.csv"; there are answer.txt, out')
        self.assertEqual(why("attempt/artifacts/answer.txt"), "")
        self.assertEqual(why("attempt/artifacts/out/x"), "")
        self.assertEqual(why("task/x"), "")

    def test_no_link_pipe_or_large_file_is_opened(self):
        os.symlink("/etc/passwd", self.path("link"))
        os.symlink("/etc", self.path("folder"))
        os.mkfifo(self.path("pipe"))
        with open(self.path("large"), "wb") as f:
            f.truncate(2 << 20)
        for name in ("link", "folder/passwd", "pipe", "large", "absent", "absent/x"):
            with self.assertRaises(MissingFile, msg=name):
                self.request.read("attempt/artifacts/" + name)
        for name in ("../x", "attempt/../../x", "/etc/passwd", ""):
            with self.assertRaises(ValueError, msg=name):
                self.request.read(name)


    def test_a_file_that_the_agent_did_not_leave_is_the_verdict_fail(self):
        class Reader(verifier.Verifier):
            def verify(self, request):
                return request.read("attempt/artifacts/absent") == request.read("tests/absent")

        v = verifier.judge(Reader(), self.request)
        self.assertEqual(v.decision, "fail")
        self.assertIn("attempt/artifacts/absent cannot be read: No such file or directory", v.rationale)
        open(self.path("absent"), "w").close()
        self.assertRaises(MissingFile, verifier.judge, Reader(), self.request)


class VerdictTest(unittest.TestCase):
    def test_a_score_is_finite(self):
        for value in (float("nan"), float("inf")):
            self.assertRaises(BadReward, verifier.verdict_message, Verdict("scored", {"a": value}))

    def test_scores_keep_their_bounds(self):
        m = verifier.verdict_message(Verdict("pass", {"a": 1, "b": Score(2.0, min=0, lower_is_better=True)}))
        self.assertEqual((m.decision, m.scores["a"].value, m.scores["b"].min, m.scores["b"].lower_is_better), (1, 1.0, 0, True))
        self.assertFalse(m.scores["b"].HasField("max"))

    def test_what_is_no_verdict_is_refused(self):
        self.assertRaises(TypeError, verifier.verdict_message, None)
        self.assertRaises(ValueError, verifier.verdict_message, Verdict("maybe"))

    def test_labels(self):
        m = verifier.verdict_message(Verdict("pass", labels={"status": "done"}))
        self.assertEqual(dict(m.labels), {"status": "done"})
        self.assertRaises(TypeError, verifier.verdict_message, Verdict("pass", labels={"status": 1}))


if __name__ == "__main__":
    unittest.main()
