"""Tests of what a plugin says when it is started."""

import os
import subprocess
import sys
import unittest
from dataclasses import dataclass

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from berth_plugin import Agent, Environment, Surface, Verifier, contract, option
from berth_plugin.serve import _KINDS, _Server, _trace_of_author
from berth_plugin.verifier import verdict_message


@dataclass
class Set:
    tolerance: float = option(0.5)


class Strict(Verifier):
    Settings = Set

    def verify(self, request):
        return request.settings.tolerance == 0.5


class Board(Surface):
    Settings, Captures = Set, {"result": Set}
    needs = open = reset = observe = act = lambda *_: None


class Loose(Strict):
    Settings = None


class Settings(unittest.TestCase):
    def test_what_a_task_sets_is_checked_by_its_class(self):
        server = _Server([Strict(), Board(), Loose()])
        self.assertEqual([list(d.capabilities) for d in server.Describe(None, None).plugins], [["settings"], ["no_sandboxes", "surface", "settings"], []])
        request = contract.message("ValidateRequest")
        for kind, name, capture, settings, want in (
            ("verifier", "strict", "", b"{}", []), ("verifier", "strict", "", b'{"tolerence": 1}', ["tolerence"]),
            ("verifier", "strict", "", b'{"tolerance": "x"}', ["tolerance"]), ("verifier", "strict", "", b"{", [""]),
            ("verifier", "strict", "", b"", []), ("verifier", "loose", "", b'{"tolerence": 1}', []),
            ("environment", "board", "", b'{"x": 1}', ["x"]), ("environment", "board", "result", b'{"x": 1}', ["x"]),
            ("environment", "board", "result", b"{}", []), ("environment", "board", "resalt", b"{}", [""]),
        ):
            reply = server.Validate(request(kind=_KINDS[kind], plugin=name, capture=capture, settings_json=settings), None)
            self.assertEqual([p.path for p in reply.problems], want, (name, capture, settings, reply))


class Mistakes(unittest.TestCase):
    def test_a_python_without_the_modules_is_named(self):
        here = os.path.join(os.path.dirname(__file__), "..")
        ran = subprocess.run([sys.executable, "-SBc", "import berth_plugin"], capture_output=True, text=True, cwd=here, env={})
        self.assertIn("ImportError: %s has no module " % sys.executable, ran.stderr)

    def test_a_class_without_a_required_method_cannot_be_made(self):
        for base, method in ((Agent, "turn"), (Verifier, "verify"), (Environment, "destroy"), (Surface, "observe")):
            with self.assertRaisesRegex(TypeError, method):
                type("Forgetful", (base,), {})()

    def test_a_traceback_has_the_frames_of_the_author_only(self):
        try:
            try:
                verdict_message(None)
            except TypeError as e:
                raise ValueError("later") from e
        except ValueError as e:
            text, frames = _trace_of_author(e)
            inner, own = _trace_of_author(e.__cause__.with_traceback(e.__cause__.__traceback__.tb_next))
        self.assertEqual([os.path.basename(f.filename) for f in frames], ["test_serve.py"])
        self.assertNotIn("verifier.py", text)
        self.assertIn("Traceback (most recent call last)", text)
        self.assertIn("direct cause", text)
        self.assertEqual([os.path.basename(f.filename) for f in own], ["verifier.py"], inner)  # no other file is in it


if __name__ == "__main__":
    unittest.main()
