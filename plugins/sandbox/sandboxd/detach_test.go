package sandboxd

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// A connection that comes while access is being cut does not stay.
func TestAConnectionThatComesDuringDetachIsCut(t *testing.T) {
	t.Parallel()
	s := &session{id: "agent", conns: map[*connection]struct{}{}, known: map[string]*command{}}
	d := &daemon{sessions: map[string]*session{s.id: s}, expected: map[stream.ID]*shell{}}
	for range 2000 {
		id := stream.NewID()
		d.expected[id] = &shell{d: d, conn: newConnection(s)}
		theirs, ours := net.Pipe()
		var both sync.WaitGroup
		begun := make(chan struct{})
		both.Go(func() {
			close(begun)
			d.attach(id, ours)
		})
		<-begun
		if _, err := (&control{d: d}).Detach(t.Context(), &pb.DetachRequest{Session: s.id}); err != nil {
			t.Fatal(err)
		}
		both.Wait()
		_ = theirs.SetReadDeadline(time.Now().Add(5 * time.Second))
		for b := make([]byte, 1<<10); ; {
			if _, err := theirs.Read(b); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("it is still served")
			} else if err != nil {
				break
			}
		}
		_ = theirs.Close()
	}
}
