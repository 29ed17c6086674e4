package levels

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/sokoban/internal/room"
	"github.com/berth-eval/berth/internal/testlevel"
)

func TestALevelHasTheProperties(t *testing.T) {
	t.Parallel()
	for _, c := range Classes[:4] {
		for seed := range uint64(3) {
			r, err := Generate(c, seed)
			if err != nil {
				t.Errorf("%s, seed %d: %v", c.Name, seed, err)
				continue
			}
			parsed, err := room.Parse(r.String())
			if err != nil {
				t.Fatalf("%v\n%s", err, r)
			}
			if parsed.Rows != c.Rows || parsed.Cols != c.Cols || parsed.Boxes() != c.Boxes || parsed.Empty() != c.Boxes {
				t.Errorf("%s, seed %d: another size, another number of boxes, or a box on a target:\n%s", c.Name, seed, r)
			}
			again, err := Generate(c, seed)
			if err != nil || again.String() != r.String() {
				t.Errorf("%s, seed %d: the same seed gives another level", c.Name, seed)
			}
		}
	}
}

func solve(t *testing.T, level string, moves int) ([]room.Direction, error) {
	t.Helper()
	r, err := room.Parse(level)
	if err != nil {
		t.Fatal(err)
	}
	path, err := Solve(r, moves, 100_000)
	if err == nil {
		g := room.Play(r, 0, len(path))
		for _, d := range path {
			g.Step(d)
		}
		if !g.Solved() {
			t.Errorf("%s: %v solves nothing", level, path)
		}
	}
	return path, err
}

// A solution is as short as one that a search without any bound finds.
func TestSolutionsAreTheShortest(t *testing.T) {
	t.Parallel()
	for _, level := range []string{
		"######/#@$ .#/######",
		"#######/#@    #/# $$  #/#  .  #/#  .  #/#######",
		"#######/#  ## #/# $ . #/#@  # #/# $.  #/#######",
		"########/#   .  #/# $ #  #/#  @#$ #/# .    #/########",
	} {
		r, err := room.Parse(level)
		if err != nil {
			t.Fatal(err)
		}
		want := breadthFirst(r)
		if path, err := solve(t, level, 100); err != nil || len(path) != want {
			t.Errorf("%s: %d moves, %v; want %d", level, len(path), err, want)
		}
		if _, err := solve(t, level, want-1); !errors.Is(err, ErrNoSolution) {
			t.Errorf("%s in %d moves: %v", level, want-1, err)
		}
	}
	if _, err := solve(t, "######/#$@ .#/#    #/######", 100); !errors.Is(err, ErrNoSolution) {
		t.Errorf("a box in a corner: %v", err)
	}
}

// breadthFirst returns the length of a shortest solution.
func breadthFirst(r *room.Room) int {
	seen := map[string]bool{r.Hash(): true}
	for depth, now := 0, []*room.Room{r}; len(now) > 0; depth++ {
		var next []*room.Room
		for _, at := range now {
			if at.Empty() == 0 {
				return depth
			}
			for d := range room.Directions {
				to := at.Clone()
				to.Move(room.Direction(d))
				if h := to.Hash(); !seen[h] {
					seen[h] = true
					next = append(next, to)
				}
			}
		}
		now = next
	}
	return -1
}

func TestThereAreEightClasses(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range Classes {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 8 {
		t.Errorf("%q", names)
	}
	if Classes[2].Walk != 34 || Classes[0].Walk != 23 {
		t.Errorf("walks of %d and %d steps, want int(1.7 · 20) and int(1.7 · 14)", Classes[2].Walk, Classes[0].Walk)
	}
}

// The levels that ship are those that the generator makes with their seeds, and
// their solutions are the shortest. make test-engines tries all of them.
func TestTheLevelsThatShip(t *testing.T) {
	t.Parallel()
	const folder = "../../../../examples/sokoban/levels/"
	text, err := os.ReadFile(folder + "levels.txt")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(folder + "levels.json")
	if err != nil {
		t.Fatal(err)
	}
	var about map[string]struct {
		Class, Solution string
		Seed            uint64
	}
	if err = json.Unmarshal(raw, &about); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for name, l := range about {
		i := slices.IndexFunc(Classes, func(c Class) bool { return c.Name == l.Class })
		if i < 0 || i > 1 && !testlevel.E2E() {
			continue // the larger ones take seconds
		}
		tried++
		r, err := Generate(Classes[i], l.Seed)
		if err != nil || !strings.Contains(string(text), "; "+name+"\n"+r.String()) {
			t.Errorf("%s: seed %d makes another level, %v:\n%s", name, l.Seed, err, r)
			continue
		}
		if path, err := Solve(r, 60, 2_000_000); err != nil || len(path) != len(l.Solution) {
			t.Errorf("%s has a solution of %d moves, and %d are needed: %v", name, len(l.Solution), len(path), err)
		}
	}
	if tried < 16 {
		t.Errorf("%d levels, want at least the small ones", tried)
	}
}
