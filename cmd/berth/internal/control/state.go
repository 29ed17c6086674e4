package control

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
)

// maxListed is how many attempts a Status lists.
const maxListed = 1000

// state is what a Server knows of its run from events.
type state struct {
	mu       sync.Mutex
	base     Status // what does not change
	state    string
	why      string
	stopping string
	counts   run.Event
	limits   map[string]*float64
	used     store.Spend
	attempts map[string]*output.CtlAttempt // by trial
	cells    []store.Cell
}

func (st *state) begin(s *Server) {
	self := node.Self()
	st.base = Status{Run: s.o.Store.Manifest.Header.Run, Dir: s.dir, Host: self.Host, PID: self.PID}
	st.state, st.attempts, st.cells, st.limits = Running, map[string]*output.CtlAttempt{}, s.o.Store.Manifest.Cells, map[string]*float64{}
	for _, name := range Limits {
		st.limits[name] = limitOf(&s.o.Limits, name)
	}
	for _, sum := range s.index.Spent() {
		st.used.Add(sum)
	}
}

// held sets whether attempts begin.
func (st *state) held(state, why string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.state, st.why = state, why
}

// limit sets limits.
func (st *state) limit(set map[string]*float64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	maps.Copy(st.limits, set)
}

// Event takes in an event of the run. It does not block.
func (s *Server) Event(e run.Event) {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counts = run.Event{To: e.To, Running: e.Running, Left: e.Left}
	switch e.Kind {
	case run.Began:
		st.attempts[e.Trial.ID] = &output.CtlAttempt{
			Trial: e.Trial.ID, Task: e.Trial.Task, Cell: st.cells[e.Trial.Cell].Slug, Attempt: e.Attempt, Began: time.Now().UTC(),
		}
	case run.Live:
		a := st.attempts[e.Trial.ID]
		switch {
		case a == nil:
		case e.Live.Type == record.EventPhaseStart:
			a.Phase, a.Turn = e.Live.Phase, e.Live.Turn
		case e.Live.Type == record.EventStep:
			a.Steps++
		default:
		}
	case run.Ended:
		delete(st.attempts, e.Trial.ID)
		if e.Result != nil {
			st.used.Add(store.BriefOf(e.Result).Spend)
		}
	case run.Lost:
		delete(st.attempts, e.Trial.ID)
	case run.Stopping:
		if e.Trial == nil {
			st.stopping = e.Text
		}
	default:
	}
}

// Status returns the state of the run.
func (s *Server) Status() Status {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	out := st.base
	out.State, out.Why = st.state, st.why
	if st.stopping != "" {
		out.State, out.Why = Stopping, st.stopping
	}
	out.Planned, out.InProgress, out.Left = st.counts.To, len(st.attempts), st.counts.Left
	used := map[string]float64{InFlight: float64(len(st.attempts)), Tokens: float64(st.used.Tokens), Requests: float64(st.used.Requests)}
	if st.used.CostUSD != nil {
		used[CostUSD] = *st.used.CostUSD
	}
	for _, name := range Limits {
		out.Limits = append(out.Limits, output.CtlLimit{Name: name, Most: st.limits[name], Used: used[name]})
	}
	out.Attempts = []output.CtlAttempt{}
	for _, a := range st.attempts {
		out.Attempts = append(out.Attempts, *a)
	}
	slices.SortFunc(out.Attempts, func(a, b output.CtlAttempt) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Trial, b.Trial))
	})
	out.Attempts = out.Attempts[:min(len(out.Attempts), maxListed)]
	return out
}
