"""The errors that Berth tells apart. Raise one of them, or any other exception."""


class PluginError(Exception):
    """An error of a call, with a reason that Berth knows. See plugin.proto."""

    reason = ""  # of google.rpc.ErrorInfo
    code = "UNKNOWN"  # of gRPC


class Invalid(PluginError):
    """A message that makes no sense. The text says which part."""

    reason, code = "INVALID", "INVALID_ARGUMENT"


class UnknownPlugin(PluginError):
    """This program serves no plugin of that name."""

    reason, code = "UNKNOWN_PLUGIN", "NOT_FOUND"


class Unsupported(PluginError):
    """A capability that was not announced."""

    reason, code = "UNSUPPORTED", "UNIMPLEMENTED"


class Panic(PluginError):
    """A bug in the plugin: an exception that is none of these."""

    reason, code = "PANIC", "INTERNAL"


class BadConfig(PluginError):
    """The configuration is refused. Never tried again."""

    reason, code = "BAD_CONFIG", "INVALID_ARGUMENT"


class NoSession(PluginError):
    """The session is not known, or not any more."""

    reason, code = "NO_SESSION", "NOT_FOUND"


class ModelUnavailable(PluginError):
    """The model does not answer."""

    reason, code = "MODEL_UNAVAILABLE", "FAILED_PRECONDITION"


class NoCapacity(PluginError):
    """An environment has no room now. Berth tries again later."""

    reason, code = "NO_CAPACITY", "RESOURCE_EXHAUSTED"


class BadImage(PluginError):
    """An image does not exist or cannot be read. Never tried again."""

    reason, code = "BAD_IMAGE", "FAILED_PRECONDITION"


class BuildFailed(PluginError):
    """The image's own recipe failed. Never tried again."""

    reason, code = "BUILD_FAILED", "FAILED_PRECONDITION"


class Refused(PluginError):
    """An environment cannot make such a sandbox. Never tried again."""

    reason, code = "REFUSED", "FAILED_PRECONDITION"


class NoSandbox(PluginError):
    """The sandbox is unknown or gone."""

    reason, code = "NO_SANDBOX", "NOT_FOUND"


class ArtifactMissing(PluginError):
    """What a verifier should judge is not there."""

    reason, code = "ARTIFACT_MISSING", "NOT_FOUND"


class BadReward(PluginError):
    """A reward is malformed, not finite, or contradicts another."""

    reason, code = "BAD_REWARD", "DATA_LOSS"


class BadReply(PluginError):
    """A model that judges gave no usable reply, also when it was asked again."""

    reason, code = "BAD_REPLY", "DATA_LOSS"
