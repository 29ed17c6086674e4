package room

import (
	"strings"
	"testing"
)

// play returns the summed reward of moves (u, d, l, r; R restarts).
func play(t *testing.T, level string, boxes int, moves string) (sum float64, g *Game) {
	t.Helper()
	r, err := Parse(level)
	if err != nil {
		t.Fatal(err)
	}
	g = Play(r, boxes, 100)
	for _, m := range moves {
		if m == 'R' {
			sum += g.Restart().Reward
			continue
		}
		sum += g.Step(Direction(strings.IndexRune("udlr", m))).Reward
	}
	return sum, g
}

func TestRewards(t *testing.T) {
	t.Parallel()
	const vector, onTarget = "######/#@$ .#/######", "#######/#@ * .#/#  $  #/#######"
	for _, tt := range []struct {
		name, level string
		boxes       int
		moves       string
		want        float64
	}{
		{"one move", vector, 0, "r", -0.1},
		{"a move against a wall costs as much", vector, 0, "uul", -0.3},
		{"solved", vector, 0, "rr", -0.2 + 1 + 10},
		{"a box that begins on a target pays at the first step", onTarget, 0, "l", -0.1 + 1},
		{"off the target", onTarget, 0, "lrr", -0.3 + 1 - 1},
		{"off and on again", onTarget, 0, "lrrr", -0.4 + 1 - 1 + 1},
		{"the count begins with more boxes than the level has", vector, 2, "r", -0.1 + 1},
		{"the count begins with fewer", "#######/#@$ .##/# $ . #/#######", 1, "r", -0.1 - 1},
		{"restart takes back what was gained", onTarget, 0, "lrrrR", -0.5},
		{"after a restart a box pays again, once", onTarget, 0, "lR" + "l", -0.3 + 1},
	} {
		if got, _ := play(t, tt.level, tt.boxes, tt.moves); got-tt.want > 1e-9 || tt.want-got > 1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestWhatCannotBePushed(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]string{
		"#######/#@$$..#/#######": "#@$$..#", // two boxes
		"######/#.@$##/######":    "#.@$##",  // a wall
	} {
		if _, g := play(t, level, 0, "r"); !strings.Contains(g.String(), want) {
			t.Errorf("%s: %s", level, g)
		}
	}
}

func TestALevelIsItsText(t *testing.T) {
	t.Parallel()
	const level = "#######/#+$ * #/# $ . #/#######"
	r, err := Parse(level)
	if err != nil {
		t.Fatal(err)
	}
	if r.Level() != level {
		t.Errorf("got %s", r.Level())
	}
	again, err := Parse(r.String())
	if err != nil || again.Hash() != r.Hash() {
		t.Errorf("%v, %v", again, err)
	}
	again.Move(Down)
	if again.Hash() == r.Hash() {
		t.Error("another state has the same hash")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("######/#@$ .#/######")
	f.Add("####/#@$./####")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		g := Play(r, 0, 10)
		for i := range 40 {
			g.Step(Direction(i * 7 % Directions)) // must not leave the room
		}
		if g.Boxes() != r.Boxes() || len(g.Picture(Tile)) == 0 || len(g.Tiny()) == 0 {
			t.Error("a box was lost, or there is no picture")
		}
	})
}
