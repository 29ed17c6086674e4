package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
)

// Whatever archive a Dockerfile adds, its entries lie below the folder that it is
// added to.
func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{{Name: "../../x", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "y", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}} {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, archive []byte) {
		if err := os.WriteFile(filepath.Join(dir, "a.tar"), archive, 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		var out bytes.Buffer
		p := &packer{root: root, tar: tar.NewWriter(&out), exists: func(string) bool { return false }, made: map[string]bool{"/": true}, c: &dockerfile.Copy{}}
		if _, err = p.unpack("a.tar", "/to"); err != nil {
			return
		}
		if err = p.tar.Close(); err != nil {
			return // an entry that says it has more than it has
		}
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if name := strings.TrimSuffix(h.Name, "/"); name != "/to" && !strings.HasPrefix(name, "/to/") {
				t.Errorf("%q is not below /to", h.Name)
			}
			if h.Typeflag == tar.TypeLink && h.Linkname != "/to" && !strings.HasPrefix(h.Linkname, "/to/") {
				t.Errorf("a link to %q", h.Linkname)
			}
		}
	})
}
