"""Surfaces: what an agent observes and acts on, such as a page, a desktop or a game."""

import abc
import dataclasses
import json
import os
import threading

import grpc

from . import config as configs, contract, errors

_Observation, _Step, _Needs = (contract.message(m) for m in ("SurfaceObservation", "SurfaceStep", "SurfaceNeeds"))
_INLINE = 1 << 20  # bytes of a frame that travels in the message


@dataclasses.dataclass
class Action:
    """One thing an agent can do. schema is the JSON Schema of its arguments, as a dictionary; None: it takes none."""

    name: str
    doc: str = ""
    schema: dict = None


@dataclasses.dataclass
class SurfaceNeeds:
    """What a surface offers, and what it asks of the sandbox."""

    actions: list  # of Action
    observations: list  # the kinds: "text", and the names of frames and of members of the structure
    refusals: list = dataclasses.field(default_factory=list)  # why it cannot be opened, and what to do
    shell: bool = False  # spec.shell has the address of a shell in the sandbox
    ports: dict = dataclasses.field(default_factory=dict)  # name: port inside; spec.ports has an address for each
    shm_mib: int = 0
    memory_mib: int = 0
    reset_ms: int = 0  # how much longer than 60 s reset may take, at most an hour
    pictures: list = dataclasses.field(default_factory=list)  # of the kinds: recorded at every step, whatever the agent gets


@dataclasses.dataclass
class Frame:
    """A picture. Its name is its kind."""

    name: str
    data: bytes
    media_type: str = "image/png"


@dataclasses.dataclass
class Observation:
    """What is seen at one moment. The members of the structure are named by their kinds."""

    text: str = ""
    structure: dict = None
    frames: list = dataclasses.field(default_factory=list)  # of Frame


@dataclasses.dataclass
class Step:
    """The result of an action. Berth keeps reward and info from the agent."""

    observation: Observation = None  # None: what observe returns
    reward: float = None
    done: bool = False
    truncated: bool = False
    error: str = ""
    info: dict = None


class NotNow(Exception):
    """Raised by act: the surface refuses the action. The agent sees the text, and nothing has changed."""


class Surface(abc.ABC):
    """A plugin with a surface. The doc string of the class is what `berth plugin info` shows.

    Calls about one surface come one after the other. Berth has checked actions and arguments by their schemas.
    """

    name = ""  # lower case; empty: the name of the class in lower case
    version = "0.1.0"
    Config = None  # a dataclass
    Settings = None  # a dataclass for what a task sets, with which Berth checks tasks; None: anything, as JSON
    Captures = {}  # such a dataclass for each capture, by name

    @abc.abstractmethod
    def needs(self, config, settings, level) -> SurfaceNeeds:
        """Says what the surface offers and needs, without side effects. settings are the task's, of class Settings."""

    def missing(self, config) -> list:
        """Says what this machine lacks: (name, text, remedy) for each. `berth doctor` prints it."""
        return []

    @abc.abstractmethod
    def open(self, spec, config, settings):
        """Opens a surface and returns its state, any object. spec is the message SurfaceSpec of environment.proto."""

    @abc.abstractmethod
    def reset(self, state, level, seed) -> None:
        """Puts the surface into the first state of a level. The same level and seed give the same state."""

    @abc.abstractmethod
    def observe(self, state, want) -> Observation:
        """Returns what is seen now, and changes nothing. want are the kinds to return."""

    @abc.abstractmethod
    def act(self, state, name, arguments):
        """Performs an action. Returns a Step, or None for one without anything. Raises NotNow to refuse it."""

    def capture(self, state, name, settings, folder) -> list:
        """Writes what settings say into folder, and returns the names of the files."""
        raise errors.Invalid("there is no capture %r" % name)

    def close(self, state) -> None:
        """Frees a surface."""


class Surfaces:
    """The open surfaces of a program."""

    def __init__(self):
        self.open, self.lock, self.count = {}, threading.Lock(), 0  # _Open by (plugin, id)

    def add(self, plugin, spec, config):
        settings = configs.must(*configs.read_settings(plugin, spec.settings_json))
        surface = _Open(plugin, spec.frames, plugin.open(spec, config, settings))
        with self.lock:
            self.count += 1
            id = "%s-%d" % (plugin.name, self.count)
            self.open[plugin.name, id] = surface
        return id

    def find(self, message):
        surface = self.open.get((message.plugin, message.id))
        if surface is None:
            raise errors.NoSandbox("surface %r is not open" % message.id)
        return surface

    def close(self, message):
        with self.lock:
            surface = self.open.pop((message.plugin, message.id), None)
        if surface:
            with surface.lock:
                surface.plugin.close(surface.state)


