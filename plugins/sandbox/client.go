package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Client is one session of a sandbox. Safe for concurrent use.
type Client struct {
	conn   io.Closer // nil: the caller's
	shell  pb.SandboxShellClient
	socket string // of Dial; empty: a single connection
}

// Dial returns a client for an address that the core passed: "unix:/path". It
// does not connect yet. The client may be kept between turns: calls then fail
// with ErrRevoked and work again in the next turn.
func Dial(address string) (*Client, error) {
	path, ok := strings.CutPrefix(address, "unix:")
	if path = strings.TrimPrefix(path, "//"); !ok || path == "" {
		return nil, fmt.Errorf("sandbox address %q: want unix:/path, as the core passes it", address)
	}
	conn, err := stream.ClientOn(path, func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, shell: pb.NewSandboxShellClient(conn), socket: path}, nil
}

// New returns a client on one connection to sandboxd and owns the connection.
// It is for hosts of sandboxes; plugins use Dial.
func New(c net.Conn) (*Client, error) {
	conn, err := stream.Client(c)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, shell: pb.NewSandboxShellClient(conn)}, nil
}

// Over returns a client on a connection that the caller owns and on which
// sandboxd serves a session. It is for hosts of sandboxes.
func Over(c grpc.ClientConnInterface) *Client { return &Client{shell: pb.NewSandboxShellClient(c)} }

// Close closes the connection if the client owns it. It kills no command: the
// core decides about commands that are still running.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// Signal sends a signal to the process group of a command or terminal.
func (c *Client) Signal(ctx context.Context, id string, signal syscall.Signal) error {
	_, err := c.shell.Signal(ctx, &pb.SignalRequest{Id: id, Signal: int32(signal)})
	return c.failed(ctx, fmt.Sprintf("signal %q", id), err)
}

// Kill kills a command or terminal with all its descendants and returns when
// its first process is dead.
func (c *Client) Kill(ctx context.Context, id string) error {
	_, err := c.shell.Signal(ctx, &pb.SignalRequest{Id: id, Tree: true})
	return c.failed(ctx, fmt.Sprintf("kill %q", id), err)
}

// Stat returns information about path and follows links. A relative path starts
// at the session's folder.
func (c *Client) Stat(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, true)
}

// Lstat is Stat without following a link.
func (c *Client) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, false)
}

func (c *Client) stat(ctx context.Context, path string, follow bool) (FileInfo, error) {
	r, err := c.shell.Stat(ctx, &pb.StatRequest{Path: []byte(path), Follow: follow})
	if err != nil {
		return FileInfo{}, c.failed(ctx, "stat", err)
	}
	i := r.GetInfo()
	return FileInfo{Kind: Kind(i.GetKind()), Bytes: i.GetBytes(), Mode: fs.FileMode(i.GetMode()) & fs.ModePerm, Target: string(i.GetTarget())}, nil
}

// failed returns the error of a call with its sentinel. A broken connection
// does not tell the reason, so failed asks the relay whether access was
// revoked.
func (c *Client) failed(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	err = fault.Sandbox.Decode(err)
	if errors.Is(err, ErrGone) && c.socket != "" {
		if _, missing := os.Lstat(c.socket); missing != nil {
			return fmt.Errorf("%s: %w: the session has ended", op, ErrRevoked)
		}
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, why := c.shell.Stat(limit, &pb.StatRequest{Path: []byte("/")})
		if why = fault.Sandbox.Decode(why); errors.Is(why, ErrRevoked) {
			return fmt.Errorf("%s: %w", op, why)
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}

// newID names a command for its own cancel.
func newID() string { return "-" + rand.Text() }
