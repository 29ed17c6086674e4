package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// FormVersion is the version of the format of manifests and journals.
const FormVersion = 1

// Header is the first line of a manifest, about the run as a whole.
type Header struct {
	Version    int       `json:"version"`
	Run        string    `json:"run"` // id, unique
	Experiment string    `json:"experiment"`
	Created    time.Time `json:"created"`
	Berth      string    `json:"berth"` // version of the program that planned it
	// Dir is the folder that relative paths of the experiment start from.
	Dir string `json:"dir"`
	// Variables are the values of variables as JSON, without the sensitive
	// ones.
	Variables map[string]json.RawMessage `json:"variables,omitempty"`
	// AllowEnv lists the host variables that tasks may use. AllowRead lists the
	// folders that functions of the experiment may read. Lenient turns unknown
	// keys in tasks into warnings.
	AllowEnv  []string `json:"allow_env,omitempty"`
	AllowRead []string `json:"allow_read,omitempty"`
	Lenient   bool     `json:"lenient,omitempty"`
	// SkipRefused leaves out tasks that a cell refuses.
	SkipRefused bool `json:"skip_refused,omitempty"`
	// Retry says which trials get another attempt; null in a run whose trials get
	// none.
	Retry *Retry `json:"retry,omitempty"`
	// Report says how tables of the run are made; null: as the defaults say.
	Report *Report `json:"report,omitempty"`
	// CostUSD is what models may cost, in USD; null: the experiment has no such limit.
	CostUSD *float64 `json:"cost_usd,omitempty"`
	// Replay is the folder of the run that all models are replayed from,
	// whatever the experiment says; empty means none.
	Replay string `json:"replay,omitempty"`
	// Try is the command that made the run without an experiment file; null
	// otherwise.
	Try json.RawMessage `json:"try,omitempty"`
	// Imported is the format that the run was imported from; empty for a run of
	// this program. Nothing of such a run can be run again.
	Imported string `json:"imported,omitempty"`
	// Files are the digests of the files of the experiment, "sha256:" and hex,
	// by their path in the folder of the experiment.
	Files map[string]string `json:"files,omitempty"`
	// Extended counts how often trials were added to the run. The files of the
	// first experiment are in ExperimentDir, those of the present one are in the
	// folder that Folder returns.
	Extended int `json:"extended,omitempty"`
	// Trials is the number of lines of trials that follow.
	Trials int `json:"trials"`
}

// Folder returns the name of the folder with the files of the experiment, below
// that of the run.
func (h *Header) Folder() string {
	if h.Extended == 0 {
		return ExperimentDir
	}
	return fmt.Sprintf("%s-%d", ExperimentDir, h.Extended+1)
}

// Retry says which trials get another attempt, as the experiment said when the run
// was made.
type Retry struct {
	Max int              `json:"max"` // further attempts of a trial
	On  []record.Outcome `json:"on"`  // outcomes after which there is one
}

// Report says how tables of a run are made, as the experiment said when the run was
// made.
type Report struct {
	// MaxInfrastructure is the largest share of a cell's planned trials, from 0 to
	// 1, that may have an infrastructure outcome.
	MaxInfrastructure float64 `json:"max_infrastructure"`
	// RefuseExposed says that no result may be exposed.
	RefuseExposed bool `json:"refuse_exposed,omitempty"`
	// Weigh is "category" if all categories weigh the same in a mean, and empty if
	// all trials do.
	Weigh string `json:"weigh,omitempty"`
}

// Cell is a cell of the manifest.
type Cell struct {
	Index int    `json:"index"`
	Key   string `json:"key"`
	Slug  string `json:"slug"`
	// Choices are the values on the axes, as text.
	Choices map[string]string `json:"choices"`
	Agent   string            `json:"agent"`
	Model   string            `json:"model,omitempty"`
	// Environment is the label of its block, like Agent and Model.
	Environment string `json:"environment"`
	// Identity is the part of the cell that a trial's id depends on, by
	// dataset.
	Identity map[string]json.RawMessage `json:"identity"`
	// Models are the endpoints of the cell's models, by who uses them. They do
	// not affect results, but they decide who receives API keys and everything
	// that an agent sends.
	Models map[string]Endpoint `json:"models,omitempty"`
}

// Endpoint says where requests to a model go, and with which key.
type Endpoint struct {
	Address string `json:"address,omitempty"` // empty: the provider's own
	// Key says where the key comes from, such as ${secret("NAME")}; it never
	// contains the key. Empty means no key.
	Key string `json:"key,omitempty"`
	// Replay is the run that is replayed instead; empty means none.
	Replay string `json:"replay,omitempty"`
}

