"""Serving plugins to Berth, as plugin.proto describes it."""

import concurrent.futures
import json
import os
import queue
import signal
import stat
import sys
import threading
import traceback

import grpc

from . import agent as agents
from . import config as configs
from . import contract
from . import environment as environments
from . import errors
from . import surface as surfaces
from . import verifier as verifiers
from .shell import ShellError

_COOKIE = "7d9b3a62-plugin"
_PROTOCOL = 2
_MAX_MESSAGE = 32 << 20
_MAX_TEXT = 4 << 10  # of an error: it travels in a header

_KINDS = contract.enum("PluginKind", "PLUGIN_KIND_")
_NEEDS = contract.enum("VerifierNeeds", "VERIFIER_NEEDS_")


def _kind(plugin):
    for base, kind in ((agents.Agent, "agent"), (environments.Environment, "environment"), (surfaces.Surface, "environment"),
                       (verifiers.Verifier, "verifier")):
        if isinstance(plugin, base):
            return kind
    raise TypeError("%r is not an Agent, Environment, Surface or Verifier" % (plugin,))


def log(level, message, **fields):
    """Sends a log record to Berth. level is trace, debug, info, warn or error."""
    attempt = getattr(_call, "attempt", "")
    if attempt:
        fields["@attempt"] = attempt
    print(json.dumps({"@level": level, "@message": message, **fields}, default=str), file=sys.stderr, flush=True)


_call = threading.local()  # of this thread: attempt, which the call belongs to


def _attempt(context):
    return dict(context.invocation_metadata() or ()).get("berth-attempt", "")


def _field(number, data):
    """One field of a protobuf message that holds bytes."""
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def _details(code, text, reason):
    """google.rpc.Status with a google.rpc.ErrorInfo: the reason as Berth reads it."""
    info = _field(1, reason.encode()) + _field(2, b"berth")
    detail = _field(1, b"type.googleapis.com/google.rpc.ErrorInfo") + _field(2, info)
    return bytes([8, code.value[0]]) + _field(2, text.encode()) + _field(3, detail)


def _trace_of_author(e):
    """The traceback of an exception as text, and its frames. Frames of this module are left out, unless there are no others."""
    own = os.path.dirname(os.path.abspath(__file__)) + os.sep
    whole = part = traceback.TracebackException.from_exception(e)
    while part:
        frames = [f for f in part.stack if not os.path.abspath(f.filename).startswith(own)]
        if frames:
            part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    return "".join(whole.format()), whole.stack


def _abort(context, e):
    """Ends a call with an exception. One that no plugin raises on purpose is a bug, and its traceback is logged."""
    text = str(e)
    if not isinstance(e, (errors.PluginError, verifiers.MissingFile)):
        trace, frames = _trace_of_author(e)
        where = " (%s:%d)" % (os.path.basename(frames[-1].filename), frames[-1].lineno) if frames else ""
        text = "%s: %s%s" % (type(e).__name__, e, where)
        bug = not isinstance(e, (OSError, ShellError)) and context.is_active()
        log("error" if bug else "debug", text, traceback=trace)
        e = errors.Panic(text) if bug else e
    text = text.encode("utf-8", "replace")[:_MAX_TEXT].decode("utf-8", "ignore")
    reason, code = getattr(e, "reason", ""), getattr(grpc.StatusCode, getattr(e, "code", "UNKNOWN"))
    if isinstance(e, errors.PluginError) and reason:
        context.set_trailing_metadata((("grpc-status-details-bin", _details(code, text, reason)),))
    context.abort(code, text)


