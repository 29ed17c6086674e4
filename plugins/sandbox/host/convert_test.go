package host

import (
	"reflect"
	"testing"

	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// filled checks that no exported field of v is zero.
func filled(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		switch {
		case !field.IsExported():
		case v.Field(i).IsZero():
			t.Errorf("%s.%s is lost on the wire", name, field.Name)
		case v.Field(i).Kind() == reflect.Struct && field.Type.PkgPath() != "time":
			filled(t, name+"."+field.Name, v.Field(i))
		}
	}
}

// A field that is added to a type and forgotten in its converter fails here.
func TestConvertersForgetNothing(t *testing.T) {
	t.Parallel()
	socket := &pb.Socket{Network: "tcp", Address: "a"}
	p := &pb.Process{
		Pid: 1, Parent: 2, Started: 3, Uid: 5, State: "S", Comm: []byte("c"), CommandLine: []byte("a\x00b\x00"),
		Executable: []byte("e"), Service: "s", Session: "t", Listening: []*pb.Socket{socket},
	}
	got := processes([]*pb.Process{p})
	filled(t, "Process", reflect.ValueOf(got[0]))
	filled(t, "Socket", reflect.ValueOf(got[0].Listening[0]))
	exit := resultOf(&pb.Exit{Code: 1, Signal: 2, TimedOut: true, Killed: true})
	exit.Swept, exit.Read = []string{"nothing is swept after a service"}, []sandbox.Answer{{}} // and nothing read
	filled(t, "Result", reflect.ValueOf(exit))
}
