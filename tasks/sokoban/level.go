package sokoban

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/tasks/internal/folder"
)

// level is one level of a file.
type level struct {
	about

	id      string // in the path of the task
	name    string
	file    string
	line    int // of its title, or of its name in JSON
	rows    []string
	rebuilt bool // of its solution
	grid    *grid
	entry   *entry // what a JSON file says about it; nil: nothing

	problems []task.Problem
}

// about is what a JSON file says about a level.
type about struct {
	Class    string   `berth:"class" default:"" doc:"Class of the level, which decides max_steps."`
	Seed     *uint64  `berth:"seed" doc:"What the generator made the level with."`
	Bound    *float64 `berth:"bound" doc:"Summed reward of the best known solution."`
	Solution string   `berth:"solution" default:"" doc:"Moves u, d, l, r; a capital where a box is pushed."`
	Boxes    int      `berth:"num_boxes" default:"0" doc:"Number of boxes that rewards count with. 0: as many as the level has."`
	Most     int      `berth:"max_steps" default:"0" doc:"After how many steps the game is over. 0: as the class says."`
}

// class is what a class of levels says.
type class struct{ boxes, most int }

// defaultMost is max_steps of a level without a class.
const defaultMost = 200

var classes = map[string]class{
	"small-v0": {2, 200}, "small-v1": {3, 200}, "v0": {3, 200}, "v1": {4, 120}, "v2": {5, 200},
	"large-v0": {3, 300}, "large-v1": {5, 300}, "huge-v0": {5, 300},
}

func classNames() []string {
	return []string{"small-v0", "small-v1", "v0", "v1", "v2", "large-v0", "large-v1", "huge-v0"}
}

func (l *level) bad(line int, summary, detail string) {
	l.problems = append(l.problems, task.Problem{File: l.file, Line: line, Key: l.name, Severity: task.Error, Summary: summary, Detail: detail})
}

// levels reads all levels of a file. A problem means that there is no level in it
// that could be looked at.
func levels(dir, source string) ([]level, *task.Problem, error) {
	data, err := untrusted.Read(dir, source, maxFile)
	if err != nil {
		return notPlain(source, err)
	}
	if pointer, refused := folder.Problem(folder.NoPointer(source, data)); refused {
		return nil, &pointer, nil
	}
	data, marked := folder.Unmarked(source, data)
	if source == fileBounds {
		return bounds(source, data)
	}
	list := texts(source, data)
	if marked != nil && len(list) > 0 {
		list[0].problems = append(list[0].problems, *marked)
	}
	switch {
	case len(list) == 0:
		return nil, &task.Problem{File: source, Line: 1, Severity: task.Error, Summary: "There is no level in the file", Detail: "Each level begins with a line such as \"; 1\"."}, nil
	case len(list) > maxLevels:
		return nil, &task.Problem{File: source, Severity: task.Error, Summary: "There are too many levels in the file", Detail: fmt.Sprintf("It has %d, and at most %d are read.", len(list), maxLevels)}, nil
	}
	data, err = untrusted.Read(dir, aboutOf(source), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil, nil
	}
	if err != nil {
		return notPlain(aboutOf(source), err)
	}
	entries, problem := members(aboutOf(source), data)
	if problem != nil {
		return nil, problem, nil
	}
	byName, used := map[string]*entry{}, map[string]bool{}
	for i := range entries {
		byName[entries[i].name] = &entries[i]
	}
	for i := range list {
		if list[i].entry = byName[list[i].name]; list[i].entry != nil {
			used[list[i].name] = true
		}
	}
	for i := range entries {
		if e := &entries[i]; !used[e.name] {
			return nil, &task.Problem{
				File: aboutOf(source), Line: e.line, Key: e.name, Severity: task.Error, Summary: "There is no level of this name",
				Detail: fmt.Sprintf("%.100q is not in %s.", e.name, source),
			}, nil
		}
	}
	return list, nil, nil
}

// notPlain makes a problem of an error about a file that is a link or a pipe.
func notPlain(file string, err error) ([]level, *task.Problem, error) {
	if !errors.Is(err, untrusted.ErrNotPlain) {
		return nil, nil, err
	}
	return nil, &task.Problem{
		File: file, Severity: task.Error, Summary: "Not a regular file", Detail: "Put the file itself into the dataset: links are not followed.",
	}, nil
}

// title is the name of a level.
var title = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// texts reads levels that are written as rows of characters.
func texts(source string, data []byte) (list []level) {
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if name, ok := strings.CutPrefix(line, ";"); ok {
			list = append(list, level{name: strings.TrimSpace(name), file: source, line: n})
			l := &list[len(list)-1]
			if _, err := strconv.Atoi(l.name); err == nil && source != fileLevels {
				l.name = strings.TrimSuffix(source, path.Ext(source)) + "-" + l.name // Boxoban counts from 0 in each file
			}
			if l.id = l.name; !title.MatchString(l.name) {
				l.id = fmt.Sprintf("@%d", len(list))
				l.bad(n, "Not the name of a level", fmt.Sprintf("%.100q: write \"; NAME\" with letters, digits, \".\", \"_\" and \"-\".", l.name))
			}
			continue
		}
		if len(list) > 0 && strings.TrimSpace(line) != "" {
			l := &list[len(list)-1]
			l.rows = append(l.rows, line)
		}
	}
	return list
}

