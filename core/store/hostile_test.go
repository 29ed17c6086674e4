package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
)

// A run folder may come from a stranger. Reading it must end, in bounded
// memory, and open nothing but its regular files.
func TestAFileOfARunThatIsNoFileIsRefused(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{store.ManifestFile: "manifest.jsonl: not a regular file", store.JournalDir: "journal"} {
		for kind, put := range strange {
			dir := hostileRun(t)
			testlevel.Must(t, errors.Join(os.RemoveAll(filepath.Join(dir, place)), put(filepath.Join(dir, place))))
			if _, _, err := store.Read(dir); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s is %s: read: %v, want %q", place, kind, err, want)
			}
			if _, err := store.Open(dir, "test", false); err == nil {
				t.Errorf("%s is %s: it is opened for writing", place, kind)
			}
		}
	}
}

// strange makes things that are not regular files.
var strange = map[string]func(path string) error{
	"a pipe":           func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"a link to zeros":  func(path string) error { return os.Symlink("/dev/zero", path) },
	"a link to a file": func(path string) error { return os.Symlink("/etc/passwd", path) },
	"a link to a pipe": func(path string) error {
		return errors.Join(syscall.Mkfifo(path+".pipe", 0o600), os.Symlink(path+".pipe", path))
	},
	"a link to nowhere": func(path string) error { return os.Symlink("/nonexistent", path) },
}

// hostileRun makes a run with two trials, of which the first has an attempt
// that is in no journal.
func hostileRun(t *testing.T) string {
	t.Helper()
	m := &store.Manifest{Cells: []store.Cell{{Key: "agent=a", Agent: "a"}}}
	m.Header.Experiment = "hostile"
	for _, id := range []string{"t1", "t2"} {
		m.Trials = append(m.Trials, store.Trial{ID: id, Dir: id, Task: id, Repetition: 1})
	}
	r, err := store.Create(t.TempDir(), m, nil)
	testlevel.Must(t, err)
	attempt := filepath.Join(r.Dir, store.TrialsDir, "t1", store.AttemptDir(1))
	testlevel.Must(t, errors.Join(os.MkdirAll(attempt, 0o755), os.Mkdir(filepath.Join(attempt, record.ModelDir), 0o755), r.Close()))
	return r.Dir
}

func TestAnAttemptOfStrangeFilesIsDamagedAndTheOthersAreRead(t *testing.T) {
	t.Parallel()
	for name, put := range strange {
		for _, file := range []string{record.ResultFile, record.ExchangesFile} {
			dir := hostileRun(t)
			testlevel.Must(t, put(filepath.Join(dir, store.TrialsDir, "t1", store.AttemptDir(1), file)))
			if _, x, err := store.Read(dir); err != nil || x.Damaged != 1 || len(x.Trials) != 2 || x.Trials[0].Outcome() != record.NotRun {
				t.Errorf("%s is %s: %+v, %v", file, name, x, err)
			}
		}
	}
}

