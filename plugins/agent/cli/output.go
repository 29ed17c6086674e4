package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
)

// Limits of what a CLI prints, in bytes.
const (
	maxLine = 32 << 20 // of one line; a longer one is not parsed
	maxKept = 256 << 20
	maxTail = 4 << 10
)

// lines passes on each line as it arrives. It skips a line that is too long.
type lines struct {
	each func([]byte)
	part []byte
	skip bool
	tail []byte // of lines that are not JSON objects
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		piece := b
		if i >= 0 {
			piece = b[:i]
		}
		if !l.skip {
			if len(l.part)+len(piece) > maxLine {
				l.part, l.skip = nil, true
			} else {
				l.part = append(l.part, piece...)
			}
		}
		if i < 0 {
			return n, nil
		}
		l.line()
		b = b[i+1:]
	}
	return n, nil
}

func (l *lines) line() {
	line := bytes.TrimSpace(l.part)
	if !l.skip && len(line) > 0 {
		if line[0] != '{' {
			l.tail = append(append(l.tail, line...), '\n')
			l.tail = l.tail[max(0, len(l.tail)-maxTail):]
		}
		l.each(line)
	}
	l.part, l.skip = l.part[:0], false
}

// end passes on a last line without a line break, as a killed CLI leaves it.
func (l *lines) end() {
	if len(l.part) > 0 {
		l.line()
	}
}

// kept writes the output of a CLI to a file of the scratch folder, up to a
// limit, and remembers the end of the output.
type kept struct {
	f    *os.File // nil: there is no scratch folder
	left int64
	tail []byte
}

// keep creates a file of a turn.
func (s *session) keep(rec agent.Recorder, name string) (*kept, error) {
	if s.setup.Scratch == "" {
		return &kept{}, nil
	}
	if s.turns > 1 {
		name = fmt.Sprintf("turn-%d.%s", s.turns, name)
	}
	f, err := os.Create(filepath.Join(s.setup.Scratch, name))
	if err != nil {
		return nil, err
	}
	return &kept{f: f, left: maxKept}, rec.Artifact(name)
}

// Write implements io.Writer. A full disk on the host is an error; too much
// output is not.
func (k *kept) Write(b []byte) (int, error) {
	k.tail = append(k.tail, b[max(0, len(b)-maxTail):]...)
	k.tail = k.tail[max(0, len(k.tail)-maxTail):]
	n := len(b)
	if k.f == nil || k.left <= 0 {
		return n, nil
	}
	b = b[:min(int64(len(b)), k.left)]
	k.left -= int64(len(b))
	if _, err := k.f.Write(b); err != nil {
		return 0, err
	}
	if k.left == 0 {
		if _, err := k.f.WriteString("\n[more is not kept]\n"); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (k *kept) last() string { return strings.ToValidUTF8(string(k.tail), "\uFFFD") }

func (k *kept) close() error {
	if k.f == nil {
		return nil
	}
	return k.f.Close()
}

// Read replays recorded output of a CLI and returns the result of the turn.
// Tests of a declaration's Events or Dialog use it.
func Read(s Scaffold, stdout io.Reader, x Exit, rec agent.Recorder) (agent.Yield, error) {
	y, _, err := Replay(s, &Run{Settings: &Settings{}, Turn: 1, Workdir: "/"}, stdout, x, rec)
	return y, err
}

// Replay is Read with a chosen message. It also returns what a Dialog has sent.
func Replay(s Scaffold, r *Run, stdout io.Reader, x Exit, rec agent.Recorder) (y agent.Yield, sent []byte, err error) {
	b := newTranscript("model", "", "")
	b.rec = rec
	t := &Talk{Run: r, Fresh: true, in: newPending(), over: func() {}}
	var events Events
	if s.Dialog != nil {
		d := s.Dialog(b)
		d.Begin(t)
		events = d
	} else {
		events = s.Events(b)
	}
	split := &lines{each: events.Line}
	if _, err = io.Copy(split, stdout); err != nil {
		return y, nil, err
	}
	split.end()
	b.end()
	if t.done {
		return t.yield, t.in.bytes, t.err
	}
	x.Output = string(split.tail)
	y, err = events.End(x)
	return y, t.in.bytes, err
}
