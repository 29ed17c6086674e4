package chat

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	wire "github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/answer"
	"github.com/berth-eval/berth/plugins/output"
)

// maxReply is the largest size of a reply, in bytes.
const maxReply = 32 << 20

// Tries and pauses of a request that is retried. The gateway keeps to the
// provider's rate limits; these handle the errors that still occur.
const (
	maxTries   = 6
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
)

// Client is a Model at an endpoint.
type Client struct {
	http    *http.Client
	base    string
	end     model.Endpoint
	extra   map[string]json.RawMessage
	dialect dialect
	pause   time.Duration // before the second try
	plain   atomic.Bool   // the endpoint takes no schema
}

var _ Model = (*Client)(nil)

// dialect turns conversations into requests and answers into replies.
type dialect interface {
	path(name string) string
	authorize(h http.Header, token string)
	request(name string, r Request) map[string]any
	format(request object, s *schema) // asks for a reply that matches
}

// spoken are the dialects of this client.
var spoken = map[model.Dialect]dialect{
	model.DialectOpenAIChat: openaiChat{}, model.DialectScript: openaiChat{}, model.DialectAnthropic: anthropic{},
	model.DialectOpenAI: openai{}, model.DialectGemini: gemini{},
}

// Dial makes a client of an endpoint. It sends nothing yet. It fails if the
// endpoint has no address on the host or speaks a dialect that is not among
// Dialects.
func Dial(e model.Endpoint) (*Client, error) {
	c := &Client{end: e, pause: firstPause}
	if c.dialect = spoken[e.Dialect]; c.dialect == nil {
		return nil, fmt.Errorf("model %q speaks %q: this client speaks %v", e.Name, e.Dialect, Dialects())
	}
	if len(e.Parameters) > 0 {
		if err := json.Unmarshal(e.Parameters, &c.extra); err != nil {
			return nil, fmt.Errorf("parameters of model %q are not a JSON object: %w", e.Name, err)
		}
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: 10 * time.Second}
	switch address := e.Host; {
	case strings.HasPrefix(address, "unix:"):
		path := strings.TrimPrefix(address, "unix:")
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
		c.base = "http://gateway"
	case strings.HasPrefix(address, "http://"), strings.HasPrefix(address, "https://"):
		c.base = strings.TrimSuffix(address, "/")
	default:
		return nil, fmt.Errorf("model %q has no address on the host: its endpoint says %q", e.Name, address)
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ask implements Model.
func (c *Client) Ask(ctx context.Context, r Request) (Reply, error) {
	if len(r.Schema) > 0 {
		return c.matching(ctx, r)
	}
	return c.ask(ctx, r)
}

func (c *Client) ask(ctx context.Context, r Request) (Reply, error) {
	r.Messages = slices.Clone(r.Messages)
	for i := range r.Messages {
		r.Messages[i].fill()
	}
	question := c.dialect.request(c.end.Name, r)
	for k, v := range c.extra {
		question[k] = v
	}
	if r.wide {
		widen(question, r.MaxTokens)
	}
	if r.schema != nil {
		c.dialect.format(question, r.schema)
	}
	body, err := json.Marshal(question)
	if err != nil {
		return Reply{}, fmt.Errorf("ask model %q: %w", c.end.Name, err)
	}
	pause := c.pause
	for try := 1; ; try++ {
		reply, failed := c.once(ctx, body)
		if failed == nil {
			reply.Tries = try
			return reply, nil
		}
		if ctx.Err() != nil {
			return Reply{}, fmt.Errorf("ask model %q: %w", c.end.Name, context.Cause(ctx))
		}
		if !failed.again || try == maxTries {
			return Reply{}, fmt.Errorf("ask model %q: %w", c.end.Name, failed.because(try))
		}
		wait := max(failed.after, pause/2+rand.N(pause/2+1))
		if err := sleep(ctx, min(wait, maxPause)); err != nil {
			return Reply{}, fmt.Errorf("ask model %q: %w", c.end.Name, err)
		}
		pause = min(2*pause, maxPause)
	}
}

// failure is a try that gave no reply.
type failure struct {
	err   error
	again bool          // another try may succeed
	after time.Duration // wait at least this long; 0: not known
}

func (f *failure) because(tries int) error {
	if !f.again {
		return f.err
	}
	return fmt.Errorf("%w after %d tries: %w", ErrUnavailable, tries, f.err)
}

// once sends one request.
func (c *Client) once(ctx context.Context, body []byte) (Reply, *failure) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+c.dialect.path(c.end.Name), bytes.NewReader(body))
	if err != nil {
		return Reply{}, &failure{err: err}
	}
	q.Header.Set("Content-Type", "application/json")
	c.dialect.authorize(q.Header, c.end.Token)
	resp, err := c.http.Do(q)
	if err != nil {
		return Reply{}, &failure{err: err, again: true}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return Reply{}, &failure{err: fmt.Errorf("the reply broke off: %w", err), again: true}
	case len(body) > maxReply:
		return Reply{}, &failure{err: fmt.Errorf("%w: the reply is larger than %d MiB", ErrRefused, maxReply>>20)}
	case resp.StatusCode != http.StatusOK:
		return Reply{}, refusal(resp, body)
	}
	return read(c.end.Dialect, body)
}

