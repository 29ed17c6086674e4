package sokoban

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/task"
)

// boundName is the name of a level in upper_bound.json: an id and its class.
var boundName = regexp.MustCompile(`^(.+)-Sokoban-([a-z0-9-]+)$`)

// bounds reads a file with solutions. The levels are not rebuilt yet.
func bounds(file string, data []byte) (list []level, problem *task.Problem, err error) {
	entries, problem := members(file, data)
	if problem != nil {
		return nil, problem, nil
	}
	if len(entries) == 0 {
		return nil, &task.Problem{File: file, Severity: task.Error, Summary: "There is no level in the file", Detail: "It is an object of solutions by the names of levels."}, nil
	}
	for i := range entries {
		e := &entries[i]
		l := level{id: e.name, name: e.name, file: file, line: e.line, rebuilt: true, entry: e}
		if !title.MatchString(e.name) {
			l.id = fmt.Sprintf("@%d", i+1)
		}
		list = append(list, l)
	}
	return list, nil, nil
}

// rebuild makes a level of its solution.
func (l *level) rebuild(e *entry) error {
	name := boundName.FindStringSubmatch(e.name)
	if name == nil || !title.MatchString(e.name) {
		return fmt.Errorf("its name is %.100q: want ID-Sokoban-CLASS, of letters, digits, \".\", \"_\" and \"-\"", e.name)
	}
	c, ok := classes[name[2]]
	if !ok {
		return fmt.Errorf("there is no class %q%s", name[2], suggest.After(name[2], classNames()))
	}
	var x struct {
		Actions []string `json:"actions"`
		Steps   *int     `json:"steps"`
		Reward  *float64 `json:"reward"`
	}
	if err := json.Unmarshal(e.raw, &x); err != nil {
		return fmt.Errorf("want {\"actions\": […], \"steps\": …, \"reward\": …}: %w", err)
	}
	switch {
	case x.Reward == nil:
		return errors.New("it has no reward")
	case len(x.Actions) == 0:
		return errors.New("it has no actions")
	case len(x.Actions) > maxMoves:
		return fmt.Errorf("it has %d actions, and at most %d are read", len(x.Actions), maxMoves)
	case x.Steps != nil && *x.Steps != len(x.Actions):
		return fmt.Errorf("steps is %d, and it has %d actions", *x.Steps, len(x.Actions))
	}
	l.Class, l.Bound = name[2], x.Reward
	for i, a := range x.Actions {
		ok := len(a) == 1
		if ok {
			_, _, ok = move(a[0])
		}
		if !ok {
			return fmt.Errorf("action %d is %.20q: the actions are l, u, r and d, and L, U, R and D where a box is pushed", i+1, a)
		}
	}
	l.Solution = strings.Join(x.Actions, "")
	var err error
	if l.rows, err = walk(l.Solution).draw(); err != nil {
		return err
	}
	return l.fit(c)
}

// cell is a place relative to where the player starts.
type cell struct{ y, x int }

// walked is what a solution shows of its level.
type walked struct {
	floor map[cell]bool // every cell that was touched
	boxes map[cell]bool // where boxes are at the end
	start map[cell]bool // where they were at the start
}

// walk follows a solution from (0, 0). A capital whose next cell has no known box
// shows one: it stood there at the start. What cannot be done is found when the level
// is played.
func walk(solution string) *walked {
	w := &walked{floor: map[cell]bool{{}: true}, boxes: map[cell]bool{}, start: map[cell]bool{}}
	at := cell{}
	for i := range len(solution) {
		dy, dx, _ := move(solution[i])
		next, beyond := cell{at.y + dy, at.x + dx}, cell{at.y + 2*dy, at.x + 2*dx}
		if pushes(solution[i]) {
			if !w.boxes[next] {
				w.start[next] = true
			}
			delete(w.boxes, next)
			w.boxes[beyond], w.floor[beyond] = true, true
		}
		w.floor[next] = true
		at = next
	}
	return w
}

// draw returns the rows of the level: floor is what was touched, targets are where
// boxes are at the end, and all else is wall.
func (w *walked) draw() ([]string, error) {
	var low, high cell
	for c := range w.floor {
		low, high = cell{min(low.y, c.y), min(low.x, c.x)}, cell{max(high.y, c.y), max(high.x, c.x)}
	}
	if high.y-low.y+3 > maxSide || high.x-low.x+3 > maxSide {
		return nil, fmt.Errorf("its solution walks over %d rows and %d columns: a level has at most %d", high.y-low.y+1, high.x-low.x+1, maxSide)
	}
	var rows []string
	for y := low.y - 1; y <= high.y+1; y++ {
		row := make([]byte, 0, maxSide)
		for x := low.x - 1; x <= high.x+1; x++ {
			row = append(row, w.char(cell{y, x}))
		}
		rows = append(rows, string(row))
	}
	return rows, nil
}

func (w *walked) char(c cell) byte {
	switch target := w.boxes[c]; {
	case w.start[c] && target:
		return '*'
	case w.start[c]:
		return '$'
	case c == cell{} && target:
		return '+'
	case c == cell{}:
		return '@'
	case target:
		return '.'
	case w.floor[c]:
		return ' '
	}
	return '#'
}

// boxesOfBounds is the number of boxes with which rewards of the class large-v1
// were computed for the published bounds: the class has two definitions.
const boxesOfBounds = 4

// fit finds the number of boxes that the reward counts with: that of the level, or
// of its class. It differs if a box begins on its target and never moves.
func (l *level) fit(c class) error {
	g, _, err := parse(l.rows)
	if err != nil {
		return err
	}
	counts := []int{g.boxes(), c.boxes}
	if l.Class == "large-v1" {
		counts = append(counts, boxesOfBounds)
	}
	var got float64
	for i, n := range counts {
		sum, err := g.replay(l.Solution, n)
		if err != nil {
			return err
		}
		if i == 0 {
			got = sum
		}
		if math.Abs(sum-*l.Bound) <= tolerance {
			l.Boxes = n
			return nil
		}
	}
	return fmt.Errorf("its solution gives the reward %.10g, and the file says %.10g", got, *l.Bound)
}