// Trial is one planned trial.
type Trial struct {
	ID         string `json:"id"`
	Dir        string `json:"dir"` // below TrialsDir
	Task       string `json:"task"`
	TaskDigest string `json:"task_digest,omitempty"` // empty for an invalid task
	Dataset    string `json:"dataset"`
	Cell       int    `json:"cell"` // Index of a Cell
	Repetition int    `json:"repetition"`
	// Invalid says why the task cannot run; its outcome is task_invalid from
	// the beginning.
	Invalid string `json:"invalid,omitempty"`
	// Refused says why the cell cannot run the task, which the user chose to
	// leave out; its outcome stays not_run.
	Refused string `json:"refused,omitempty"`
	// Labels are those of the task. They are not part of its identity.
	task.Labels `json:"labels,omitzero"`
}

// Manifest is the stored plan of a run.
type Manifest struct {
	Header Header
	Cells  []Cell
	Trials []Trial
}

// ManifestLine is one line of manifest.jsonl. Exactly one field is set.
type ManifestLine struct {
	Run   *Header `json:"run,omitempty"`
	Cell  *Cell   `json:"cell,omitempty"`
	Trial *Trial  `json:"trial,omitempty"`
}

func (m *Manifest) write(file string) error {
	f, err := renameio.NewPendingFile(file, renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer f.Cleanup() //nolint:errcheck // only a temporary file may remain
	w := bufio.NewWriterSize(f, 64<<10)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // the ids of trials are made of identities without escapes
	m.Header.Trials = len(m.Trials)
	err = enc.Encode(ManifestLine{Run: &m.Header})
	for i := range m.Cells {
		err = errors.Join(err, enc.Encode(ManifestLine{Cell: &m.Cells[i]}))
	}
	for i := range m.Trials {
		err = errors.Join(err, enc.Encode(ManifestLine{Trial: &m.Trials[i]}))
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// ErrNoRun means that a folder is not a run folder, or that its plan was never
// written.
var ErrNoRun = errors.New("not a run folder")

// Bounds of reading a manifest; the number of trials is bounded as in a plan.
const (
	maxManifest = 4 << 30  // bytes
	maxLine     = 32 << 20 // bytes of one line
	maxCells    = 10_000
	maxTrials   = 1_000_000
	maxExtended = 10_000
)

// ReadManifest reads the plan of the run in dir. Fails with ErrNoRun.
func ReadManifest(dir string) (*Manifest, error) {
	file := filepath.Join(dir, ManifestFile)
	f, err := untrusted.Open(dir, ManifestFile, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: it has no %s", dir, ErrNoRun, ManifestFile)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := decodeManifest(bufio.NewReaderSize(f, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

func decodeManifest(r *bufio.Reader) (*Manifest, error) {
	m := &Manifest{}
	for n := 1; ; n++ {
		b, err := untrusted.Line(r, maxLine)
		if errors.Is(err, untrusted.ErrLong) {
			return nil, fmt.Errorf("line %d: it has more than %d MiB: the file is not a manifest, or was changed", n, maxLine>>20)
		}
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(b)) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		var l ManifestLine
		if err = json.Unmarshal(b, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w: the file was cut or changed: take it from a copy, or start a new run", n, err)
		}
		if err = m.add(n, l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if m.Header.Version == 0 {
		return nil, errors.New("it is empty: take it from a copy, or start a new run")
	}
	if len(m.Trials) != m.Header.Trials {
		return nil, fmt.Errorf("it has %d trials of %d: the file was cut or changed", len(m.Trials), m.Header.Trials)
	}
	return m, nil
}

func (m *Manifest) add(n int, l ManifestLine) error {
	switch {
	case n == 1 && l.Run == nil:
		return errors.New("its first line does not describe the run")
	case l.Run != nil && n > 1:
		return errors.New("it describes a second run")
	case l.Run != nil && l.Run.Version != FormVersion:
		return fmt.Errorf("it has version %d, this berth reads %d: use the berth that made it", l.Run.Version, FormVersion)
	case l.Run != nil && (l.Run.Extended < 0 || l.Run.Extended > maxExtended):
		return fmt.Errorf("it was extended %d times: no berth does that", l.Run.Extended)
	case l.Run != nil:
		m.Header = *l.Run
	case l.Cell != nil && l.Cell.Index != len(m.Cells):
		return fmt.Errorf("cell %d is at position %d", l.Cell.Index, len(m.Cells))
	case l.Cell != nil && len(m.Cells) == maxCells, l.Trial != nil && len(m.Trials) == maxTrials:
		return fmt.Errorf("more than %d cells or %d trials: no berth plans so many", maxCells, maxTrials)
	case l.Cell != nil:
		m.Cells = append(m.Cells, *l.Cell)
	case l.Trial == nil:
		return errors.New("it describes neither a cell nor a trial")
	case l.Trial.ID == "" || !local(l.Trial.Dir) || l.Trial.Cell < 0 || l.Trial.Cell >= len(m.Cells):
		return fmt.Errorf("trial %q: folder %q, cell %d of %d", l.Trial.ID, l.Trial.Dir, l.Trial.Cell, len(m.Cells))
	default:
		m.Trials = append(m.Trials, *l.Trial)
	}
	return nil
}
