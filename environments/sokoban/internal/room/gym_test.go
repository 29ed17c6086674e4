package room

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// played is what a level is played with in gym-sokoban.
type played struct {
	Level   string `json:"level"`
	Boxes   int    `json:"num_boxes"`
	Most    int    `json:"max_steps"`
	Actions string `json:"actions"`
}

// random returns the levels that ship, each with random moves: 10,000 in all. Some
// are counted with another number of boxes, and some end because of their steps.
func random(t *testing.T) (all []played) {
	t.Helper()
	text, err := os.ReadFile("../../../../examples/sokoban/levels/levels.txt")
	if err != nil {
		t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(7, 7))
	left := 10_000
	parts := strings.Split(string(text), ";")[1:]
	for i, part := range parts {
		_, rows, _ := strings.Cut(strings.TrimRight(part, "\n"), "\n")
		r, err := Parse(rows)
		if err != nil {
			t.Fatal(err)
		}
		p := played{Level: r.Level(), Boxes: r.Boxes() + (i+1)%3 - 1, Most: 1000}
		n := left / (len(parts) - i)
		left -= n
		if i%10 == 0 {
			p.Most = n
		}
		for range n {
			p.Actions += string("udlr"[dice.IntN(4)])
		}
		all = append(all, p)
	}
	return all
}

// gym-sokoban gives the same grids, rewards and pixels.
func TestTheGameIsThatOfGymSokoban(t *testing.T) {
	t.Parallel()
	python := filepath.Join("../../../../.cache/gym-sokoban/bin/python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("gym-sokoban is not installed: run scripts/gym-sokoban-for-tests")
	}
	levels := random(t)
	var in bytes.Buffer
	for _, p := range levels {
		line, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/play.py")
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = &in, &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	steps, rewards := 0, map[float64]int{}
	for _, p := range levels {
		r, err := Parse(p.Level)
		if err != nil {
			t.Fatal(err)
		}
		g := Play(r, p.Boxes, p.Most)
		for i := range len(p.Actions) {
			if !lines.Scan() {
				t.Fatalf("the output ends after %d steps: %s", steps, said.String())
			}
			var want []any
			if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
				t.Fatal(err)
			}
			got := g.Step(Direction(strings.IndexByte("udlr", p.Actions[i])))
			if steps++; want[0] != g.String() || want[1] != got.Reward || want[2] != (g.Solved() || g.Over()) || want[3] != pixels(t, g) {
				t.Fatalf("%s, step %d:\n%sreward %v, over %v\ngym-sokoban:\n%sreward %v, over %v", p.Level, i+1, g, got.Reward, g.Solved() || g.Over(), want[0], want[1], want[2])
			}
			rewards[got.Reward]++
		}
	}
	if steps != 10_000 || len(rewards) < 3 {
		t.Errorf("%d steps were compared, with the rewards %v; want 10000, and boxes on and off targets", steps, rewards)
	}
}

// pixels returns the picture with one pixel a cell, as gym-sokoban has it.
func pixels(t *testing.T, g *Game) string {
	t.Helper()
	im, err := png.Decode(bytes.NewReader(g.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for y := range g.Rows {
		for x := range g.Cols {
			c, _ := color.RGBAModel.Convert(im.At(x, y)).(color.RGBA)
			raw = append(raw, c.R, c.G, c.B)
		}
	}
	return hex.EncodeToString(raw)
}
