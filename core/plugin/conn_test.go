package plugin

import (
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/fault"
)

// A plugin in another language may answer with the code by which gRPC means that
// the process is gone.
func TestAPluginThatAnswersUnavailableLivesOn(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	other := open(t, h)
	pid := turn(t, other, "pid").ExitCode
	p, err := h.plugins[id{plugins.KindAgent, "odd"}].binary.acquire(t.Context())
	testlevel.Must(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Unavailable, "the judge's model is down")
	}))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testlevel.Must(t, err)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	its, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testlevel.Must(t, err)
	defer func() { _ = its.Close() }()
	c := conn{who: "agent \"odd\"", only: p}
	own := p.conn
	p.conn = its
	err = c.Invoke(t.Context(), "/berth.v1.Agent/Check", &emptypb.Empty{}, &emptypb.Empty{})
	p.conn = own
	if err == nil || errors.Is(err, ErrPluginGone) || errors.Is(err, fault.ErrUnavailable) || !strings.Contains(err.Error(), "UNAVAILABLE") || !strings.Contains(err.Error(), "the judge's model is down") {
		t.Errorf("Invoke = %v; want what the plugin said and what its code means", err)
	}
	if got := turn(t, other, "pid").ExitCode; got != pid {
		t.Errorf("the neighbor runs in process %d, it ran in %d", got, pid)
	}
}
