"""The messages of Berth's contracts, made from contract.binpb.

contract.binpb is what protoc makes of the .proto files. Reading it at start
works with every version of protobuf, which generated Python code does not.
"""

import os

try:
    import grpc  # noqa: F401  (only to say early that it is missing)
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as e:
    raise SystemExit(
        "berth_plugin: %s. Install grpcio and protobuf for this interpreter: "
        "pip install grpcio protobuf, or on Debian: apt install python3-grpcio python3-protobuf" % e) from None

_pool = descriptor_pool.DescriptorPool()


def _load():
    files = descriptor_pb2.FileDescriptorSet()
    with open(os.path.join(os.path.dirname(__file__), "contract.binpb"), "rb") as f:
        files.ParseFromString(f.read())
    for file in files.file:
        _pool.AddSerializedFile(file.SerializeToString())


_load()

if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and newer
    _class = message_factory.GetMessageClass
else:
    _class = message_factory.MessageFactory(_pool).GetPrototype


def message(name):
    """Returns the class of the message berth.v1.NAME; nested ones as Outer.Inner."""
    return _class(_pool.FindMessageTypeByName("berth.v1." + name))


def enum(name, prefix):
    """Returns the values of the enumeration berth.v1.NAME by their names in lower case, without prefix."""
    values = _pool.FindEnumTypeByName("berth.v1." + name).values
    return {v.name[len(prefix):].lower(): v.number for v in values if v.number}


def methods(service):
    """Yields (name, request class, reply class, request streams, reply streams) of the service berth.v1.SERVICE."""
    described = descriptor_pb2.ServiceDescriptorProto()
    _pool.FindServiceByName("berth.v1." + service).CopyToProto(described)
    for m in described.method:
        yield (m.name, message(m.input_type.rsplit(".", 1)[1]), message(m.output_type.rsplit(".", 1)[1]),
               m.client_streaming, m.server_streaming)
