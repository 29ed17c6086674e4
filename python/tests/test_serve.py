"""Tests of what a plugin says when it is started."""

import os
import sys
import traceback
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from berth_plugin import Agent, Environment, Surface, Verifier
from berth_plugin.serve import _frames_of_author, _protocol
from berth_plugin.verifier import verdict_message


class Protocols(unittest.TestCase):
    def test_the_highest_that_both_sides_speak(self):
        for host, want in (("1,2", 2), ("1", 1), ("2,3", 2), ("7", 2), ("", 2)):
            self.assertEqual(_protocol(host), want, host)


class Mistakes(unittest.TestCase):
    def test_a_class_without_a_required_method_cannot_be_made(self):
        for base, method in ((Agent, "turn"), (Verifier, "verify"), (Environment, "destroy"), (Surface, "observe")):
            with self.assertRaisesRegex(TypeError, method):
                type("Forgetful", (base,), {})()

    def test_a_traceback_has_the_frames_of_the_author_only(self):
        try:
            verdict_message(None)
        except TypeError as e:
            frames = traceback.extract_tb(e.__traceback__)
        self.assertEqual(len(frames), 2)
        self.assertEqual([os.path.basename(f.filename) for f in _frames_of_author(frames)], ["test_serve.py"])
        self.assertEqual(_frames_of_author(frames[1:]), frames[1:])  # nobody else is to blame


if __name__ == "__main__":
    unittest.main()
