"""The Dockerfile of a task, for environments that show the host's own programs instead of images.

It knows FROM, WORKDIR, ENV and COPY in their simplest forms. Everything else needs an environment with images.
"""

import dataclasses
import os
import posixpath
import shutil
import stat

_MOST = 1 << 20  # the largest Dockerfile that is read, in bytes


class Unfit(ValueError):
    """An image needs an environment with images; the message says why."""


@dataclasses.dataclass
class Facts:
    """What a Dockerfile says of a sandbox."""

    workdir: str = ""  # absolute; empty: it says none
    env: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Copy:
    line: str  # for messages
    sources: list
    to: str  # absolute
    folder: bool  # to is a folder, whether it exists or not
    mode: object  # of --chmod, or None


def read(image, copies):
    """Reads the Dockerfile of image (a message SandboxImage). Returns (facts, list of copies), or raises Unfit."""
    facts, found, stages = Facts(), [], 0
    if image.ref:
        raise Unfit('"%s"' % image.ref)
    if not image.build:
        return facts, found
    for number, line in enumerate(_text(image).split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        at = 'line %d of the Dockerfile, "%.80s"' % (number, line.strip())
        name, ok = words[0].upper(), not set(line) & set("$\\\"'`")
        if name == "FROM":
            stages += 1
            ok = ok and len(words) == 2 and stages == 1
        elif name == "WORKDIR":
            ok = ok and stages == 1 and len(words) == 2 and words[1].startswith("/")
            facts.workdir = _clean(words[-1])
        elif name == "ENV":
            pairs = [w.partition("=") for w in words[1:]]
            ok = ok and stages == 1 and bool(pairs) and all(key and equals for key, equals, _ in pairs)
            facts.env.update((key, value) for key, _, value in pairs)
        elif name == "COPY" and copies:
            copy = _copy(at, words[1:], facts.workdir)
            ok = ok and stages == 1 and copy is not None
            found.append(copy)
        else:
            ok = False
        if not ok:
            raise Unfit(at)
    if stages == 0:
        raise Unfit("a Dockerfile without FROM")
    return facts, found


def place(image, facts, copies, hidden, root):
    """Places what COPY copies in the folder root; None only checks whether that is possible. Raises Unfit if not."""
    if not copies:
        return
    for name in (".dockerignore", (image.file or "Dockerfile") + ".dockerignore"):
        if os.path.lexists(os.path.join(image.build, name)):
            raise Unfit("the Dockerfile copies files, with a " + name)
    placing = _Placing(os.path.realpath(image.build), root and os.path.realpath(root), hidden, {"/", facts.workdir or "/"})
    for copy in copies:
        try:
            placing.copy(copy)
        except (OSError, Unfit) as e:
            raise Unfit("%s: %s" % (copy.line, e)) from e


def _clean(path):
    return posixpath.normpath("/" + path.lstrip("/"))


def _text(image):
    """The text of the Dockerfile, which need not be a plain file."""
    try:
        name = _within(os.path.realpath(image.build), image.file or "Dockerfile")
        with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unfit("the Dockerfile: not a file")
            data = file.read(_MOST + 1)
    except OSError as e:
        raise Unfit("the Dockerfile: %s" % e) from e
    if len(data) > _MOST:
        raise Unfit("the Dockerfile: more than %d bytes" % _MOST)
    return data.decode("utf-8", "surrogateescape")


def _within(folder, name):
    """The place that name leads to in folder, with links followed. Raises Unfit if it is not in the folder."""
    place = os.path.realpath(os.path.join(folder, name))
    if os.path.commonpath([folder, place]) != folder:
        raise Unfit("%s leads out of %s" % (name, folder))
    return place


def _copy(at, words, workdir):
    """Reads the words after COPY; None if they are more than the simplest form."""
    mode = None
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0).partition("=")
        if name == "--chmod" and value and not set(value) - set("01234567") and int(value, 8) <= 0o777:
            mode = int(value, 8)
        elif name != "--chown" or value not in ("root", "0", "root:root", "0:0"):
            return None
    if len(words) < 2 or set("".join(words)) & set("*?[<"):
        return None
    sources = [posixpath.normpath(w.lstrip("/") or ".") for w in words[:-1]]
    to = words[-1]
    folder = to.endswith("/") or posixpath.basename(to) == "."
    if any(s == ".." or s.startswith("../") for s in sources) or not folder and len(sources) > 1:
        return None
    return _Copy(at, sources, _clean(to if to.startswith("/") else posixpath.join(workdir or "/", to)), folder, mode)


class _Placing:
    """The state between two COPY instructions."""

    def __init__(self, build, root, hidden, folders):
        self.build, self.root, self.hidden, self.folders = build, root, hidden, folders

    def copy(self, copy):
        for source in copy.sources:
            place = _within(self.build, source)  # a link in the folder is followed
            if os.path.isdir(place):
                self.tree(place, copy)
            elif copy.folder or copy.to in self.folders:
                self.file(place, posixpath.join(copy.to, posixpath.basename(source)), copy.mode)
            else:
                self.file(place, copy.to, copy.mode)

    def tree(self, source, copy):
        """Places the content of a folder."""
        self.mkdir(copy.to, 0o755)
        for at, folders, files in os.walk(source, onerror=_raise):
            to = _clean(posixpath.join(copy.to, os.path.relpath(at, source)))
            for name in sorted(folders + files):
                place, target = os.path.join(at, name), posixpath.join(to, name)
                if os.path.islink(place):
                    self.link(place, target)
                elif name in folders:
                    mode = stat.S_IMODE(os.stat(place).st_mode) & 0o777 if copy.mode is None else copy.mode
                    self.mkdir(target, mode, again=True)
                else:
                    self.file(place, target, copy.mode)

    def target(self, at):
        """Where a path of the sandbox is in root. Raises Unfit if it would be hidden, or if a link leads out of root."""
        for h in self.hidden:
            if at == h or at.startswith(h.rstrip("/") + "/"):
                raise Unfit("nothing can be placed in %s of the sandbox" % h)
        if self.root is None:
            return None
        return os.path.join(_within(self.root, posixpath.dirname(at)[1:]), posixpath.basename(at))

    def mkdir(self, at, mode, again=False):
        """Makes a folder of the sandbox, and those that it is in."""
        if at == "/" or at in self.folders and self.root is None and not again:
            if at != "/":
                self.target(at)
            return
        if posixpath.dirname(at) != "/":
            self.mkdir(posixpath.dirname(at), 0o755)
        target = self.target(at)
        self.folders.add(at)
        if target is None:
            return
        made = not os.path.isdir(_within(self.root, at[1:]))
        if made:
            os.mkdir(target, 0o700)
        if made or again:
            os.chmod(target, mode | 0o700)  # more is placed in it; root, whose it is, needs no permission

    def file(self, source, at, mode):
        self.mkdir(posixpath.dirname(at), 0o755)
        target = self.target(at)
        with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise Unfit("%s is neither a file nor a folder" % source)
            if target is None:
                return
            to = os.open(_within(self.root, at[1:]), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            with open(to, "wb") as out:
                shutil.copyfileobj(file, out)
                os.fchmod(to, stat.S_IMODE(info.st_mode) & 0o777 if mode is None else mode)

    def link(self, source, at):
        self.mkdir(posixpath.dirname(at), 0o755)
        target = self.target(at)
        if target is not None:
            os.symlink(os.readlink(source), target)


def _raise(error):
    raise error
