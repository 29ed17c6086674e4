"""Verifiers look at what an agent left and say how good it is."""

import abc
import dataclasses
import functools
import json
import math
import os
import stat

from . import contract
from .config import must, read_settings
from .errors import BadReward
from .model import models
from .shell import Shell

_DECISIONS = contract.enum("VerdictDecision", "VERDICT_DECISION_")
_SEVERITIES = contract.enum("FindingSeverity", "FINDING_SEVERITY_")
_ARTIFACTS = "attempt/artifacts/"  # of the view
_Verdict, _VerifyEvent = contract.message("Verdict"), contract.message("VerifyEvent")


class MissingFile(Exception):
    """A file of the view that is not there, or is not a small regular file.

    If verify() lets it pass, a missing file of the attempt is the verdict fail, and a missing file of the task an error.
    """

    def __init__(self, name, problem):
        super().__init__("%s %s" % (name, problem))
        self.name = name  # path in the view


@dataclasses.dataclass
class Score:
    """A named number. Nothing is assumed about its range unless min and max say so.

    A finite value outside of min and max, or one that is not finite, makes the judgment a verifier_error.
    """

    value: float
    min: float | None = None
    max: float | None = None
    lower_is_better: bool = False


@dataclasses.dataclass
class Finding:
    """Something odd that was seen: severity note, exposed (it could have changed the result) or violated (it did)."""

    code: str  # snake_case
    text: str
    severity: str = "note"


@dataclasses.dataclass
class Verdict:
    """What a judgment comes to. Work that is bad is a verdict; an exception means that no judgment was possible.

    decision is pass, fail, scored (decides nothing), or continue (between turns only). scores are numbers or Scores by
    name. The rule of the task says which score decides: in tasks of the format harbor it is reward, and decision then
    does not count. rationale is for people, and never shown to the agent. handoff is the only part that a simulated
    user sees. findings is a list of Finding. labels are texts by name that berth show counts over the trials of a run:
    at most 50, of at most 200 bytes each.
    """

    decision: str  # pass, fail, scored, or continue (between turns only)
    scores: dict = dataclasses.field(default_factory=dict)  # by name: a number or a Score
    rationale: str = ""  # never shown to the agent or the user
    handoff: str = ""  # the only part that a simulated user sees
    findings: list = dataclasses.field(default_factory=list)
    labels: dict = dataclasses.field(default_factory=dict)  # texts by name, such as {"status": "budget_exhausted"}


@dataclasses.dataclass
class Request:
    """One judgment that is asked for.

    read() returns files of the view, such as tests/… of the task and attempt/artifacts/… of the agent. shell is there
    if the verifier has needs = "sandbox" or "own". /tests is not in the agent's sandbox: send files on stdin, or write
    them there.
    """

    view: str  # folder with what the verifier may see; never write to it
    stage: str  # empty where the task has one
    round: int  # 1 and up between turns, 0 after the last one
    config: object  # an object of the verifier's Config
    settings: object  # the task's for this verifier
    models: dict  # of Model, by name
    user: str  # that commands run as; empty: the session's default
    env: dict  # for commands; may hold secrets: log none
    timeout: float  # seconds that the judgment may take; 0: no limit
    scratch: str  # empty folder to write to, kept with the attempt
    message: object  # VerifierRequest of verifier.proto, with all the rest

    def read(self, name, *, limit=1 << 20):
        """Returns the bytes of a regular file of the view. Opens no link, pipe or file over limit bytes: MissingFile."""
        at = os.open(self.view, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *folders, last = name.split("/")
            for folder in folders:
                at, parent = self._open(folder, os.O_DIRECTORY, at, name), at
                os.close(parent)
            f = self._open(last, os.O_NONBLOCK, at, name)
        finally:
            os.close(at)
        with open(f, "rb") as file:
            info = os.fstat(f)
            if not stat.S_ISREG(info.st_mode) or info.st_size > limit:
                raise MissingFile(name, "is not a regular file of up to %d bytes" % limit)
            return file.read(limit)

    def _undeclared(self, name):
        """The end of an error about a missing artifact, if the task does not declare it."""
        if not name.startswith(_ARTIFACTS) or name == _ARTIFACTS + "manifest.json":
            return ""
        try:
            entries = json.loads(self.read(_ARTIFACTS + "manifest.json"))
        except MissingFile:
            return ": the task declares no artifacts"
        paths = ["attempt/" + e["destination"] for e in entries]
        if any(name == p or name.startswith(p + "/") for p in paths):
            return ""
        declared = ", ".join(p[len(_ARTIFACTS):] for p in paths)
        return ': the task declares no artifact "%s"; there are %s' % (name[len(_ARTIFACTS):], declared)

    def _open(self, part, flags, at, name):
        if part in ("", ".", ".."):
            raise ValueError("%r is not a path in the view" % name)
        try:
            return os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=at)
        except OSError as e:
            why = self._undeclared(name) if isinstance(e, FileNotFoundError) else ""
            raise MissingFile(name, "cannot be read: " + e.strerror + why) from None

    @functools.cached_property
    def shell(self):
        """The shell of the sandbox that is graded, or of the verifier's own."""
        if not self.message.shell:
            raise PluginError("this judgment has no sandbox: set needs = \"sandbox\" in the verifier")
        return Shell(self.message.shell)


