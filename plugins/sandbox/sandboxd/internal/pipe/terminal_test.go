package pipe

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
)

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
