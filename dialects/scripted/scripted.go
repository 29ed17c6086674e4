// Package scripted is a model that replies from a file: text, tool calls,
// errors, delays and broken streams, in every dialect. Its replies depend only
// on the request and the file and, for failures with a number of repetitions,
// on how often they were sent in the session.
//
// It must not know budgets, tokens or sockets.
package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/yamltext"
)

// Script is the content of a file. It is safe for concurrent use.
type Script struct {
	name    string
	replies []Reply
}

// file is a script in YAML.
type file struct {
	Chunk   int     `yaml:"chunk"`
	Replies []Reply `yaml:"replies"`
}

// Reply is one answer, or one way to fail.
type Reply struct {
	When     *When    `yaml:"when"`
	Times    int      `yaml:"times"` // 0: once for a failure without when, otherwise unlimited
	Thinking string   `yaml:"thinking"`
	Text     string   `yaml:"text"`
	Tools    []Tool   `yaml:"tools"`
	Stop     string   `yaml:"stop"` // done, length, refused
	Usage    *Usage   `yaml:"usage"`
	Delay    Duration `yaml:"delay"` // before the first byte
	Pace     Duration `yaml:"pace"`  // before each further event of a stream
	Chunk    int      `yaml:"chunk"` // characters in a piece of a stream; 0: all at once
	Error    *Error   `yaml:"error"`
	Break    string   `yaml:"break"` // drop, cut, garbage, stall, no_end
	Raw      string   `yaml:"raw"`   // the body, sent unchanged
}

// When says which requests a reply answers. All conditions that are set must
// hold.
type When struct {
	Turn   *int   `yaml:"turn"`   // the request contains this many replies of the model
	Last   string `yaml:"last"`   // regular expression for the text since the last reply, from the user or from tools
	System string `yaml:"system"` // regular expression for the instructions
	Tool   string `yaml:"tool"`   // this tool is offered

	last, system *regexp.Regexp
}

// Tool is a tool call.
type Tool struct {
	Name      string `yaml:"name"`
	Arguments any    `yaml:"arguments"` // an object, or a string for a tool that takes text
}

// Usage is the usage that the reply reports, in tokens.
type Usage struct {
	Input      int64 `yaml:"input"`
	Cached     int64 `yaml:"cached"`
	CacheWrite int64 `yaml:"cache_write"`
	CacheHour  int64 `yaml:"cache_write_1h"` // of CacheWrite
	Output     int64 `yaml:"output"`
	Reasoning  int64 `yaml:"reasoning"`
}

// Error is an answer with an error status.
type Error struct {
	Status     int      `yaml:"status"`
	Message    string   `yaml:"message"`
	RetryAfter Duration `yaml:"retry_after"` // 0: no header
	Body       string   `yaml:"body"`        // instead of the body of the dialect
}

// Duration is written as "200ms".
type Duration time.Duration

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	var s string
	if err := yaml.NodeToValue(n, &s); err != nil {
		s = n.String() // a number or a list; the message shows it
	}
	if err := d.parse(s); err != nil {
		return fmt.Errorf("line %d: %w", n.GetToken().Position.Line, err)
	}
	return nil
}

func (d *Duration) parse(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("duration is %q: write it such as \"200ms\"", s)
	}
	*d = Duration(v)
	return nil
}

// breaks are the ways to break an answer.
var breaks = []string{"", "drop", "cut", "garbage", "stall", "no_end"}

// Open reads a script. The function that it returns starts a session.
func Open(path string) (func() dialect.Scripted, error) {
	s, err := Load(path)
	if err != nil {
		return nil, err
	}
	return func() dialect.Scripted { return s.Session() }, nil
}

// Load reads a script: YAML with a list of replies.
func Load(path string) (*Script, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", path, err)
	}
	s.name = filepath.Base(path)
	return s, nil
}

// Check says what is wrong with the content of the script at a path.
func Check(_ string, content []byte) error {
	_, err := Parse(content)
	return err
}

// New makes a script of one reply.
func New(r Reply) (*Script, error) {
	err := r.check()
	return &Script{replies: []Reply{r}}, err
}

