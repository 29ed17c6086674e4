"""Tests of what a plugin says when it is started."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from berth_plugin.serve import _protocol


class Protocols(unittest.TestCase):
    def test_the_highest_that_both_sides_speak(self):
        for host, want in (("1,2", 2), ("1", 1), ("2,3", 2), ("7", 2), ("", 2)):
            self.assertEqual(_protocol(host), want, host)


if __name__ == "__main__":
    unittest.main()
