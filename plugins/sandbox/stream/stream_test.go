package stream

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLabelSurvives(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Control, Supply, Shell, Accepted, Dialed, Refusal} {
		want := Label{Kind: kind, ID: NewID()}
		var b bytes.Buffer
		if err := want.Send(&b); err != nil {
			t.Fatal(err)
		}
		b.WriteString("rest")
		got, err := ReadLabel(&b)
		if err != nil || got != want || b.String() != "rest" {
			t.Errorf("kind %q: got %v, %v and %q left; want %v and \"rest\"", kind, got, err, b.String(), want)
		}
	}
}

func FuzzLabel(f *testing.F) {
	f.Add(Label{Kind: Shell, ID: NewID()}.bytes())
	f.Add([]byte("brt1X0123456789abcdef"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ReadLabel(bytes.NewReader(b))
		if err == nil && !bytes.Equal(l.bytes(), b[:labelSize]) {
			t.Errorf("read %v from %q, which is written %q", l, b, l.bytes())
		}
	})
}

// FuzzControlMessage: what comes with a label decides which descriptor is ours.
func FuzzControlMessage(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, unix.CmsgSpace(4)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= unix.CmsgLen(0) && b[8] == unix.SOL_SOCKET && b[12] == unix.SCM_RIGHTS {
			return // would close a descriptor of the test
		}
		if fd, err := descriptor(b); err == nil {
			t.Errorf("descriptor %d out of %x", fd, b)
		}
	})
}

// supply is both ends of a Supply connection.
func supply(t *testing.T) (*Giver, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		c, err := fileConn(fd)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn) //nolint:forcetypeassert // of a Unix socket
	}
	t.Cleanup(func() { _, _ = ends[0].Close(), ends[1].Close() })
	return NewGiver(ends[0]), ends[1]
}

func TestHandOverKeepsOrderAndLabels(t *testing.T) {
	t.Parallel()
	g, taken := supply(t)
	for i := range 50 {
		want := Label{Kind: Accepted, ID: NewID()}
		ours, err := g.Give(want)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = ours.Write([]byte{byte(i)}); err != nil { // before it is taken
			t.Fatal(err)
		}
		got, theirs, err := Take(taken)
		if err != nil || got != want {
			t.Fatalf("took %v, %v; want %v", got, err, want)
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(theirs, b); err != nil || b[0] != byte(i) {
			t.Fatalf("read %v, %v; want %d", b, err, i)
		}
		_, _ = ours.Close(), theirs.Close()
	}
}