class _Server:
    """What the program serves, by kind and name."""

    def __init__(self, plugins):
        self.plugins = {}
        for p in plugins:
            if not p.name:
                p.name = type(p).__name__.lower()
            key = _kind(p), p.name
            if key in self.plugins:
                raise ValueError("two plugins are called %s %s" % key)
            self.plugins[key] = p
        self.sessions = {}  # (session of agents) by id
        self.surfaces = surfaces.Surfaces()
        self.lock = threading.Lock()
        self.count = 0

    def find(self, kind, name):
        try:
            return self.plugins[kind, name]
        except KeyError:
            raise errors.UnknownPlugin("this program serves no %s %r" % (kind, name)) from None

    # Plugin

    def Describe(self, request, context):
        reply = contract.message("DescribeReply")()
        for (kind, name), p in self.plugins.items():
            d = reply.plugins.add(kind=_KINDS[kind], name=name, version=p.version, doc=" ".join((type(p).__doc__ or "").split()))
            if p.Config:
                d.config_schema_json = json.dumps(configs.schema(p.Config)).encode()
            if kind == "verifier":
                d.verifier.needs, d.verifier.rounds = _NEEDS[p.needs], p.rounds
                d.verifier.models.extend(p.models)
                d.verifier.own_with.update(p.own_with)
            if isinstance(p, environments.Environment):
                d.capabilities.extend(p.capabilities)
            elif isinstance(p, surfaces.Surface):
                d.capabilities.extend(("no_sandboxes", "surface"))
            if getattr(p, "Settings", None) or getattr(p, "Captures", None):
                d.capabilities.append("settings")
        return reply

    def Validate(self, request, context):
        kind = {number: kind for kind, number in _KINDS.items()}.get(request.kind)
        if kind is None:
            raise errors.Invalid("kind is %d" % request.kind)
        plugin = self.find(kind, request.plugin)
        _, problems = configs.read(plugin.Config, request.config_json)
        if request.settings_json and not problems:
            _, problems = configs.read_settings(plugin, request.settings_json, request.capture)
        reply = contract.message("ValidateReply")()
        for p in problems:
            reply.problems.add(path=p.path, summary=p.summary, detail=p.detail)
        return reply

    # Verifier

    def Verify(self, message, context):
        plugin = self.find("verifier", message.plugin)
        config = configs.must_read(plugin.Config, message.request.config_json)
        event = contract.message("VerifyEvent")
        yield from _events(context, lambda send: send(verifiers.verify(
            plugin, config, message.request, lambda line: send(event(log=line[:60 << 10])))))

    # Agent

    def Check(self, message, context):
        plugin = self.find("agent", message.plugin)
        config = configs.must_read(plugin.Config, message.config_json)
        if message.role not in agents._ROLES:
            raise errors.Invalid("role is %d" % message.role)
        needs = agents.needs_message(plugin.needs(config, dict(message.models)))
        return contract.message("AgentCheckReply")(needs=needs)

    def Open(self, message, context):
        plugin = self.find("agent", message.plugin)
        if message.setup.role not in agents._ROLES:
            raise errors.Invalid("role is %d" % message.setup.role)
        session = agents.Session(message.setup, configs.must_read(plugin.Config, message.setup.config_json))
        try:
            plugin.open(session)
        except BaseException:
            session._disconnect()
            raise
        with self.lock:
            self.count += 1
            name = "%s-%d" % (plugin.name, self.count)
            self.sessions[message.plugin, name] = session
        return contract.message("OpenReply")(session=name)

    def _session(self, message):
        session = self.sessions.get((message.plugin, message.session))
        if session is None:
            raise errors.NoSession("session %r is not known" % message.session)
        return session

    def Turn(self, message, context):
        plugin = self.find("agent", message.plugin)
        session = self._session(message)
        m = message.message
        session._cut.clear()
        context.add_callback(session._cut.set)

        def work(send):
            session._send = send
            try:
                send(agents.yield_message(plugin.turn(session, agents.Message(m.text, m.turn, m.stage, list(m.files), m.time_ms / 1000))))
            finally:
                session._send = None

        yield from _events(context, work, session)

    def Close(self, message, context):
        plugin = self.find("agent", message.plugin)
        session = self._session(message)
        with self.lock:
            self.sessions.pop((message.plugin, message.session), None)

        def work(send):
            session._send = send
            try:
                plugin.close(session, message.logs)
            finally:
                session._send = None
                session._disconnect()

        session._cut.set()
        worker = getattr(session, "_worker", None)
        if worker:
            worker.join()  # a turn that was cancelled is still on its way out
        yield from _events(context, work)

    # Environment

    def _sandboxes(self, name):
        plugin = self.find("environment", name)
        if not isinstance(plugin, environments.Environment):
            raise errors.Refused("%s makes no sandboxes: it only has a surface" % name)
        return plugin

    def EnvironmentCheck(self, message, context):
        try:
            plugin = self._sandboxes(message.plugin)
        except errors.Refused as e:
            reply = contract.message("EnvironmentCheckReply")()
            reply.refusals.add(summary=str(e), detail="Name another plugin in the environment block, and this one as surface.")
            plugin = self.find("environment", message.plugin)
            for name, text, remedy in plugin.missing(configs.must_read(plugin.Config, message.spec.config_json)):
                reply.machine.add(name=name, text=text, remedy=remedy)
            return reply
        refusals, degraded = plugin.check(message.spec, configs.must_read(plugin.Config, message.spec.config_json))
        reply = contract.message("EnvironmentCheckReply")()
        for p in refusals:
            reply.refusals.add(summary=p.summary, detail=p.detail)
        for p in degraded:
            reply.degraded.add(summary=p.summary, detail=p.detail)
        return reply

    def Create(self, messages, context):
        first = next(messages)
        plugin = self._sandboxes(first.plugin)
        config = configs.must_read(plugin.Config, first.spec.config_json)
        environments.check(plugin, first.spec, config)
        made = plugin.create(first.spec, config)
        taken = False
        try:
            if context.is_active():
                yield contract.message("CreateReply")(sandbox=environments.made_message(made, first.spec))
                taken = next(messages).taken
        except (StopIteration, grpc.RpcError):
            pass
        finally:
            if not taken:  # the answer crossed with a cancel
                plugin.destroy(made.id)

    def Destroy(self, message, context):
        plugin = self.find("environment", message.plugin)
        if isinstance(plugin, environments.Environment):
            plugin.destroy(message.id)
        return contract.message("DestroyReply")()

    def List(self, message, context):
        plugin = self.find("environment", message.plugin)
        found = plugin.list(message.owner) if isinstance(plugin, environments.Environment) else ()
        return contract.message("ListReply")(ids=sorted(found))

    # Surface

    def _surface(self, name):
        plugin = self.find("environment", name)
        if not isinstance(plugin, surfaces.Surface):
            raise errors.Unsupported("environment %r has no surface" % name)
        return plugin

    def SurfaceNeeds(self, message, context):
        plugin = self._surface(message.plugin)
        settings = configs.must(*configs.read_settings(plugin, message.settings_json))
        needs = plugin.needs(configs.must_read(plugin.Config, message.config_json), settings, message.level)
        return contract.message("SurfaceNeedsReply")(needs=surfaces.needs_message(needs))

    def SurfaceOpen(self, message, context):
        plugin = self._surface(message.plugin)
        return contract.message("SurfaceOpenReply")(
            id=self.surfaces.add(plugin, message.spec, configs.must_read(plugin.Config, message.spec.config_json)))

    def SurfaceReset(self, message, context):
        return contract.message("ResetReply")(observation=self.surfaces.find(message).reset(message))

    def SurfaceObserve(self, message, context):
        return contract.message("ObserveReply")(observation=self.surfaces.find(message).observe(message))

    def SurfaceAct(self, message, context):
        return contract.message("ActReply")(step=self.surfaces.find(message).act(message))

    def SurfaceCapture(self, message, context):
        return contract.message("CaptureReply")(files=self.surfaces.find(message).capture(message))

    def SurfaceClose(self, message, context):
        self.surfaces.close(message)
        return contract.message("SurfaceCloseReply")()


