// Package system finds the system files of a container image, and puts them back
// in a sandbox that was made of a snapshot: programs, interpreters, loaders,
// libraries, and what shells, loaders and Python read at their start. An agent
// may have changed them, and tests would run what it left there.
//
// Its code runs inside of sandboxes as a separate program (sandboxd with the
// argument Word), because only root there can set every owner and mode. It runs
// nothing, and follows no link while it writes. Package host is the other side.
package system

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Word is the argument that makes sandboxd run Inside, and the words after it say
// what to do.
const (
	Word  = "system"
	Find  = "find"  // a Query on stdin, a Found on stdout
	Look  = "look"  // Files on stdin and on stdout
	Pack  = "pack"  // a Query with Files on stdin, an archive on stdout
	Apply = "apply" // an archive of Pack or Keep on stdin
	Keep  = "keep"  // a Query on stdin, an archive of all of its Changed on stdout
)

// The records of an archive entry that say what to do with its path.
const (
	Removed  = "BERTH.removed"  // it is not in the image
	Replaced = "BERTH.replaced" // what is there is removed first
)

// Query says which files to look for.
type Query struct {
	// Changed are absolute paths of files that may differ from the image, without
	// links to folders in them. They need not be UTF-8, which texts of JSON are.
	Changed [][]byte `json:"changed,omitempty"`
	// Env are the variables (K=V), Dir is the working folder, and Programs are the
	// first words of the commands that will run.
	Env      []string `json:"env,omitempty"`
	Dir      string   `json:"dir"`
	Programs []string `json:"programs,omitempty"`
	// Files are the state of the paths in the other sandbox. Only Pack uses it.
	Files []File `json:"files,omitempty"`
}

// Found is the answer of Find.
type Found struct {
	// Files are those of Query.Changed that are, or contain, system files, and the
	// places of system files below them.
	Files []File `json:"files,omitempty"`
	// Folders are folders that are system files with all their content.
	Folders []string `json:"folders,omitempty"`
	// Single are names of single files.
	Single []string `json:"single,omitempty"`
	// Open are entries of PATH and of the paths of libraries that are not put back,
	// because the task works there.
	Open []string `json:"open,omitempty"`
}

// File is the state of one path.
type File struct {
	Path   []byte `json:"path"`
	Kind   string `json:"kind,omitempty"` // file, folder, link, other; empty: it does not exist
	Mode   uint32 `json:"mode,omitempty"` // permission bits with setuid, setgid and sticky
	UID    uint32 `json:"uid,omitempty"`
	GID    uint32 `json:"gid,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`  // of a file
	Sum    string `json:"sum,omitempty"`    // of a file: SHA-256
	Target []byte `json:"target,omitempty"` // of a link
	// Names are those in a folder.
	Names [][]byte `json:"names,omitempty"`
}

// Inside does what args say, in the sandbox in which it runs.
func Inside(args []string, in io.Reader, out io.Writer) error {
	w := bufio.NewWriterSize(out, 256<<10)
	t := tree{root: "/"}
	err := t.do(args, bufio.NewReaderSize(in, 256<<10), w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fmt.Errorf("system files: %w", err)
	}
	return nil
}

func (t tree) do(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("expected 1 argument, got %q", args)
	}
	if args[0] == Apply {
		return t.apply(in)
	}
	var q Query
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return fmt.Errorf("read the query: %w", err)
	}
	switch args[0] {
	case Find:
		return json.NewEncoder(out).Encode(t.find(q))
	case Look:
		for i := range q.Files {
			q.Files[i] = t.look(string(q.Files[i].Path), q.Files[i].Kind == kindFile)
		}
		return json.NewEncoder(out).Encode(q.Files)
	case Pack:
		return t.pack(q, out)
	case Keep:
		return t.keep(q.Changed, out)
	default:
		return fmt.Errorf("unknown argument %q", args[0])
	}
}
