package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A crash of the machine, a bad disk or a mistake of the user can damage a run
// folder.
func TestARunFolderThatWasDamaged(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("tiny", "", solveTiny, testTiny)
	p.experiment("repeat = 3\n  matrix {\n    agent = [agent.oracle, agent.nop]\n  }", "")
	p.berth("run", ".", "--no-live").want(t, 0)
	whole := p.run()
	if s := p.settled(whole); s.Torn+s.Damaged != 0 || s.Summary.Attempts != 6 {
		t.Fatalf("before any damage: %d torn, %d damaged, %d attempts", s.Torn, s.Damaged, s.Summary.Attempts)
	}
	for _, tt := range []struct {
		name          string
		damage        func(t *testing.T, dir string)
		torn, damaged int
		lost          int    // trials without an outcome, until the run is resumed
		refused       string // by show and resume, with these words
	}{
		{name: "the last line of the journal is torn", damage: tearJournal, torn: 1},
		{name: "a line of the journal is changed", damage: changeJournal, damaged: 2}, // the line, and the gap that it leaves,
		{name: "the journal is gone", damage: removeJournal},
		{name: "a result is torn, and the journal", damage: func(t *testing.T, dir string) {
			removeJournal(t, dir)
			tear(t, oneResult(t, dir))
		}, damaged: 1, lost: 1},
		{name: "the manifest is empty", damage: func(t *testing.T, dir string) {
			truncate(t, filepath.Join(dir, "manifest.jsonl"), 0)
		}, refused: "manifest"},
		{name: "the manifest is torn", damage: func(t *testing.T, dir string) {
			tear(t, filepath.Join(dir, "manifest.jsonl"))
		}, refused: "manifest"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e2etest.Damages(t)
			q := newPlace(t)
			dir := filepath.Join(q.dir, "runs", "copy")
			copyRun(t, whole, dir)
			tt.damage(t, dir)
			if tt.refused != "" {
				for _, args := range [][]string{{"show", dir, "--json"}, {"resume", dir}} {
					if r := q.berth(args...).want(t, 2); !strings.Contains(r.stderr, tt.refused) {
						t.Errorf("%s does not say what is wrong:\n%s", args[0], r.stderr)
					}
				}
				return
			}
			before := published(t, dir)
			s := q.show(dir)
			if s.Torn != tt.torn || s.Damaged != tt.damaged || s.Summary.Outcomes[record.NotRun] != tt.lost {
				t.Errorf("%d torn, %d damaged, %v; want %d torn, %d damaged, %d not run", s.Torn, s.Damaged, s.Summary.Outcomes, tt.torn, tt.damaged, tt.lost)
			}
			q.berth("resume", dir, "--no-live").want(t, 0)
			s = q.show(dir)
			if s.Summary.Outcomes[record.Passed] != 3 || s.Summary.Outcomes[record.Failed] != 3 || !s.Summary.Complete {
				t.Errorf("after resume: %v", s.Summary.Outcomes)
			}
			still(t, before, published(t, dir))
			q.clean()
		})
	}
}

func copyRun(t *testing.T, from, to string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = exec.CommandContext(t.Context(), "cp", "-a", from, to).Run()
	}
	e2etest.Must(t, err)
}

func journalFile(t *testing.T, dir string) (name string, text []byte) {
	t.Helper()
	files := e2etest.Found(t, 1, dir, "journal", "*.jsonl")
	return files[0], []byte(e2etest.Read(t, files[0]))
}

// tearJournal cuts the journal in the middle of the last line that ends an
// attempt.
func tearJournal(t *testing.T, dir string) {
	t.Helper()
	name, text := journalFile(t, dir)
	truncate(t, name, int64(bytes.LastIndex(text, []byte("attempt_ended"))+30))
}

// changeJournal makes a failed attempt a passed one. A reader that trusts every
// line of valid JSON would count it.
func changeJournal(t *testing.T, dir string) {
	t.Helper()
	name, text := journalFile(t, dir)
	at := bytes.Index(text, []byte(`"outcome":"failed"`))
	if at < 0 {
		t.Fatal("no attempt failed")
	}
	copy(text[at:], `"outcome":"passed"`)
	begin := bytes.LastIndexByte(text[:at], '\n') + 1
	end := at + bytes.IndexByte(text[at:], '\n')
	if !json.Valid(text[begin:end]) {
		t.Errorf("a reader without checksums would see the change, too: %s", text[begin:end])
	}
	e2etest.Must(t, os.WriteFile(name, text, 0o600))
}

func removeJournal(t *testing.T, dir string) {
	t.Helper()
	name, _ := journalFile(t, dir)
	e2etest.Must(t, os.Remove(name))
}

func oneResult(t *testing.T, dir string) string {
	t.Helper()
	for f := range published(t, dir) {
		return f
	}
	t.Fatal("no result")
	return ""
}

// tear cuts a file in its middle.
func tear(t *testing.T, file string) {
	t.Helper()
	info, err := os.Stat(file)
	e2etest.Must(t, err)
	truncate(t, file, info.Size()/2)
}

func truncate(t *testing.T, file string, size int64) {
	t.Helper()
	e2etest.Must(t, errors.Join(os.Chmod(file, 0o600), os.Truncate(file, size)))
}
