// Package servetest serves shims in process over real gRPC, with the
// interceptors that a plugin and its host have.
//
// It is for tests of shims only.
package servetest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-eval/berth/plugins/fault"
)

// Dial serves what register registers until the test ends, and returns a
// connection to it.
func Dial(t *testing.T, register func(*grpc.Server)) grpc.ClientConnInterface {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(fault.ServerOptions(nil)...)
	register(server)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // it ends with Stop
	}()
	conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-ended
	})
	return fault.Client(conn)
}
