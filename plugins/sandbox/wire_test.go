package sandbox_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// raw is a client of generated code alone, as one in another language is.
func raw(t *testing.T, b *sandboxtest.Box) pb.SandboxShellClient {
	t.Helper()
	c, err := b.Attach(t.Context(), host.Session{ID: "raw"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := stream.Client(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewSandboxShellClient(conn)
}

// A client in another language cancels a call and knows nothing of Signal.
func TestPlainCancelKillsTheTree(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	st, err := raw(t, b).Exec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	argv := [][]byte{[]byte("sh"), []byte("-c"), []byte("setsid sleep 7301 & echo up; sleep 7302")}
	if err = st.Send(&pb.ExecRequest{Is: &pb.ExecRequest_Start{Start: &pb.ExecStart{Argv: argv}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := st.Recv(); err != nil || string(m.GetStdout()) != "up\n" {
		t.Fatalf("got %v, %v", m, err)
	}
	cancel()
	testlevel.Eventually(t, "the tree is dead", func() bool { return !running(t, b, "sleep 730") })
}

// Half-closing the call is the end of standard input, too.
func TestHalfCloseEndsStandardInput(t *testing.T) {
	t.Parallel()
	st, err := raw(t, sandboxtest.Start(t, sandboxtest.Options{})).Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*pb.ExecRequest{
		{Is: &pb.ExecRequest_Start{Start: &pb.ExecStart{Argv: [][]byte{[]byte("cat")}, Stdin: true}}},
		{Is: &pb.ExecRequest_Stdin{Stdin: []byte("text")}},
	} {
		if err = st.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err = st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var out string
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			t.Fatal("no exit status")
		}
		if err != nil {
			t.Fatal(err)
		}
		out += string(m.GetStdout())
		if e := m.GetExit(); e != nil {
			if e.GetCode() != 0 || out != "text" {
				t.Errorf("got %v and %q", e, out)
			}
			return
		}
	}
}
