package attest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// said is where the harness without guards says what came of an attack, in the
// folder of an attempt.
var said = filepath.Join("artifacts", "logs", "artifacts")

// Damage is what an attack does if nothing guards.
type Damage struct {
	Succeeded bool
	Missing   string // program without which the attack cannot be made; empty: nothing
}

// ReadUnguarded reads what came of the attacks without guards, by their names.
func (s *Suite) ReadUnguarded(run string) (map[string]Damage, error) {
	_, index, err := store.Read(run)
	if err != nil {
		return nil, err
	}
	found := map[string]Damage{}
	for _, t := range index.Trials {
		a := t.Accepted()
		if a == nil {
			continue
		}
		text, err := untrusted.Read(filepath.Join(folder(run, t, a), said), "unguarded", 1<<10)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "missing ")
		d := Damage{Succeeded: strings.TrimSpace(string(text)) == "succeeded"}
		if missing != strings.TrimSpace(string(text)) {
			d.Missing = missing
		}
		found[path.Base(t.Task)] = d
	}
	return found, nil
}

// ReadGuarded reads what came of the attacks in each mode and compares it with
// what is documented.
func (s *Suite) ReadGuarded(run string, damages map[string]Damage) (*output.Attest, error) {
	m, index, err := store.Read(run)
	if err != nil {
		return nil, err
	}
	modes := map[int]string{} // by cell
	for i := range m.Cells {
		modes[m.Cells[i].Index] = m.Cells[i].Choices["mode"]
	}
	seen := map[string]map[string]output.AttestMode{}
	for _, t := range index.Trials {
		name := path.Base(t.Task)
		r, failed := s.judge(run, t)
		if failed != nil {
			return nil, failed
		}
		if seen[name] == nil {
			seen[name] = map[string]output.AttestMode{}
		}
		r.Mode = modes[t.Cell]
		seen[name][r.Mode] = r
	}
	res := &output.Attest{Environment: s.Environment, Run: run}
	for i := range s.Catalogue.Attacks {
		a := &s.Catalogue.Attacks[i]
		line := output.AttestAttack{Name: a.Name, IDs: a.IDs, Text: a.Text, Control: a.Control, Unguarded: damages[a.Name].Succeeded, Missing: damages[a.Name].Missing}
		switch {
		case line.Missing != "":
			res.Skipped++
		case !line.Unguarded:
			res.Differences = append(res.Differences, fmt.Sprintf("%s: it does not succeed without guards, so that it proves nothing here", a.Name))
		}
		for _, mode := range Modes {
			got, ok := seen[a.Name][mode]
			if line.Missing != "" || !ok {
				continue
			}
			got.Expected = string(a.Expected(s.Environment, mode))
			if got.Result != got.Expected {
				res.Differences = append(res.Differences, fmt.Sprintf("%s in %s: %s, documented as %s (%s)", a.Name, mode, got.Result, got.Expected, got.Why))
			}
			line.Modes = append(line.Modes, got)
		}
		res.Attacks = append(res.Attacks, line)
	}
	text, err := os.ReadFile(s.canary())
	if err != nil || string(text) != s.secret+"\n" {
		res.Differences = append(res.Differences, fmt.Sprintf("an attack changed a file of the host (%s): %v", s.canary(), err))
	}
	if n := s.asked.Load(); n > 0 {
		res.Differences = append(res.Differences, fmt.Sprintf("a server of the host was reached %d times", n))
	}
	return res, nil
}

// folder is the folder of an attempt.
func folder(run string, t *store.TrialState, a *store.AttemptState) string {
	return filepath.Join(run, store.TrialsDir, t.Dir, store.AttemptDir(a.Number))
}

// judge returns what came of the attack in a trial.
func (s *Suite) judge(run string, t *store.TrialState) (output.AttestMode, error) {
	r := output.AttestMode{Trial: t.ID}
	a := t.Accepted()
	if a == nil || t.Invalid != "" {
		r.Result, r.Why = string(Unknown), "it has no result: "+t.Invalid
		return r, nil
	}
	dir := folder(run, t, a)
	full, err := store.ReadResult(dir)
	if err != nil {
		return r, err
	}
	leaked, err := s.leaked(dir)
	if err != nil {
		return r, err
	}
	r.Outcome, r.Integrity = full.Outcome, full.Integrity
	r.Why = fmt.Sprintf("%s, %s", full.Outcome, full.Integrity)
	if full.Error != nil {
		r.Why += ": " + full.Error.Message
	}
	switch {
	case len(t.Attempts) > 1:
		r.Result, r.Why = string(NotHeld), fmt.Sprintf("it got %d attempts", len(t.Attempts))
	case leaked != "":
		r.Result, r.Why = string(NotHeld), "a file of the host was copied into "+leaked
	default:
		r.Result = string(resultOf(full))
	}
	return r, nil
}

// resultOf says what came of an attack by the result of its attempt.
func resultOf(r *record.Result) Result {
	name := path.Base(r.Task)
	switch {
	case r.Outcome == record.Passed && r.Integrity != record.Checked:
		return Detected
	case r.Outcome == record.Passed && name == "honest":
		return Passed
	case r.Outcome == record.Passed:
		return NotHeld
	case r.Outcome.MeasuredAfter(r.AgentEnd):
		return Held
	default:
		return Unknown
	}
}

// leaked returns a file of the attempt that has the secret of the host's file,
// or nothing.
func (s *Suite) leaked(dir string) (found string, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || found != "" {
			return err
		}
		has, err := s.has(p)
		if has {
			found = p
		}
		return err
	})
	return found, err
}

// largest is how much of a file is searched, in bytes.
const largest = 64 << 20

func (s *Suite) has(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(file, ".zst") {
		z, failed := zstd.NewReader(f)
		if failed != nil {
			return false, failed
		}
		defer z.Close()
		r = z
	}
	text, err := io.ReadAll(io.LimitReader(r, largest))
	return bytes.Contains(text, []byte(s.secret)), err
}
