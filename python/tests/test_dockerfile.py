"""Tests of what an environment reads in the Dockerfile of a task."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from berth_plugin import contract
from berth_plugin.dockerfile import Unfit
from berth_plugin.environment import Environment

FILES = {"a": "A", "b": "B", "d/x": "X", "d/e/y": "Y", "d/l": "-> /etc/passwd", "link": "-> d/x"}


class Box(Environment):
    name, copies, hidden = "box", True, ("/usr", "/tmp")
    create = destroy = list = None  # not called here


class Bare(Environment):
    name = "bare"
    create = destroy = list = None


def write(folder, files):
    """Makes files; a text that begins with "-> " makes a link, and "|" a pipe."""
    for name, text in files.items():
        at = os.path.join(folder, name)
        os.makedirs(os.path.dirname(at), 0o755, exist_ok=True)
        if text == "|":
            os.mkfifo(at)
        elif text.startswith("-> "):
            os.symlink(text[3:], at)
        else:
            with open(at, "w") as f:
                f.write(text)
            os.chmod(at, 0o640)


def content(folder):
    """Lists a folder: the mode and the content of everything."""
    found = []
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            inside = path[len(folder):]
            if os.path.islink(path):
                found.append("%s -> %s" % (inside, os.readlink(path)))
            elif os.path.isdir(path):
                found.append("%s/ %o" % (inside, os.stat(path).st_mode & 0o7777))
            else:
                with open(path) as f:
                    found.append("%s %o %s" % (inside, os.stat(path).st_mode & 0o7777, f.read()))
    return sorted(found)


class Dockerfiles(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)

    def image(self, text, files=FILES):
        folder = tempfile.mkdtemp(dir=self.temp.name)
        write(folder, dict(files, Dockerfile=text))
        return contract.message("SandboxImage")(build=folder, digest="sha256:x")

    def test_facts(self):
        facts = Bare().facts(self.image("# a task\nFROM debian:13-slim\n\nworkdir /app/\nENV A=1 B=x=y\n"))
        self.assertEqual((facts.workdir, facts.env), ("/app", {"A": "1", "B": "x=y"}))

    def test_what_is_not_simple_is_refused_with_its_line(self):
        for text, want in (
            ("FROM a\nCOPY a /app/\n", "line 2 of the Dockerfile, \"COPY a /app/\""), ("FROM a\nRUN x\n", "line 2"), ("FROM a\nFROM b\n", "line 2"),
            ("FROM a AS b\n", "line 1"), ("FROM $a\n", "line 1"), ("FROM a\nWORKDIR app\n", "line 2"), ("FROM a\nENV A 1\n", "line 2"),
            ("FROM a\nENV\n", "line 2"), ("FROM a\nWORKDIR\n", "line 2"), ("WORKDIR /app\nFROM a\n", "line 1"), ("", "without FROM"),
            ("#" * (1 << 20) + "#", "more than"),
        ):
            with self.assertRaises(Unfit, msg=text[:40]) as caught:
                Bare().facts(self.image(text))
            self.assertIn(want, str(caught.exception))
            spec = contract.message("SandboxSpec")(image=self.image(text))
            refusals, degraded = Bare().check(spec, None)
            self.assertTrue(any(want in r.summary for r in refusals), refusals)
            self.assertEqual(degraded, [])

    def test_check_accepts_what_facts_accepts(self):
        spec = contract.message("SandboxSpec")(image=self.image("FROM x\nCOPY a /app/\n"))
        spec.network.mode = contract.enum("NetworkMode", "NETWORK_MODE_")["none"]
        refusals, degraded = Box().check(spec, None)
        self.assertEqual((refusals, len(degraded)), ([], 1))
        spec.image.ref = "x"
        self.assertEqual(len(Box().check(spec, None)[0]), 1)

    def test_copies(self):
        for text, want in (
            ("COPY a /app/", ["/app/ 755", "/app/a 640 A"]),
            ("COPY a /app", ["/app 640 A"]),
            ("WORKDIR /app\nCOPY a /app", ["/app/ 755", "/app/a 640 A"]),
            ("WORKDIR /w\nCOPY a b ./in/", ["/w/ 755", "/w/in/ 755", "/w/in/a 640 A", "/w/in/b 640 B"]),
            ("WORKDIR /w\ncopy /a .", ["/w/ 755", "/w/a 640 A"]),
            ("COPY --chown=root:root d /data", ["/data/ 755", "/data/e/ 755", "/data/e/y 640 Y", "/data/l -> /etc/passwd", "/data/x 640 X"]),
            ("COPY --chmod=755 d/x a /bin/", ["/bin/ 755", "/bin/a 755 A", "/bin/x 755 X"]),
            ("COPY link /x", ["/x 640 X"]),
            ("COPY a /x/y/\nCOPY b /x/y/a", ["/x/ 755", "/x/y/ 755", "/x/y/a 640 B"]),
            ("COPY a /up/../x", ["/x 640 A"]),
            ("WORKDIR /app", []),
            ("COPY d/e .\nCOPY --chmod=0600 a ././", ["/a 600 A", "/y 640 Y"]),
        ):
            image, root = self.image("FROM x\n%s\n" % text), tempfile.mkdtemp(dir=self.temp.name)
            Box().facts(image)
            Box().files(image, root)
            self.assertEqual(content(root), sorted(want), text)

    def test_hostile_copies(self):
        outside = tempfile.mkdtemp(dir=self.temp.name)
        write(outside, {"secret": "secret"})
        files = {"a": "A", "b": "B", "out": "-> " + outside + "/secret", "abs": "-> " + outside, "pipe": "|", "pipes/p": "|", "tree/usr/x": "X",
                 "links/away": "-> " + outside}
        for text, want in (
            ("COPY ../a /x", "line 2"), ("COPY d/../../a /x", "line 2"), ("COPY out /x", "leads out"), ("COPY abs /x", "leads out"),
            ("COPY abs/secret /x", "leads out"), ("COPY pipe /x", "neither a file"), ("COPY pipes /x", "neither a file"), ("COPY gone /x", "No such file"),
            ("COPY a /usr/bin/a", "nothing can be placed in /usr"), ("COPY a /usr", "nothing can be placed in /usr"),
            ("COPY tree /", "nothing can be placed in /usr"), ("COPY a /x/../tmp/a", "nothing can be placed in /tmp"), ("COPY a", "line 2"),
            ("COPY a b /x", "line 2"), ("COPY a* /x/", "line 2"), ("COPY --from=x a /x", "line 2"), ("COPY --chown=bob a /x", "line 2"),
            ("COPY --chmod=u+x a /x", "line 2"), ("COPY --chmod=4755 a /x", "line 2"), ("COPY $a /x", "line 2"), ("ADD a /x", "line 2"),
            ("COPY links /x\nCOPY a /x/away/planted", None), ("COPY links /x\nCOPY a /x/away", None),
        ):
            image, root = self.image("FROM x\n%s\n" % text, files), tempfile.mkdtemp(dir=self.temp.name)
            if want:
                with self.assertRaises(Unfit, msg=text) as caught:
                    Box().facts(image)
                self.assertIn(want, str(caught.exception))
            with self.assertRaises(Unfit, msg=text):
                Box().files(image, root)
            self.assertEqual(content(outside), ["/secret 640 secret"], text)
        with self.assertRaises(Unfit):
            Box().facts(self.image("FROM x\nCOPY a /x\n", dict(FILES, **{".dockerignore": "a"})))


if __name__ == "__main__":
    unittest.main()
