package sandbox

import (
	"reflect"
	"testing"

	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
)

// A field that is added to a type and forgotten in its converter fails here.
func TestConvertersForgetNothing(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"Result": resultOf(&pb.Exit{
			Code: 1, Signal: 2, TimedOut: true, Killed: true,
			Swept: []*pb.Process{{CommandLine: []byte("a\x00b\x00")}}, Read: []*pb.Exit_Answer{{Data: []byte("d")}},
		}),
	} {
		for i, r := 0, reflect.ValueOf(v); i < r.NumField(); i++ {
			if r.Field(i).IsZero() {
				t.Errorf("%s.%s is lost on the wire", name, r.Type().Field(i).Name)
			}
		}
	}
}
