package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
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
