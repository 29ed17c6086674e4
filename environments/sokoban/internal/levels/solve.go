package levels

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/environments/sokoban/internal/room"
)

// The errors of Solve.
var (
	ErrNoSolution = errors.New("the level has no solution of so many moves")
	ErrGaveUp     = errors.New("the search has looked at as many states as it may")
)

// maxBoxes is how many boxes a level may have that Solve can solve.
const maxBoxes = 8

// state is a room between two pushes.
type state struct {
	boxes  [maxBoxes]int16 // sorted; those that do not exist are the largest
	player int16
}

// node is a state of the search.
type node struct {
	state

	parent int32
	dir    room.Direction // of the push that led here
	moves  int32          // from the start
	rating int32          // moves, and at least so many to the end
}

// search is A* over pushes, by the number of moves.
type search struct {
	r     *room.Room
	n     int       // boxes
	far   [][]int32 // by target, then by cell: pushes of a box that is alone; never if there is no way
	nodes []node
	best  map[state]int32
	open  []int32 // nodes, a heap
	dist  []int32 // of cells from the player, in the state that is expanded
	queue []int
	box   []bool
}

const never = int32(1) << 20

// Solve returns a shortest solution of at most so many moves, of a room with a wall
// all around. It looks at no more
// than so many states. Fails with ErrNoSolution or ErrGaveUp.
func Solve(r *room.Room, moves, states int) ([]room.Direction, error) {
	s := &search{r: r, n: r.Boxes(), best: map[state]int32{}, dist: make([]int32, len(r.Wall)), box: make([]bool, len(r.Wall))}
	if s.n > maxBoxes {
		return nil, fmt.Errorf("%w: it has %d boxes, and at most %d are possible", ErrGaveUp, s.n, maxBoxes)
	}
	for at, t := range r.Target {
		if t {
			s.far = append(s.far, s.pushes(at))
		}
	}
	first := state{player: int16(r.Player)} //nolint:gosec // a room has at most MaxSide² cells
	boxes := first.boxes[:0]
	for at, b := range r.Box {
		if b {
			boxes = append(boxes, int16(at)) //nolint:gosec // as above
		}
	}
	s.add(node{state: first, parent: -1}, int32(moves)) //nolint:gosec // small
	for len(s.open) > 0 {
		at, _ := heap.Pop(s).(int32)
		n := s.nodes[at]
		if n.moves > s.best[n.state] {
			continue // a shorter way was found
		}
		if s.solved(&n.state) {
			return s.path(at), nil
		}
		if len(s.nodes) >= states {
			return nil, ErrGaveUp
		}
		s.expand(at, int32(moves)) //nolint:gosec // small
	}
	return nil, ErrNoSolution
}

// pushes returns how many pushes a box needs from each cell to a target, if there
// is no other box, and the player can be anywhere.
func (s *search) pushes(target int) []int32 {
	far := slices.Repeat([]int32{never}, len(s.r.Wall))
	far[target] = 0
	for todo := []int{target}; len(todo) > 0; todo = todo[1:] {
		for d := range room.Directions {
			from := s.r.Next(todo[0], room.Direction(d))
			if s.r.Wall[from] || far[from] != never {
				continue
			}
			if behind := s.r.Next(from, room.Direction(d)); !s.r.Wall[behind] {
				far[from] = far[todo[0]] + 1
				todo = append(todo, from)
			}
		}
	}
	return far
}

func (s *search) solved(x *state) bool {
	for _, b := range x.boxes[:s.n] {
		if !s.r.Target[b] {
			return false
		}
	}
	return true
}

// least returns how many moves a state needs at least: the pushes of the cheapest
// way to share the targets among the boxes, and the way to the nearest box.
func (s *search) least(x *state) int32 {
	costs := slices.Repeat([]int32{never}, 1<<s.n)
	costs[0] = 0
	for mask := range costs {
		used := 0
		for m := mask; m > 0; m &= m - 1 {
			used++
		}
		if used == s.n || costs[mask] >= never {
			continue
		}
		for t := range s.far {
			if mask&(1<<t) == 0 {
				next := mask | 1<<t
				costs[next] = min(costs[next], costs[mask]+s.far[t][x.boxes[used]])
			}
		}
	}
	sum := costs[len(costs)-1]
	if sum == 0 || sum >= never {
		return sum
	}
	near := never
	for _, b := range x.boxes[:s.n] {
		y, x := int(b)/s.r.Cols-int(x.player)/s.r.Cols, int(b)%s.r.Cols-int(x.player)%s.r.Cols
		near = min(near, int32(abs(y)+abs(x))) //nolint:gosec // small
	}
	return sum + near - 1
}

