// Package cdp is a client of the Chrome DevTools Protocol on a pipe: messages in
// JSON, each of which ends with a zero byte (--remote-debugging-pipe). So nothing
// listens, and no other process can drive the browser.
//
// Messages are decoded into the caller's own types. Generated types reject
// replies of browsers that are newer than they are.
package cdp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxMessage bounds a message of the browser, in bytes: a screenshot, or the
// snapshot of a large page.
const maxMessage = 256 << 20

// queued is how many messages may wait for a browser that reads slowly.
const queued = 64

// ErrClosed means that the browser has ended, or closed its pipe.
var ErrClosed = errors.New("the browser has ended")

// Error is the browser's answer to a call that it refuses.
type Error struct {
	Method  string `json:"-"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Method, e.Message) }

// Event is something that happened in a target.
type Event struct {
	Session string // of the target; empty: the browser
	Method  string
	Params  json.RawMessage
}

// Conn is a connection to a browser. It is safe for concurrent use.
type Conn struct {
	queue  chan []byte // to be written
	events func(Event)

	mu     sync.Mutex
	next   int64
	calls  map[int64]chan reply
	closed error // why; nil: it is open
	done   chan struct{}
}

type reply struct {
	result json.RawMessage
	err    *Error
}

type message struct {
	ID      int64           `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// New returns a connection on a pipe. events is called for each event, in their
// order, by one goroutine; it must not call Do and wait.
func New(in io.Reader, out io.Writer, events func(Event)) *Conn {
	c := &Conn{queue: make(chan []byte, queued), events: events, calls: map[int64]chan reply{}, done: make(chan struct{})}
	go c.read(in)
	go c.write(out)
	return c
}

// Done is closed when the browser has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

func (c *Conn) read(in io.Reader) {
	err := c.messages(bufio.NewReaderSize(in, 64<<10))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = ErrClosed
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		c.closed = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	close(c.done)
}

// write ends when a write fails, or the browser has ended.
func (c *Conn) write(out io.Writer) {
	for {
		select {
		case text := <-c.queue:
			if _, err := out.Write(text); err != nil {
				return // the browser has ended, which the reader sees, too
			}
		case <-c.done:
			return
		}
	}
}

// messages handles messages until it fails.
func (c *Conn) messages(in *bufio.Reader) error {
	var text []byte
	for {
		part, err := in.ReadSlice(0)
		if text = append(text, part...); len(text) > maxMessage {
			return fmt.Errorf("a message of more than %d MiB", maxMessage>>20)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		if err = c.take(text[:len(text)-1]); err != nil {
			return err
		}
		text = nil // Result and Params point into it
	}
}

func (c *Conn) take(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("a message that is not JSON: %w", err)
	}
	if m.ID == 0 {
		c.events(Event{Session: m.Session, Method: m.Method, Params: m.Params})
		return nil
	}
	c.mu.Lock()
	waits := c.calls[m.ID]
	delete(c.calls, m.ID)
	c.mu.Unlock()
	if waits != nil { // a call that was given up has no receiver
		waits <- reply{result: m.Result, err: m.Error}
	}
	return nil
}

// Do calls a method of a target, or of the browser if session is empty, and
// decodes the result into out unless that is nil. It fails with *Error if the
// browser refuses the call, and with ErrClosed if it has ended.
func (c *Conn) Do(ctx context.Context, session, method string, params, out any) error {
	return c.Begin(ctx, session, method, params)(out)
}

// Begin sends a call, and returns a function that waits for its result as Do does.
// The browser gets calls in the order in which they begin. It may answer one only
// after a later one.
func (c *Conn) Begin(ctx context.Context, session, method string, params any) (result func(out any) error) {
	fails := func(err error) func(any) error {
		return func(any) error { return fmt.Errorf("%s: %w", method, err) }
	}
	m := message{Session: session, Method: method}
	if params != nil {
		text, err := json.Marshal(params)
		if err != nil {
			return fails(err)
		}
		m.Params = text
	}
	got := make(chan reply, 1)
	text, err := c.number(&m, got)
	if err != nil {
		return fails(err)
	}
	select {
	case c.queue <- text:
	case <-c.done: // which wait sees
	case <-ctx.Done():
		c.forget(m.ID)
		return fails(context.Cause(ctx))
	}
	return func(out any) error {
		defer c.forget(m.ID)
		r, err := c.wait(ctx, got)
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		return r.into(method, out)
	}
}

func (c *Conn) wait(ctx context.Context, got chan reply) (reply, error) {
	select {
	case r := <-got:
		return r, nil
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	case <-c.done:
	}
	select {
	case r := <-got: // it came right before the end
		return r, nil
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		return reply{}, c.closed
	}
}

// forget gives up a call: its result is dropped.
func (c *Conn) forget(id int64) {
	c.mu.Lock()
	delete(c.calls, id)
	c.mu.Unlock()
}

func (r *reply) into(method string, out any) error {
	if r.err != nil {
		r.err.Method = method
		return r.err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(r.result, out); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// number gives a message its id, and returns it as it is sent.
func (c *Conn) number(m *message, got chan reply) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return nil, c.closed
	}
	c.next++
	m.ID = c.next
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	c.calls[m.ID] = got
	return append(text, 0), nil
}