def _events(context, work, session=None):
    """Runs work in its own thread and yields what it sends, as it comes. Raises what it raises."""
    events = queue.SimpleQueue()
    end = object()

    attempt = _attempt(context)

    def run():
        _call.attempt = attempt
        try:
            work(events.put)
            events.put(end)
        except BaseException as e:  # it is raised again below, in the thread of the call
            events.put((end, e))

    worker = threading.Thread(target=run, daemon=True)
    if session is not None:
        session._worker = worker
    worker.start()
    context.add_callback(lambda: events.put(end))
    while (event := events.get()) is not end:
        if isinstance(event, tuple):
            raise event[1]
        yield event


def _handlers(server, service, renamed=()):
    """The methods of one service, with errors turned into statuses."""
    methods = {}
    for name, request, reply, up, down in contract.methods(service):
        serve = getattr(server, dict(renamed).get(name, name), None)
        if serve is None:
            continue  # answered UNIMPLEMENTED by the library
        make = {(False, False): grpc.unary_unary_rpc_method_handler, (False, True): grpc.unary_stream_rpc_method_handler,
                (True, True): grpc.stream_stream_rpc_method_handler}[up, down]
        methods[name] = make(_stream(serve) if down else _single(serve), request.FromString, reply.SerializeToString)
    return grpc.method_handlers_generic_handler("berth.v1." + service, methods)


def _single(serve):
    def call(request, context):
        _call.attempt = _attempt(context)
        try:
            return serve(request, context)
        except Exception as e:
            _abort(context, e)
    return call


def _stream(serve):
    def call(request, context):
        _call.attempt = _attempt(context)
        try:
            yield from serve(request, context)
        except Exception as e:
            _abort(context, e)
    return call


def _end_with_host():
    """Ends this process and what it started when the host, which holds the other end of stdin, has gone."""
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return

    def wait():
        while os.read(0, 4096):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def serve(*plugins):
    """Makes this process a Berth plugin. Call it last: it returns when Berth is done with the process."""
    program = os.path.basename(sys.argv[0])
    if os.environ.get("BERTH_PLUGIN") != _COOKIE:
        sys.exit("%s is a plugin of Berth and is started by it. Try: berth plugin test %s" % (program, sys.argv[0]))
    server, done = _Server(plugins), threading.Event()
    _end_with_host()
    socket = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin.sock")
    raw = dict(request_deserializer=bytes, response_serializer=bytes)

    def shutdown(request, context):
        done.set()
        return b""

    g = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=256), options=[
        ("grpc.max_receive_message_length", _MAX_MESSAGE), ("grpc.max_send_message_length", _MAX_MESSAGE)])
    g.add_generic_rpc_handlers((
        _handlers(server, "Plugin"), _handlers(server, "Agent"), _handlers(server, "Verifier"),
        _handlers(server, "Environment", {"Check": "EnvironmentCheck"}),
        _handlers(server, "Surface", {m: "Surface" + m for m in ("Needs", "Open", "Actions", "Reset", "Observe", "Act", "Capture", "Close")}),
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {
            "Check": grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01", **raw)}),
        grpc.method_handlers_generic_handler("plugin.GRPCController", {
            "Shutdown": grpc.unary_unary_rpc_method_handler(shutdown, **raw)}),
    ))
    g.add_insecure_port("unix:" + socket)
    g.start()
    print("1|%d|unix|%s|grpc|" % (_PROTOCOL, socket), flush=True)
    done.wait()
    g.stop(grace=1).wait()
