// Package servetest serves shims in process over real gRPC, with the same
// interceptors as a plugin and its host.
//
// It is for tests of shims only.
package servetest

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/internal/inprocess"
)

// Dial serves the services that register registers until the test ends, and
// returns a connection to them.
func Dial(t *testing.T, register func(*grpc.Server)) grpc.ClientConnInterface {
	t.Helper()
	server := grpc.NewServer(fault.ServerOptions(nil)...)
	register(server)
	conn, stop, err := inprocess.Serve(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return conn
}
