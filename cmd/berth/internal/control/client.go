package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/runtimedir"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Client asks the process that runs a run. It is safe for concurrent use.
type Client struct {
	dir    string
	socket string
	http   *http.Client
}

// Bounds of a client.
const (
	patience  = 30 * time.Second // for an answer
	maxAnswer = 4 << 20          // bytes
)

// Find finds the process that runs the run in dir. Fails with ErrNoProcess if there is
// none on this machine; the process may also end at any later moment.
func Find(dir string) (*Client, error) {
	p, err := pointed(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoProcess
	}
	if err != nil {
		return nil, err
	}
	switch p.Process.State() {
	case node.Dead:
		return nil, ErrNoProcess
	case node.Unknown:
		return nil, fmt.Errorf("%w on this machine: %s runs it, or did. Give the command there", ErrNoProcess, p.Process)
	default:
	}
	switch err = ours(p.Socket); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoProcess
	case err != nil:
		return nil, fmt.Errorf("only the user who runs a run can control it: %w", err)
	}
	c := &Client{dir: dir, socket: p.Socket}
	c.http = &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
		},
		MaxIdleConns: 4, IdleConnTimeout: 10 * time.Second,
	}}
	return c, nil
}

// Socket is the path of the socket.
func (c *Client) Socket() string { return c.socket }

// Status returns the state of the run.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	out := &Status{}
	return out, c.ask(ctx, http.MethodGet, "/status", nil, out)
}

// Do asks for a change, which has taken effect when Do returns. Fails with a
// *RefusedError if the run refuses it, and with ErrNoProcess if the process is gone;
// after any other error it is not known whether something was changed.
func (c *Client) Do(ctx context.Context, r Request) (*Answer, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	out := &Answer{}
	return out, c.ask(ctx, http.MethodPost, "/do", b, out)
}

// ask sends one request.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://run"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
		return ErrNoProcess
	case err != nil:
		return fmt.Errorf("ask the process that runs %s: %w", c.dir, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil && res.StatusCode != http.StatusOK {
		said := refusal{}
		if json.Unmarshal(b, &said) != nil || said.Error == "" {
			said.Error = res.Status
		}
		return &RefusedError{said.Error}
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("the answer of the process that runs %s: %w", c.dir, err)
	}
	return nil
}

// Close gives up connections that are kept for the next request. It may be called
// at any time, and the client still works afterwards.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// PointerFile is the file in the folder of a run that says where its socket is,
// while a process runs it: the path of a socket has at most 107 bytes, and that of a
// run may have more. After a kill it stays until the run is resumed.
const PointerFile = "control.json"

// maxPointer is the largest size of PointerFile in bytes.
const maxPointer = 8 << 10

// socketsDir is the folder of the sockets in the runtime folder.
const socketsDir = "c"

// socketName returns the file name of the socket of the run in dir. It depends on
// where the folder really is: a copy of a run has another socket.
func socketName(dir string) (string, error) {
	folder, err := filepath.EvalSymlinks(dir)
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:8]), nil
}

// newSocket returns a path for the socket of the run in dir, in a folder of this user
// alone. It removes a socket that a killed process left; the caller has the lock of
// the run, so that no other process serves it.
func newSocket(dir string) (string, error) {
	name, err := socketName(dir)
	if err != nil {
		return "", err
	}
	runtime, err := node.Dir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(runtime, socketsDir)
	if err = runtimedir.Make(folder); err != nil {
		return "", err
	}
	path := filepath.Join(folder, name)
	if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return path, err
}

// pointed reads the pointer of the run in dir. A run folder may be of another user,
// who must not choose which of this user's sockets gets requests: the socket has to
// be the run's own, and in a folder of this user alone.
func pointed(dir string) (*output.CtlPointer, error) {
	b, err := untrusted.Read(dir, PointerFile, maxPointer)
	if err != nil {
		return nil, err
	}
	p := &output.CtlPointer{}
	if err = json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, PointerFile), err)
	}
	name, err := socketName(dir)
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(p.Socket) || filepath.Base(p.Socket) != name || filepath.Base(filepath.Dir(p.Socket)) != socketsDir {
		return nil, fmt.Errorf("%s: %q is not the socket of this run", filepath.Join(dir, PointerFile), p.Socket)
	}
	return p, nil
}

// ours returns why a socket, or its folder, is not this user's alone.
func ours(socket string) error {
	if err := runtimedir.Ours(filepath.Dir(socket)); err != nil {
		return err
	}
	info, err := os.Lstat(socket)
	if err != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is not a socket", socket)
	case !ok || int(of.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", socket)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others (mode %#o)", socket, info.Mode().Perm())
	}
	return nil
}

// NameOf returns the login name of a user, or the number of one that has no account
// on this machine.
func NameOf(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	if login := os.Getenv("USER"); login != "" && uid == os.Getuid() {
		return login // from a directory service, which this program cannot ask
	}
	return strconv.Itoa(uid)
}