// entry is a member of a JSON object, with its line.
type entry struct {
	name string
	line int
	raw  json.RawMessage
}

// members returns the members of a JSON object in their order.
func members(file string, data []byte) (all []entry, problem *task.Problem) {
	at := func(offset int64) int { return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n")) }
	d := json.NewDecoder(bytes.NewReader(data))
	wrong := func(err error) *task.Problem {
		return &task.Problem{File: file, Line: at(d.InputOffset()), Severity: task.Error, Summary: "Not a JSON object", Detail: err.Error()}
	}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, wrong(fmt.Errorf("the file begins with %v: write an object of levels by their names", open))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, wrong(err)
		}
		name, _ := key.(string)
		e := entry{name: name, line: at(d.InputOffset())}
		if err = d.Decode(&e.raw); err != nil {
			return nil, wrong(err)
		}
		if all = append(all, e); len(all) > maxLevels {
			return nil, wrong(fmt.Errorf("it has more than %d members", maxLevels))
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, wrong(err)
	}
	return all, nil
}

// tell adds what a JSON file says about a level.
func (l *level) tell() {
	if l.entry == nil {
		return
	}
	if l.rebuilt {
		if err := l.rebuild(l.entry); err != nil {
			l.bad(l.line, "The level cannot be rebuilt", err.Error())
		}
		return
	}
	if err := config.Decode(l.entry.raw, &l.about); err != nil {
		l.problems = append(l.problems, task.Problem{File: aboutOf(l.file), Line: l.entry.line, Key: l.name, Severity: task.Error, Summary: "Wrong data of a level", Detail: err.Error()})
	} else if l.Solution != "" {
		l.problems = append(l.problems, l.solution(aboutOf(l.file), l.entry.line)...)
	}
}

// solution checks a solution, without knowing the level yet.
func (l *level) solution(file string, line int) []task.Problem {
	p := task.Problem{File: file, Line: line, Key: l.name, Severity: task.Error, Summary: "Wrong solution of a level"}
	if len(l.Solution) > maxMoves {
		p.Detail = fmt.Sprintf("It has %d moves, and at most %d are read.", len(l.Solution), maxMoves)
		return []task.Problem{p}
	}
	for i := range len(l.Solution) {
		if _, _, ok := move(l.Solution[i]); !ok {
			p.Detail = fmt.Sprintf("Move %d is %q: the moves are u, d, l and r, and U, D, L and R where a box is pushed.", i+1, string(l.Solution[i]))
			return []task.Problem{p}
		}
	}
	return nil
}

// check reports what is wrong with a level and its solution.
func (l *level) check() {
	l.tell()
	if task.Broken(l.problems) {
		return
	}
	c, known := classes[l.Class]
	if l.Class != "" && !known {
		l.bad(l.line, "Unknown class of level", fmt.Sprintf("%q: the classes are %s.%s", l.Class, strings.Join(classNames(), ", "), suggest.Hint(l.Class, classNames())))
		return
	}
	if l.Most == 0 {
		l.Most = max(c.most, 0)
	}
	if l.Most == 0 {
		l.Most = defaultMost
	}
	if l.Boxes < 0 || l.Boxes > maxSide*maxSide || l.Most < 1 || l.Most > 1_000_000 {
		l.bad(l.line, "Number of a level is out of range", fmt.Sprintf("num_boxes is %d and max_steps is %d.", l.Boxes, l.Most))
		return
	}
	if l.Bound != nil && (math.IsNaN(*l.Bound) || math.Abs(*l.Bound) > 1e6) {
		l.bad(l.line, "Bound of a level is out of range", fmt.Sprintf("Got %g. It is the summed reward of a solution.", *l.Bound))
		return
	}
	g, row, err := parse(l.rows)
	if err != nil {
		line := l.line
		if !l.rebuilt {
			line += row
		}
		l.bad(line, "Not a level that can be played", err.Error())
		return
	}
	l.grid = g
	if l.Solution == "" {
		return
	}
	boxes := l.Boxes
	if boxes == 0 {
		boxes = g.boxes()
	}
	got, err := g.replay(l.Solution, boxes)
	switch {
	case err != nil:
		l.bad(l.line, "Wrong solution of a level", err.Error())
	case l.Bound != nil && math.Abs(got-*l.Bound) > tolerance:
		l.bad(l.line, "Reward does not fit the solution", fmt.Sprintf("The solution gives %.10g, and the bound is %.10g.", got, *l.Bound))
	}
}

// tolerance is how much rewards may differ: they are sums of tenths.
const tolerance = 1e-6