func (s *search) add(n node, most int32) {
	if before, ok := s.best[n.state]; ok && before <= n.moves {
		return
	}
	n.rating = n.moves + s.least(&n.state)
	if n.rating > most {
		return
	}
	s.best[n.state] = n.moves
	s.nodes = append(s.nodes, n)
	heap.Push(s, int32(len(s.nodes)-1)) //nolint:gosec // bounded by states
}

// walk finds the distances of cells from the player.
func (s *search) walk(x *state) {
	clear(s.box)
	for _, b := range x.boxes[:s.n] {
		s.box[b] = true
	}
	for i := range s.dist {
		s.dist[i] = never
	}
	s.dist[x.player] = 0
	s.queue = append(s.queue[:0], int(x.player))
	for i := 0; i < len(s.queue); i++ {
		at := s.queue[i]
		for d := range room.Directions {
			if to := s.r.Next(at, room.Direction(d)); !s.r.Wall[to] && !s.box[to] && s.dist[to] == never {
				s.dist[to] = s.dist[at] + 1
				s.queue = append(s.queue, to)
			}
		}
	}
}

func (s *search) expand(at, most int32) {
	n := s.nodes[at]
	s.walk(&n.state)
	for i, b := range n.boxes[:s.n] {
		for d := range room.Directions {
			dir := room.Direction(d)
			to := s.r.Next(int(b), dir)
			from := 2*int(b) - to
			if s.r.Wall[to] || s.box[to] || s.dist[from] == never {
				continue
			}
			next := node{state: n.state, parent: at, dir: dir, moves: n.moves + s.dist[from] + 1}
			next.boxes[i], next.player = int16(to), b //nolint:gosec // a cell
			slices.Sort(next.boxes[:s.n])
			s.add(next, most)
		}
	}
}

// path returns the moves that lead to a node.
func (s *search) path(at int32) (moves []room.Direction) {
	var nodes []node
	for ; at >= 0; at = s.nodes[at].parent {
		nodes = append(nodes, s.nodes[at])
	}
	slices.Reverse(nodes)
	for i := 1; i < len(nodes); i++ {
		before, n := &nodes[i-1], &nodes[i]
		// The box was where the player is now; the player stood behind it.
		from := 2*int(n.player) - s.r.Next(int(n.player), n.dir)
		s.walk(&before.state)
		var way []room.Direction
		for at := from; s.dist[at] > 0; {
			for d := range room.Directions {
				if prior := s.r.Next(at, opposite(room.Direction(d))); s.dist[prior] == s.dist[at]-1 {
					way, at = append(way, room.Direction(d)), prior
					break
				}
			}
		}
		slices.Reverse(way)
		moves = append(append(moves, way...), n.dir)
	}
	return moves
}

func opposite(d room.Direction) room.Direction {
	return [...]room.Direction{room.Down, room.Up, room.Right, room.Left}[d]
}

// Len implements heap.Interface.
func (s *search) Len() int { return len(s.open) }

// Less implements heap.Interface: among equals the one with more moves first.
func (s *search) Less(i, j int) bool {
	a, b := &s.nodes[s.open[i]], &s.nodes[s.open[j]]
	if a.rating != b.rating {
		return a.rating < b.rating
	}
	return a.moves > b.moves
}

// Swap implements heap.Interface.
func (s *search) Swap(i, j int) { s.open[i], s.open[j] = s.open[j], s.open[i] }

// Push implements heap.Interface.
func (s *search) Push(x any) {
	if n, ok := x.(int32); ok {
		s.open = append(s.open, n)
	}
}

// Pop implements heap.Interface.
func (s *search) Pop() any {
	last := s.open[len(s.open)-1]
	s.open = s.open[:len(s.open)-1]
	return last
}
