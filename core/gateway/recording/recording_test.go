package recording

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

func TestABodyIsKeptOnceAndChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	body := bytes.Repeat([]byte("the same words again "), 5000)
	digest, _, err := Store(dir, body, NewRoom(1<<30))
	testlevel.Must(t, err)
	if again, _, twice := Store(dir, body, NewRoom(1<<30)); twice != nil || again != digest {
		t.Errorf("%s, %v", again, twice)
	}
	files, err := os.ReadDir(filepath.Join(dir, blobs))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if fi, gone := files[0].Info(); gone != nil || fi.Size() > int64(len(body)/20) {
		t.Errorf("%d bytes are kept of %d, %v", fi.Size(), len(body), gone)
	}
	if got, lost := Fetch(dir, digest); lost != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), lost)
	}
	other, _, err := Store(t.TempDir(), []byte("x"), NewRoom(1<<30))
	testlevel.Must(t, err)
	testlevel.Must(t, os.Rename(place(dir, digest), place(dir, other)))
	if _, err = Fetch(dir, other); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a changed file: %v", err)
	}
	if _, err = Fetch(dir, "../../etc/passwd"); err == nil {
		t.Error("a path is taken for a digest")
	}
}

// Bodies beyond the room are named, and not kept; one that is there already is.
func TestStoreHasItsRoom(t *testing.T) {
	t.Parallel()
	dir, room := t.TempDir(), NewRoom(2000)
	noise := func(seed int) []byte {
		b := make([]byte, 900)
		for i := range b {
			seed = (seed*1103515245 + 12345) & 0x7fffffff
			b[i] = byte(seed >> 16)
		}
		return b
	}
	for i, want := range []bool{true, true, false, false} {
		digest, kept, err := Store(dir, noise(i), room)
		if err != nil || kept != want || digest != Digest(noise(i)) {
			t.Errorf("body %d: %s, kept %v, %v; want %v", i, digest, kept, err, want)
		}
	}
	if _, kept, err := Store(dir, noise(0), room); err != nil || !kept {
		t.Errorf("a body that is there: kept %v, %v", kept, err)
	}
	if _, err := Fetch(dir, Digest(noise(3))); err == nil || !strings.Contains(err.Error(), "the record of the attempt was full") {
		t.Errorf("fetched: %v", err)
	}
}
