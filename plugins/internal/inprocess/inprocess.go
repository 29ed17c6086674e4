// Package inprocess connects a gRPC server with a client in the same process,
// for conformance kits and tests. It must not know what is served.
package inprocess

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-eval/berth/plugins/fault"
)

// Serve serves until stop is called. stop waits for the end. Errors that come
// through the connection are decoded to those of the contracts.
func Serve(server *grpc.Server) (conn grpc.ClientConnInterface, stop func(), err error) {
	l := bufconn.Listen(1 << 20)
	client, err := grpc.NewClient("passthrough:inprocess", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // it returns after Stop
	}()
	return fault.Client(client), func() {
		_ = client.Close()
		server.Stop()
		<-ended
	}, nil
}
