package sandboxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// session is one agent or verifier. It keeps the commands that it started, by
// id, from the first Attach to the sandbox's end, over any number of
// connections.
type session struct {
	id   string
	ours bool // the core's or a verifier's, not an agent's

	mu    sync.Mutex
	conns map[*connection]struct{}
	known map[string]*command // by id: running and kept ones
	order []*command          // kept ones, oldest first

	started uint64 // number of programs
	refused string // why the first program that could not be started failed
}

// defaults apply to a session's commands unless a command sets its own.
type defaults struct {
	user string
	dir  string
	env  []string
	// grading: Read and ExecStart.sweep work.
	grading bool
	guarded bool // no other program of the sandbox can look into its commands
}

// connection is one Shell connection of a session.
type connection struct {
	net.Conn
	s      *session
	server *grpc.Server
	ended  chan struct{} // closed when no call is in progress any more
	leave  chan struct{} // closed when access is being cut

	mu    sync.Mutex
	cut   bool
	calls map[context.Context]bool // of each Exec that runs; true: the connection ended before the call did
}

func newConnection(s *session) *connection {
	return &connection{s: s, ended: make(chan struct{}), leave: make(chan struct{}), calls: map[context.Context]bool{}}
}

// maxSessions is more than the core makes in an attempt.
const maxSessions = 1024

// Attach announces a connection.
func (c *control) Attach(_ context.Context, q *pb.AttachRequest) (*pb.AttachReply, error) {
	id, err := stream.ParseID(q.GetLabel())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	dir := cmp.Or(string(q.GetDir()), "/")
	if q.GetSession() == "" || !strings.HasPrefix(dir, "/") {
		return nil, fmt.Errorf("%w: attach needs a session and an absolute folder, got %q and %q", fault.ErrInvalid, q.GetSession(), dir)
	}
	env, err := entries(q.GetEnv())
	if err != nil {
		return nil, err
	}
	def := defaults{user: q.GetUser(), dir: dir, env: env, grading: q.GetGrading(), guarded: q.GetGuarded()}
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[q.GetSession()]
	if s == nil {
		if len(d.sessions) >= maxSessions {
			return nil, fmt.Errorf("%w: %d sessions", fault.ErrNoRoom, len(d.sessions))
		}
		s = &session{id: q.GetSession(), ours: q.GetGrading(), conns: map[*connection]struct{}{}, known: map[string]*command{}}
		d.sessions[s.id] = s
	}
	d.expected[id] = &shell{d: d, defaults: def, conn: newConnection(s)}
	return &pb.AttachReply{}, nil
}

// attach serves a connection from the core.
func (d *daemon) attach(id stream.ID, c net.Conn) {
	d.mu.Lock() // held until Detach finds the connection in its session
	h := d.expected[id]
	delete(d.expected, id)
	if h == nil {
		d.mu.Unlock()
		_ = c.Close()
		return
	}
	conn, s := h.conn, h.conn.s
	conn.Conn, conn.server = c, stream.NewServer()
	pb.RegisterSandboxShellServer(conn.server, h)
	s.mu.Lock()
	s.conns[conn] = struct{}{}
	s.mu.Unlock()
	d.mu.Unlock()
	go func() {
		stream.Serve(conn.server, conn)
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		close(conn.ended)
	}()
}

const (
	// detachTime is how long a file operation that is in progress may take.
	detachTime = 5 * time.Second
	// lastWords is how long a client may take to read the output from before
	// access was cut.
	lastWords = time.Second
)

// Detach ends access. Processes that the session started keep running.
func (c *control) Detach(ctx context.Context, q *pb.DetachRequest) (*pb.DetachReply, error) {
	c.d.mu.Lock()
	s := c.d.sessions[q.GetSession()]
	for id, h := range c.d.expected {
		if h.conn.s == s {
			delete(c.d.expected, id)
		}
	}
	c.d.mu.Unlock()
	if s == nil {
		return &pb.DetachReply{}, nil
	}
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, conn := range conns {
		go conn.detach()
	}
	limit, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	for _, conn := range conns {
		select { // the goroutine of attach answers when the calls have ended
		case <-conn.ended:
		case <-limit.Done():
			return nil, fmt.Errorf("%w: a call of session %q is still being carried out", fault.ErrTimeout, s.id)
		}
	}
	return &pb.DetachReply{}, nil
}