func TestWhatCannotBeAFolderOfATrialDoesNotEndTheReading(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"the folder of a trial is a file": func(dir string) error { return os.WriteFile(filepath.Join(dir, store.TrialsDir, "t2"), nil, 0o600) },
		"the folder of an attempt is a link": func(dir string) error {
			at := filepath.Join(dir, store.TrialsDir, "t1", store.AttemptDir(1))
			return errors.Join(os.RemoveAll(at), os.Symlink("/", at))
		},
		"the name of a folder is too long": func(dir string) error {
			file := filepath.Join(dir, store.ManifestFile)
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, []byte(strings.Replace(string(b), `"dir":"t2"`, `"dir":"`+strings.Repeat("x", 300)+`"`, 1)), 0o600)
			}
			return err
		},
		"a path is too long": func(dir string) error {
			file := filepath.Join(dir, store.ManifestFile)
			b, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, []byte(strings.Replace(string(b), `"dir":"t2"`, `"dir":"`+strings.Repeat("x/", 3000)+`x"`, 1)), 0o600)
			}
			return err
		},
	} {
		dir := hostileRun(t)
		testlevel.Must(t, change(dir))
		if _, x, err := store.Read(dir); err != nil || x.Damaged != 1 || len(x.Trials) != 2 {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
}

// A huge sparse file is cheap to make.
func TestATerabyteOfZerosIsNotRead(t *testing.T) {
	t.Parallel()
	dir := hostileRun(t)
	huge := func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
	}
	attempt := filepath.Join(dir, store.TrialsDir, "t1", store.AttemptDir(1))
	testlevel.Must(t, errors.Join(huge(filepath.Join(attempt, record.ResultFile)), huge(filepath.Join(dir, store.JournalDir, "0.jsonl"))))
	if _, err := store.ReadResult(attempt); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("result: %v", err)
	}
	if _, _, err := store.Read(dir); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("journal: %v", err)
	}
	testlevel.Must(t, errors.Join(os.Remove(filepath.Join(dir, store.JournalDir, "0.jsonl")), os.Truncate(filepath.Join(dir, store.ManifestFile), 1<<27)))
	if _, err := store.ReadManifest(dir); err == nil || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("manifest: %v", err)
	}
}

// What a run writes stays below its folder, whatever a stranger put there.
func TestARunIsNotWrittenThroughLinks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{store.JournalDir, store.TrialsDir, store.TrialsDir + "/t2"} {
		dir, elsewhere := hostileRun(t), t.TempDir()
		at := filepath.Join(dir, name)
		testlevel.Must(t, errors.Join(os.RemoveAll(at), os.Symlink(elsewhere, at)))
		r, err := store.Open(dir, "test", false)
		if err == nil {
			_, err = r.Begin("t2")
			err = errors.Join(err, r.Close())
		}
		if err == nil {
			t.Errorf("%s is a link: the run is written", name)
		}
		if there, _ := os.ReadDir(elsewhere); len(there) != 0 {
			t.Errorf("%s is a link: %v was written elsewhere", name, there)
		}
	}
}

