// Package system tells the files of the system from the work of a task, and copies the
// files of a sandbox to a new one of the same image.
//
// Its code runs inside of sandboxes as a separate program (sandboxd with the
// argument Word), because only root there can read every file and set every owner
// and mode. It runs nothing, and follows no link while it writes. Package host is the
// other side.
package system

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Word is the argument that makes sandboxd run Inside, and the words after it say
// what to do.
const (
	Word    = "system"
	Keep    = "keep"    // a KeepQuery on stdin, an archive on stdout
	Restore = "restore" // a RestoreQuery and the archive on stdin, a Restored on stdout
	Aside   = "aside"   // an AsideQuery on stdin, Names of links on stdout
)

// KeepQuery says what to keep.
type KeepQuery struct {
	// Made is a moment, in nanoseconds since 1970, after the image of the sandbox was
	// complete and before anything was written to the sandbox's own file system.
	// 0: unknown, and everything is kept.
	Made int64 `json:"made"`
	// MaxBytes bounds the content of files. A file with holes counts in full.
	MaxBytes int64 `json:"max_bytes"`
}

// RestoreQuery says what to take of an archive.
type RestoreQuery struct {
	// WorkOnly leaves out the files of the system.
	WorkOnly bool     `json:"work_only"`
	Commands Commands `json:"commands"` // only for WorkOnly
	// Aside are folders (absolute) into which no link may lead. Only for WorkOnly.
	// Nor is anything taken that would stand in their place.
	Aside []string `json:"aside,omitempty"`
}

// AsideQuery says which links to remove.
type AsideQuery struct {
	Made    int64    `json:"made"`    // as of KeepQuery
	Folders []string `json:"folders"` // into which they lead; absolute
}

// Restored is what was not taken, besides the files of the system.
type Restored struct {
	Aside Names `json:"aside"` // what leads into one of RestoreQuery.Aside, or stands in its place
}

// Names are the first names of some files, and the number of the others. They need not
// be UTF-8, which texts of JSON are.
type Names struct {
	Paths [][]byte `json:"paths,omitempty"`
	More  int      `json:"more,omitempty"`
}

const mostNames = 100

func (n *Names) add(name string) {
	if len(n.Paths) == mostNames {
		n.More++
		return
	}
	n.Paths = append(n.Paths, []byte(name))
}

// Inside does what args say, in the sandbox in which it runs.
func Inside(args []string, in io.Reader, out io.Writer) error {
	w := bufio.NewWriterSize(out, 256<<10)
	err := tree{root: "/"}.do(args, bufio.NewReaderSize(in, 256<<10), w)
	if err == nil {
		err = w.Flush()
	}
	return err
}

func (t tree) do(args []string, in *bufio.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("expected 1 argument, got %q", args)
	}
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the query: %w", err)
	}
	switch args[0] {
	case Keep:
		return answer(line, func(q KeepQuery) error { return t.keep(q, out) })
	case Restore:
		return answer(line, func(q RestoreQuery) error {
			done, err := t.restore(q, in)
			return errors.Join(err, json.NewEncoder(out).Encode(done))
		})
	case Aside:
		return answer(line, func(q AsideQuery) error {
			gone, err := t.setAside(q)
			return errors.Join(err, json.NewEncoder(out).Encode(gone))
		})
	default:
		return fmt.Errorf("unknown argument %q", args[0])
	}
}

// answer reads a query and calls do with it.
func answer[Q any](line []byte, do func(Q) error) error {
	var q Q
	if err := json.Unmarshal(line, &q); err != nil {
		return fmt.Errorf("read the query: %w", err)
	}
	return do(q)
}
