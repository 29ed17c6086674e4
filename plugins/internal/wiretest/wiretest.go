// Package wiretest checks that a type and its message have the same fields.
//
// It is for tests of shims only.
package wiretest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-eval/berth/plugins/internal/wire"
)

// Words gives each vocabulary a valid word, because fill cannot invent one.
type Words map[reflect.Type]string

// RoundTrip fills a G with different non-zero values in all fields, converts it
// to a message and back, and checks that it is unchanged. Then it does the same
// for the message, so that every field of it must be read, but for those of envelope.
func RoundTrip[G any](t *testing.T, words Words, fresh proto.Message, envelope ...protoreflect.Name) {
	t.Helper()
	var in G
	n := int64(0)
	fill(t, reflect.ValueOf(&in).Elem(), words, &n)
	msg := wire.Encode(proto.Clone(fresh), in)
	b, err := proto.Marshal(msg)
	if err == nil {
		err = proto.Unmarshal(b, msg)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := wire.Decode[G](msg)
	if err != nil {
		t.Fatalf("%T does not come back: %v", in, err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("%T loses something on the wire:\n in  %+v\n out %+v", in, in, out)
	}
	fillMessage(msg.ProtoReflect(), &n, 0)
	for _, name := range envelope {
		msg.ProtoReflect().Clear(msg.ProtoReflect().Descriptor().Fields().ByName(name))
	}
	back, err := wire.Decode[G](msg)
	if err != nil {
		t.Fatalf("%T is refused: %v", msg, err)
	}
	if again := wire.Encode(fresh, back); !proto.Equal(msg, again) {
		t.Errorf("%T has fields that nothing reads:\n in  %s\n out %s", msg, prototext.Format(msg), prototext.Format(again))
	}
}

// fill sets every exported field of v to a non-zero value. The values differ if
// the type has enough of them.
func fill(t *testing.T, v reflect.Value, words Words, n *int64) {
	t.Helper()
	*n++
	switch v.Interface().(type) {
	case time.Duration: // sent in milliseconds
		v.SetInt(*n * int64(time.Millisecond))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMilli(*n).UTC()))
		return
	case json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"n":%d}`, *n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		word, ok := words[v.Type()]
		switch {
		case ok:
			v.SetString(word)
		case v.Type() != reflect.TypeFor[string]():
			t.Fatalf("give wiretest a valid %s", v.Type())
		default:
			v.SetString(fmt.Sprintf("s%d", *n))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(*n)
	case reflect.Float64:
		v.SetFloat(0.5) // a score is between its bounds
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), words, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			if v.Type().Elem().Kind() == reflect.Uint8 {
				v.Index(i).SetUint(uint64(*n%200) + 1)
				*n++
				continue
			}
			fill(t, v.Index(i), words, n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, key, words, n)
			fill(t, value, words, n)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				t.Fatalf("%s has an unexported field %s", v.Type(), v.Type().Field(i).Name)
			}
			fill(t, v.Field(i), words, n)
		}
	default:
		t.Fatalf("wiretest cannot fill %s", v.Type())
	}
}

func fillMessage(m protoreflect.Message, n *int64, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			mp := m.Mutable(f).Map()
			for range 2 {
				key := scalar(f.MapKey(), n).MapKey()
				mp.Set(key, element(mp.NewValue, f.MapValue(), n, depth))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range 2 {
				list.Append(element(list.NewElement, f, n, depth))
			}
		case f.Message() != nil:
			if depth < 8 {
				fillMessage(m.Mutable(f).Message(), n, depth+1)
			}
		default:
			m.Set(f, scalar(f, n))
		}
	}
}

func element(fresh func() protoreflect.Value, f protoreflect.FieldDescriptor, n *int64, depth int) protoreflect.Value {
	if f.Message() == nil {
		return scalar(f, n)
	}
	v := fresh()
	if depth < 8 {
		fillMessage(v.Message(), n, depth+1)
	}
	return v
}

func scalar(f protoreflect.FieldDescriptor, n *int64) protoreflect.Value {
	*n++
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("s%d", *n))
	case protoreflect.BytesKind: // JSON, for fields that need it
		return protoreflect.ValueOfBytes(fmt.Appendf(nil, "%d", *n))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(1 + int(*n)%(values.Len()-1)).Number())
	default:
		return protoreflect.ValueOfInt64(*n)
	}
}
