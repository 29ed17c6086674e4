package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/berth-eval/berth/core/record"
)

// Attempt is the folder of an attempt that is in progress. It is safe for
// concurrent use.
type Attempt struct {
	run    *Run
	trial  string // id
	dir    string
	number int

	mu     sync.Mutex
	files  map[string]*appended
	closed bool

	writing sync.Mutex // serialises writes of whole files
}

// appended is an open file of JSON lines.
type appended struct {
	f    *os.File
	torn bool
}

// Begin makes the folder of the next attempt of a trial. No other process can
// make the same one.
func (r *Run) Begin(trial string) (*Attempt, error) {
	r.mu.Lock()
	t := r.index.byID[trial]
	if t == nil {
		r.mu.Unlock()
		return nil, fmt.Errorf("begin attempt: the run has no trial %s", trial)
	}
	number := t.next()
	r.mu.Unlock()

	parent := filepath.Join(r.Dir, TrialsDir, filepath.FromSlash(t.Dir))
	err := os.Mkdir(parent, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(parent, 0o755)
	}
	if errors.Is(err, fs.ErrExist) {
		err = folder(parent)
	}
	if err != nil {
		return nil, fmt.Errorf("begin attempt: %w", err)
	}
	for {
		dir := filepath.Join(parent, AttemptDir(number))
		err = os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			number++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("begin attempt: %w", err)
		}
		return r.began(trial, number, dir)
	}
}

// began records that this process is responsible for an attempt from now on.
func (r *Run) began(trial string, number int, dir string) (*Attempt, error) {
	a := &Attempt{run: r, trial: trial, dir: dir, number: number, files: map[string]*appended{}}
	r.mu.Lock()
	began := r.index.byID[trial].attempt(number).Began
	r.mu.Unlock()
	// Not durable: the folder alone shows that there was an attempt.
	return a, r.journal.append(Entry{Kind: AttemptBegan, Time: began, Trial: trial, Attempt: number}, false)
}

// Dir is the absolute path of the attempt's folder.
func (a *Attempt) Dir() string { return a.dir }

// Number returns the number of the attempt, 1 for the first one of a trial.
func (a *Attempt) Number() int { return a.number }

// Append adds v as one line of JSON to a file of the attempt, such as
// record.EventsFile. If a full disk cut off the previous line, Append ends that
// line first.
func (a *Attempt) Append(file string, v any) error {
	if !local(file) {
		return fmt.Errorf("append to %q: not a path below the attempt", file)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("append to %s: %w", file, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return fmt.Errorf("append to %s: %w", file, os.ErrClosed)
	}
	out := a.files[file]
	if out == nil {
		f, openErr := os.OpenFile(filepath.Join(a.dir, filepath.FromSlash(file)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if openErr != nil {
			return fmt.Errorf("append to %s: %w", file, openErr)
		}
		out = &appended{f: f}
		a.files[file] = out
	}
	b = append(b, '\n')
	if out.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := out.f.Write(b)
	out.torn = err != nil && n > 0 || out.torn && n == 0
	if err != nil {
		return fmt.Errorf("append to %s: %w", file, err)
	}
	return nil
}

// WriteFile writes a file of the attempt under a temporary name and renames it,
// so that a reader sees all of it or nothing, even if this process is killed.
// The folder of the file must exist.
func (a *Attempt) WriteFile(file string, data []byte) error {
	if !local(file) {
		return fmt.Errorf("write %q: not a path below the attempt", file)
	}
	file = filepath.Join(a.dir, filepath.FromSlash(file))
	beside := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".part")
	a.writing.Lock()
	defer a.writing.Unlock()
	err := os.WriteFile(beside, data, 0o644)
	if err == nil {
		err = os.Rename(beside, file)
	}
	if err != nil {
		_ = os.Remove(beside)
	}
	return err
}

// Publish ends the attempt: it lists the checksums of all files in ChecksumsFile, writes
// result.json to the disk and renames it, then writes the journal entry, also to
// the disk. The attempt counts from the
// moment that result.json has its name, and never before. A second call is an
// error.
//
// Appended lines and files from WriteFile are in the kernel's cache by then and
// survive a kill of this process; nothing waits until they are on the disk. A
// power cut may lose them for the attempts that ended in the last half minute,
// but not their results.
func (a *Attempt) Publish(r record.Result) error {
	b, err := a.end(&r)
	if err == nil {
		err = replace(filepath.Join(a.dir, record.ResultFile), b)
	}
	if err != nil {
		return fmt.Errorf("publish attempt: %w", err)
	}
	return a.Took(&r, 0)
}

// end closes the files of the attempt, lists their checksums, and returns the content
// of result.json.
func (a *Attempt) end(r *record.Result) ([]byte, error) {
	if err := a.close(); err != nil {
		return nil, err
	}
	b, err := resultBytes(r)
	return b, errors.Join(err, a.sum())
}

// Abandon closes the files of an attempt that was not published. Its folder
// stays, but the attempt does not count.
func (a *Attempt) Abandon() error {
	if err := a.close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// close closes the appended files, once.
func (a *Attempt) close() (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return os.ErrClosed
	}
	a.closed = true
	for _, out := range a.files {
		err = errors.Join(err, out.f.Close())
	}
	return err
}

// ChecksumsFile lists all other files of an attempt but result.json, with their
// checksums. The journal has the checksums of these two.
const ChecksumsFile = "files.json"

// Checksums is the content of ChecksumsFile.
type Checksums struct {
	Version int `json:"version"`
	// Files are checksums, "sha256:" and hex, by the slash-separated path below
	// the attempt, which is quoted as in Go if it is not UTF-8. Of a link it is
	// "link:" and where it leads.
	Files map[string]string `json:"files"`
}

// ChecksumsOf computes the checksums of the files in the folder of an attempt, but
// those of ChecksumsFile and result.json, and what a killed writer left (isPart).
func ChecksumsOf(dir string) (Checksums, error) {
	s := Checksums{Version: FormVersion, Files: map[string]string{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && filepath.Dir(path) == filepath.Clean(dir) && isPart(d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case err != nil || d.IsDir():
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == ChecksumsFile || name == record.ResultFile {
			return err
		}
		sum := d.Type().String() // a file that is neither has no content
		switch {
		case d.Type() == fs.ModeSymlink:
			sum, err = os.Readlink(path)
			sum = "link:" + sum
		case d.Type().IsRegular():
			sum, err = SumOf(path)
		}
		if !utf8.ValidString(name) { // of a file of an agent
			name = strconv.Quote(name)
		}
		s.Files[filepath.ToSlash(name)] = sum
		return err
	})
	return s, err
}

// isPart reports whether a name in the folder of an attempt is that of a file or folder
// from which others get their contents at once. A writer that is killed leaves it.
func isPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".part")
}

// SumOf returns the checksum of a file, "sha256:" and hex.
func SumOf(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
	if err != nil {
		return "", err
	}
	h := sha256.New()
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s: not a regular file", file)
	default:
		_, err = io.Copy(h, f)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}

// sum writes ChecksumsFile, of an attempt whose other files are complete.
func (a *Attempt) sum() error {
	s, err := ChecksumsOf(a.dir)
	if err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = a.WriteFile(ChecksumsFile, append(b, '\n'))
	}
	return err
}

// sums returns the checksums of those of these files that are in dir.
func sums(dir string, names ...string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		if sum, err := SumOf(filepath.Join(dir, name)); err == nil {
			all[name] = sum
		}
	}
	return all
}
