"""The side of a match that is in the plugin: it starts the process of the engine, and counts rewards."""

import base64
import glob
import hashlib
import json
import os
import queue
import random
import subprocess
import tempfile
import threading

from repeat import Repeat
from reward import Reward

DEFAULT = "~/.cache/berth-football"
PATIENCE = 55  # seconds for a reply: a call of Berth takes at most 60
FIRST_PICTURE = 170  # seconds: without a graphics card, shaders are compiled before the first one
_HERE = os.path.dirname(os.path.abspath(__file__))


def chance(level, seed):
    """The number with which the engine's chance begins: another one for each scenario and seed."""
    return random.Random("%d %s" % (seed, level)).randrange(2_000_000_000)


def missing(folder):
    """Says what is missing in the folder of the engine, and what to do; None: nothing."""
    folder = os.path.expanduser(folder)
    for name in ("venv/bin/python", "lib/gfootball_engine/_gameplayfootball.so", "lib/gfootball/env/football_env.py", "ready"):
        if not os.path.exists(os.path.join(folder, name)):
            return ("The engine of Google Research Football is not in %s: there is no %s." % (folder, name),
                    "Run scripts/football-for-tests %s, or name another folder with engine in surface_config." % folder)
    return None


def environment(folder):
    """The environment variables of the engine's process. It draws without a display and without a graphics card."""
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", "EGL_PLATFORM": "surfaceless", "SDL_VIDEODRIVER": "dummy",
           "SDL_AUDIODRIVER": "dummy", "PYTHONPATH": os.path.join(folder, "lib"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    for lib in glob.glob(os.path.join(folder, "root/usr/lib/*-linux-gnu")):
        env["LD_LIBRARY_PATH"] = lib + ":" + os.path.join(lib, "pulseaudio")
        if os.path.isdir(os.path.join(lib, "dri")):
            env["LIBGL_DRIVERS_PATH"] = os.path.join(lib, "dri")
    vendors = os.path.join(folder, "root/usr/share/glvnd/egl_vendor.d")
    if os.path.isdir(vendors):
        env["__EGL_VENDOR_LIBRARY_DIRS"] = vendors
    return env


class EngineError(Exception):
    """The process of the engine failed."""


class Engine:
    """A process that plays one match."""

    def __init__(self, folder):
        folder = os.path.expanduser(folder)
        self.folder = tempfile.TemporaryDirectory(prefix="berth-football-")
        self.log = open(os.path.join(self.folder.name, "log"), "w+b")
        self.process = subprocess.Popen(
            [os.path.join(folder, "venv/bin/python"), os.path.join(_HERE, "engine.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, cwd=self.folder.name, env=environment(folder), text=True)
        self.replies = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.replies.put(line)
        self.replies.put("")

    def ask(self, patience=PATIENCE, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.replies.get(timeout=patience)
        except queue.Empty:
            raise EngineError("the engine did not answer in %d s" % patience) from None
        except OSError:
            line = ""
        if not line:
            raise EngineError("the engine's process ended: " + self.said())
        reply = json.loads(line)
        if "error" in reply:
            raise EngineError("the engine: " + reply["error"])
        return reply

    def said(self):
        self.log.flush()
        self.log.seek(max(0, os.path.getsize(self.log.name) - 1000))
        return self.log.read().decode("utf-8", "replace").strip()[-500:] or "it said nothing"

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()
        self.folder.cleanup()


class Match:
    """One match with its rewards."""

    def __init__(self, folder, scenario, seed, published=False, repeats=True):
        self.engine = Engine(folder)
        try:
            reply = self.engine.ask(start=scenario, seed=seed, folder=self.engine.folder.name)
        except EngineError:
            self.engine.close()
            raise
        self.state, self.frames, self.done, self.drew = reply["state"], [], False, False
        self.reward, self.repeat = Reward(published), Repeat() if repeats else None

    def act(self, action):
        """Plays an action and its repeats. Returns the reward and the frames: [action, reward, parts]."""
        before = len(self.frames)
        if self.repeat:
            self.repeat.play(action, self.state if self.frames else None, self.step)
        else:
            self.step(action)
        new = self.frames[before:]
        return sum(f[1] for f in new), new

    def step(self, action):
        reply = self.engine.ask(step=action)
        self.state = reply["state"]
        self.frames.append([action, self.reward.frame(self.state, action), dict(self.reward.parts)])
        self.done = reply["done"] or self.reward.done
        return None if self.done else self.state

    def picture(self):
        patience, self.drew = PATIENCE if self.drew else FIRST_PICTURE, True
        return base64.b64decode(self.engine.ask(patience, picture=True)["png"])

    def digest(self):
        return "sha256:" + hashlib.sha256(json.dumps(self.state, sort_keys=True).encode()).hexdigest()

    def close(self):
        self.engine.close()
