// Package wire contains what every gRPC shim of a contract needs to convert
// values: words and enumerations, times, valid text, and the errors that a shim
// itself can detect.
//
// It must not know any contract, nor build servers or clients.
package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-eval/berth/plugins/fault"
)

// Encode sets the fields of a message from those of a struct, and returns the message.
// A field has the name of its JSON or, if it has one, of its tag `wire`. JSON, a time
// and a duration have a suffix in the message: config_json, used_unix_ms, timeout_ms.
// A word is the number of an enumeration. A field of the message that the struct does
// not have stays as it is.
func Encode[P proto.Message](m P, from any) P {
	encode(m.ProtoReflect(), reflect.ValueOf(from))
	return m
}

// Decode makes a struct of a message, the reverse of Encode. A word that is not given
// or not known is an ErrInvalid; only one that its JSON may omit is empty then. So is
// what the Valid of a struct in it refuses.
func Decode[G any](m proto.Message) (to G, err error) {
	return to, decode(m.ProtoReflect(), reflect.ValueOf(&to).Elem())
}

// Reply is Decode of the answer to a call, unless the call has failed.
func Reply[G any, P proto.Message](m P, failed error) (to G, err error) {
	if failed != nil {
		return to, failed
	}
	return Decode[G](m)
}

var (
	typeDuration = reflect.TypeFor[time.Duration]()
	typeTime     = reflect.TypeFor[time.Time]()
	typeJSON     = reflect.TypeFor[json.RawMessage]()
)

// suffixes are what the names of fields in messages have in addition.
var suffixes = map[reflect.Type]string{typeDuration: "_ms", typeTime: "_unix_ms", typeJSON: "_json"}

// fieldOf returns the field of a message for one of a struct. Every struct of a
// contract is converted by a test, so a missing one does not reach a user.
func fieldOf(d protoreflect.MessageDescriptor, of reflect.StructField) protoreflect.FieldDescriptor {
	name, _, _ := strings.Cut(of.Tag.Get("json"), ",")
	name = cmp.Or(of.Tag.Get("wire"), name+suffixes[of.Type])
	f := d.Fields().ByName(protoreflect.Name(name))
	if f == nil {
		panic(fmt.Sprintf("message %s has no field %q for %s", d.Name(), name, of.Name))
	}
	return f
}

func encode(m protoreflect.Message, v reflect.Value) {
	for i := range v.NumField() {
		f, of := fieldOf(m.Descriptor(), v.Type().Field(i)), v.Field(i)
		switch {
		case f.IsMap():
			to := m.Mutable(f).Map()
			for _, key := range of.MapKeys() {
				to.Set(scalar(f.MapKey(), key).MapKey(), element(f.MapValue(), of.MapIndex(key), to.NewValue))
			}
		case f.IsList():
			to := m.Mutable(f).List()
			for i := range of.Len() {
				to.Append(element(f, of.Index(i), to.NewElement))
			}
		case of.Kind() == reflect.Pointer && of.IsNil():
		default:
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			m.Set(f, element(f, of, func() protoreflect.Value { return m.NewField(f) }))
		}
	}
}

func element(f protoreflect.FieldDescriptor, v reflect.Value, fresh func() protoreflect.Value) protoreflect.Value {
	if f.Message() == nil {
		return scalar(f, v)
	}
	to := fresh()
	encode(to.Message(), v)
	return to
}

func scalar(f protoreflect.FieldDescriptor, v reflect.Value) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(Text(v.String()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(v.Bytes())
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(v.Bool())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(v.Float())
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(numberOf(f.Enum(), v.String()))
	default:
	}
	switch at := v.Interface().(type) {
	case time.Duration:
		return protoreflect.ValueOfInt64(Millis(at))
	case time.Time:
		if at.IsZero() {
			return protoreflect.ValueOfInt64(0)
		}
		return protoreflect.ValueOfInt64(at.UnixMilli())
	}
	return protoreflect.ValueOfInt64(v.Int())
}

func decode(m protoreflect.Message, v reflect.Value) error {
	for i := range v.NumField() {
		of := v.Type().Field(i)
		f := fieldOf(m.Descriptor(), of)
		if err := decodeField(m, f, of, v.Field(i)); err != nil {
			return err
		}
	}
	if checked, ok := reflect.TypeAssert[interface{ Valid() error }](v); ok {
		return checked.Valid()
	}
	return nil
}

func decodeField(m protoreflect.Message, f protoreflect.FieldDescriptor, of reflect.StructField, to reflect.Value) (err error) {
	switch from := m.Get(f); {
	case f.IsMap():
		if from.Map().Len() == 0 {
			return nil
		}
		to.Set(reflect.MakeMap(of.Type))
		from.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			one := reflect.New(of.Type.Elem()).Elem()
			if err = decodeValue(f.MapValue(), value, one); err != nil {
				err = fmt.Errorf("%s %q: %w", f.Name(), key, err)
			}
			to.SetMapIndex(reflect.ValueOf(key.String()), one)
			return err == nil
		})
		return err
	case f.IsList():
		if from.List().Len() == 0 {
			return nil
		}
		to.Set(reflect.MakeSlice(of.Type, from.List().Len(), from.List().Len()))
		for i := range from.List().Len() {
			if err = decodeValue(f, from.List().Get(i), to.Index(i)); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
		}
		return nil
	case to.Kind() == reflect.Pointer:
		if !m.Has(f) {
			return nil
		}
		to.Set(reflect.New(of.Type.Elem()))
		return decodeValue(f, from, to.Elem())
	case f.Kind() == protoreflect.EnumKind && from.Enum() == 0 && strings.HasSuffix(of.Tag.Get("json"), ",omitempty"):
		return nil
	default:
		return decodeValue(f, from, to)
	}
}

