"""The shell of a sandbox: commands and files of one session."""

import dataclasses
import io
import posixpath
import queue
import tarfile

import grpc

from . import contract

_CHUNK = 256 << 10

_messages = {m: contract.message(m) for m in (
    "ExecStart", "ExecRequest", "UploadRequest", "UploadStart", "DownloadRequest", "ReadRequest", "StatRequest")}


class ShellError(Exception):
    """A command that did not run, or a file that could not be read or written. reason is one of sandbox.proto's."""

    def __init__(self, text, reason=""):
        super().__init__(text)
        self.reason = reason


@dataclasses.dataclass
class Result:
    """How a command ended."""

    code: int  # 0 to 255, or -1 when a signal ended it
    signal: int
    timed_out: bool
    stdout: bytes
    stderr: bytes
    files: dict  # by path: the bytes of what `read` asked for, or a ShellError

    @property
    def output(self):
        """stdout and then stderr, as text. Bytes that are not UTF-8 are replaced."""
        return (self.stdout + self.stderr).decode("utf-8", "replace")


class _Error:
    """Turns gRPC's errors into ShellError."""

    def __enter__(self):
        return self

    def __exit__(self, kind, e, trace):
        if isinstance(e, grpc.RpcError):
            reason = ""
            for key, value in e.trailing_metadata() or ():
                if key == "grpc-status-details-bin":  # a google.rpc.Status with an ErrorInfo
                    reason = next((r for r in _REASONS if b"\x0a" + bytes([len(r)]) + r.encode() in value), "")
            raise ShellError(e.details() or e.code().name.lower(), reason) from None


_REASONS = ("NO_PROGRAM", "NOT_FOUND", "DENIED", "NO_ROOM", "TOO_LARGE", "UNSAFE", "EXISTS", "FROZEN", "REVOKED",
            "INVALID", "TIMEOUT")


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode()


class Shell:
    """Commands and files in a sandbox. Safe for use by several threads.

    It answers while the session is opened and during its turns, or during a judgment; afterwards every call raises
    ShellError. All that comes out of a sandbox is hostile.
    """

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address, options=[
            ("grpc.max_receive_message_length", 32 << 20), ("grpc.default_authority", "localhost"),
            ("grpc.enable_http_proxy", 0)])
        self._calls = {}
        kinds = {(True, True): self._channel.stream_stream, (True, False): self._channel.stream_unary,
                 (False, True): self._channel.unary_stream, (False, False): self._channel.unary_unary}
        for name, request, reply, up, down in contract.methods("SandboxShell"):
            self._calls[name] = kinds[up, down]("/berth.v1.SandboxShell/" + name,
                                                request_serializer=request.SerializeToString,
                                                response_deserializer=reply.FromString)

    def close(self):
        """Ends the connection. Commands that run continue."""
        self._channel.close()

    def run(self, argv, *, stdin=b"", env=None, dir="", user="", timeout=0, sweep=False, read=(), on_output=None,
            limit=16 << 20):
        """Runs argv and returns its Result. A command that ran and failed is a Result too.

        argv[0] without a slash is looked for in PATH. timeout is in seconds, 0 is none; at its end the command and
        all that descends from it is killed. on_output is called with ("stdout" or "stderr", bytes) as output comes;
        of each stream the first `limit` bytes are kept for the Result. Only in a verifier's shell: sweep kills what
        the command left running, and read names files, up to 4 MiB each, that are read when it has ended.
        """
        start = _messages["ExecStart"](
            argv=[_bytes(a) for a in argv], env=[_bytes("%s=%s" % kv) for kv in (env or {}).items()], dir=_bytes(dir),
            user=user, timeout_ms=int(timeout * 1000), stdin=bool(stdin), sweep=sweep,
            read=[_messages["ReadRequest"](path=_bytes(p), max_bytes=4 << 20) for p in read])
        requests = queue.SimpleQueue()

        def send():
            request = _messages["ExecRequest"]
            yield request(start=start)
            data = _bytes(stdin)
            for i in range(0, len(data), _CHUNK):
                yield request(stdin=data[i:i + _CHUNK])
            if data:
                yield request(close_stdin=True)
            requests.get()  # the stream stays open until the command has ended

        out = {"stdout": bytearray(), "stderr": bytearray()}
        exit = None
        try:
            with _Error():
                for reply in self._calls["Exec"](send()):
                    which = reply.WhichOneof("is")
                    if which == "exit":
                        exit = reply.exit
                    elif which in out:
                        data = getattr(reply, which)
                        out[which] += data[:max(0, limit - len(out[which]))]
                        if on_output:
                            on_output(which, data)
        finally:
            requests.put(None)
        if exit is None:
            raise ShellError("the connection ended before the command did")
        files = {p: ShellError(a.error, a.reason) if a.error else a.data for p, a in zip(read, exit.read)}
        return Result(exit.code, exit.signal, exit.timed_out, bytes(out["stdout"]), bytes(out["stderr"]), files)

    def upload(self, archive, dir="", *, user=""):
        """Extracts a tar archive, an object that is read, below a folder of the sandbox. Returns (entries, bytes)."""
        def send():
            request = _messages["UploadRequest"]
            yield request(start=_messages["UploadStart"](dir=_bytes(dir), user=user))
            while data := archive.read(_CHUNK):
                yield request(data=data)

        with _Error():
            reply = self._calls["Upload"](send())
        return reply.entries, reply.bytes

    def download(self, path, *, max_bytes=0):
        """Yields the bytes of a tar archive of a file or folder. Links are sent as links: trust no name in it."""
        with _Error():
            for reply in self._calls["Download"](_messages["DownloadRequest"](path=_bytes(path), max_bytes=max_bytes)):
                yield reply.data

    def write_file(self, path, data, *, mode=0o644, user=""):
        """Writes one file, and makes the folders above it."""
        info = tarfile.TarInfo(posixpath.basename(path))
        data = _bytes(data)
        info.size, info.mode = len(data), mode
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(info, io.BytesIO(data))
        archive.seek(0)
        self.upload(archive, posixpath.dirname(path), user=user)

    def read_file(self, path, *, max_bytes=16 << 20):
        """Returns the bytes of one regular file."""
        archive = io.BytesIO(b"".join(self.download(path, max_bytes=max_bytes)))
        with tarfile.open(fileobj=archive) as tar:
            first = tar.next()
            if first is None or not first.isreg():
                raise ShellError("%s is not a regular file" % path, "UNSAFE")
            return tar.extractfile(first).read()

    def read(self, path, *, max_bytes=1 << 20):
        """Returns the bytes of one regular file, read through no link. Only in a verifier's shell."""
        with _Error():
            return self._calls["Read"](_messages["ReadRequest"](path=_bytes(path), max_bytes=max_bytes)).data
