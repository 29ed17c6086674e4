// Package notes keeps what readers say about attempts: a label and a text, in
// notes.jsonl beside the record of a run. A run folder may be a stranger's, so
// the file is read as hostile.
//
// It must not change anything else in a run folder: the record stays as it was.
package notes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// File is the name of the file in the folder of a run.
const File = "notes.jsonl"

// Bounds of a note and of the file, in bytes.
const (
	maxLabel  = 100
	maxText   = 16 << 10
	maxAuthor = 200
	maxLine   = 64 << 10
	maxFile   = 64 << 20
)

// Note is one line of the file: a label of an attempt, or its removal.
type Note struct {
	Time    time.Time `json:"time"`
	Author  string    `json:"author"` // user name on the machine where it was written
	Trial   string    `json:"trial"`  // id
	Attempt int       `json:"attempt"`
	Label   string    `json:"label"`
	Text    string    `json:"text,omitempty"`
	Removed bool      `json:"removed,omitempty"` // the label no longer applies
}

// Notes are those of a run. The zero value has none.
type Notes struct {
	// Damaged counts lines that are not notes. They are left out.
	Damaged int

	all []Note // that apply, oldest first
}

// Read reads the notes of the run in dir. A run without the file has none.
func Read(dir string) (*Notes, error) {
	n := &Notes{}
	cut, err := untrusted.Lines(dir, File, maxLine, maxFile, func(line []byte) {
		var one Note
		if json.Unmarshal(line, &one) != nil || one.check() != nil {
			n.Damaged++
			return
		}
		n.apply(one)
	})
	if errors.Is(err, os.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return nil, fmt.Errorf("notes of readers: %w", err)
	}
	if cut {
		n.Damaged++
	}
	return n, nil
}

// apply takes a later note for the same label in place of an earlier one.
func (n *Notes) apply(one Note) {
	n.all = slices.DeleteFunc(n.all, func(o Note) bool {
		return o.Trial == one.Trial && o.Attempt == one.Attempt && o.Label == one.Label
	})
	if !one.Removed {
		n.all = append(n.all, one)
	}
}

// All returns the notes that apply, oldest first.
func (n *Notes) All() []Note { return slices.Clone(n.all) }

// Of returns those of one attempt, oldest first. It may be called on nil.
func (n *Notes) Of(trial string, attempt int) []Note {
	var of []Note
	if n == nil {
		return nil
	}
	for _, one := range n.all {
		if one.Trial == trial && one.Attempt == attempt {
			of = append(of, one)
		}
	}
	return of
}

// Labels returns the labels of one attempt, in the order in which they were given.
func (n *Notes) Labels(trial string, attempt int) []string {
	labels := []string{}
	for _, one := range n.Of(trial, attempt) {
		labels = append(labels, one.Label)
	}
	return labels
}

// check returns what is wrong with a note.
func (n *Note) check() error {
	printable := func(s string, also string) bool {
		return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && !strings.ContainsRune(also, r) })
	}
	switch {
	case n.Trial == "" || n.Attempt < 1 || len(n.Trial) > maxLabel || !printable(n.Trial, ""):
		return errors.New("a note is about an attempt of a trial")
	case strings.TrimSpace(n.Label) != n.Label || n.Label == "" || len(n.Label) > maxLabel || !printable(n.Label, ""):
		return fmt.Errorf("a label is one line of 1 to %d bytes that can be printed, got %q", maxLabel, n.Label[:min(len(n.Label), maxLabel)])
	case len(n.Text) > maxText || !printable(n.Text, "\n\t"):
		return fmt.Errorf("the text of a note has at most %d KiB and can be printed", maxText>>10)
	case len(n.Author) > maxAuthor || !printable(n.Author, ""):
		return errors.New("the author of a note is a name")
	}
	return nil
}

// Add writes a note to the run in dir. Several processes may do so at a time.
func Add(dir string, n Note) error {
	if err := n.check(); err != nil {
		return err
	}
	line, err := json.Marshal(&n)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write a note: %w", err)
	}
	defer root.Close()
	if fi, statErr := root.Lstat(File); statErr == nil && !fi.Mode().IsRegular() {
		return fmt.Errorf("write a note: %s is not a regular file. Remove it", filepath.Join(dir, File))
	}
	f, err := root.OpenFile(File, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("write a note into %s: %w", dir, err)
	}
	defer f.Close()
	// A line that a full disk cut off must not swallow this one.
	if fi, statErr := f.Stat(); statErr == nil && fi.Size() > 0 {
		last := make([]byte, 1)
		if _, readErr := f.ReadAt(last, fi.Size()-1); readErr == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err = f.Write(append(line, '\n')); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write a note: %w", err)
	}
	return f.Close()
}
