package sokoban

import (
	"fmt"
	"slices"
	"strings"
)

// grid is a room: what is needed to check a level and its solution.
type grid struct {
	rows, cols int
	wall       []bool
	target     []bool
	box        []bool
	player     int
}

// parse reads the rows of a level. An error has the row that it is about, from 1
// on; 0 means all of it.
func parse(rows []string) (*grid, int, error) {
	cols := 0
	for i, r := range rows {
		if cols = max(cols, len(r)); i >= maxSide || cols > maxSide {
			return nil, i + 1, fmt.Errorf("it has %d rows, and a row of %d characters: at most %d are possible", len(rows), cols, maxSide)
		}
	}
	n := len(rows) * cols
	g := &grid{rows: len(rows), cols: cols, wall: make([]bool, n), target: make([]bool, n), box: make([]bool, n), player: -1}
	for y, row := range rows {
		for x := range len(row) {
			at := y*cols + x
			switch c := row[x]; c {
			case '#', ' ', '$', '.', '@', '*', '+':
				g.wall[at] = c == '#'
				g.box[at] = c == '$' || c == '*'
				g.target[at] = c == '.' || c == '*' || c == '+'
				if c != '@' && c != '+' {
					continue
				}
				if g.player >= 0 {
					return nil, y + 1, fmt.Errorf("column %d has a second player", x+1)
				}
				g.player = at
			default:
				return nil, y + 1, fmt.Errorf("column %d has %q: the characters are # wall, blank floor, $ box, . target, @ player, * box on target, + player on target", x+1, string(c))
			}
		}
	}
	row, err := g.check()
	return g, row, err
}

func (g *grid) boxes() (n int) {
	for _, b := range g.box {
		if b {
			n++
		}
	}
	return n
}

func (g *grid) check() (row int, err error) {
	targets := 0
	for _, t := range g.target {
		if t {
			targets++
		}
	}
	switch boxes := g.boxes(); {
	case g.player < 0:
		return 0, fmt.Errorf("it has no player: write @, or + on a target")
	case boxes == 0:
		return 0, fmt.Errorf("it has no box")
	case boxes > targets:
		return 0, fmt.Errorf("it has more boxes than targets: %d and %d", boxes, targets)
	case boxes < targets:
		return 0, fmt.Errorf("it has fewer boxes than targets, so that it cannot be solved: %d and %d", boxes, targets)
	}
	seen := make([]bool, len(g.wall))
	for todo := []int{g.player}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		y, x := at/g.cols, at%g.cols
		if y == 0 || x == 0 || y == g.rows-1 || x == g.cols-1 {
			return y + 1, fmt.Errorf("it is open at the edge, in column %d: close it with #", x+1)
		}
		for _, next := range []int{at - g.cols, at + g.cols, at - 1, at + 1} {
			if !g.wall[next] {
				todo = append(todo, next)
			}
		}
	}
	return 0, nil
}

// move returns the offset of a letter of a solution, and whether it pushes.
func move(letter byte) (dy, dx int, ok bool) {
	switch letter | 0x20 {
	case 'u':
		return -1, 0, true
	case 'd':
		return 1, 0, true
	case 'l':
		return 0, -1, true
	case 'r':
		return 0, 1, true
	}
	return 0, 0, false
}

func pushes(letter byte) bool { return letter&0x20 == 0 }

// replay plays a solution and returns its summed reward. The count of boxes begins
// with that number, as rewards do. A solution that does what cannot be done, or
// solves nothing, is an error.
func (g *grid) replay(solution string, boxes int) (sum float64, err error) {
	box, player, count := slices.Clone(g.box), g.player, 0
	for i := range len(solution) {
		dy, dx, _ := move(solution[i])
		step := dy*g.cols + dx
		next := player + step
		switch {
		case g.wall[next]:
			return 0, fmt.Errorf("move %d, %q, walks through a wall", i+1, solution[i:i+1])
		case box[next] && !pushes(solution[i]):
			return 0, fmt.Errorf("move %d, %q, walks through a box: a capital pushes", i+1, solution[i:i+1])
		case !box[next] && pushes(solution[i]):
			return 0, fmt.Errorf("move %d, %q, pushes a box that is not there", i+1, solution[i:i+1])
		case box[next] && (g.wall[next+step] || box[next+step]):
			return 0, fmt.Errorf("move %d, %q, pushes a box against a wall or a box", i+1, solution[i:i+1])
		case box[next]:
			box[next], box[next+step] = false, true
		}
		player = next
		empty := 0
		for at, t := range g.target {
			if t && !box[at] {
				empty++
			}
		}
		sum += -0.1
		switch now := boxes - empty; {
		case now > count:
			sum++
		case now < count:
			sum--
		}
		if count = boxes - empty; empty > 0 {
			continue
		}
		if sum += 10; i < len(solution)-1 {
			return 0, fmt.Errorf("the level is solved after %d of %d moves", i+1, len(solution))
		}
		return sum, nil
	}
	return 0, fmt.Errorf("the %d moves do not solve the level", len(solution))
}

// text returns the level of the grid, rows parted by "/".
func (g *grid) text() string {
	var b strings.Builder
	for at := range g.wall {
		if at > 0 && at%g.cols == 0 {
			b.WriteByte('/')
		}
		switch {
		case g.wall[at]:
			b.WriteByte('#')
		case g.box[at] && g.target[at]:
			b.WriteByte('*')
		case g.box[at]:
			b.WriteByte('$')
		case at == g.player && g.target[at]:
			b.WriteByte('+')
		case at == g.player:
			b.WriteByte('@')
		case g.target[at]:
			b.WriteByte('.')
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}