// read reads a reply. An error that the provider states in its place may be over
// soon. What has been paid for, and what cannot be read, is not asked for again: the
// next reply would have the same form.
func read(d model.Dialect, body []byte) (Reply, *failure) {
	p, ok := answer.Read(d, body)
	switch {
	case p.Error != "":
		err := fmt.Errorf("the provider failed: %s", output.First(p.Error, maxSaid))
		if in, _, _, _ := p.Usage.Known(); in != nil {
			return Reply{}, &failure{err: fmt.Errorf("%w: %w", ErrUnavailable, err)}
		}
		return Reply{}, &failure{err: err, again: true}
	case !ok:
		return Reply{}, &failure{err: fmt.Errorf("%w: the reply is not a JSON object: %q", ErrUnavailable, output.First(string(body), maxSaid))}
	case !p.Message:
		return Reply{}, &failure{err: fmt.Errorf("%w: the reply holds no message that can be read: %q", ErrUnavailable, output.First(string(body), maxSaid))}
	}
	r := Reply{Text: p.Text, Thinking: p.Thinking, Model: p.Model, Stop: Done, last: p.Last}
	switch p.Stop {
	case answer.Length:
		r.Stop = Length
	case answer.Refused:
		r.Stop = Refused
	case answer.Done:
	}
	for _, c := range p.Calls {
		if c.ID == "" {
			c.ID = fmt.Sprintf("%s%s-%d", ownID, c.Name, len(r.Calls))
		}
		r.Calls = append(r.Calls, Call(c))
	}
	if r.last == "" {
		r.last = r.Text
	}
	r.Usage.Input, r.Usage.Cached, r.Usage.Output, r.Usage.Reasoning = p.Usage.Known()
	return r, nil
}

// tooLong matches the messages with which providers say that a conversation
// does not fit.
var tooLong = regexp.MustCompile(`(?i)context[_ ](length|window)|too (long|many (input )?tokens)|maximum (context|number of tokens)|prompt is longer|input length .* exceed`)

// refusal converts an answer with an error status.
func refusal(resp *http.Response, body []byte) *failure {
	said := output.First(cmp.Or(answer.Problem(body), string(body)), maxSaid)
	err := fmt.Errorf("status %d: %s", resp.StatusCode, said)
	switch status := resp.StatusCode; {
	case (status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge) && tooLong.MatchString(string(body)):
		return &failure{err: fmt.Errorf("%w: %w", ErrTooLong, err)}
	case (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity) && noFormat.MatchString(said):
		return &failure{err: fmt.Errorf("%w: %w: %w", ErrRefused, errFormat, err)}
	case resp.Header.Get("X-Should-Retry") == "false":
		return &failure{err: fmt.Errorf("%w: %w", ErrRefused, err)}
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
		after := wire.RetryAfter(resp.Header)
		if after > maxPause { // the gateway has waited for as long as it makes sense
			return &failure{err: fmt.Errorf("%w: %w, and it asks to wait %s", ErrUnavailable, err, wire.Roughly(after))}
		}
		return &failure{err: err, again: true, after: after}
	default:
		return &failure{err: fmt.Errorf("%w: %w", ErrRefused, err)}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errFormat means that an endpoint takes no schema for replies.
var errFormat = errors.New("it takes no schema")

// sum adds up two amounts, of which the first is known.
func sum(a, b *int64) *int64 {
	n := *a
	if b != nil {
		n += *b
	}
	return &n
}
