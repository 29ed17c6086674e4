package plugin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/metadata"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/plugins"
)

// Bounds of what a plugin can make us log.
const (
	maxLine      = 64 << 10 // bytes of one line; the rest is cut off
	maxPerSecond = 200      // lines; the rest is counted
	maxWords     = 20       // last lines that are kept for error messages
	maxWord      = 2 << 10  // bytes of each of them
)

// lines logs the output of a plugin, line by line. A JSON object with the keys
// of hclog becomes a record; any other line is logged at level debug.
type lines struct {
	log    zerolog.Logger
	stream string
	child  *child

	mu      sync.Mutex
	partial []byte // line that Write has not seen the end of
	last    []string
	second  time.Time // beginning of the second that is being counted
	count   int
	dropped int
}

func newLines(c *child, log zerolog.Logger, stream string) *lines {
	return &lines{log: log.With().Str("stream", stream).Logger(), stream: stream, child: c}
}

// readFrom logs every line until the end; lines longer than the buffer of r are
// cut. It also reads the lines that it drops, because a full pipe would block
// the plugin.
func (l *lines) readFrom(r *bufio.Reader) {
	cut := false
	for {
		piece, err := r.ReadSlice('\n')
		if !cut && len(piece) > 0 {
			l.line(piece)
		}
		cut = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !cut {
			l.flush()
			return
		}
	}
}

// Write accepts pieces of any size: the output that a plugin writes to stderr
// through go-plugin's stdio service.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.partial = append(l.partial, p...)
	var whole [][]byte
	for {
		i := bytes.IndexByte(l.partial, '\n')
		if i < 0 {
			break
		}
		whole = append(whole, slices.Clone(l.partial[:i]))
		l.partial = l.partial[i+1:]
	}
	if len(l.partial) > maxLine {
		whole = append(whole, l.partial[:maxLine])
		l.partial = nil
	}
	l.mu.Unlock()
	for _, line := range whole {
		l.line(line)
	}
	return len(p), nil
}

func (l *lines) line(raw []byte) {
	out := l.child.output()
	raw = out.secrets.Bytes(bytes.TrimRight(raw, "\r\n"))
	l.mu.Lock()
	word := string(raw[:min(len(raw), maxWord)])
	l.last = append(l.last, strings.ToValidUTF8(word, "\uFFFD"))
	l.last = l.last[max(0, len(l.last)-maxWords):]
	now := time.Now()
	dropped := 0
	if now.Sub(l.second) >= time.Second {
		dropped, l.dropped, l.count, l.second = l.dropped, 0, 0, now
	}
	l.count++
	tooMany := l.count > maxPerSecond
	if tooMany {
		l.dropped++
	}
	l.mu.Unlock()
	l.tell(dropped)
	if !tooMany {
		l.emit(raw, now, out)
	}
}

// flush logs the rest at the end.
func (l *lines) flush() {
	l.mu.Lock()
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	l.tell(dropped)
}

func (l *lines) tell(dropped int) {
	if dropped > 0 {
		l.log.Warn().Int("lines", dropped).Msg("plugin wrote too many lines, some were dropped")
	}
}

func (l *lines) emit(raw []byte, now time.Time, out *output) {
	line := Line{Time: now.UTC(), Plugin: l.child.Name(), PID: l.child.pid(), Stream: l.stream}
	if out.keep != nil {
		defer func() { out.keep(line) }()
	}
	var record map[string]any
	if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &record) == nil {
		if plain, err := out.secrets.JSON(record); err == nil { // raw may have a secret with other escapes
			clear(record)
			_ = json.Unmarshal(plain, &record) // it is what Marshal returned
		}
		msg, okMsg := record["@message"].(string)
		name, okLevel := record["@level"].(string)
		if level, err := zerolog.ParseLevel(name); okMsg && okLevel && err == nil && level <= zerolog.ErrorLevel {
			fields := map[string]any{}
			for k, v := range record {
				if !strings.HasPrefix(k, "@") && !reserved[k] {
					fields[k] = v
				}
			}
			named, _ := record["@attempt"].(string)
			line.Level, line.Text, line.Fields, line.Attempt = level.String(), msg, fields, l.child.attempts.of(named)
			l.log.WithLevel(level).Fields(fields).Msg(msg)
			return
		}
	}
	line.Text, line.Attempt = strings.ToValidUTF8(string(raw), "\uFFFD"), l.child.attempts.of("")
	l.log.Debug().Msg(string(raw))
}

// reserved are keys that a plugin cannot set, because we set them.
var reserved = map[string]bool{"level": true, "message": true, "time": true, "plugin": true, "stream": true}

// tail returns the last lines.
func (l *lines) tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}

// Line is one line that a plugin wrote to stderr, or to stdout after the handshake.
type Line struct {
	Time   time.Time      `json:"time"`
	Plugin string         `json:"plugin"` // name of the program
	PID    int            `json:"pid"`
	Stream string         `json:"stream"`          // stderr or stdout
	Level  string         `json:"level,omitempty"` // of a log record; other lines have none
	Text   string         `json:"text"`
	Fields map[string]any `json:"fields,omitempty"` // of a log record
	// Attempt is the attempt, as in ForAttempt, in whose calls the line was
	// written; empty if that cannot be told. It is known if the plugin says it,
	// as records of the SDKs do, or if the process has served only one attempt.
	Attempt string `json:"attempt,omitempty"`
}

// output is what happens to the lines of plugins.
type output struct {
	secrets *redact.Redactor
	keep    func(Line)
}

// Keep calls keep, which must be safe for concurrent use, for each line that a
// plugin writes from now on, except lines above 200 a second. secrets are replaced
// in these lines, in the log of the host, and in the last words of a plugin in
// errors. Both may be nil.
func (h *Host) Keep(secrets *redact.Redactor, keep func(Line)) {
	h.output.Store(&output{secrets, keep})
}

type attemptKey struct{}

// ForAttempt returns a context for the calls of an attempt. The name is TRIAL/NUMBER.
func ForAttempt(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, attemptKey{}, name)
}

// attempts are the attempts that a process has served.
type attempts struct {
	mu   sync.Mutex
	seen map[string]bool
}

// serve records the attempt of a call, and returns the context that tells the
// plugin about it.
func (a *attempts) serve(ctx context.Context) context.Context {
	name, ok := ctx.Value(attemptKey{}).(string)
	if !ok {
		return ctx
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	a.seen[name] = true
	return metadata.AppendToOutgoingContext(ctx, plugins.AttemptKey, name)
}

// of returns the attempt of a line: the one that the plugin named, if it has served
// it, or else the only one that it has served.
func (a *attempts) of(named string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[named] {
		return named
	}
	if len(a.seen) == 1 && named == "" {
		for only := range a.seen {
			return only
		}
	}
	return ""
}