class Verifier(abc.ABC):
    """A verifier plugin. The doc string of the class is what `berth plugin info` shows.

    needs is "none" if the files of the view are enough, "sandbox" for a shell in the sandbox that is graded, or "own"
    for one in a sandbox that only this verifier uses, with the agent's artifacts at their paths. own_with are
    attributes of the configuration, by name, with the text that gives the verifier such a sandbox: {"tools": "sandbox"}.
    models are names of models that the block of the verifier must give. Config is a dataclass of option() fields.
    Settings is another, for what a task sets: request.settings is then an object of it, and Berth checks tasks with it
    before anything runs.
    """

    name = ""  # lower case; empty: the name of the class in lower case
    version = "0.1.0"
    needs = "none"  # none: a pure function of the view; sandbox: a shell in the sandbox that is graded; own: in another
    own_with = {}  # of its configuration, what gives it its own sandbox
    models = ()  # names of the models that it asks for
    rounds = False  # it can judge between turns
    Config = None  # a dataclass
    Settings = None  # a dataclass; None: anything, as JSON

    @abc.abstractmethod
    def verify(self, request: Request) -> "Verdict | bool":
        """Judges. True and False are the verdicts pass and fail."""


def verdict_message(v):
    """Makes the message of a Verdict, or of True or False."""
    if isinstance(v, bool):
        v = Verdict("pass" if v else "fail")
    if not isinstance(v, Verdict):
        raise TypeError("verify returned %r: return a Verdict, True or False" % (v,))
    if v.decision not in _DECISIONS:
        raise ValueError("decision %r: use one of %s" % (v.decision, ", ".join(_DECISIONS)))
    m = _Verdict(decision=_DECISIONS[v.decision], rationale=v.rationale, handoff=v.handoff)
    for name, s in v.scores.items():
        s = s if isinstance(s, Score) else Score(s)
        if not math.isfinite(s.value):
            raise BadReward("score %r is %r: a finite number is needed" % (name, s.value))
        m.scores[name].value = s.value
        if s.min is not None:
            m.scores[name].min = s.min
        if s.max is not None:
            m.scores[name].max = s.max
        m.scores[name].lower_is_better = s.lower_is_better
    for name, text in v.labels.items():
        if not isinstance(text, str):
            raise TypeError("label %r is %r: a text is needed" % (name, text))
        m.labels[name] = text
    for f in v.findings:
        m.findings.add(code=f.code, severity=_SEVERITIES[f.severity], text=f.text)
    return m


def judge(plugin, request):
    """Calls the plugin. A file that the agent did not leave is the verdict fail."""
    try:
        return plugin.verify(request)
    except MissingFile as e:
        if not e.name.startswith("attempt/"):
            raise
        return Verdict("fail", rationale=str(e))  # the agent left no such file


def verify(plugin, config, message, log):
    """Serves one judgment."""
    settings = must(*read_settings(plugin, message.settings_json or b"{}"))
    request = Request(message.view, message.stage, message.round, config, settings, models(message.models),
                      message.user, dict(message.env), message.timeout_ms / 1000, message.scratch, message)
    request.log = log
    try:
        return _VerifyEvent(verdict=verdict_message(judge(plugin, request)))
    finally:
        if "shell" in vars(request):
            request.shell.close()
