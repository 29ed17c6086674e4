package cluster

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/berth-eval/berth/core/record"
)

// State is what journals tell of the pilots of a run.
type State struct {
	// Pilots are those that have not said that they ended.
	Pilots []Identity
	// Working are the attempts that pilots have, by name; see AttemptName.
	Working map[string]Work
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
	for _, name := range names {
		f := follower{dir: root, name: pilotsDir + "/" + name + ".jsonl"}
		err = errors.Join(err, s.take(&f))
	}
	return s, err
}

func (s *State) take(f *follower) error {
	var who *Identity
	has := map[string]Running{}
	for {
		lines, err := f.read(unreadable)
		if err != nil || len(lines) == 0 {
			if who != nil {
				s.Pilots = append(s.Pilots, *who)
				for name, r := range has {
					s.Working[name] = Work{r, who.Worker}
				}
			}
			return err
		}
		for _, l := range lines {
			switch l.Kind {
			case PilotBegan:
				who = l.Pilot
			case Claimed:
				has[l.Attempt] = Running{Attempt: l.Attempt}
			case Published, Discarded, Troubled:
				delete(has, l.Attempt)
			case PilotEnded:
				who = nil
			case Alive:
				for _, r := range l.Running {
					has[r.Attempt] = r
				}
			default:
			}
		}
	}
}
