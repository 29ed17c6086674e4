package stream

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
)

// Generated code and gRPC's own codec must mean the same bytes: one end of each
// connection has the one, the other end the other.
func TestEachMessageSurvivesBothCodecs(t *testing.T) {
	t.Parallel()
	c := newCodec()
	messages := pb.File_v1_sandbox_proto.Messages()
	if messages.Len() == 0 {
		t.Fatal("no messages")
	}
	for i := range messages.Len() {
		d := messages.Get(i)
		kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		for fields := range max(1, oneofs(d)) {
			in := kind.New()
			fill(in, fields, 3)
			if _, ok := in.Interface().(message); !ok {
				t.Errorf("%s has no code of its own: run make generate", d.FullName())
			}
			for name, way := range map[string]struct {
				write func(any) (mem.BufferSlice, error)
				read  func(mem.BufferSlice, any) error
			}{"out": {c.Marshal, c.general.Unmarshal}, "in": {c.general.Marshal, c.Unmarshal}, "both": {c.Marshal, c.Unmarshal}} {
				out := kind.New()
				data, err := way.write(in.Interface())
				if err == nil {
					err = way.read(data, out.Interface())
				}
				if err != nil || !proto.Equal(in.Interface(), out.Interface()) {
					t.Errorf("%s, %s: %v:\n in  %v\n out %v", d.FullName(), name, err, in, out)
				}
			}
		}
	}
}

// oneofs is how many ways there are to fill the largest oneof.
func oneofs(d protoreflect.MessageDescriptor) (n int) {
	for i := range d.Oneofs().Len() {
		n = max(n, d.Oneofs().Get(i).Fields().Len())
	}
	return n
}

// fill sets every field to something that is not zero; of a oneof the n-th.
func fill(m protoreflect.Message, n, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && f != o.Fields().Get(n%o.Fields().Len()) {
			continue
		}
		nested := f.Message() != nil && !f.IsMap()
		if nested && depth == 0 {
			continue
		}
		switch {
		case f.IsMap():
			one := m.Mutable(f).Map()
			one.Set(scalar(f.MapKey()).MapKey(), scalar(f.MapValue()))
		case f.IsList() && nested:
			l := m.Mutable(f).List()
			e := l.AppendMutable().Message()
			fill(e, n, depth-1)
		case f.IsList():
			l := m.Mutable(f).List()
			l.Append(scalar(f))
			l.Append(scalar(f))
		case nested:
			fill(m.Mutable(f).Message(), n, depth-1)
		default:
			m.Set(f, scalar(f))
		}
	}
}

// scalar is a value of f's kind, different for each field.
func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	n := int64(f.Number())
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(-n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-n << 33)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n) << 40)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) / 3)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("ö%d", n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(fmt.Appendf(nil, "\xff\x00%d", n))
	default:
		panic(fmt.Sprintf("%s: kind %s is new to this test", f.FullName(), f.Kind()))
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	t.Parallel()
	c := newCodec()
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fx")}, &pb.AttachRequest{}); err == nil {
		t.Error("a field longer than its message is read")
	}
	if _, err := c.Marshal("no message"); err == nil {
		t.Error("a string is a message")
	}
}
