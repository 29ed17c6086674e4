package engine

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

// busy is an engine whose list has what it creates for a client that is gone, when
// it has created it.
type busy struct {
	Engine

	created func() bool
}

func (b busy) Containers(context.Context, map[string]string) ([]Listed, error) {
	if b.created() {
		return []Listed{{Name: "berth-late"}}, nil
	}
	return nil, nil
}
func (busy) Volumes(context.Context, map[string]string) ([]Listed, error) { return nil, nil }
func (busy) Images(context.Context, map[string]string) ([]Listed, error)  { return nil, nil }

// A list contains what the engine was still creating for a client that has ended,
// and does not wait for living clients.
func TestAListWaitsForWhatIsBeingCreatedForTheDead(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir, err := os.MkdirTemp("", "be") //nolint:usetesting // short, for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connect := func() (client, server net.Conn) {
		client, err = (&net.Dialer{}).DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	living, its := connect()
	defer living.Close()
	defer its.Close()
	dead, working := connect()
	if _, err = dead.Write([]byte("POST /containers/create")); err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	if _, err = abandoned(); err != nil {
		testlevel.Cannot(t, "this kernel does not list sockets: modprobe unix_diag", err)
	}
	if n := unanswered(path); n != 1 {
		t.Errorf("%d clients are gone, want 1", n)
	}
	done := make(chan struct{})
	e := New(Options{
		Name:    "busy",
		Default: func() (string, error) { return "unix://" + path, nil },
		Dial: func(string) (Engine, error) {
			return busy{created: func() bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			}}, nil
		},
	})
	time.AfterFunc(200*time.Millisecond, func() {
		close(done)
		_ = working.Close()
	})
	if ids, err := e.List(t.Context(), ""); err != nil || !slices.Equal(ids, []string{"berth-late"}) {
		t.Errorf("got %v, %v; want what was created late", ids, err)
	}
	if n := unanswered(path); n != 0 {
		t.Errorf("%d unanswered clients, where one lives", n)
	}
}
