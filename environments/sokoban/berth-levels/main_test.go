package main

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/sokoban/internal/room"
)

func TestLevelsComeWithTheirSolutions(t *testing.T) {
	t.Parallel()
	w := wishes{class: "small-v0", count: 2, seed: 3, moves: 50, states: 100_000}
	text, about, err := generate(w)
	if err != nil || len(about) != 2 {
		t.Fatalf("%d levels, %v", len(about), err)
	}
	again, _, err := generate(w)
	if err != nil || again != text {
		t.Errorf("the same seed gives other levels, %v", err)
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(text, "; "), "\n; ") {
		name, rows, _ := strings.Cut(strings.TrimSpace(part), "\n")
		r, failed := room.Parse(rows)
		if failed != nil {
			t.Fatalf("%s: %v", name, failed)
		}
		g := room.Play(r, 0, 100)
		for _, letter := range strings.ToLower(about[name].Solution) {
			g.Step(room.Direction(strings.IndexRune("udlr", letter)))
		}
		if want := 10 + 2 - 0.1*float64(len(about[name].Solution)); !g.Solved() || about[name].Bound-want > 1e-9 || want-about[name].Bound > 1e-9 {
			t.Errorf("%s: %+v solves nothing, or its bound is not %v", name, about[name], want)
		}
	}
	w.class = "v9"
	if _, _, err = generate(w); err == nil || !strings.Contains(err.Error(), `no class "v9"`) {
		t.Errorf("an unknown class: %v", err)
	}
	w.class, w.moves = "small-v0", 1
	if _, _, err = generate(w); err == nil || !strings.Contains(err.Error(), "choose a greater -moves") {
		t.Errorf("solutions of one move: %v", err)
	}
}
