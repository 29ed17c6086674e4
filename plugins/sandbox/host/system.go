package host

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

// PutBack is the input of PutSystemBack.
type PutBack struct {
	// Snapshot is the core's session of the sandbox to change. Nothing may have been
	// started in it.
	Snapshot sandbox.Shell
	// Image returns the core's session of a sandbox of the image itself, in which
	// nothing was started. It is called only if a file may have to be put back.
	Image func() (sandbox.Shell, error)
	// Changed are the paths that may differ from the image.
	Changed []string
	// Env (K=V), Dir and Programs (argv[0] of each) are those of the commands that
	// will run.
	Env      []string
	Dir      string
	Programs []string
}

// SystemFiles is the result of PutSystemBack.
type SystemFiles struct {
	Paths []string // that were put back, sorted by folder; at most 1,000
	More  int      // the number of the others
	Open  []string // folders in PATH, or with libraries, that were left because the task works there

	found system.Found
}

// Covers reports whether a file now is as in the image.
func (f *SystemFiles) Covers(name string) bool {
	for _, dir := range append(f.found.Folders, f.found.Single...) {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// mostPaths is how many paths SystemFiles lists, and mostAnswer how many bytes a
// sandbox may answer.
const (
	mostPaths  = 1000
	mostAnswer = 256 << 20
)

// PutSystemBack makes the system files of a sandbox those of its image: programs,
// libraries, and what shells, loaders and Python read at their start. What was
// added there is removed. Package system says which files these are.
func PutSystemBack(ctx context.Context, p PutBack) (out SystemFiles, err error) {
	q := system.Query{Changed: asBytes(p.Changed), Env: p.Env, Dir: p.Dir, Programs: p.Programs}
	if err = ask(ctx, p.Snapshot, system.Find, q, &out.found); err != nil {
		return out, err
	}
	out.Open = out.found.Open
	if len(out.found.Files) == 0 { // then these are the same places as in the image
		return out, nil
	}
	image, err := p.Image()
	if err != nil {
		return out, err
	}
	out.found = system.Found{} // the agent may have changed what the places depend on
	if err = ask(ctx, image, system.Find, q, &out.found); err != nil {
		return out, fmt.Errorf("image: %w", err)
	}
	out.Open = out.found.Open
	q.Changed, q.Files = nil, out.found.Files
	var there []system.File
	if err = ask(ctx, p.Snapshot, system.Look, q, &there); err != nil {
		return out, err
	}
	if len(there) != len(q.Files) {
		return out, fmt.Errorf("look at %d files: got %d", len(q.Files), len(there))
	}
	q.Files = there
	return out, out.copy(ctx, image, p.Snapshot, q)
}

// inside runs our own program in a sandbox, as root by number.
func inside(ctx context.Context, s sandbox.Shell, word string, in io.Reader, out io.Writer) error {
	said := &cut{left: 4 << 10}
	r, err := s.Exec(ctx, sandbox.Command{
		Argv: []string{"/berth/sandboxd", system.Word, word}, User: "0:0", Dir: "/", Env: []string{"GOMAXPROCS=2", "GODEBUG=", "GOTRACEBACK="},
		Stdin: in, Stdout: out, Stderr: said,
	})
	if err == nil && !r.OK() {
		err = fmt.Errorf("exit code %d: %s", r.ExitCode, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return fmt.Errorf("%s system files: %w", word, err)
	}
	return nil
}

// ask runs our program with a query and reads its answer.
func ask(ctx context.Context, s sandbox.Shell, word string, q system.Query, answer any) error {
	in, err := json.Marshal(q)
	if err != nil {
		return err
	}
	out := &cut{left: mostAnswer}
	if err = inside(ctx, s, word, bytes.NewReader(in), out); err != nil {
		return err
	}
	if err = json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("%s system files: read the answer: %w", word, err)
	}
	return nil
}

// cut keeps the first bytes that are written to it.
type cut struct {
	bytes.Buffer

	left int
}

func (c *cut) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.left -= n
	c.Buffer.Write(b[:n])
	return len(b), nil
}

// copy copies what differs from one sandbox to the other, and notes the paths.
func (f *SystemFiles) copy(ctx context.Context, from, to sandbox.Shell, q system.Query) error {
	in, err := json.Marshal(q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	packed, pack := io.Pipe() // as it comes from the image
	read, list := io.Pipe()   // the same, for the names
	applied, apply := io.Pipe()
	sent, listed := make(chan error, 1), make(chan error, 1)
	go func() {
		failed := inside(ctx, from, system.Pack, bytes.NewReader(in), pack)
		_ = pack.CloseWithError(failed)
		sent <- failed
	}()
	go func() {
		failed := f.names(read)
		_, _ = io.Copy(io.Discard, read) // the padding after the end
		listed <- failed
	}()
	go func() {
		_, failed := io.Copy(io.MultiWriter(apply, list), packed)
		_ = packed.CloseWithError(errors.New("reader closed"))
		_ = apply.CloseWithError(failed)
		_ = list.CloseWithError(failed)
	}()
	err = inside(ctx, to, system.Apply, applied, nil)
	_ = applied.CloseWithError(errors.New("the sandbox takes no more"))
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-sent, <-listed)
}

// names notes the paths that an archive changes.
func (f *SystemFiles) names(in io.Reader) error {
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list system files: %w", err)
		}
		switch {
		case h.PAXRecords[system.Removed] == "" && h.PAXRecords[system.Replaced] == "":
		case len(f.Paths) == mostPaths:
			f.More++
		default:
			f.Paths = append(f.Paths, h.Name)
		}
	}
}
