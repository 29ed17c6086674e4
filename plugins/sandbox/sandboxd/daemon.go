// Package sandboxd is PID 1 of a sandbox. It connects to the core before any
// program of the sandbox runs and serves gRPC on the connections that the core
// makes.
//
// Everything else in the sandbox, including root, may be hostile. So this
// package must not: listen where the sandbox could connect (except for a Listen
// that the core asked for), parse text from the sandbox (except for passwd
// lines and the first line of a script), follow a path of the sandbox without
// openat2, start a program through os/exec (package pid1 does it), or leave a
// Go signal handler installed that it does not need.
package sandboxd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/become"
	"github.com/berth-eval/berth/plugins/sandbox/link"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pipe"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/port"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

// Where a control folder is mounted, and its contents.
const (
	Path   = "/berth/sandboxd"
	Socket = "/berth/sock"
)

// StreamArgument is an argument: with it sandboxd speaks yamux on standard input
// and output, for sandboxes in which nothing can be mounted at /berth.
const StreamArgument = "-stream"

// firstLease limits the time until the core's Hello.
const firstLease = 30 * time.Second

// without is set by tests that show what each protection prevents.
var without pid1.Without

// daemon is the state that all connections share.
type daemon struct {
	reap     *pid1.Reaper
	own      *pid1.Own
	findings []string
	born     int64 // see born()
	made     int64 // see changes.Made
	lease    *time.Timer
	over     chan error // the reason to end; has room for one

	ports port.Ports

	starts sync.RWMutex // read: a program is being started; write: Freeze begins

	mu       sync.Mutex
	sessions map[string]*session
	expected map[stream.ID]*shell  // announced by Attach, not connected yet
	commands map[*command]struct{} // running ones, of sessions and services
	services []*service            // in the order of their first start
	frozen   *freeze               // nil if not frozen
	turn     turn

	// past maps kernel sessions of ended commands to the sessions that started
	// them. It attributes processes that these commands left, until the kernel
	// reuses the number. It is only for reports and decides nothing.
	past      map[int]string
	pastLimit int // the length of past at which it is pruned next
}

// Serves reports whether Main with these arguments is the second half of
// sandboxd, which serves.
func Serves(args []string) bool { return len(args) > 0 && args[0] == become.RunName }

// Main runs sandboxd in either half. Under any name other than become.RunName
// it gives up privileges and executes itself under that name; that second half
// serves. With the argument system.Word it is a program for the files of the
// sandbox instead. For the first half (see Serves) the caller must have locked its
// goroutine to the first thread in an init function. The process exits with a
// non-zero status on an error.
func Main(args []string) error {
	if len(args) > 1 && args[1] == system.Word {
		return system.Inside(args[2:], os.Stdin, os.Stdout)
	}
	onStream := len(args) > 1 && args[1] == StreamArgument
	var err error
	switch {
	case !Serves(args):
		err = becomeServer(args, onStream)
	case onStream:
		var c io.ReadWriteCloser
		if c, err = standardStream(); err == nil {
			err = RunStream(c)
		}
	default:
		err = Run(Socket)
	}
	if err != nil {
		return fmt.Errorf("sandboxd: %w", err)
	}
	return nil
}

// becomeServer is the first half: it executes the second one.
func becomeServer(args []string, onStream bool) (err error) {
	path := Path
	if onStream { // there may be no /berth
		if path, err = os.Executable(); err != nil {
			return err
		}
	}
	if err = link.Open(); err != nil {
		return fmt.Errorf("network of the containers: %w", err)
	}
	return become.Become(path, args[min(1, len(args)):]...)
}

// Run dials the core at socket twice and serves until the core is gone or the
// lease has run out. Then the caller must end the process, and the kernel ends
// the rest of the sandbox. An error means that Run could not connect to a core.
//
// The order matters: threads and signals are made safe before the first
// connection, and no program of the sandbox runs before the core answers on it.
func Run(socket string) error {
	d, err := newDaemon()
	if err != nil {
		refuse(socket, err)
		return err
	}
	control, err := dial(socket, stream.Label{Kind: stream.Control})
	if err != nil {
		return err
	}
	supply, err := dial(socket, stream.Label{Kind: stream.Supply})
	if err != nil {
		return err
	}
	closeStandardFiles()
	go d.serveControl(control)
	return d.serve(stream.NewTaker(supply))
}

