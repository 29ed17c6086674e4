package output

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

func TestFileKeepsBothEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"abc", "abc"},
		{"abcd", "abcd"},
		{"abcdef", "abcdef"},
		{"abcdefgh", "abcd\n[1 bytes left out]\nfgh"},
		{"abcdefghijklm", "abcd\n[6 bytes left out]\nklm"},
	} {
		for piece := 1; piece <= len(tt.in)+1; piece++ {
			var b buffer
			f := New(&b, 4, 3)
			for rest := tt.in; rest != ""; {
				n := min(piece, len(rest))
				if m, err := f.Write([]byte(rest[:n])); m != n || err != nil {
					t.Fatalf("Write = %d, %v; want %d", m, err, n)
				}
				rest = rest[n:]
			}
			if err := f.Close(); err != nil || b.String() != tt.want || f.Total() != int64(len(tt.in)) {
				t.Errorf("%q in pieces of %d: %q, total %d, %v; want %q", tt.in, piece, b.String(), f.Total(), err, tt.want)
			}
		}
	}
}

func TestAProgramThatPrintsNothingLeavesNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.txt")
	if err := os.WriteFile(path, []byte("of another"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write(nil); n != 0 || err != nil {
		t.Errorf("Write of nothing = %d, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat = %v, want no file", err)
	}
}

func TestAFileThatCannotBeMadeIsSaidOnce(t *testing.T) {
	t.Parallel()
	f, err := Create(filepath.Join(t.TempDir(), "none", "out.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write: %v, want why there is no file", err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Close: %v, want why there is no file", err)
	}
}

func TestCreateFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "out.txt")
	if err := os.WriteFile(victim, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "new")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(victim); string(got) != "keep" || err != nil {
		t.Errorf("victim = %q, %v; want it untouched", got, err)
	}
}

func TestTailSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	tail := NewTail(3)
	fmt.Fprint(tail, "ab")
	if got := tail.String(); got != "ab" {
		t.Errorf("got %q, want ab", got)
	}
	fmt.Fprint(tail, "cd\xff")
	if got := tail.String(); !strings.HasPrefix(got, "[2 bytes") || !strings.HasSuffix(got, "\ncd\uFFFD") {
		t.Errorf("got %q, want the last three bytes, valid, and a note", got)
	}
}

func TestMiddleKeepsBothEndsAndWholeCharacters(t *testing.T) {
	t.Parallel()
	for limit := range 60 {
		s := "begin " + strings.Repeat("ä€😀", 50) + " end"
		got := Middle(s, limit)
		if !utf8.ValidString(got) || !strings.Contains(got, "left out") {
			t.Fatalf("limit %d: %q", limit, got)
		}
	}
	if got := Middle("short\xff", 100); got != "short\uFFFD" {
		t.Errorf("got %q", got)
	}
}