// detach closes the connection. It first sends the clients of running commands
// the output so far and the error that access was cut, so that they know their
// output may be incomplete.
func (c *connection) detach() {
	c.lose()
	c.mu.Lock()
	talking := len(c.calls) > 0
	select {
	case <-c.leave:
		talking = false // a second Detach
	default:
		close(c.leave)
	}
	c.mu.Unlock()
	if talking {
		late := time.AfterFunc(lastWords, func() { _ = c.Close() })
		defer late.Stop()
		c.server.GracefulStop()
	}
	_ = c.Close()
}

// open returns the error for a call that comes while access is being cut.
func (c *connection) open() error {
	select {
	case <-c.leave:
		return errCut
	default:
		return nil
	}
}

// errCut is the error of a call that was running when access was cut.
var errCut = fmt.Errorf("%w: it was cut", fault.ErrRevoked)

// until returns a context that ends with ctx or when access is cut.
func (c *connection) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-c.leave:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Read notices the end of the connection before gRPC cancels its calls. A call
// that is cancelled then was not cancelled by its caller, so its command keeps
// running.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.lose()
	}
	return n, err
}

// Write does the same for a connection that breaks when it is written to.
func (c *connection) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		c.lose()
	}
	return n, err
}

// lose marks the calls that run now as cut off, not cancelled.
func (c *connection) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for ctx := range c.calls {
		if ctx.Err() == nil { // else its caller has just cancelled it
			c.calls[ctx] = true
		}
	}
}

// begin records a call, for lose, until end is called. cancelled reports whether the call,
// whose context has ended, was ended by its caller and not by the end of the connection.
func (c *connection) begin(ctx context.Context) (cancelled func() bool, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[ctx] = c.cut
	cancelled = func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.calls[ctx]
	}
	end = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.calls, ctx)
	}
	return cancelled, end
}

// starts records that the session tried to start a program or to use a user for
// it, and the result.
func (s *session) starts(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.started++
	case s.refused != "":
	case errors.Is(err, fault.ErrNoProgram), errors.Is(err, fault.ErrNotFound), errors.Is(err, fault.ErrDenied):
		s.refused = err.Error()
	}
}

// Starts returns what the session has started.
func (c *control) Starts(_ context.Context, q *pb.StartsRequest) (*pb.StartsReply, error) {
	c.d.mu.Lock()
	s := c.d.sessions[q.GetSession()]
	c.d.mu.Unlock()
	if s == nil {
		return &pb.StartsReply{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.StartsReply{Started: s.started, Refused: []byte(s.refused)}, nil
}

// maxKept is how many commands and terminals a session remembers.
const maxKept = 32

// add records a command by its id, if it has one.
func (s *session) add(c *command) error {
	if c.id == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[c.id] != nil {
		return fmt.Errorf("%w: command or terminal %q", fault.ErrExists, c.id)
	}
	if c.kept() {
		if len(s.order) >= maxKept && !s.forget() {
			return fmt.Errorf("%w: %d commands and terminals are kept and run", fault.ErrNoRoom, maxKept)
		}
		s.order = append(s.order, c)
	}
	s.known[c.id] = c
	return nil
}

// forget removes the oldest kept command that has ended. The caller holds the
// lock.
func (s *session) forget() bool {
	i := slices.IndexFunc(s.order, (*command).over)
	if i < 0 {
		return false
	}
	delete(s.known, s.order[i].id)
	s.order = slices.Delete(s.order, i, i+1)
	return true
}

// remove removes a command that has ended and is not kept, or that did not
// start.
func (s *session) remove(c *command) {
	if c.id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, c.id)
	s.order = slices.DeleteFunc(s.order, func(k *command) bool { return k == c })
}

// find returns the command with an id.
func (s *session) find(id string) (*command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.known[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("%w: no command or terminal %q", fault.ErrNotFound, id)
}
