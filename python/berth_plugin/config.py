"""The configuration of a plugin: one dataclass is its schema, its defaults, its documentation and its checks.

    @dataclass
    class Config:
        tolerance: float = option(0.01, doc="Largest difference that still counts as equal.")
        mode: Literal["strict", "loose"] = option("strict", doc="How lines are compared.")
        timeout: timedelta = option(timedelta(minutes=2), doc="Longest wait for one judgment.")

Types: str, bool, int, float, timedelta (written "90s" or "1h30m"), Any, list[T], dict[str, T], Literal of strings,
and a nested dataclass, list or dict of one, which is a block. A field without a default is required.
"""

import dataclasses
import json
import math
import re
import typing
from datetime import timedelta

from .errors import BadConfig


@dataclasses.dataclass
class Problem:
    """One thing wrong with a configuration. Berth shows it with the file and line that the user wrote."""

    summary: str  # what is wrong, without a full stop
    detail: str  # what was given, what is allowed, how to fix it
    path: str = ""  # where: mount[1].source, env["PATH"]; empty: the configuration as a whole


def option(default=dataclasses.MISSING, *, doc="", secret=False):
    """A field of a configuration. Without a default it is required."""
    metadata = {"doc": doc, "secret": secret}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def _duration(text):
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.lstrip("+"))
    if rest == "0":
        return timedelta(0)
    parts = _DURATION.findall(rest)
    if not parts or "".join(n + u for n, u in parts) != rest:
        raise ValueError('%r is not a duration: write one such as "90s" or "1h30m"' % text)
    return timedelta(seconds=sign * sum(float(n) * _UNITS[u] for n, u in parts))


def _duration_text(d):
    return "%gs" % d.total_seconds()


def _hints(cls):
    return typing.get_type_hints(cls)


def _type(t):
    """Returns (type of the contract, nested dataclass or None, allowed strings)."""
    origin, args = typing.get_origin(t), typing.get_args(t)
    simple = {str: "string", bool: "bool", int: "int", float: "float", timedelta: "duration", typing.Any: "any"}
    if t in simple:
        return simple[t], None, []
    if origin is typing.Literal and all(isinstance(a, str) for a in args):
        return "string", None, list(args)
    if dataclasses.is_dataclass(t):
        return "block", t, []
    if origin is list and args or origin is dict and args and args[0] is str:
        inner, block, allowed = _type(args[-1])
        return ("list(%s)" if origin is list else "map(%s)") % inner, block, allowed
    raise TypeError("%r is not a type that a configuration can have" % (t,))


def _json_default(value):
    return _duration_text(value) if isinstance(value, timedelta) else value


def schema(cls):
    """Returns the schema that Describe sends, as a dictionary. cls may be None."""
    fields = []
    for f in dataclasses.fields(cls) if cls else ():
        kind, block, allowed = _type(_hints(cls)[f.name])
        entry = {"name": f.name, "type": kind, "doc": f.metadata.get("doc", "")}
        if f.metadata.get("secret"):
            entry["secret"] = True
        if allowed:
            entry["enum"] = allowed
        if block:
            entry["fields"] = schema(block)["fields"]  # a block has the defaults of its fields
        elif f.default is not dataclasses.MISSING:
            if f.default is not None:
                entry["default"] = _json_default(f.default)
        elif f.default_factory is not dataclasses.MISSING:
            entry["default"] = _json_default(f.default_factory())
        else:
            entry["required"] = True
        fields.append({k: v for k, v in entry.items() if v != ""})
    return {"fields": fields}


def _value(t, given, path, problems):
    """Reads one value of type t. What is wrong is appended to problems."""
    origin, args = typing.get_origin(t), typing.get_args(t)

    def wrong(wanted):
        problems.append(Problem("Wrong value", "Got %s: %s." % (json.dumps(given), wanted), path))

    if dataclasses.is_dataclass(t):
        return _block(t, given, path, problems)
    if origin is list:
        if not isinstance(given, list):
            return wrong("a list is needed")
        return [_value(args[0], g, "%s[%d]" % (path, i), problems) for i, g in enumerate(given)]
    if origin is dict:
        if not isinstance(given, dict):
            return wrong("an object is needed")
        return {k: _value(args[1], g, "%s[%s]" % (path, json.dumps(k)), problems) for k, g in given.items()}
    if origin is typing.Literal:
        return given if given in args else wrong("allowed are " + ", ".join(args))
    if t is timedelta:
        try:
            return _duration(given)
        except (ValueError, TypeError, AttributeError, OverflowError):
            return wrong('a duration such as "90s" or "1h30m" is needed')
    if t is float and isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given):
        return float(given)
    if t is int and isinstance(given, int) and not isinstance(given, bool):
        return given
    if t is bool and isinstance(given, bool) or t is str and isinstance(given, str) or t is typing.Any:
        return given
    return wrong("%s is needed" % {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[t])


def _block(cls, given, path, problems):
    if not isinstance(given, dict):
        problems.append(Problem("Wrong value", "Got %s: a block is needed." % json.dumps(given), path))
        return None
    hints, values = _hints(cls), {}
    known = {f.name: f for f in dataclasses.fields(cls)}
    for name in given.keys() - known.keys():
        problems.append(Problem("Unknown option %s" % name, "Known are: %s." % (", ".join(known) or "none"), path + "." + name if path else name))
    for name, f in known.items():
        at = path + "." + name if path else name
        if given.get(name) is not None:
            values[name] = _value(hints[name], given[name], at, problems)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            if dataclasses.is_dataclass(hints[name]):
                values[name] = _block(hints[name], {}, at, problems)
            else:
                problems.append(Problem("Missing option %s" % name, "It is required: %s" % f.metadata.get("doc", ""), at))
                values[name] = None
    return cls(**values)


def read(cls, raw):
    """Reads a configuration. Returns (an object of cls, or None without a class; a list of problems)."""
    try:
        given = json.loads(raw or b"{}")
    except ValueError as e:
        return None, [Problem("The configuration is not JSON", str(e))]
    problems = []
    if cls is None:
        if given not in ({}, None):
            problems.append(Problem("No configuration is taken", "Got %s. Remove it." % json.dumps(given)))
        return None, problems
    value = _block(cls, {} if given is None else given, "", problems)
    if not problems and hasattr(value, "validate"):
        problems = list(value.validate())
    return value, problems


def read_settings(plugin, raw, capture=""):
    """Reads what a task sets for a plugin, or for one of its captures. Returns (an object of the class that the plugin
    has for it, or the JSON value without a class; a list of problems)."""
    if capture and plugin.Captures and capture not in plugin.Captures:
        return None, [Problem("No such capture", "Got %r. There are: %s." % (capture, ", ".join(plugin.Captures)))]
    cls = plugin.Captures.get(capture) if capture else plugin.Settings
    if cls:
        return read(cls, raw)
    try:
        return json.loads(raw) if raw else None, []
    except ValueError as e:
        return None, [Problem("The settings are not JSON", str(e))]


def must_read(cls, raw):
    """Reads a configuration, or raises BadConfig with all that is wrong."""
    return must(*read(cls, raw))


def must(value, problems):
    """Returns the value, or raises BadConfig with all that is wrong."""
    if problems:
        raise BadConfig("; ".join("%s%s: %s" % (p.path + ": " if p.path else "", p.summary, p.detail) for p in problems))
    return value
