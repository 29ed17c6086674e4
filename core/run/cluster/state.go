package cluster

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/berth-eval/berth/core/record"
)

// State is what journals tell of the pilots of a run.
type State struct {
	// Pilots are all that began, the oldest first.
	Pilots []PilotState
	// Working are the attempts that pilots have, by name; see AttemptName.
	Working map[string]Work
	// Waits says for what jobs of pilots wait, as the newest coordinator last knew.
	Waits string
}

// PilotState is what is known of a pilot. Times are by its own clock.
type PilotState struct {
	Identity

	Began, Last time.Time // its first and its last line
	Published   int       // attempts that it made and stored
	Running     int       // attempts that it has
	Lost        bool      // the newest coordinator counts it as lost
	Ended       bool
	Why         string // it ended
}

// Work is an attempt that a pilot has.
type Work struct {
	Running

	Worker record.Worker
}

// Read reads the journals of the pilots of the run in dir; nil if no pilots make its
// attempts.
func Read(dir string) (*State, error) {
	root := filepath.Join(dir, Dir)
	names, err := list(root, pilotsDir, ".jsonl")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := &State{Working: map[string]Work{}}
	lost, failed := s.coordinator(root)
	err = errors.Join(err, failed)
	for _, name := range names {
		p, has, failed := readPilot(root, name)
		if err = errors.Join(err, failed); p == nil {
			continue
		}
		p.Lost = lost[name] && !p.Ended
		if !p.Lost && !p.Ended {
			p.Running = len(has)
			for attempt, r := range has {
				s.Working[attempt] = Work{r, p.Worker}
			}
		}
		s.Pilots = append(s.Pilots, *p)
	}
	slices.SortFunc(s.Pilots, func(a, b PilotState) int { return a.Began.Compare(b.Began) })
	return s, err
}

// lines calls f for each line of a journal.
func lines(root, name string, f func(Line)) error {
	for journal := (&follower{dir: root, name: name, anyone: true}); ; {
		ls, err := journal.Read(unreadable)
		if err != nil || len(ls) == 0 {
			return err
		}
		for _, l := range ls {
			f(l)
		}
	}
}

// coordinator reads the journal of the newest coordinator, and returns the pilots
// that it counts as lost.
func (s *State) coordinator(root string) (map[string]bool, error) {
	lost := map[string]bool{}
	last, err := newest(root)
	if err != nil || last == 0 {
		return lost, err
	}
	return lost, lines(root, coordinatorsDir+"/"+strconv.Itoa(last)+".jsonl", func(l Line) {
		switch l.Kind {
		case PilotLost, PilotBack:
			lost[l.Why] = l.Kind == PilotLost
		case Waiting:
			s.Waits = l.Why
		default:
		}
	})
}

// readPilot returns what the journal of a pilot says, and the attempts that it has
// not ended; nil if it has said nothing.
func readPilot(root, name string) (p *PilotState, has map[string]Running, err error) {
	has = map[string]Running{}
	err = lines(root, pilotsDir+"/"+name+".jsonl", func(l Line) {
		if l.Kind == PilotBegan && l.Pilot != nil && p == nil {
			p = &PilotState{Identity: *l.Pilot, Began: l.Time}
		}
		if p == nil {
			return
		}
		p.Last = l.Time
		switch l.Kind {
		case Claimed:
			has[l.Attempt] = Running{Attempt: l.Attempt}
		case Published:
			p.Published++
			delete(has, l.Attempt)
		case Discarded, Troubled:
			delete(has, l.Attempt)
		case PilotEnded:
			p.Ended, p.Why = true, l.Why
		case Alive:
			for _, r := range l.Running {
				has[r.Attempt] = r
			}
		default:
		}
	})
	return p, has, err
}
