package views

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/plugins/task"
)

// MaxLine is the longest line of a record that is shown to a role, in bytes;
// the core itself writes none that is longer.
const MaxLine = 32 << 20

// filter makes of one line of a record what a role sees of it; nil: nothing.
type filter func(line map[string]json.RawMessage) map[string]json.RawMessage

// shown says which records of an attempt a role sees, and how much of each
// line. A role or a record that is not named here sees nothing.
var shown = map[task.Role]map[string]filter{
	task.RoleVerifier: {
		"turns.jsonl": all, "steps.jsonl": all, "surface.jsonl": all, "verdicts.jsonl": all,
	},
	task.RoleUser: {
		"turns.jsonl":    only("time", "kind", "stage", "turn", "round", "from", "text", "files", "end", "asked", "message"),
		"steps.jsonl":    ofAgent(within("step", without("reasoning_content", "metrics", "extra", "llm_call_count"))),
		"surface.jsonl":  without("reward", "info"),
		"verdicts.jsonl": only("stage", "round", "handoff"),
	},
}

// folders are what a role sees whole.
var folders = map[task.Role][]string{
	task.RoleVerifier: {"captures", "frames"},
	task.RoleUser:     {"frames"},
}

func all(line map[string]json.RawMessage) map[string]json.RawMessage { return line }

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

// within applies f to the object under key.
func within(key string, f filter) filter {
	return func(line map[string]json.RawMessage) map[string]json.RawMessage {
		var inner map[string]json.RawMessage
		if json.Unmarshal(line[key], &inner) != nil {
			return nil
		}
		b, err := json.Marshal(f(inner))
		if err != nil {
			return nil
		}
		line[key] = b
		return line
	}
}

// ofAgent leaves out what other roles did.
func ofAgent(f filter) filter {
	return func(line map[string]json.RawMessage) map[string]json.RawMessage {
		var role task.Role
		if json.Unmarshal(line["role"], &role) != nil || (role != task.RoleAgent && role != task.RoleOracle) {
			return nil
		}
		return f(line)
	}
}

// Attempt adds to the view in dir what role may see of the attempt so far,
// copied from the attempt's folder; a record that does not exist yet is left
// out. artifacts is the folder of those that a verifier gets, of one stage or
// one round.
func Attempt(dir, attempt, artifacts string, role task.Role) error {
	to := filepath.Join(dir, AttemptFolder)
	if err := os.Mkdir(to, 0o700); err != nil {
		return fmt.Errorf("view of %s: %w", role, err)
	}
	for name, f := range shown[role] {
		if err := copyRecord(filepath.Join(attempt, name), filepath.Join(to, name), f); err != nil {
			return fmt.Errorf("view of %s: %s: %w", role, name, err)
		}
	}
	if role == task.RoleVerifier {
		if err := addFolder(dir, artifacts, "artifacts"); err != nil {
			return fmt.Errorf("view of %s: %w", role, err)
		}
	}
	for _, name := range folders[role] {
		if err := addFolder(dir, filepath.Join(attempt, name), name); err != nil {
			return fmt.Errorf("view of %s: %w", role, err)
		}
	}
	return nil
}

// addFolder copies a folder of the attempt into the view, as attempt/name. It
// takes regular files and folders only; one that does not exist is left out.
func addFolder(dir, from, name string) error {
	root, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	to := filepath.Join(dir, AttemptFolder, name)
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, filepath.FromSlash(p))
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		in, err := root.Open(filepath.FromSlash(p))
		if err != nil {
			return err
		}
		defer in.Close()
		return newFile(target, in, 0o600)
	})
}

func copyRecord(from, to string, f filter) (err error) {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	r := bufio.NewReaderSize(in, 64<<10)
	w := bufio.NewWriter(out)
	for {
		line, readErr := readLine(r)
		if errors.Is(readErr, io.EOF) {
			return w.Flush() // a line without its end was torn by a crash
		}
		if readErr != nil {
			return readErr
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		if m = f(m); m == nil {
			continue
		}
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if _, err = w.Write(append(b, '\n')); err != nil {
			return err
		}
	}
}

// readLine returns the next line with its end; io.EOF also for one without.
func readLine(r *bufio.Reader) ([]byte, error) {
	var b bytes.Buffer
	for {
		part, err := r.ReadSlice('\n')
		b.Write(part)
		switch {
		case err == nil:
			return b.Bytes(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case b.Len() > MaxLine:
			return nil, fmt.Errorf("a line is longer than %d bytes", MaxLine)
		}
	}
}
