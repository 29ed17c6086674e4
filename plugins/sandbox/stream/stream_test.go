package stream

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

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

// supplies makes both kinds of hand-over.
func supplies(t *testing.T) map[string]func() (Giver, Taker) {
	t.Helper()
	pair := func() (*net.UnixConn, *net.UnixConn) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		var out [2]*net.UnixConn
		for i, fd := range fds {
			c, err := fileConn(fd)
			if err != nil {
				t.Fatal(err)
			}
			u, ok := c.(*net.UnixConn)
			if !ok {
				t.Fatalf("got a %T", c)
			}
			out[i] = u
		}
		return out[0], out[1]
	}
	return map[string]func() (Giver, Taker){
		"descriptors": func() (Giver, Taker) {
			a, b := pair()
			return NewGiver(a), NewTaker(b)
		},
		"yamux": func() (Giver, Taker) {
			a, b := pair()
			g, err := NewMuxGiver(a)
			if err != nil {
				t.Fatal(err)
			}
			k, err := NewMuxTaker(b)
			if err != nil {
				t.Fatal(err)
			}
			return g, k
		},
	}
}

func TestHandOverKeepsOrderAndLabels(t *testing.T) {
	t.Parallel()
	for name, open := range supplies(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k := open()
			defer g.Close()
			defer k.Close()
			for i := range 50 {
				want := Label{Kind: Accepted, ID: NewID()}
				ours, err := g.Give(want)
				if err != nil {
					t.Fatal(err)
				}
				if _, err = ours.Write([]byte{byte(i)}); err != nil { // before it is taken
					t.Fatal(err)
				}
				got, theirs, err := k.Take()
				if err != nil || got != want {
					t.Fatalf("took %v, %v; want %v", got, err, want)
				}
				b := make([]byte, 1)
				if _, err := io.ReadFull(theirs, b); err != nil || b[0] != byte(i) {
					t.Fatalf("read %v, %v; want %d", b, err, i)
				}
				_, _ = ours.Close(), theirs.Close()
			}
		})
	}
}

// A half-close must leave the other direction open: protocols end a request so.
func TestHalfCloseLeavesTheOtherDirection(t *testing.T) {
	t.Parallel()
	for name, open := range supplies(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := connected(t, open)
			half, ok := ours.(interface{ CloseWrite() error })
			if !ok {
				t.Fatalf("%T cannot half-close", ours)
			}
			if err := half.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(theirs); err != nil || len(b) > 0 {
				t.Fatalf("after a half-close: %q, %v; want the end", b, err)
			}
			if _, err := theirs.Write([]byte("answer")); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 6)
			if _, err := io.ReadFull(ours, b); err != nil || string(b) != "answer" {
				t.Fatalf("got %q, %v after our half-close; want the answer", b, err)
			}
		})
	}
}

// A close must end a Read that is under way on the same side, or revoking would
// leave a goroutine and its buffers behind.
func TestCloseEndsARead(t *testing.T) {
	t.Parallel()
	for name, open := range supplies(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, _ := connected(t, open)
			ended := make(chan error, 1)
			go func() {
				_, err := ours.Read(make([]byte, 1))
				ended <- err
			}()
			time.Sleep(10 * time.Millisecond) // most likely in the read by now; both orders must work
			_ = ours.Close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("a read after close got data")
				}
			case <-time.After(time.Minute):
				t.Error("close left a read hanging")
			}
		})
	}
}

// connected is one connection, both ends.
func connected(t *testing.T, open func() (Giver, Taker)) (ours, theirs net.Conn) {
	t.Helper()
	g, k := open()
	ours, err := g.Give(Label{Kind: Dialed})
	if err != nil {
		t.Fatal(err)
	}
	_, theirs, err = k.Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _, _ = ours.Close(), theirs.Close(), g.Close(), k.Close() })
	return ours, theirs
}
