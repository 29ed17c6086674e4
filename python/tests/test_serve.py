"""Tests of what a plugin says when it is started."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from berth_plugin import Agent, Environment, Surface, Verifier
from berth_plugin.serve import _protocol, _trace_of_author
from berth_plugin.verifier import verdict_message


class Protocols(unittest.TestCase):
    def test_the_highest_that_both_sides_speak(self):
        for host, want in (("1,2", 2), ("1", 1), ("2,3", 2), ("7", 2), ("", 2)):
            self.assertEqual(_protocol(host), want, host)


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
