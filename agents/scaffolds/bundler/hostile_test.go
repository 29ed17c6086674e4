package bundler_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
)

// A bundle of a stranger cannot bring a link into the host, also not one that
// leads out through another link.
func TestAnImportedBundleHasNoLinksOut(t *testing.T) {
	var archive bytes.Buffer
	z, err := zstd.NewWriter(&archive)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range []tar.Header{
		{Name: "bundle.json", Typeflag: tar.TypeReg, Mode: 0o644, Size: 2},
		{Name: "root/a/b/up", Typeflag: tar.TypeSymlink, Linkname: "../../.."},
		{Name: "root/out", Typeflag: tar.TypeSymlink, Linkname: "a/b/up/../../../etc/passwd"},
	} {
		if err = w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte("{}"))
		}
	}
	if err = errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err = bundler.Import(t.Context(), t.TempDir(), &archive, false); err == nil || !strings.Contains(err.Error(), `"root/out"`) || !strings.Contains(err.Error(), "out of the folder") {
		t.Errorf("imported: %v", err)
	}
}

// A link in a package does not lead the maker out of the bundle.
func TestWhatIsDroppedIsInTheBundle(t *testing.T) {
	registry(t, script(t))
	host := t.TempDir()
	file := filepath.Join(host, "keep")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_NPM_MORE", "ln -s "+host+" node_modules/thing/host; mkdir -p d/e; ln -s ../../../../../../../../../../../.. d/e/up; ln -s d/e/up/etc through")
	o := order(t.TempDir())
	o.Recipe.Drop = []string{"npm/node_modules/thing/host/*"}
	b, err := bundler.Make(t.Context(), o)
	if _, lost := os.Stat(file); lost != nil {
		t.Errorf("%v (made: %v)", lost, err)
	}
	if err != nil {
		return
	}
	if _, err = os.Readlink(filepath.Join(b.Mount().Source, "npm", "through")); err == nil {
		t.Error("a link that leads out through another one stayed")
	}
}
