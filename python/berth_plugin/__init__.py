"""Write plugins for Berth in Python.

A plugin is a class and one call:

    from berth_plugin import Verifier, serve

    class ExactVerifier(Verifier):
        "Compares answer.txt with the reference."
        name = "exact"

        def verify(self, request):
            return request.read("attempt/artifacts/answer.txt") == request.read("tests/answer.txt")

    serve(ExactVerifier())

`serve` does everything that plugin.proto asks of a program that Berth starts.
Calls of different attempts arrive at the same time, each in a thread of its
own, so a plugin keeps what belongs to an attempt in its session, not in itself.

The module needs grpcio and protobuf, and nothing else.
"""

import os
import sys

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
except ImportError as e:
    raise ImportError("%s has no module %s: install it for this Python, or write the path of the Python that has it into the first line of %s" % (
        sys.executable, e.name, os.path.abspath(sys.argv[0]))) from None

from .agent import Agent, Message, Needs, Session, Yield
from .config import Problem, option
from .environment import Environment, Granted, Made, SpecProblem
from .errors import (
    ArtifactMissing,
    BadConfig,
    BadImage,
    BadReply,
    BadReward,
    BuildFailed,
    ModelUnavailable,
    NoCapacity,
    NoSandbox,
    PluginError,
    Refused,
    Unsupported,
)
from .model import Model
from .serve import serve
from .shell import Result, Shell, ShellError
from .surface import Action, Frame, NotNow, Observation, Step, Surface, SurfaceClient, SurfaceError, SurfaceNeeds
from .verifier import Finding, MissingFile, Request, Score, Verdict, Verifier

__all__ = [
    "Action", "Agent", "ArtifactMissing", "BadConfig", "BadImage", "BadReply", "BadReward", "BuildFailed", "Environment",
    "Finding", "Frame", "Granted", "Made", "Message", "MissingFile", "Model", "ModelUnavailable", "Needs", "NoCapacity", "NoSandbox",
    "NotNow", "Observation", "PluginError", "Problem", "Refused", "Request", "Result", "Score", "Session", "Shell", "ShellError", "SpecProblem",
    "Step", "Surface", "SurfaceClient", "SurfaceError", "SurfaceNeeds", "Unsupported", "Verdict", "Verifier", "Yield", "option", "serve",
]