// Parse reads the text of a script.
func Parse(b []byte) (*Script, error) {
	var f file
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // a byte order mark
	if err := yamltext.Unmarshal(b, true, &f); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	if len(f.Replies) == 0 {
		return nil, errors.New("it has no replies")
	}
	at := places(b)
	for i := range f.Replies {
		if f.Replies[i].Chunk == 0 {
			f.Replies[i].Chunk = f.Chunk
		}
		if err := f.Replies[i].check(); err != nil {
			if i < len(at) {
				return nil, fmt.Errorf("line %d, reply %d: %w", at[i], i+1, err)
			}
			return nil, fmt.Errorf("reply %d: %w", i+1, err)
		}
	}
	return &Script{replies: f.Replies}, nil
}

// places returns the lines on which the replies of a YAML text begin, as far as
// they can be determined: the content of an alias is elsewhere.
func places(b []byte) (at []int) {
	f, err := parser.ParseBytes(b, 0)
	if err != nil || len(f.Docs) == 0 {
		return nil
	}
	path, err := yaml.PathString("$.replies")
	if err != nil {
		return nil
	}
	n, err := path.FilterNode(f.Docs[0].Body)
	if err != nil {
		return nil
	}
	if list, ok := n.(*ast.SequenceNode); ok {
		for _, v := range list.Values {
			at = append(at, v.GetToken().Position.Line)
		}
	}
	return at
}

func (r *Reply) check() (err error) {
	switch u := r.Usage; {
	case u != nil && min(u.Input, u.Cached, u.CacheWrite, u.CacheHour, u.Output, u.Reasoning) < 0:
		return errors.New("usage cannot be negative")
	case u != nil && max(u.Input, u.Cached, u.CacheWrite, u.CacheHour, u.Output, u.Reasoning) > dialect.MaxTokens:
		return fmt.Errorf("usage is larger than any: at most %d tokens", int64(dialect.MaxTokens))
	case !slices.Contains(breaks, r.Break):
		return fmt.Errorf("break is %q: there is drop, cut, garbage, stall and no_end", r.Break)
	case !slices.Contains([]string{"", "done", "length", "refused"}, r.Stop):
		return fmt.Errorf("stop is %q: there is done, length and refused", r.Stop)
	case r.Error != nil && (r.Error.Status < 400 || r.Error.Status > 599):
		return fmt.Errorf("status is %d: an error has 400 to 599", r.Error.Status)
	case r.Times < 0 || r.Chunk < 0:
		return errors.New("times and chunk cannot be negative")
	}
	for i, t := range r.Tools {
		if t.Name == "" {
			return fmt.Errorf("tool call %d has no name", i+1)
		}
		if _, err = json.Marshal(t.Arguments); err != nil {
			return fmt.Errorf("arguments of %s: %w", t.Name, err)
		}
	}
	if w := r.When; w != nil {
		if w.last, err = regexp.Compile(w.Last); err != nil {
			return fmt.Errorf("when last: %w", err)
		}
		if w.system, err = regexp.Compile(w.System); err != nil {
			return fmt.Errorf("when system: %w", err)
		}
	}
	return nil
}

// fails reports whether the reply is a failure, after which a conversation
// cannot continue.
func (r *Reply) fails() bool { return r.Error != nil || r.Break != "" }

func (w *When) holds(t Talk) bool {
	return (w.Turn == nil || *w.Turn == t.Turn) && w.last.MatchString(t.Last) && w.system.MatchString(t.System) &&
		(w.Tool == "" || slices.Contains(t.Tools, w.Tool))
}

// Session is the use of a script in one session. It is safe for concurrent use.
type Session struct {
	script *Script
	mu     sync.Mutex
	given  map[int]int // how often, by the index of the reply
}

// Session starts a new session.
func (s *Script) Session() *Session { return &Session{script: s, given: map[int]int{}} }

// ErrNoReply means that the script has no reply to a request.
var ErrNoReply = errors.New("the script has no reply to this")

// next chooses the reply to a request.
func (s *Session) next(t Talk) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.script.replies {
		r := &s.script.replies[i]
		if r.When != nil && r.When.holds(t) && (r.Times == 0 || s.given[i] < r.Times) {
			s.given[i]++
			return r, nil
		}
	}
	turn := 0
	for i := range s.script.replies {
		r := &s.script.replies[i]
		switch {
		case r.When != nil || turn > t.Turn:
		case r.fails():
			if turn == t.Turn && s.given[i] < max(r.Times, 1) {
				s.given[i]++
				return r, nil
			}
		default:
			if turn == t.Turn {
				return r, nil
			}
			turn++
		}
	}
	return nil, fmt.Errorf("%w: %d replies of the model are in the request, the script %q has %d in order", ErrNoReply, t.Turn, s.script.name, turn)
}
