package view

import (
	"encoding/json"
	"fmt"
	"image"
	"math"
	"path/filepath"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// scene is one line of the record of a surface: what was done, what was seen after
// it, and what was done next, which is drawn on the pictures.
type scene struct {
	surface.Line

	Args, Seen part
	Bad        string // why it is not shown; empty: it is
	Shots      []shot
	Next       string // what was done next, as a sentence; empty: it is not known
	Marks      []mark
}

// shot is a picture that was seen.
type shot struct {
	File    string
	W, H    int // pixels
	Missing string
}

// mark is a place of an action in a picture, in pixels.
type mark struct {
	Box                     bool // otherwise a point
	X, Y, W, H, LabelX, Row float64
	Label                   string
}

const (
	filmPage   = 20 // lines of one part
	maxMark    = 60 // bytes of the arguments of an action in a picture
	maxPosited = 1_000_000
)

// surfacePart is a part of what was seen and done on the surface: a film strip.
func (s *Server) surfacePart(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	at := r.number("at")
	lines, next, err := report.ReadPart(a.dir, record.SurfaceFile, at, filmPage+1)
	if err != nil {
		return err
	}
	all := make([]scene, 0, len(lines))
	for i := range lines {
		all = append(all, sceneOf(a.dir, &lines[i]))
	}
	for i := range all[:max(0, len(all)-1)] {
		all[i].draw(&all[i+1])
	}
	count := len(all)
	if report.AtEnd(lines, filmPage+1) {
		count = 0
	}
	// The line after the last one is only looked at: it is the first of the next part.
	if len(all) > filmPage {
		all, next = all[:filmPage], lines[filmPage].At
	}
	return r.show("surface", "", map[string]any{"A": a, "All": all, "Next": next, "Count": count})
}

func sceneOf(dir string, l *report.NumberedLine) scene {
	var c scene
	switch {
	case l.Text == nil:
		c.Bad = fmt.Sprintf("A line of %d bytes is not shown. surface.jsonl has it.", l.Size)
		return c
	case json.Unmarshal(l.Text, &c.Line) != nil:
		c.Bad = "A line of the record cannot be read."
		return c
	}
	c.Args, c.Seen = partOf(string(c.Arguments), 1000), partOf(c.Text, 4000)
	for _, f := range c.Frames[:min(len(c.Frames), maxInline)] {
		if filepath.IsLocal(filepath.FromSlash(f.File)) {
			c.Shots = append(c.Shots, shotOf(dir, record.FramesDir+"/"+f.File))
		}
	}
	return c
}

// shotOf finds out how large a picture is, without decoding it.
func shotOf(dir, name string) shot {
	f, err := untrusted.Open(dir, name, maxPicture)
	if err != nil {
		return shot{File: name, Missing: err.Error()}
	}
	defer f.Close()
	c, _, err := image.DecodeConfig(f)
	if err == nil {
		err = bounded(&c)
	}
	if err != nil {
		return shot{File: name, Missing: err.Error()}
	}
	return shot{File: name, W: c.Width, H: c.Height}
}

// draw says what was done next, and marks its places.
func (c *scene) draw(next *scene) {
	if next.Kind != surface.KindAct || next.Bad != "" {
		return
	}
	c.Next = plain(next.Action + " " + partOf(string(next.Arguments), maxMark).Text)
	var args map[string]json.RawMessage
	if json.Unmarshal(next.Arguments, &args) != nil {
		return
	}
	number := func(name string) (x float64, ok bool) {
		ok = json.Unmarshal(args[name], &x) == nil && !math.IsNaN(x) && math.Abs(x) < maxPosited
		return x, ok
	}
	for _, pair := range [][2]string{{"x", "y"}, {"from_x", "from_y"}, {"to_x", "to_y"}} {
		x, okX := number(pair[0])
		y, okY := number(pair[1])
		if okX && okY {
			c.Marks = append(c.Marks, mark{X: x, Y: y, LabelX: x + 14, Row: y + 5})
		}
	}
	c.boxes(args)
	if len(c.Marks) > 0 {
		c.Marks[0].Label = c.Next
	}
}

// boxes marks the elements that an action names, if the agent was told where they
// are.
func (c *scene) boxes(args map[string]json.RawMessage) {
	var seen struct {
		Elements map[string]struct {
			Box *[4]float64 `json:"box"`
		} `json:"elements"`
	}
	if len(c.Structure) == 0 || json.Unmarshal(c.Structure, &seen) != nil {
		return
	}
	for _, name := range []string{"bid", "from_bid", "to_bid"} {
		var bid string
		if json.Unmarshal(args[name], &bid) != nil {
			continue
		}
		if b := seen.Elements[bid].Box; b != nil && b[2] >= 0 && b[3] >= 0 && math.Abs(b[0])+math.Abs(b[1])+b[2]+b[3] < maxPosited {
			c.Marks = append(c.Marks, mark{Box: true, X: b[0], Y: b[1], W: b[2], H: b[3], LabelX: b[0], Row: b[1] - 4})
		}
	}
}
