// Command berth-levels makes levels of Sokoban with their shortest solutions, and
// writes them as a dataset of the format sokoban.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/environments/sokoban/internal/levels"
	"github.com/berth-eval/berth/environments/sokoban/internal/room"
)

// wishes are the flags.
type wishes struct {
	class  string
	count  int
	seed   uint64
	moves  int
	states int
	out    string
}

// level is what levels.json says about a level.
type level struct {
	Class    string  `json:"class"`
	Seed     uint64  `json:"seed"`
	Bound    float64 `json:"bound"`
	Solution string  `json:"solution"`
}

func main() {
	var w wishes
	flag.StringVar(&w.class, "class", "all", "class of the levels: "+strings.Join(names(), ", ")+", or all, in turn")
	flag.IntVar(&w.count, "count", 10, "how many levels to make")
	flag.Uint64Var(&w.seed, "seed", 1, "the same seed gives the same levels")
	flag.IntVar(&w.moves, "moves", 50, "longest solution of a level; rooms that need more are left out")
	flag.IntVar(&w.states, "states", 500_000, "how many states the solver looks at before a room is left out")
	flag.StringVar(&w.out, "out", "", "folder to write levels.txt and levels.json to; it must not have them yet")
	flag.Parse()
	if err := run(w); err != nil {
		fmt.Fprintln(os.Stderr, "berth-levels:", err)
		os.Exit(1)
	}
}

func names() (all []string) {
	for _, c := range levels.Classes {
		all = append(all, c.Name)
	}
	return all
}

func run(w wishes) error {
	if w.out == "" || flag.NArg() > 0 || w.count < 1 || w.moves < 1 {
		return errors.New("expected -out FOLDER, and numbers from 1 on. Example: berth-levels -class v0 -count 10 -seed 1 -out levels")
	}
	text, about, err := generate(w)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(about, "", "  ")
	if err != nil {
		return err
	}
	if err = os.MkdirAll(w.out, 0o755); err != nil { //nolint:gosec // a folder of the user
		return err
	}
	for name, content := range map[string]string{"levels.txt": text, "levels.json": string(data) + "\n"} {
		if err = write(filepath.Join(w.out, name), content); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a file of the user
	if err != nil {
		return fmt.Errorf("write levels: %w", err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// generate makes the levels, with the text of each and what is known of it.
func generate(w wishes) (text string, about map[string]level, err error) {
	var classes []levels.Class
	for _, c := range levels.Classes {
		if w.class == "all" || w.class == c.Name {
			classes = append(classes, c)
		}
	}
	if len(classes) == 0 {
		return "", nil, fmt.Errorf("there is no class %q: choose %s, or all", w.class, strings.Join(names(), ", "))
	}
	about = map[string]level{}
	made := make([][]string, len(classes)) // by class, so that the file is in order
	next := make([]uint64, len(classes))
	for i := range w.count {
		at := i % len(classes)
		c := classes[at]
		r, solution, seed, failed := solvable(c, w, &next[at])
		if failed != nil {
			return "", nil, failed
		}
		name := fmt.Sprintf("%s-%d", c.Name, len(made[at])+1)
		made[at] = append(made[at], fmt.Sprintf("; %s\n%s", name, r))
		bound, letters := replay(r, solution)
		about[name] = level{Class: c.Name, Seed: seed, Bound: bound, Solution: letters}
	}
	var all []string
	for _, list := range made {
		all = append(all, list...)
	}
	return strings.Join(all, "\n"), about, nil
}

// maxRooms is how many rooms of a class are tried for one level.
const maxRooms = 1000

// solvable makes rooms until one has a solution that is short enough.
func solvable(c levels.Class, w wishes, next *uint64) (*room.Room, []room.Direction, uint64, error) {
	for range maxRooms {
		seed := w.seed + *next
		*next++
		r, err := levels.Generate(c, seed)
		if err != nil {
			continue
		}
		if solution, err := levels.Solve(r, w.moves, w.states); err == nil {
			return r, solution, seed, nil
		}
	}
	return nil, nil, 0, fmt.Errorf("of %d rooms of class %s none has a solution of at most %d moves: choose a greater -moves", maxRooms, c.Name, w.moves)
}

// replay returns the summed reward of a solution, and its letters: a capital where
// a box is pushed.
func replay(r *room.Room, solution []room.Direction) (sum float64, letters string) {
	g := room.Play(r, 0, len(solution))
	for _, d := range solution {
		step := g.Step(d)
		letter := string("udlr"[d])
		if step.Pushed {
			letter = strings.ToUpper(letter)
		}
		sum, letters = sum+step.Reward, letters+letter
	}
	return math.Round(sum*1e9) / 1e9, letters
}
