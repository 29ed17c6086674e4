package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// IndexFile lists the trajectories of an export, one on each line.
const IndexFile = "index.jsonl"

// Indexed is a line of the index.
type Indexed struct {
	File       string           `json:"file"` // below the folder of the export
	Run        string           `json:"run"`
	Trial      string           `json:"trial"`
	Task       string           `json:"task"`
	TaskDigest string           `json:"task_digest,omitempty"`
	Cell       string           `json:"cell"`
	Repetition int              `json:"repetition"`
	Attempt    int              `json:"attempt"`
	Outcome    record.Outcome   `json:"outcome"`
	AgentEnd   record.AgentEnd  `json:"agent_end,omitempty"`
	Integrity  record.Integrity `json:"integrity"`
	Score      *float64         `json:"score"`
}

// Bounds of what is copied of an attempt.
const (
	maxTrajectory = 256 << 20 // bytes
	maxMedia      = 64 << 20  // bytes of an image or a sound
)

// Trajectories writes the trajectory of each trial's accepted attempt into a new
// folder, with the images and sounds that it names, and an index.
func Trajectories(r *Run, folder string) (*Done, error) {
	if err := NewFolder(folder); err != nil {
		return nil, err
	}
	index, err := os.OpenFile(filepath.Join(folder, IndexFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer index.Close()
	done, without := &Done{}, 0
	for _, t := range r.Trials {
		a := t.Accepted()
		if a == nil {
			without++
			continue
		}
		from, name := report.Folder(r.Dir, t, t.Work(a).Number), path.Join(t.Dir, record.TrajectoryFile)
		into := filepath.Join(folder, filepath.FromSlash(t.Dir))
		switch lost, err := CopyTrajectory(from, into); {
		case errors.Is(err, fs.ErrNotExist):
			without++
			continue
		case errors.As(err, new(*InvalidError)):
			done.Notes = append(done.Notes, err.Error())
			continue
		case err != nil:
			return nil, err
		default:
			done.Notes = append(done.Notes, lost...)
		}
		b, err := json.Marshal(Indexed{
			name, r.Manifest.Header.Run, t.ID, t.Task, t.TaskDigest, r.Manifest.Cells[t.Cell].Key, t.Repetition, a.Number,
			t.Outcome(), a.Result.AgentEnd, a.Result.Integrity, a.Result.Score,
		})
		if err == nil {
			_, err = index.Write(append(b, '\n'))
		}
		if err != nil {
			return nil, err
		}
		done.Rows++
	}
	if without > 0 {
		done.Notes = append(done.Notes, terminal.Count(without, "trial has", "trials have")+" no trajectory")
	}
	return done, index.Close()
}

// InvalidError says why a trajectory was not copied.
type InvalidError struct {
	File string
	Why  string
}

// Error says which file is not valid, and why.
func (e *InvalidError) Error() string { return fmt.Sprintf("%s: %s", e.File, e.Why) }

// CopyTrajectory copies trajectory.json of an attempt into a folder, which it
// makes, with the images and sounds that it names; lost says which of those could
// not be copied. Fails with fs.ErrNotExist and *InvalidError.
func CopyTrajectory(attempt, into string) (lost []string, err error) {
	file := filepath.Join(attempt, record.TrajectoryFile)
	b, err := untrusted.Read(attempt, record.TrajectoryFile, maxTrajectory)
	if errors.Is(err, untrusted.ErrNotPlain) {
		return nil, &InvalidError{file, "it is not a regular file"}
	}
	if err != nil {
		return nil, err
	}
	t, problems := trajectory.Parse(b)
	if len(problems) > 0 {
		return nil, &InvalidError{file, "not a valid trajectory: " + problems[0].String()}
	}
	if err = os.MkdirAll(into, 0o755); err != nil {
		return nil, err
	}
	if err = os.WriteFile(filepath.Join(into, record.TrajectoryFile), b, 0o644); err != nil {
		return nil, err
	}
	for _, name := range Media(t) {
		if err := copyFile(attempt, name, into); err != nil {
			lost = append(lost, fmt.Sprintf("%s: %s was not copied: %v", file, name, err))
		}
	}
	return lost, nil
}

// Media returns the local files that a trajectory names.
func Media(t *trajectory.Trajectory) (names []string) {
	add := func(c *trajectory.Content) {
		if c == nil {
			return
		}
		for i := range c.Parts {
			if s := c.Parts[i].Source; s != nil && !strings.Contains(s.Path, "://") && !strings.HasPrefix(s.Path, "data:") {
				names = append(names, s.Path)
			}
		}
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		add(&s.Message)
		if s.Observation != nil {
			for j := range s.Observation.Results {
				add(s.Observation.Results[j].Content)
			}
		}
	}
	for i := range t.Subagents {
		names = append(names, Media(&t.Subagents[i])...)
	}
	return names
}

// copyFile copies a regular file below one folder to the same name below another.
func copyFile(from, name, into string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return errors.New("its path leads out of the folder")
	}
	b, err := untrusted.Read(from, path.Clean(name), maxMedia)
	if err != nil {
		return err
	}
	file := filepath.Join(into, filepath.FromSlash(path.Clean(name)))
	if err = os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// NewFolder makes a folder, which may exist if it is empty.
func NewFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty: remove it, or choose another folder", folder)
	}
	return err
}
