package views

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// MaxLine is the longest line of a record that a role can see, in bytes; the
// core itself writes no longer ones.
const MaxLine = 32 << 20

// filter returns the part of one line of a record that a role may see; nil:
// nothing. A nil filter keeps the line unchanged.
type filter func(line map[string]json.RawMessage) map[string]json.RawMessage

// shown lists the records of an attempt that a role may see, with the filter
// for their lines. Roles and records that are not listed are not visible.
var shown = map[task.Role]map[string]filter{
	task.RoleVerifier: {
		record.TurnsFile: nil, record.StepsFile: nil, record.SurfaceFile: nil, record.VerdictsFile: nil,
	},
	task.RoleUser: {
		record.TurnsFile:    only("time", "kind", "stage", "turn", "round", "from", "text", "files", "end", "asked", "message"),
		record.StepsFile:    agentStep,
		record.SurfaceFile:  without("reward", "info"),
		record.VerdictsFile: only("stage", "round", "handoff"),
	},
}

// folders are the folders that a role may see completely.
var folders = map[task.Role][]string{
	task.RoleVerifier: {record.CapturesDir, record.FramesDir},
	task.RoleUser:     {record.FramesDir},
}

func only(keys ...string) filter {
	return func(line map[string]json.RawMessage) map[string]json.RawMessage {
		out := map[string]json.RawMessage{}
		for _, k := range keys {
			if v, ok := line[k]; ok {
				out[k] = v
			}
		}
		return out
	}
}

func without(keys ...string) filter {
	return func(line map[string]json.RawMessage) map[string]json.RawMessage {
		for _, k := range keys {
			delete(line, k)
		}
		return line
	}
}

// agentStep leaves out the steps of other roles, and what the user may not know of one.
func agentStep(line map[string]json.RawMessage) map[string]json.RawMessage {
	var role task.Role
	var step map[string]json.RawMessage
	if json.Unmarshal(line["role"], &role) != nil || role != task.RoleAgent && role != task.RoleOracle || json.Unmarshal(line["step"], &step) != nil {
		return nil
	}
	b, err := json.Marshal(without("reasoning_content", "metrics", "extra", "llm_call_count")(step))
	if err != nil {
		return nil
	}
	line["step"] = b
	return line
}

// Copies are the artifacts of one stage or one round. A verifier sees all of
// them, another role only those in Shown: slash-separated paths below Dir.
type Copies struct {
	Dir   string
	Shown []string
	// Verdicts is the folder of the attempt with the verdicts that are shown; empty: of
	// the same attempt.
	Verdicts string
	// Keep says which lines of the records are shown, by their turn and kind; nil: all.
	Keep func(turn int, kind string) bool
	// Unmasked is a folder with files that are shown in the place of those at the same
	// paths in Dir, in which secrets are masked. Empty: there are none.
	Unmasked string
	// Captures is the same for the captures, and Records for the records.
	Captures, Records string
}

// has reports whether a role sees what is at a path, or something below it.
func (c *Copies) has(role task.Role, path string) bool {
	return role == task.RoleVerifier || slices.ContainsFunc(c.Shown, func(s string) bool {
		return path == "." || path == s || strings.HasPrefix(path, s+"/") || strings.HasPrefix(s, path+"/")
	})
}

// kept returns a filter that leaves out lines, and passes the others to f.
func (c *Copies) kept(f filter) filter {
	return func(line map[string]json.RawMessage) map[string]json.RawMessage {
		var turn int
		var kind string
		_ = json.Unmarshal(line["turn"], &turn) // a line of something else has none
		_ = json.Unmarshal(line["kind"], &kind)
		if !c.Keep(turn, kind) {
			return nil
		}
		if f == nil {
			return line
		}
		return f(line)
	}
}

// Attempt copies the parts of the attempt so far that role may see from the
// attempt's folder to the view in dir. Missing records are left out.
func Attempt(dir, attempt string, artifacts Copies, role task.Role) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("view of %s: %w", role, err)
		}
	}()
	to := filepath.Join(dir, AttemptFolder)
	if err = os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for name, f := range shown[role] {
		from := attempt
		if name == record.VerdictsFile {
			from = cmp.Or(artifacts.Verdicts, attempt)
		} else if artifacts.Keep != nil {
			f = artifacts.kept(f)
		}
		file := filepath.Join(from, name)
		if plain := filepath.Join(artifacts.Records, name); artifacts.Records != "" && exists(plain) {
			file = plain
		}
		if err = copyRecord(file, filepath.Join(to, name), f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	seen := func(path string) bool { return artifacts.Dir != "" && artifacts.has(role, path) }
	err = addFolder(artifacts.Dir, artifacts.Unmasked, filepath.Join(to, "artifacts"), seen)
	for _, name := range folders[role] {
		plain := ""
		if name == record.CapturesDir {
			plain = artifacts.Captures
		}
		if err == nil {
			err = addFolder(filepath.Join(attempt, name), plain, filepath.Join(to, name), func(string) bool { return true })
		}
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Folder copies a folder to a folder of a view: only regular files and folders. A
// missing folder is left out.
func Folder(from, to string) error {
	return addFolder(from, "", to, func(string) bool { return true })
}

// addFolder copies the parts of a folder of the attempt that are seen to a folder
// of the view, as Folder does. Files of the folder unmasked, if it is not empty,
// replace those at the same paths.
func addFolder(from, unmasked, to string, seen func(path string) bool) error {
	return collect.Walk(from, func(root *os.Root, p string, d fs.DirEntry) error {
		target := filepath.Join(to, p)
		switch {
		case !seen(filepath.ToSlash(p)) && d.IsDir():
			return filepath.SkipDir
		case !seen(filepath.ToSlash(p)):
			return nil
		case d.IsDir():
			return folder(target)
		}
		in, err := root.Open(p)
		if unmasked != "" && err == nil {
			if plain, failed := os.Open(filepath.Join(unmasked, p)); failed == nil {
				_ = in.Close() // it was only read
				in = plain
			} else if !errors.Is(failed, fs.ErrNotExist) {
				err = errors.Join(failed, in.Close())
			}
		}
		if err != nil {
			return err
		}
		defer in.Close()
		return newFile(target, in, 0o600)
	})
}

// copyRecord copies the lines of a record that f keeps. A line that was torn by a crash
// is not JSON, and is left out.
func copyRecord(from, to string, f filter) (err error) {
	if !exists(from) {
		return nil
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := bufio.NewWriter(out)
	cut, err := untrusted.Lines(filepath.Dir(from), filepath.Base(from), MaxLine, math.MaxInt64, func(line []byte) {
		if line = filtered(line, f); line != nil {
			_, _ = w.Write(append(line, '\n')) // Flush returns the error
		}
	})
	if cut {
		err = untrusted.ErrLong
	}
	return errors.Join(err, w.Flush())
}

// filtered returns what f keeps of a line; nil: nothing.
func filtered(line []byte, f filter) []byte {
	if f == nil {
		if !json.Valid(line) {
			return nil
		}
		return line
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(line, &m) != nil {
		return nil
	}
	if m = f(m); m == nil {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return b
}
