package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// maxSurface bounds the record of a surface that is printed, in bytes.
const maxSurface = 1 << 30

// Surface prints what was observed and done on the surface of the attempt in
// dir, with raw as the lines of its record. all does not cut long texts.
func Surface(p *terminal.Printer, dir string, raw, all bool) error {
	data, err := untrusted.Read(dir, record.SurfaceFile, maxSurface)
	if errors.Is(err, fs.ErrNotExist) {
		if !raw {
			p.Printf("the attempt has no surface\n")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the record of the surface: %w", err)
	}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // torn by a crash
		}
		if raw {
			p.Printf("%s", line)
			continue
		}
		var l surface.Line
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("read the record of the surface: %w", err)
		}
		surfaceLine(p, &l, all)
	}
	return nil
}

func surfaceLine(p *terminal.Printer, l *surface.Line, all bool) {
	what := l.Kind
	switch l.Kind {
	case surface.KindReset:
		what += fmt.Sprintf(" %s, level %q, seed %d", l.Stage, l.Level, l.Seed)
	case surface.KindAct:
		what += fmt.Sprintf(" %d: %s(%s)", l.Step, l.Action, brief(string(l.Arguments), 300, all))
	}
	facts := []string{l.Took.Round(time.Millisecond / 10).String()}
	if l.Reward != nil {
		facts = append(facts, fmt.Sprintf("reward %v", *l.Reward))
	}
	if l.Done {
		facts = append(facts, "done")
	}
	if l.Truncated {
		facts = append(facts, "truncated")
	}
	p.Printf("%s  %s\n", terminal.Paint(p.Color, terminal.Bold, terminal.Clean(what)), strings.Join(facts, ", "))
	marked(p, "!", l.Error, all)
	marked(p, "│", l.Text, all)
	marked(p, "{", brief(string(l.Structure), 300, all), all)
	marked(p, "i", brief(string(l.Info), 300, all), all)
	for _, f := range l.Frames {
		marked(p, "▣", fmt.Sprintf("%s: %s/%s, %d bytes", f.Name, record.FramesDir, f.File, f.Size), all)
	}
}
