package collect_test

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/core/trial/collect"
)

// Whatever archive a sandbox sends, all that is written lies in the folder of
// artifacts, is a plain file, and is within the limits.
func FuzzCollect(f *testing.F) {
	f.Add(pack(f, dir("./"), file("./a", "text"), file("./../b", "text"), tar.Header{Typeflag: tar.TypeSymlink, Name: "./c", Linkname: "/etc"}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		above := t.TempDir()
		c := &collect.Collector{
			Into: filepath.Join(above, "artifacts"), Workdir: "/", Redactor: redact.New(), MaxBytes: 1 << 16, MaxFiles: 50,
			Fetch: func(_ context.Context, _, _ string, w io.Writer) error { _, err := w.Write(archive); return err },
		}
		if _, err := c.All(t.Context(), []collect.Artifact{artifact("/logs", "logs")}); err != nil {
			t.Fatal(err)
		}
		var files, size int64
		err := filepath.WalkDir(above, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			i, err := d.Info()
			if err != nil || !i.Mode().IsRegular() || filepath.Dir(path) == above {
				t.Errorf("%s: %v, %v", path, d, err)
				return err
			}
			if d.Name() != collect.ManifestFile {
				files, size = files+1, size+i.Size()
			}
			return nil
		})
		if err != nil || files > c.MaxFiles || size > c.MaxBytes {
			t.Errorf("%d files with %d bytes: %v", files, size, err)
		}
	})
}