// A plan that was edited by hand or cut must not be run, because trials would
// silently be missing.
func TestAManifestThatIsNotWholeIsRefused(t *testing.T) {
	t.Parallel()
	r := create(t, 3)
	testlevel.Must(t, r.Close())
	whole, err := os.ReadFile(filepath.Join(r.Dir, store.ManifestFile))
	testlevel.Must(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")
	for name, tt := range map[string]struct{ text, err string }{
		"empty":                  {"", "it is empty"},
		"a trial less":           {strings.Join(lines[:len(lines)-1], ""), "2 trials of 3"},
		"half a line":            {string(whole[:len(whole)-20]), "line 5"},
		"no header":              {strings.Join(lines[1:], ""), "does not describe the run"},
		"two headers":            {lines[0] + lines[0], "second run"},
		"another version":        {strings.Replace(string(whole), `"version":1`, `"version":9`, 1), "has version 9"},
		"a trial without a cell": {strings.Replace(string(whole), `"cell":0`, `"cell":7`, 1), "cell 7 of 1"},
		"a folder outside":       {strings.Replace(string(whole), `"dir":"task`, `"dir":"../task`, 1), "folder"},
		"an empty line of JSON":  {lines[0] + "{}\n", "neither a cell nor a trial"},
		"cells out of order":     {strings.Replace(string(whole), `"index":0`, `"index":1`, 1), "is at position"},
	} {
		dir := t.TempDir()
		testlevel.Must(t, os.WriteFile(filepath.Join(dir, store.ManifestFile), []byte(tt.text), 0o600))
		if _, err = store.ReadManifest(dir); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"run":{"version":1,"trials":0}}`))
	f.Add([]byte("{\"run\":{\"version\":1,\"trials\":1}}\n{\"cell\":{}}\n{\"trial\":{\"id\":\"x\",\"dir\":\"y\"}}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		testlevel.Must(t, os.WriteFile(filepath.Join(dir, store.ManifestFile), b, 0o600))
		m, err := store.ReadManifest(dir)
		if err != nil {
			return
		}
		for i := range m.Trials {
			if d := m.Trials[i].Dir; !filepath.IsLocal(d) || m.Trials[i].Cell >= len(m.Cells) {
				t.Errorf("took trial %+v", m.Trials[i])
			}
		}
	})
}

// A trial of another id, with another time limit for example, is replayed from
// the trial of the same task, repetition and cell.
func TestTheRecordedTrialThatStandsForAnother(t *testing.T) {
	t.Parallel()
	m := manifest(3)
	m.Cells = append(m.Cells, store.Cell{Index: 1, Key: "agent=b", Slug: "b", Choices: map[string]string{"agent": "b"}, Agent: "b", Environment: "e"})
	m.Trials[1].Cell, m.Trials[1].Repetition = 1, 1
	run, err := store.Create(t.TempDir(), m, nil)
	testlevel.Must(t, err)
	for i := range m.Trials[:2] {
		at, lost := run.Begin(m.Trials[i].ID)
		if lost != nil {
			t.Fatal(lost)
		}
		testlevel.Must(t, at.Publish(result(run, i, record.Passed)))
	}
	testlevel.Must(t, run.Close())
	r, err := store.OpenRecorded(run.Dir)
	testlevel.Must(t, err)
	dir := func(i int) string {
		return filepath.Join(run.Dir, store.TrialsDir, filepath.FromSlash(m.Trials[i].Dir), "attempt-1")
	}
	for _, tt := range []struct {
		trial, cell, task string
		repetition        int
		want, wrong       string
	}{
		{m.Trials[1].ID, "agent=a", "task", 9, dir(1), ""},
		{"other", "agent=a", "task", 1, dir(0), ""},
		{"other", "agent=b", "task", 1, dir(1), ""},
		{"other", "agent=c", "task", 1, "", "has 2 trials of task \"task\" and repetition 1, and none that is this one, or the only one of its cell (agent=c)"},
		{"other", "agent=c", "task", 3, "", "was not finished"},
		{"other", "agent=a", "task", 4, "", "has no trial of task \"task\" and repetition 4"},
	} {
		got, err := r.Attempt(tt.trial, tt.cell, tt.task, tt.repetition)
		if got != tt.want || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s, %s, %d: %q, %v; want %q, %q", tt.trial, tt.cell, tt.repetition, got, err, tt.want, tt.wrong)
		}
	}
}

// The process of an attempt was killed after some of its requests, in the
// middle of writing a line.
func TestWhatAKilledAttemptHasSpentIsKnown(t *testing.T) {
	t.Parallel()
	r := create(t, 1)
	a, err := r.Begin(r.Manifest.Trials[0].ID)
	testlevel.Must(t, err)
	usage := map[string]int{"input": 60, "output": 40}
	file := filepath.Join(a.Dir(), filepath.FromSlash(record.ExchangesFile))
	err = os.Mkdir(filepath.Dir(file), 0o755)
	for _, line := range []map[string]any{
		{"request": "1", "usage": usage, "cost_usd": 0.25},
		{"request": "1", "usage": usage, "cost_usd": 0.25, "retry": true}, // counts as one request, but costs again
		{"request": "2", "status": 503},
		{"request": "2", "usage": usage, "retry": true},
	} {
		err = errors.Join(err, a.Append(record.ExchangesFile, line))
	}
	testlevel.Must(t, errors.Join(err, a.Abandon()))
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"request":"3","usage":{"inp`)
		err = errors.Join(err, f.Close())
	}
	testlevel.Must(t, err)
	_, x, err := store.Read(r.Dir)
	testlevel.Must(t, err)
	got := x.Trials[0].Attempts[0].Spend()
	if got.Requests != 2 || got.Tokens != 300 || got.CostUSD == nil || *got.CostUSD != 0.5 || !got.Unpriced {
		t.Errorf("spend %+v", got)
	}
}