class _Open:
    """One open surface."""

    def __init__(self, plugin, frames, state):
        self.plugin, self.frames, self.state, self.kinds = plugin, frames, state, None
        self.lock, self.count = threading.Lock(), 0

    def reset(self, m):
        with self.lock:
            self.plugin.reset(self.state, m.level, m.seed)
            return self.seen(m.want)

    def observe(self, m):
        with self.lock:
            return self.seen(m.want)

    def act(self, m):
        with self.lock:
            try:
                step = self.plugin.act(self.state, m.name, json.loads(m.arguments_json or b"{}")) or Step()
            except NotNow as e:
                step = Step(error=str(e) or "refused")
            reply = _Step(observation=self.seen(m.want, step.observation), done=step.done, truncated=step.truncated, error=step.error)
        if step.reward is not None:
            reply.reward = step.reward
        if step.info is not None:
            reply.info_json = json.dumps(step.info).encode()
        return reply

    def capture(self, m):
        with self.lock:
            settings = configs.must(*configs.read_settings(self.plugin, m.settings_json, m.name))
            return list(self.plugin.capture(self.state, m.name, settings, m.folder))

    def seen(self, want, o=None):
        """The message of an observation, with nothing but the kinds of want; empty: all."""
        o = o or self.plugin.observe(self.state, _Want(want))
        want = _Want(want)
        reply = _Observation(text=o.text if "text" in want else "")
        structure = {k: v for k, v in (o.structure or {}).items() if k in want}
        if structure:
            reply.structure_json = json.dumps(structure).encode()
        for f in o.frames:
            if f.name not in want:
                continue
            frame = reply.frames.add(name=f.name, media_type=f.media_type)
            if len(f.data) <= _INLINE:
                frame.data = f.data
                continue
            self.count += 1
            frame.path = "frame-%d" % self.count
            with open(os.path.join(self.frames, frame.path), "wb") as file:
                file.write(f.data)
        return reply


class _Want(frozenset):
    """Kinds of observation. The empty set has all."""

    def __contains__(self, kind):
        return not len(self) or super().__contains__(kind)


def needs_message(n):
    m = _Needs(observations=n.observations, refusals=n.refusals, shell=n.shell, ports=n.ports, shm_mib=n.shm_mib, memory_mib=n.memory_mib, reset_ms=n.reset_ms, pictures=n.pictures)
    for a in n.actions:
        m.actions.add(name=a.name, doc=a.doc, schema_json=json.dumps(a.schema).encode() if a.schema else b"")
    return m


class SurfaceError(Exception):
    """A call of an agent that failed: the surface is lost, or the turn is over."""


class SurfaceClient:
    """The surface of an agent's session. It answers while the session is opened and during its turns."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address, options=[
            ("grpc.max_receive_message_length", 32 << 20), ("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)])
        self._calls = {name: (self._channel.unary_unary("/berth.v1.Surface/" + name, request_serializer=request.SerializeToString,
                                                        response_deserializer=reply.FromString), request)
                       for name, request, reply, _, _ in contract.methods("Surface")}

    def _call(self, name, **fields):
        call, request = self._calls[name]
        try:
            return call(request(**fields))
        except grpc.RpcError as e:
            raise SurfaceError(e.details() or e.code().name.lower()) from None

    def actions(self):
        """The actions that the task allows, as a list of Action."""
        return [Action(a.name, a.doc, json.loads(a.schema_json) if a.schema_json else None) for a in self._call("Actions").actions]

    def observe(self, *want) -> Observation:
        """What is seen now, of these kinds; without any, all of the task."""
        return _observation(self._call("Observe", want=want).observation)

    def act(self, name, arguments=None, want=()) -> Step:
        """Performs an action. A refused one is a Step with an error."""
        s = self._call("Act", name=name, arguments_json=json.dumps(arguments or {}).encode(), want=want).step
        return Step(_observation(s.observation), done=s.done, truncated=s.truncated, error=s.error)

    def close(self):
        self._channel.close()


def _observation(o):
    return Observation(o.text, json.loads(o.structure_json) if o.structure_json else None, [Frame(f.name, f.data, f.media_type) for f in o.frames])
