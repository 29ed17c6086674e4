package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/berth-eval/berth/core/store/node"
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
