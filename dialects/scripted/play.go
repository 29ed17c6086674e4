package scripted

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/berth-eval/berth/plugins/dialect"
)

// bytesPerToken estimates the number of tokens of a text. Scripts for
// measurements state their usage.
const bytesPerToken = 4

// Send answers a request as a provider would. The body of the answer ends when
// ctx ends.
func (s *Session) Send(ctx context.Context, q dialect.Request) (*http.Response, error) {
	voice, ok := q.Dialect.(Voice)
	if !ok {
		return nil, fmt.Errorf("a scripted model does not speak %s", q.Dialect.Name())
	}
	body := q.Body.Without(q.Dialect.Fleeting()) // members that differ from run to run have no effect
	if q.Call.Kind == dialect.Count {
		return whole(http.StatusOK, nil, voice.Counted(estimate(len(body)))), nil
	}
	t, err := Read(q.Body)
	if err == nil {
		var r *Reply
		if r, err = s.next(t); err == nil {
			return r.play(ctx, voice, q, r.speech(q, t, body))
		}
	}
	f := q.Dialect.Failure(dialect.Failure{Kind: dialect.BadRequest, Message: err.Error()})
	return whole(f.Status, f.Header, f.Body), nil
}

func estimate(size int) int64 { return int64(size/bytesPerToken + 1) }

func whole(status int, h http.Header, body []byte) *http.Response {
	if h == nil {
		h = http.Header{"Content-Type": {"application/json"}}
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(bytes.NewReader(body))}
}

func (r *Reply) play(ctx context.Context, voice Voice, q dialect.Request, speech Speech) (*http.Response, error) {
	if err := sleep(ctx, time.Duration(r.Delay)); err != nil {
		return nil, err
	}
	switch {
	case r.Break == "drop":
		return nil, dialect.ErrDropped
	case r.Error != nil:
		return r.Error.response(q.Dialect), nil
	}
	p := &player{ctx: ctx, pace: time.Duration(r.Pace), how: r.Break}
	h := http.Header{"Content-Type": {"application/json"}}
	switch {
	case q.Call.Array:
		p.events = array(voice.Stream(speech))
	case q.Facts.Stream:
		h.Set("Content-Type", "text/event-stream")
		p.events = voice.Stream(speech)
	default:
		p.events = [][]byte{voice.Whole(speech)}
	}
	if r.Raw != "" {
		p.events = [][]byte{[]byte(r.Raw)}
	}
	p.spoil()
	h.Set("Request-Id", "req_"+speech.ID)
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: p}, nil
}

// array makes one JSON array from the data of events.
func array(events [][]byte) [][]byte {
	out := make([][]byte, len(events))
	for i, e := range events {
		before, after := ",\n", ""
		if i == 0 {
			before = "["
		}
		if i == len(events)-1 {
			after = "]"
		}
		data := bytes.TrimSpace(bytes.TrimPrefix(e, []byte("data: ")))
		out[i] = slices.Concat([]byte(before), data, []byte(after))
	}
	return out
}

// speech converts the reply to the form that dialects use.
func (r *Reply) speech(q dialect.Request, t Talk, body []byte) Speech {
	sum := sha256.Sum256(body)
	s := Speech{
		ID: fmt.Sprintf("%d_%s", t.Turn, hex.EncodeToString(sum[:5])), Model: q.Facts.Model, Thinking: r.Thinking, Text: r.Text,
		Stop: Stop(r.Stop), Chunk: r.Chunk,
	}
	size := len(r.Thinking) + len(r.Text)
	for _, c := range r.Tools {
		args := c.Arguments
		if args == nil {
			args = map[string]any{}
		}
		call := ToolCall{Name: c.Name, Arguments: dialect.JSON(args)}
		_, call.Custom = args.(string)
		size += len(call.Arguments)
		s.Tools = append(s.Tools, call)
	}
	s.Usage = dialect.Usage{Input: estimate(len(body)), Output: estimate(size)}
	if u := r.Usage; u != nil {
		s.Usage = dialect.Usage(*u)
	}
	return s
}

func (e *Error) response(d dialect.Dialect) *http.Response {
	kind := dialect.BadRequest
	switch {
	case e.Status == http.StatusTooManyRequests || e.Status == 529:
		kind = dialect.Overloaded
	case e.Status >= 500:
		kind = dialect.Unreachable
	}
	message := e.Message
	if message == "" {
		message = "scripted error " + strconv.Itoa(e.Status)
	}
	f := d.Failure(dialect.Failure{Kind: kind, Message: message})
	if e.Body != "" {
		f.Body = []byte(e.Body)
	}
	f.Header.Del("X-Should-Retry")
	if e.RetryAfter > 0 {
		f.Header.Set("Retry-After", strconv.FormatFloat(math.Ceil(time.Duration(e.RetryAfter).Seconds()), 'f', 0, 64))
	}
	return whole(e.Status, f.Header, f.Body)
}

// player is the body of an answer that is sent event by event.
type player struct {
	ctx    context.Context //nolint:containedctx // of one answer: a body has no other way to know that it is over
	events [][]byte
	pace   time.Duration
	how    string
	begun  bool
	left   []byte
}

// spoil breaks the events in the way that the script requests.
func (p *player) spoil() {
	n := len(p.events)
	switch p.how {
	case "cut", "stall": // in the middle of the middle event
		p.events = p.events[:n/2+1]
		middle := p.events[n/2]
		p.events[n/2] = middle[:len(middle)/2]
	case "garbage":
		p.events = append(p.events[:n/2:n/2], append([][]byte{[]byte("data: {\"type\": \"never ends\n\n")}, p.events[n/2:]...)...)
	case "no_end":
		p.events = p.events[:n-1]
	}
}

// Read implements io.Reader.
func (p *player) Read(b []byte) (int, error) {
	for len(p.left) == 0 {
		if len(p.events) == 0 {
			return 0, p.end()
		}
		if p.begun {
			if err := sleep(p.ctx, p.pace); err != nil {
				return 0, err
			}
		}
		p.begun = true
		p.left, p.events = p.events[0], p.events[1:]
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

func (p *player) end() error {
	switch p.how {
	case "cut":
		return io.ErrUnexpectedEOF
	case "stall":
		<-p.ctx.Done()
		return context.Cause(p.ctx)
	default:
		return io.EOF
	}
}

// Close implements io.Closer.
func (p *player) Close() error { return nil }

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