func decodeValue(f protoreflect.FieldDescriptor, from protoreflect.Value, to reflect.Value) error {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return decode(from.Message(), to)
	case protoreflect.StringKind:
		to.SetString(from.String())
	case protoreflect.BytesKind:
		raw := from.Bytes()
		if to.Type() == typeJSON && len(raw) > 0 && !json.Valid(raw) {
			return Invalid("%s is not JSON", strings.TrimSuffix(string(f.Name()), "_json"))
		}
		switch {
		case to.Kind() == reflect.String:
			to.SetString(string(raw))
		case len(raw) > 0:
			to.SetBytes(raw)
		}
	case protoreflect.BoolKind:
		to.SetBool(from.Bool())
	case protoreflect.DoubleKind:
		to.SetFloat(from.Float())
	case protoreflect.EnumKind:
		word, err := wordOf(f.Enum(), string(f.Name()), from.Enum())
		to.SetString(word)
		return err
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		to.SetUint(from.Uint())
	default:
		switch n := from.Int(); to.Type() {
		case typeDuration:
			to.SetInt(int64(Duration(n)))
		case typeTime:
			if n != 0 {
				to.Set(reflect.ValueOf(time.UnixMilli(n).UTC()))
			}
		default:
			to.SetInt(n)
		}
	}
	return nil
}

// prefix is how the names of an enumeration begin: AGENT_ROLE_ for AgentRole.
func prefix(of protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(of.Values().Get(0).Name()), "UNSPECIFIED")
}

// numberOf returns the number of a word: that of AGENT_ROLE_USER for user. It returns 0
// for a word that the enumeration does not have, and the other side refuses that.
func numberOf(of protoreflect.EnumDescriptor, word string) protoreflect.EnumNumber {
	if v := of.Values().ByName(protoreflect.Name(prefix(of) + strings.ToUpper(word))); v != nil {
		return v.Number()
	}
	return 0
}

func wordOf(of protoreflect.EnumDescriptor, what string, number protoreflect.EnumNumber) (string, error) {
	v := of.Values().ByNumber(number)
	switch {
	case number == 0:
		return "", Invalid("%s is not given", what)
	case v == nil:
		return "", Invalid("%s %d is not known", what, number)
	}
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix(of))), nil
}

// Number returns the number of a word in an enumeration; 0 if it is not there.
func Number[P interface {
	~int32
	protoreflect.Enum
}, G ~string](word G,
) P {
	var zero P
	return P(numberOf(zero.Descriptor(), string(word)))
}

// Word returns the word of a number. A number that is not given or not known is an
// ErrInvalid that says what it is for.
func Word[G ~string](what string, number protoreflect.Enum) (G, error) {
	word, err := wordOf(number.Descriptor(), what, number.Number())
	return G(word), err
}

// DecodeAll makes a struct of each message of a list.
func DecodeAll[G any, P proto.Message](list []P) (all []G, err error) {
	for _, m := range list {
		one, err := Decode[G](m)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// MaxLine is the size of the longest log line in one message, in bytes.
const MaxLine = 64 << 10

// Invalid returns an ErrInvalid that says what is wrong.
func Invalid(format string, a ...any) error {
	return fmt.Errorf("%w: %s", fault.ErrInvalid, fmt.Sprintf(format, a...))
}

// Millis returns d in milliseconds, rounded away from zero: a limit must not
// become 0, which means no limit.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch rest := d - time.Duration(ms)*time.Millisecond; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return ms
}

// Duration returns ms milliseconds as a duration. A value that does not fit
// becomes the longest duration.
func Duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-most, min(most, ms))) * time.Millisecond
}

// Text replaces every byte of s that is not UTF-8, because gRPC refuses to send
// it.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Bytes returns texts as a message has those that need not be UTF-8.
func Bytes(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, text := range texts {
		out[i] = []byte(text)
	}
	return out
}

// Strings is the reverse of Bytes.
func Strings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// Lines cuts a line into pieces of at most MaxLine bytes. It does not split
// characters and removes the line end. An empty line is one piece.
func Lines(line string) []string {
	line = Text(strings.TrimRight(line, "\r\n"))
	var pieces []string
	for len(line) > MaxLine {
		cut := MaxLine
		for !utf8.RuneStart(line[cut]) {
			cut--
		}
		pieces, line = append(pieces, line[:cut]), line[cut:]
	}
	return append(pieces, line)
}