// What verifying again used is apart from what the work used, also of an attempt whose
// process was killed.
func TestWhatRegradesUsedIsApart(t *testing.T) {
	t.Parallel()
	brief := func(origin int, tokens int64) *store.Brief {
		return &store.Brief{Outcome: record.Failed, AgentEnd: record.Yielded, Origin: origin, Spend: store.Spend{Tokens: tokens}}
	}
	s := store.TrialState{Trial: &store.Trial{}, Attempts: []store.AttemptState{
		{Number: 1, Lost: store.Spend{Tokens: 100}}, {Number: 2, Result: brief(0, 20)}, {Number: 3, Result: brief(2, 3)}, {Number: 4, Result: brief(9, 4000)},
	}}
	work, again := s.Spend()
	if work.Tokens != 4120 || again.Tokens != 3 { // the origin of the last one is not there
		t.Errorf("%d tokens for the work, %d for verifying it again", work.Tokens, again.Tokens)
	}
	if w := s.Work(&s.Attempts[2]); w.Number != 2 {
		t.Errorf("the work of attempt 3 is that of %d", w.Number)
	}
}

// foreign writes the journal of a process that did not record its end.
func foreign(t *testing.T, dir string, p node.Process) {
	t.Helper()
	e, err := json.Marshal(store.Entry{Kind: store.WriterBegan, Seq: 1, Time: time.Now().UTC(), Process: &p})
	testlevel.Must(t, err)
	sum := crc32.Checksum(e, crc32.MakeTable(crc32.Castagnoli))
	line := fmt.Sprintf("{\"sum\":\"%08x\",\"entry\":%s}\n", sum, e)
	testlevel.Must(t, os.WriteFile(filepath.Join(dir, store.JournalDir, "20000101-foreign-1.jsonl"), []byte(line), 0o600))
}

// In a shared folder the lock of this machine does not cover other machines.
func TestABerthOnAnotherMachineIsSeen(t *testing.T) {
	t.Parallel()
	self := node.Self()
	for name, tt := range map[string]struct {
		process node.Process
		busy    bool
	}{
		"another machine":            {node.Process{Host: "node17", PID: 99, Boot: "other"}, true},
		"another container here":     {node.Process{Host: self.Host, PID: 99, Boot: self.Boot, Namespace: "pid:[1]"}, true},
		"here, before it was booted": {node.Process{Host: self.Host, PID: 1, Boot: "other", Namespace: self.Namespace}, false},
		"here, gone":                 {node.Process{Host: self.Host, PID: 1 << 22, Boot: self.Boot, Namespace: self.Namespace}, false},
		"here, its number is reused": {node.Process{Host: self.Host, PID: os.Getpid(), Start: self.Start + 1, Boot: self.Boot, Namespace: self.Namespace}, false},
		"here, alive":                {self, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := create(t, 1)
			testlevel.Must(t, r.Close())
			foreign(t, r.Dir, tt.process)
			r2, err := store.Open(r.Dir, "test", false)
			if !tt.busy {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if err = r2.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			var busy *store.BusyError
			if !errors.As(err, &busy) || !strings.Contains(err.Error(), tt.process.String()) {
				t.Fatalf("got %v", err)
			}
			takenOver(t, r.Dir, tt.process == self)
		})
	}
}

// takenOver passes the user's word that the other process is gone, which is
// ignored if that is known to live.
func takenOver(t *testing.T, dir string, lives bool) {
	t.Helper()
	r, err := store.Open(dir, "test", true)
	var busy *store.BusyError
	switch {
	case lives && !errors.As(err, &busy):
		t.Errorf("the user's word is taken against what is seen: %v", err)
	case !lives && err != nil:
		t.Fatalf("with the user's word: %v", err)
	case !lives:
		if err = r.Close(); err != nil {
			t.Error(err)
		}
	}
}