// RunStream is Run on one byte stream. The core opens all connections on it.
func RunStream(c io.ReadWriteCloser) error {
	d, err := newDaemon()
	if err != nil {
		return err
	}
	taker, err := stream.NewMuxTaker(c)
	if err != nil {
		return err
	}
	return d.serve(taker)
}

var (
	errLease = errors.New("the core's lease has run out")
	errCore  = errors.New("the core is gone")
)

// newDaemon prepares this process, which must already be PID 1 of a sandbox.
// Anywhere else, killing all processes would kill those of the machine.
func newDaemon() (*daemon, error) {
	if pid := os.Getpid(); pid != 1 {
		return nil, fmt.Errorf("this is process %d, and must be PID 1 of a sandbox's own pid namespace: "+
			"start the sandbox without an init of the engine's and without the host's processes", pid)
	}
	d := &daemon{
		over:     make(chan error, 1),
		sessions: map[string]*session{}, expected: map[stream.ID]*shell{},
		commands: map[*command]struct{}{}, past: map[int]string{}, pastLimit: fewPast,
		born: born(), made: changes.Made("/"), turn: turn{uids: map[uint32]bool{}},
	}
	d.lease = time.AfterFunc(firstLease, func() { d.stop(errLease) })
	d.reap, d.own, d.findings = pid1.Settle(without)
	_ = pipe.Null() // opened before the sandbox can replace /dev/null
	return d, nil
}

// stop ends the daemon. The first reason counts.
func (d *daemon) stop(why error) {
	select {
	case d.over <- why:
	default:
	}
}

// serve takes connections and returns at the end. It is not an error if the core is gone.
func (d *daemon) serve(from stream.Taker) error {
	go d.take(from)
	if err := <-d.over; !errors.Is(err, errCore) {
		return err
	}
	return nil
}

// take accepts connections until the core is gone.
func (d *daemon) take(from stream.Taker) {
	for controlled := false; ; {
		l, c, err := from.Take()
		if err != nil {
			d.stop(errCore)
			return
		}
		switch l.Kind {
		case stream.Shell:
			d.attach(l.ID, c)
		case stream.Accepted, stream.Dialed:
			d.ports.Supply(l, c)
		case stream.Control: // with descriptors sandboxd dials this one itself
			if !controlled {
				controlled = true
				go d.serveControl(c)
				continue
			}
			_ = c.Close()
		default:
			_ = c.Close()
		}
	}
}

func (d *daemon) serveControl(c net.Conn) {
	s := stream.NewServer()
	pb.RegisterSandboxControlServer(s, &control{d: d})
	stream.ServeOn(s, c)
	d.stop(errCore) // ends at once, even if calls are still running
}

// dial connects to the core and sends the label. It is used twice, before any
// program of the sandbox runs. Afterwards the core removes the socket.
//
// Dialing later, when other processes can connect, would have to handle EAGAIN:
// a Unix connect does not wait when the listener's queue is full, and net.Dial
// returns that error.
func dial(path string, label stream.Label) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("dial the core: %w", err)
	}
	if err := label.Send(c); err != nil {
		return nil, errors.Join(fmt.Errorf("label a connection to the core: %w", err), c.Close())
	}
	return c, nil
}

// refuse tells the core why sandboxd does not serve here. The core would wait in
// vain otherwise, and standard error may go nowhere.
func refuse(socket string, why error) {
	c, err := dial(socket, stream.Label{Kind: stream.Refusal})
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, why.Error())
}

// closeStandardFiles points 0, 1 and 2 at /dev/null. So it does not matter if
// an engine closes its log pipe, and commands never inherit these files.
func closeStandardFiles() {
	for fd := range 3 {
		if pipe.Null() > 2 {
			_ = unix.Dup3(pipe.Null(), fd, 0)
		}
	}
}

// standardStream returns standard input and output as one byte stream, on other
// descriptors.
func standardStream() (io.ReadWriteCloser, error) {
	var files [2]*os.File
	for fd := range files {
		moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 10)
		if err != nil {
			return nil, fmt.Errorf("standard file %d: %w", fd, err)
		}
		_ = syscall.SetNonblock(moved, true)
		files[fd] = os.NewFile(uintptr(moved), "stream")
	}
	closeStandardFiles()
	return duplex{files[0], files[1]}, nil
}

// duplex joins two files into one stream.
type duplex struct{ in, out *os.File }

func (d duplex) Read(b []byte) (int, error)  { return d.in.Read(b) }
func (d duplex) Write(b []byte) (int, error) { return d.out.Write(b) }
func (d duplex) Close() error                { return errors.Join(d.in.Close(), d.out.Close()) }
