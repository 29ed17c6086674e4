// Package room is the game: a room with walls, boxes and targets, what a move does
// to it, and how it looks.
//
// It must not know surfaces, files or models. Its rules and rewards are those of
// gym-sokoban 0.0.6; a test compares them with that program.
package room

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxSide is the most rows and columns of a room. The usual ones have at most 13.
const MaxSide = 40

// Room is the state of a room. Cells are numbered by rows, beginning at 0.
type Room struct {
	Rows, Cols int
	Wall       []bool
	Target     []bool
	Box        []bool
	Player     int
}

// The characters of a level, as in Boxoban.
const (
	charWall           = '#'
	charFloor          = ' '
	charBox            = '$'
	charTarget         = '.'
	charPlayer         = '@'
	charBoxOnTarget    = '*'
	charPlayerOnTarget = '+'
)

// ErrLevel means that a text is not a level that can be played.
var ErrLevel = errors.New("the level is wrong")

// Parse reads a level. Its rows are parted by "/" or by line ends; a short row goes
// on with floor. Fails with ErrLevel, which names row and column, counted from 1.
func Parse(text string) (*Room, error) {
	rows := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\n", "/"), "/"), "/")
	cols := 0
	for _, r := range rows {
		cols = max(cols, len(r))
	}
	if len(rows) > MaxSide || cols > MaxSide {
		return nil, fmt.Errorf("%w: it has %d rows and %d columns, and at most %d are possible", ErrLevel, len(rows), cols, MaxSide)
	}
	n := len(rows) * cols
	r := &Room{Rows: len(rows), Cols: cols, Wall: make([]bool, n), Target: make([]bool, n), Box: make([]bool, n), Player: -1}
	for y, row := range rows {
		for x := range len(row) {
			if err := r.put(y, x, row[x]); err != nil {
				return nil, err
			}
		}
	}
	return r, r.check()
}

func (r *Room) put(y, x int, c byte) error {
	at := y*r.Cols + x
	switch c {
	case charWall:
		r.Wall[at] = true
	case charFloor:
	case charBox, charBoxOnTarget:
		r.Box[at], r.Target[at] = true, c == charBoxOnTarget
	case charTarget:
		r.Target[at] = true
	case charPlayer, charPlayerOnTarget:
		if r.Player >= 0 {
			return fmt.Errorf("%w: row %d, column %d has a second player", ErrLevel, y+1, x+1)
		}
		r.Player, r.Target[at] = at, c == charPlayerOnTarget
	default:
		return fmt.Errorf("%w: row %d, column %d has %q: the characters are # wall, blank floor, $ box, . target, @ player, * box on target, + player on target",
			ErrLevel, y+1, x+1, string(c))
	}
	return nil
}

// check says why a room cannot be played.
func (r *Room) check() error {
	boxes, targets := count(r.Box), count(r.Target)
	switch {
	case r.Player < 0:
		return fmt.Errorf("%w: it has no player: write @, or + on a target", ErrLevel)
	case boxes == 0:
		return fmt.Errorf("%w: it has no box", ErrLevel)
	case boxes > targets:
		return fmt.Errorf("%w: it has more boxes than targets (%d and %d)", ErrLevel, boxes, targets)
	case boxes < targets:
		return fmt.Errorf("%w: it has fewer boxes than targets (%d and %d), so that it cannot be solved", ErrLevel, boxes, targets)
	}
	seen := make([]bool, len(r.Wall))
	for at := range r.flood(seen) {
		if y, x := at/r.Cols, at%r.Cols; y == 0 || x == 0 || y == r.Rows-1 || x == r.Cols-1 {
			return fmt.Errorf("%w: it is open at the edge, in row %d, column %d", ErrLevel, y+1, x+1)
		}
	}
	return nil
}

// flood yields the cells that the player could reach if there were no boxes.
func (r *Room) flood(seen []bool) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		todo := []int{r.Player}
		seen[r.Player] = true
		for len(todo) > 0 {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if !yield(at) {
				return
			}
			for d := range Directions {
				if next, ok := r.next(at, Direction(d)); ok && !r.Wall[next] && !seen[next] {
					seen[next] = true
					todo = append(todo, next)
				}
			}
		}
	}
}

func count(cells []bool) (n int) {
	for _, c := range cells {
		if c {
			n++
		}
	}
	return n
}

// Direction is one of Up, Down, Left and Right.
type Direction int

// The directions, in the order of gym-sokoban.
const (
	Up Direction = iota
	Down
	Left
	Right
)

// Directions is how many directions there are.
const Directions = 4

// next returns the cell beside another one. ok is false outside of the room.
func (r *Room) next(at int, d Direction) (cell int, ok bool) {
	y, x := at/r.Cols, at%r.Cols
	switch d {
	case Up:
		y--
	case Down:
		y++
	case Left:
		x--
	case Right:
		x++
	}
	return y*r.Cols + x, y >= 0 && y < r.Rows && x >= 0 && x < r.Cols
}

// Next returns the cell beside another one, which must not be at the edge.
func (r *Room) Next(at int, d Direction) int { n, _ := r.next(at, d); return n }

// Move moves the player, who pushes a box that is there and can be pushed.
func (r *Room) Move(d Direction) (moved, pushed bool) {
	to, ok := r.next(r.Player, d)
	if !ok || r.Wall[to] {
		return false, false
	}
	if r.Box[to] {
		beyond, ok := r.next(to, d)
		if !ok || r.Wall[beyond] || r.Box[beyond] {
			return false, false
		}
		r.Box[to], r.Box[beyond], pushed = false, true, true
	}
	r.Player = to
	return true, pushed
}

// Empty returns how many targets have no box.
func (r *Room) Empty() (n int) {
	for i, t := range r.Target {
		if t && !r.Box[i] {
			n++
		}
	}
	return n
}

// Boxes returns how many boxes there are.
func (r *Room) Boxes() int { return count(r.Box) }

// Clone returns a copy that shares nothing that changes.
func (r *Room) Clone() *Room {
	c := *r
	c.Box = slices.Clone(r.Box)
	return &c
}

// String returns the rows of the room, each with a line end.
func (r *Room) String() string {
	var b strings.Builder
	for at := range r.Wall {
		b.WriteByte(chars[r.kind(at)])
		if at%r.Cols == r.Cols-1 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Level returns the rows of the room, parted by "/".
func (r *Room) Level() string { return strings.ReplaceAll(strings.TrimSpace(r.String()), "\n", "/") }

// Hash returns "sha256:" and the digits of the hash of the state.
func (r *Room) Hash() string {
	sum := sha256.Sum256([]byte(r.String()))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// The kinds of cells, in the order of gym-sokoban, with the player on a target
// after the player.
const (
	kindWall = iota
	kindFloor
	kindTarget
	kindBoxOnTarget
	kindBox
	kindPlayer
	kindPlayerOnTarget
	kinds
)

// chars are the characters of the kinds.
var chars = [kinds]byte{charWall, charFloor, charTarget, charBoxOnTarget, charBox, charPlayer, charPlayerOnTarget}

func (r *Room) kind(at int) int {
	switch {
	case r.Wall[at]:
		return kindWall
	case r.Box[at] && r.Target[at]:
		return kindBoxOnTarget
	case r.Box[at]:
		return kindBox
	case at == r.Player && r.Target[at]:
		return kindPlayerOnTarget
	case at == r.Player:
		return kindPlayer
	case r.Target[at]:
		return kindTarget
	}
	return kindFloor
}
