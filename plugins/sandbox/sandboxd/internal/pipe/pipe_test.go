package pipe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
)

// open is a set whose ends of the command are ours, too.
func open(t *testing.T) (s *Set, said *os.File, out *Output) {
	t.Helper()
	s, err := Open([3]bool{true, true, true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	fd, err := syscall.Dup(s.theirs[1])
	if err != nil {
		t.Fatal(err)
	}
	s.CloseTheirs()
	said = os.NewFile(uintptr(fd), "stdout")
	t.Cleanup(func() { _ = said.Close() })
	return s, said, &Output{File: s.Take(1, "stdout")}
}

func TestReadsToTheEnd(t *testing.T) {
	t.Parallel()
	_, said, out := open(t)
	want := bytes.Repeat([]byte("0123456789"), 300_000)
	go func() {
		_, _ = said.Write(want)
		_ = said.Close()
	}()
	var got bytes.Buffer
	out.Copy(func(b []byte) error { got.Write(b); return nil })
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got %d bytes, want %d", got.Len(), len(want))
	}
}

// What was said before the end is all there; a child that says more is drained,
// and not waited for.
func TestEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	_, said, out := open(t)
	if _, err := said.WriteString("before"); err != nil {
		t.Fatal(err)
	}
	out.End()
	var got bytes.Buffer
	out.Copy(func(b []byte) error { got.Write(b); return nil })
	if got.String() != "before" {
		t.Errorf("got %q", got.String())
	}
	for range 100 { // more than a pipe holds: somebody reads, and the pipe stands
		if _, err := said.Write(make([]byte, 64<<10)); err != nil {
			t.Fatalf("a child that is left gets %v", err)
		}
	}
	if got.Len() != 6 {
		t.Errorf("output after the end was passed on: %d bytes", got.Len())
	}
}

// A client that is gone must not block the command.
func TestReadsOnAfterTheSinkFails(t *testing.T) {
	t.Parallel()
	_, said, out := open(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		out.Copy(func([]byte) error { return errors.New("gone") })
	}()
	for range 100 {
		if _, err := said.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	_ = said.Close()
	<-done
}

func TestInputSwallowsWhatNobodyReads(t *testing.T) {
	t.Parallel()
	s, err := Open([3]bool{true, true, true})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{}
	in.Write([]byte("before it has a file"))
	in.Set(s.Take(0, "stdin"))
	written := make(chan struct{})
	go func() {
		in.Write(make([]byte, 1<<20)) // more than a pipe holds
		close(written)
	}()
	select {
	case <-written:
		t.Error("a megabyte went into a pipe that nobody reads")
	case <-time.After(20 * time.Millisecond):
	}
	in.Close()
	<-written
	in.Write([]byte("after"))
	s.Close()
}

// On a busy machine reading takes longer than a terminal may linger. What the
// command wrote before it ended is read all the same.
func TestATerminalWithoutWritersIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		testlevel.Cannot(t, "there are no terminals here: mount -t devpts devpts /dev/pts", err)
	}
	out := &Output{File: os.NewFile(uintptr(master), "terminal"), Terminal: true}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789"), 600)
	if _, err = said.Write(want); err != nil {
		t.Fatal(err)
	}
	_ = said.Close()
	out.End()
	var got bytes.Buffer
	out.Copy(func(b []byte) error {
		time.Sleep(2 * lingering) // the reader is slower than the product lingers
		got.Write(b)
		return nil
	})
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got %d bytes, want %d", got.Len(), len(want))
	}
}
