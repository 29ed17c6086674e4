package notes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/notes"
)

func note(label, text string) notes.Note {
	return notes.Note{Time: time.Unix(1e9, 0).UTC(), Author: "reader", Trial: "3f9a2c", Attempt: 1, Label: label, Text: text}
}

func read(t *testing.T, dir string) *notes.Notes {
	t.Helper()
	n, err := notes.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLabelsAreGivenChangedAndRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if n := read(t, dir); len(n.All()) != 0 {
		t.Fatalf("a run without notes has %v", n.All())
	}
	gone := note("bad task", "")
	gone.Removed = true
	other := note("bad task", "")
	other.Attempt = 2
	for _, one := range []notes.Note{note("bad task", "no"), note("reward hacking", "line 1\nline 2"), note("bad task", "again"), other, gone} {
		if err := notes.Add(dir, one); err != nil {
			t.Fatal(err)
		}
	}
	n := read(t, dir)
	if got := n.Labels("3f9a2c", 1); !slices.Equal(got, []string{"reward hacking"}) || n.Of("3f9a2c", 1)[0].Text != "line 1\nline 2" {
		t.Errorf("labels %q, %+v", got, n.Of("3f9a2c", 1))
	}
	if got := n.Labels("3f9a2c", 2); !slices.Equal(got, []string{"bad task"}) {
		t.Errorf("labels of the other attempt: %q", got)
	}
}

func TestWrongNotesAreNotWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none := note("x", "")
	none.Attempt = 0
	for name, wrong := range map[string]notes.Note{
		"no label": note("", "x"), "spaces": note(" x ", ""), "two lines": note("a\nb", ""), "escape": note("x", "\x1b[2J"),
		"long label": note(strings.Repeat("x", 101), ""), "long text": note("x", strings.Repeat("x", 16<<10+1)), "no attempt": none,
	} {
		if err := notes.Add(dir, wrong); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, notes.File)); err == nil {
		t.Error("a file was made")
	}
}

func TestHostileFilesOfNotes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, notes.File)
	if err := os.WriteFile(file, []byte("{\n\x00\xff\n"+`{"trial":"a","attempt":1,"label":"<b>"}`+"\n"+
		`{"trial":"a","attempt":1,"label":"x\u001b[2J"}`+"\n"+strings.Repeat("y", 100_000)+"\n"+`{"trial":"a","att`), 0o600); err != nil {
		t.Fatal(err)
	}
	n := read(t, dir)
	if got := n.Labels("a", 1); !slices.Equal(got, []string{"<b>"}) || n.Damaged < 4 {
		t.Errorf("labels %q, %d damaged", got, n.Damaged)
	}
	if err := notes.Add(dir, note("after a torn line", "")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir).Labels("3f9a2c", 1); len(got) != 1 {
		t.Errorf("a torn line swallowed the note after it: %q", got)
	}
	// A link leads elsewhere.
	elsewhere := filepath.Join(t.TempDir(), "x")
	if err := os.Remove(file); err == nil {
		err = os.Symlink(elsewhere, file)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := notes.Add(dir, note("x", "")); err == nil {
		t.Error("written through a link")
	}
	if _, err := notes.Read(dir); err == nil {
		t.Error("read through a link")
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("a file appeared elsewhere")
	}
}
