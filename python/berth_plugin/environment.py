"""Environments make isolated sandboxes, in which Berth's own program runs everything else."""

import abc
import dataclasses
import os

from . import contract, dockerfile
from .errors import Refused

_GRANTS = contract.enum("SandboxGrant", "SANDBOX_GRANT_")
_NETWORKS = {n: name for name, n in contract.enum("NetworkMode", "NETWORK_MODE_").items()}


@dataclasses.dataclass
class SpecProblem:
    """One thing that a spec is refused for, or gets less of."""

    summary: str  # what, without a full stop
    detail: str  # why, and what to do


@dataclasses.dataclass
class Granted:
    """How each limit is kept: "enforced", "best_effort", "no", or empty where nothing was asked."""

    cpu: str = "no"
    memory: str = "no"
    pids: str = "no"
    disk: str = "no"
    network: str = "enforced"
    gpu: str = ""
    how: str = ""  # by what means, for people


@dataclasses.dataclass
class Made:
    """A sandbox that runs."""

    id: str  # unique on this machine
    granted: Granted
    base: str = ""  # "host" where the host's own programs are the base
    workdir: str = ""  # of the image
    env: dict = dataclasses.field(default_factory=dict)  # of the image
    pid: int = 0  # of sandboxd in the host's pid namespace; 0: not known


class Environment(abc.ABC):
    """An environment plugin. The doc string of the class is what `berth plugin info` shows.

    A spec is the message SandboxSpec of environment.proto.
    """

    name = ""  # lower case; empty: the name of the class in lower case
    version = "0.1.0"
    Config = None  # a dataclass
    capabilities = ()  # "sidecars", if create makes spec.sidecars and spec.volumes
    copies = False  # create calls files, so that check and facts accept COPY
    hidden = ()  # folders of the sandbox in which placed files would not be seen: those of the host, and its own

    def check(self, spec, config):
        """Says without side effects what a spec is refused for. Returns (refusals, degraded), lists of SpecProblem.

        This one is that of an environment which shows the host's own programs to root, and has no images, no other
        users, no network, no sidecars and no limits. It accepts a Dockerfile that facts accepts.
        """
        name, limits, unfit, degraded = self.name, spec.limits, "", []
        try:
            self.facts(spec.image)
            if spec.image.build:
                degraded = [SpecProblem("The programs of this machine are used instead of the task's image",
                                        "To run the image, use an environment with images.")]
        except dockerfile.Unfit as e:
            unfit = str(e)
        network = _NETWORKS.get(spec.network.mode, "?")
        found = (
            (network not in ("none", "allow"), "Network %r" % network, "has no network"),
            (bool(unfit), "The task's image: " + unfit, "shows the host's programs and has no images"),
            (bool(spec.sidecars or spec.volumes), "Several containers, or volumes", "makes one container"),
            (bool(spec.users), "A second user", "has only root"),
            (limits.gpus > 0, "A GPU", "has none"),
        )
        refusals = [SpecProblem(what, "%s %s: use another environment" % (name, why)) for yes, what, why in found if yes]
        asked = limits.cpu_milli or limits.memory_mib or limits.storage_mib or limits.shm_mib or limits.pids
        return refusals, degraded + ([SpecProblem("Limits", "%s keeps none" % name)] if asked else [])

    def facts(self, image):
        """Reads the Dockerfile of a task: returns its workdir and env, for create to use and to return in Made.

        It accepts FROM, absolute WORKDIR and ENV NAME=VALUE, each on one line, without quotes and variables. If copies
        is set, it also accepts COPY of files and folders, without patterns, with --chown of root and --chmod in octal
        digits. It raises dockerfile.Unfit for everything else, which names the line.
        """
        facts, found = dockerfile.read(image, self.copies)
        dockerfile.place(image, facts, found, self.hidden, None)
        return facts

    def files(self, image, root):
        """Places what COPY copies in root, an empty folder: a file for /app/x of the sandbox is app/x there.

        It does nothing for an image without a COPY. create shows the files in the sandbox, where they belong to root.
        A symbolic link is placed as it is, and never followed out of either folder.
        """
        os.chmod(root, 0o755)  # it becomes the root of the sandbox
        facts, found = dockerfile.read(image, self.copies)
        dockerfile.place(image, facts, found, self.hidden, root)

    @abc.abstractmethod
    def create(self, spec, config) -> Made:
        """Makes a sandbox whose PID 1 is /berth/sandboxd, with spec.control mounted read-only at /berth.

        When it raises, nothing is left behind. check was asked before, and had no refusal.
        """

    @abc.abstractmethod
    def destroy(self, id: str) -> None:
        """Removes a sandbox with all that is in it, without waiting for a polite stop. Unknown ids are not error."""

    @abc.abstractmethod
    def list(self, owner: str) -> list:
        """Returns the ids of sandboxes that exist; of one owner (spec.labels.owner), or of all if owner is empty."""


def check(plugin, spec, config):
    """Asks check, and raises Refused with its first refusal."""
    refusals, _ = plugin.check(spec, config)
    if refusals:
        raise Refused("%s: %s" % (refusals[0].summary, refusals[0].detail))


def made_message(made, spec):
    """Makes the reply of Create."""
    m = contract.message("SandboxMade")(id=made.id, pid=made.pid)
    m.image.base, m.image.workdir, m.image.digest = made.base, made.workdir, spec.image.digest
    m.image.env.update(made.env)
    for field in ("cpu", "memory", "pids", "disk", "network", "gpu"):
        grant = getattr(made.granted, field)
        if grant:
            setattr(m.granted, field, _GRANTS[grant])
    m.granted.how = made.granted.how
    return m
