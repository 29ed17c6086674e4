package runbundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/store"
)

// An archive of a stranger is refused, or all that it names lies below the folder
// that it is unpacked to.
func FuzzUnpack(f *testing.F) {
	head := []byte(`{"version":1,"run":"r","datasets":{"d":"tasks/d"}}`)
	manifest := []byte(`{"run":{"version":1,"run":"r","trials":0}}` + "\n")
	f.Add(head, manifest, []byte("../x"), []byte("/etc"), byte(tar.TypeSymlink))
	f.Fuzz(func(t *testing.T, head, manifest, name, link []byte, kind byte) {
		dir := t.TempDir()
		file, to := filepath.Join(dir, "a.tar.zst"), filepath.Join(dir, "to")
		var packed bytes.Buffer
		z, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(z)
		err = errors.Join(
			put(w, tar.Header{Name: string(name), Linkname: string(link), Typeflag: kind}, nil),
			put(w, tar.Header{Name: headFile, Typeflag: tar.TypeReg}, head),
			put(w, tar.Header{Name: runDir + "/" + store.ManifestFile, Typeflag: tar.TypeReg}, manifest),
			w.Close(), z.Close(),
		)
		if err != nil {
			return // such an archive cannot be written
		}
		if err = errors.Join(os.Mkdir(to, 0o700), os.WriteFile(file, packed.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		got, err := Unpack(file, to)
		there, listErr := filepath.Glob(filepath.Join(dir, "*"))
		if listErr != nil || len(there) != 2 {
			t.Errorf("%q was written beside the folder", there)
		}
		if err != nil {
			return
		}
		for label, folder := range got.Tasks {
			if real, err := filepath.EvalSymlinks(folder); err == nil && !strings.HasPrefix(real+"/", to+"/") {
				t.Errorf("the dataset %q is %s", label, real)
			}
		}
		if real, err := filepath.EvalSymlinks(got.Dir); err != nil || real != filepath.Join(to, runDir) {
			t.Errorf("the run is %s", real)
		}
	})
}

func put(w *tar.Writer, h tar.Header, content []byte) error {
	h.Size, h.Mode = int64(len(content)), 0o755
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
