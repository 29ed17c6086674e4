"""Agents work on a task: a loop on the host over a shell of the sandbox and a model."""

import abc
import dataclasses
import datetime
import json
import threading

from . import contract
from .model import models
from .shell import Shell
from .surface import SurfaceClient

_ENDS = contract.enum("AgentEnd", "AGENT_END_")
_ROLES = {number: name for name, number in contract.enum("AgentRole", "AGENT_ROLE_").items()}
_Event, _Yield, _Needs = (contract.message(m) for m in ("SessionEvent", "AgentYield", "AgentNeeds"))


@dataclasses.dataclass
class Needs:
    """What a session asks of Berth."""

    shell: bool = True
    surface: bool = False  # it cannot do a task without a surface
    terminal: bool = False
    dialects: list = dataclasses.field(default_factory=list)  # of models that it speaks; empty: it uses none
    logs: list = dataclasses.field(default_factory=list)  # absolute paths in the sandbox, collected before close
    refusals: list = dataclasses.field(default_factory=list)  # why it cannot run like this, and what to do
    keeps_session: bool = False  # a session continues in a later stage and after a cut; processes in the sandbox may have ended
    takes_prior: bool = False  # it continues from session.setup.prior, a trajectory
    skills: bool = False  # it makes session.setup.skills known to its model itself
    mcp: list = dataclasses.field(default_factory=list)  # transports of session.setup.servers that it offers as tools


@dataclasses.dataclass
class Message:
    """One user message."""

    text: str
    turn: int  # 1 and up within the session
    stage: str  # empty where the task has one
    files: list  # pictures, relative to the view
    time: float = 0  # seconds that the turn may take, without waiting for a provider; the core enforces it; 0: not known


@dataclasses.dataclass
class Yield:
    """The end of a turn: done, asked (waits for an answer), max_steps, refused or crashed."""

    message: str = ""  # the agent's last words to the user
    end: str = "done"
    exit_code: int = 0  # of its program, where there is one
    reason: str = ""


class Session:
    """One agent in one sandbox. Attributes of your own belong here, not into the Agent."""

    def __init__(self, setup, config):
        self.config = config  # an object of the agent's Config
        self.id = setup.session  # unique in the run, for logs
        self.role = _ROLES.get(setup.role, "")  # agent, user or oracle
        self.view = setup.view  # folder: task.json, instruction.md; never write to it
        self.scratch = setup.scratch  # empty folder to write to, kept with the attempt
        self.models = models(setup.models)  # by name; "default" is the cell's model
        self.max_steps = setup.limits.max_steps  # 0: no limit
        self.seed = setup.seed  # where chance begins: the same number for the same task and repetition
        self.setup = setup  # SessionSetup of agent.proto, with all the rest
        self.shell = Shell(setup.shell) if setup.shell else None
        self.surface = SurfaceClient(setup.surface) if setup.surface else None
        self._send = None
        self._cut = threading.Event()

    @property
    def model(self):
        """The cell's model, or None."""
        return self.models.get("default")

    @property
    def cut_off(self):
        """The turn is over: the agent's access has ended, and it should return."""
        return self._cut.is_set()

    def sleep(self, seconds):
        """Waits, but not beyond the end of the turn. Returns False when the turn is over."""
        return not self._cut.wait(seconds)

    def step(self, message, *, source="agent", **fields):
        """Records one step of the trajectory (ATIF): message, and fields such as tool_calls and observation."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        step = {"timestamp": now, "source": source, "message": message, **fields}
        self._event(step_json=json.dumps(step).encode())

    def log(self, line):
        """Records a line for people."""
        self._event(log=line[:60 << 10])

    def artifact(self, path):
        """Records that a file was written to the scratch folder; path is relative to it."""
        self._event(artifact=path)

    def _disconnect(self):
        for end in (self.shell, self.surface):
            if end:
                end.close()

    def _event(self, **event):
        if self._send:
            self._send(_Event(**event))


class Agent(abc.ABC):
    """An agent plugin. The doc string of the class is what `berth plugin info` shows."""

    name = ""  # lower case; empty: the name of the class in lower case
    version = "0.1.0"
    Config = None  # a dataclass

    def needs(self, config, models: dict) -> Needs:
        """Says what a session needs, without side effects. models are names and dialects only."""
        return Needs()

    def open(self, session: Session) -> None:
        """Begins a session. What belongs to it is an attribute of the session."""

    @abc.abstractmethod
    def turn(self, session: Session, message: Message) -> Yield:
        """Works on one message until the agent is done with it."""

    def close(self, session: Session, logs: str) -> None:
        """Ends a session. logs is a folder with the files that Needs.logs named, or empty."""


def needs_message(n):
    return _Needs(
        shell=n.shell or n.terminal,
        surface=n.surface,
        terminal=n.terminal,
        dialects=n.dialects,
        logs=n.logs,
        refusals=n.refusals,
        keeps_session=n.keeps_session,
        takes_prior=n.takes_prior,
        skills=n.skills,
        mcp=n.mcp,
    )


def yield_message(y):
    if not isinstance(y, Yield):
        raise TypeError("turn returned %r: return a Yield" % (y,))
    if y.end not in _ENDS:
        raise ValueError("end %r: use one of %s" % (y.end, ", ".join(_ENDS)))
    return _Event(**{"yield": _Yield(end=_ENDS[y.end], message=y.message, exit_code=y.exit_code, reason=y.reason)})
