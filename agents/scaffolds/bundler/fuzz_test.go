package bundler

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// What npm and pip report is refused or read.
func FuzzReported(f *testing.F) {
	f.Add([]byte(`{"packages":{"":{},"node_modules/a/node_modules/b":{"version":"1","integrity":"sha512-x"}},"install":[{"metadata":{"name":"a","version":"1"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := anywhere(text); err == nil && !json.Valid(b) {
			t.Errorf("%q", b)
		}
		for _, read := range []func([]byte) error{
			func(b []byte) error { _, err := reported(b); return err },
			func(b []byte) error { _, err := locked(b); return err },
		} {
			if err := read(text); err == nil && !json.Valid(text) {
				t.Errorf("%q is not JSON and was read", text)
			}
		}
	})
}

// An archive of a bundle is refused, and nothing of it stays.
func FuzzImport(f *testing.F) {
	f.Add([]byte("not an archive"))
	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, tarred []byte) {
		above := t.TempDir()
		dir := filepath.Join(above, "bundles")
		if _, err := Import(t.Context(), dir, bytes.NewReader(z.EncodeAll(tarred, nil)), false); err == nil {
			t.Fatal("it was taken")
		}
		there, err := os.ReadDir(above)
		if err != nil || len(there) > 1 {
			t.Errorf("%v beside the folder: %v", there, err)
		}
		bundles, err := filepath.Glob(filepath.Join(dir, "*@*"))
		if err != nil || len(bundles) > 0 {
			t.Errorf("%v was installed: %v", bundles, err)
		}
	})
}
