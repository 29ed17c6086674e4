package view

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/core/store"
)

// note gives an attempt a label, or takes one back, as a form asks for. The author is
// the user who runs this program, also if others have the token.
func (s *Server) note(r *request) (back, said string, err error) {
	a, err := s.attempt(r)
	if err != nil {
		return "", "", err
	}
	if !slices.ContainsFunc(a.Trial.Attempts, func(o store.AttemptState) bool { return o.Number == a.Number }) {
		return "", "", fmt.Errorf("%w: the trial has no attempt %d", errMissing, a.Number)
	}
	n := notes.Note{Trial: a.Trial.ID, Attempt: a.Number, Label: r.field("label"), Text: r.field("text")}
	switch action := r.PostForm.Get("action"); action {
	case "add":
		said = fmt.Sprintf("Done: the attempt has the label %q.", n.Label)
	case "remove":
		n.Removed, n.Text = true, ""
		said = fmt.Sprintf("Done: the attempt has no label %q any more.", n.Label)
	default:
		return a.Page(), unchanged(fmt.Errorf("this page has no action %q", action)), nil
	}
	if err = write(a.run, &n); err != nil {
		said = unchanged(err)
	}
	return a.Page(), said, nil
}

// write writes a note into the folder of a run.
func write(dir string, n *notes.Note) error {
	readers, err := notes.Read(dir)
	if err != nil {
		return err
	}
	if n.Removed && !slices.Contains(readers.Labels(n.Trial, n.Attempt), n.Label) {
		return fmt.Errorf("the attempt has no label %q", n.Label)
	}
	n.Time, n.Author = time.Now().UTC(), control.NameOf(os.Getuid())
	return notes.Add(dir, *n)
}
