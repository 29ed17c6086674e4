// Package levels makes levels and solves them.
//
// The way rooms are made is that of gym-sokoban: a random walk digs floor, and the
// solved room is played backwards. The random numbers are our own, so rooms differ
// from those of that program. It must not know surfaces or files.
package levels

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/berth-eval/berth/environments/sokoban/internal/room"
)

// Class is a kind of level.
type Class struct {
	Name       string
	Rows, Cols int
	Boxes      int
	Walk       int // steps of the random walk
}

// Classes are those of gym-sokoban, small ones first.
var Classes = []Class{
	{"small-v0", 7, 7, 2, walk(7, 7)},
	{"small-v1", 7, 7, 3, walk(7, 7)},
	{"v0", 10, 10, 3, walk(10, 10)},
	{"v1", 10, 10, 4, walk(10, 10)},
	{"v2", 10, 10, 5, 40},
	{"large-v0", 13, 11, 3, 43},
	{"large-v1", 13, 11, 5, 43},
	{"huge-v0", 13, 13, 5, 50},
}

// walk is how long a walk is if the class does not say so.
func walk(rows, cols int) int { return int(1.7 * float64(rows+cols)) }

const (
	turn      = 0.35    // the probability of another direction before a step of the walk
	maxStates = 300_000 // that playing backwards looks at
	maxDepth  = 300     // moves of playing backwards
	tries     = 100     // rooms, until one can be played
)

// masks are what the walk digs around its place, as offsets from it.
var masks = [][][2]int{
	{{0, -1}, {0, 0}, {0, 1}},
	{{-1, 0}, {0, 0}, {1, 0}},
	{{0, -1}, {0, 0}, {1, 0}},
	{{0, -1}, {0, 0}, {1, -1}, {1, 0}},
	{{0, 0}, {0, 1}, {1, 0}},
}

var errNone = errors.New("no room of the class can be played")

// Generate makes a level. It can be solved, has the boxes of its class, and none of
// them is on a target. The same seed gives the same level.
func Generate(c Class, seed uint64) (*room.Room, error) {
	dice := rand.New(rand.NewPCG(seed, 0x50c0)) //nolint:gosec // not for secrets
	for range tries {
		r := dig(c, dice)
		if !furnish(r, c.Boxes, dice) {
			continue
		}
		if b := backwards(r); b.score > 0 {
			return b.best, nil
		}
	}
	return nil, fmt.Errorf("%w: %s, seed %d", errNone, c.Name, seed)
}

// dig makes a room without boxes.
func dig(c Class, dice *rand.Rand) *room.Room {
	n := c.Rows * c.Cols
	r := &room.Room{Rows: c.Rows, Cols: c.Cols, Wall: make([]bool, n), Target: make([]bool, n), Box: make([]bool, n)}
	for i := range r.Wall {
		r.Wall[i] = true
	}
	ways := [][2]int{{1, 0}, {0, 1}, {-1, 0}, {0, -1}}
	way := ways[dice.IntN(len(ways))]
	y, x := 1+dice.IntN(c.Rows-1), 1+dice.IntN(c.Cols-1)
	for range c.Walk {
		if dice.Float64() < turn {
			way = ways[dice.IntN(len(ways))]
		}
		y, x = min(max(y+way[0], 1), c.Rows-2), min(max(x+way[1], 1), c.Cols-2)
		for _, o := range masks[dice.IntN(len(masks))] {
			if i, j := y+o[0], x+o[1]; i > 0 && j > 0 && i < c.Rows-1 && j < c.Cols-1 {
				r.Wall[i*c.Cols+j] = false
			}
		}
	}
	return r
}

// furnish places the player, and boxes on targets. It reports whether there is
// room for them.
func furnish(r *room.Room, boxes int, dice *rand.Rand) bool {
	var free []int
	for i, w := range r.Wall {
		if !w {
			free = append(free, i)
		}
	}
	if len(free) <= boxes+1 {
		return false
	}
	dice.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	r.Player = free[0]
	for _, at := range free[1 : 1+boxes] {
		r.Box[at], r.Target[at] = true, true
	}
	return true
}

// reverse plays a solved room backwards, depth first.
type reverse struct {
	of    *room.Room
	from  []int // where each box was at the start, which is its target
	seen  map[string]bool
	best  *room.Room
	score int
}

// position is a state of a room that is played backwards.
type position struct {
	player int
	boxes  []int // where each box is
	last   int   // the box that was pulled last, or -1
	swaps  int   // how often another box was pulled than before
}

func backwards(r *room.Room) *reverse {
	b := &reverse{of: r, seen: map[string]bool{}}
	for i, box := range r.Box {
		if box {
			b.from = append(b.from, i)
		}
	}
	b.search(position{player: r.Player, boxes: b.from, last: -1}, maxDepth)
	return b
}

func (b *reverse) search(p position, left int) {
	if left == 0 || len(b.seen) >= maxStates {
		return
	}
	k := p.key()
	if b.seen[k] {
		return
	}
	b.seen[k] = true
	if s := b.rate(p); s > b.score {
		b.score, b.best = s, b.room(p)
	}
	for _, pulls := range []bool{true, false} {
		for d := range room.Directions {
			if next, ok := b.move(p, room.Direction(d), pulls); ok {
				b.search(next, left-1)
			}
		}
	}
}

func (p *position) key() string {
	sorted := slices.Sorted(slices.Values(p.boxes))
	k := make([]byte, 0, 2*len(sorted)+2)
	for _, at := range append(sorted, p.player) {
		k = append(k, byte(at>>8), byte(at))
	}
	return string(k)
}

// rate returns the score of a position as a start of the level: the number of
// swaps times the distances of the boxes from where they were. It is 0 if a target
// is covered.
func (b *reverse) rate(p position) int {
	sum := 0
	for i, at := range p.boxes {
		if b.of.Target[at] {
			return 0
		}
		sum += abs(at/b.of.Cols-b.from[i]/b.of.Cols) + abs(at%b.of.Cols-b.from[i]%b.of.Cols)
	}
	if b.of.Target[p.player] {
		return 0
	}
	return sum * p.swaps
}

func abs(n int) int { return max(n, -n) }

func (b *reverse) room(p position) *room.Room {
	r := b.of.Clone()
	clear(r.Box)
	for _, at := range p.boxes {
		r.Box[at] = true
	}
	r.Player = p.player
	return r
}

// move moves the player backwards, who may pull the box behind.
func (b *reverse) move(p position, d room.Direction, pulls bool) (position, bool) {
	to := b.of.Next(p.player, d)
	if b.of.Wall[to] || slices.Contains(p.boxes, to) {
		return p, false
	}
	behind := 2*p.player - to
	box := slices.Index(p.boxes, behind)
	if pulls && box < 0 {
		return p, false // this is the move without a box
	}
	if pulls {
		p.boxes = slices.Clone(p.boxes)
		p.boxes[box] = p.player
		if box != p.last {
			p.last, p.swaps = box, p.swaps+1
		}
	}
	p.player = to
	return p, true
}
