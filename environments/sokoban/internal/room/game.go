package room

// The rewards of a step.
var (
	rewardStep  = -0.1
	rewardBox   = 1.0 // a box more on a target; as much is taken for a box less
	rewardSolve = 10.0
)

// Game is a room that is played, with its rewards. It is not safe for concurrent
// use.
type Game struct {
	*Room

	boxes int // that the count begins with
	most  int // steps
	steps int
	first *Room
	// onTarget is the count that rewards follow: boxes minus empty targets. It is 0
	// at the start, whatever the level, so that a box that begins on a target pays
	// at the first step.
	onTarget int
	gained   float64 // since the start, or the last restart, without the cost of steps
}

// Play begins a game. boxes is the number that rewards count with; 0: that of the
// level. most is after how many steps it ends.
func Play(r *Room, boxes, most int) *Game {
	if boxes == 0 {
		boxes = r.Boxes()
	}
	return &Game{Room: r.Clone(), first: r.Clone(), boxes: boxes, most: most}
}

// Result is what a step did.
type Result struct {
	Reward float64
	Moved  bool
	Pushed bool
}

// Solved reports whether no target is empty.
func (g *Game) Solved() bool { return g.Empty() == 0 }

// Over reports whether the steps are used up.
func (g *Game) Over() bool { return g.steps >= g.most }

// Steps returns how many steps were made.
func (g *Game) Steps() int { return g.steps }

// OnTarget returns the number of boxes minus that of empty targets, after the last
// step.
func (g *Game) OnTarget() int { return g.onTarget }

// Gained returns what was paid since the start or the last restart, without the cost
// of steps.
func (g *Game) Gained() float64 { return g.gained }

// Step does a move.
func (g *Game) Step(d Direction) (r Result) {
	g.steps++
	r.Moved, r.Pushed = g.Move(d)
	r.Reward = rewardStep
	empty := g.Empty()
	switch now := g.boxes - empty; {
	case now > g.onTarget:
		r.Reward += rewardBox
		g.gained += rewardBox
	case now < g.onTarget:
		r.Reward -= rewardBox
		g.gained -= rewardBox
	}
	g.onTarget = g.boxes - empty
	if empty == 0 {
		r.Reward += rewardSolve
		g.gained += rewardSolve
	}
	return r
}

// Restart puts the room into its first state. This is a step whose reward takes
// back what was gained since the last start, so that the same box pays once.
func (g *Game) Restart() (r Result) {
	g.steps++
	r.Reward = rewardStep - g.gained
	g.Room, g.onTarget, g.gained = g.first.Clone(), 0, 0
	return r
}
