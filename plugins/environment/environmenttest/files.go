package environmenttest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

// fileClauses are about files that go in and out.
var fileClauses = []conformance.Clause[Subject]{
	{
		Name:   "a folder goes in and comes out as it was",
		Guards: "lost modes, links or names in the artifacts of an attempt",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			from, to := t.TempDir(), t.TempDir()
			for name, mode := range map[string]os.FileMode{"run.sh": 0o755, "sub/plain": 0o644, "sub/\u00e4 \u20ac": 0o600, "sub/\xff": 0o644} {
				path := filepath.Join(from, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("of "+name), mode), os.Chmod(path, mode)); err != nil {
					t.Fatalf("%v", err)
				}
			}
			if err := c.UploadFolder(ctx, from, "/tmp/kit-folder", sandbox.UploadOptions{}); err != nil {
				t.Fatalf("upload: %v", err)
			}
			if _, err := c.DownloadFolder(ctx, "/tmp/kit-folder", to, archive.Limits{}); err != nil {
				t.Fatalf("download: %v", err)
			}
			if want, got := tree(t, from), tree(t, to); got != want {
				t.Errorf("went in as\n%sand came out as\n%s", want, got)
			}
		},
	},
	{
		Name:   "fifty MiB go in and come out as a file",
		Guards: "a large artifact that breaks the connection",
		Time:   20 * time.Second,
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			data := bytes.Repeat([]byte("0123456789abcdef"), 50<<20/16)
			if err := c.WriteFile(ctx, "/tmp/kit-large", data, sandbox.FileOptions{}); err != nil {
				t.Fatalf("write: %v", err)
			}
			got, err := c.ReadFile(ctx, "/tmp/kit-large", 64<<20)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %d bytes, %v; want %d", len(got), err, len(data))
			}
			sh(ctx, t, c, "rm /tmp/kit-large")
		},
	},
	{
		Name:   "an archive that leads out of its folder is refused",
		Guards: "a crafted name that overwrites a file elsewhere",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			for name, h := range map[string]tar.Header{
				"dots":      {Name: "../kit-escaped", Typeflag: tar.TypeReg, Mode: 0o644},
				"hard link": {Name: "kit-escaped", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
				"device":    {Name: "kit-escaped", Typeflag: tar.TypeBlock, Devmajor: 8},
				"pipe":      {Name: "kit-escaped", Typeflag: tar.TypeFifo},
			} {
				var b bytes.Buffer
				w := tar.NewWriter(&b)
				if err := errors.Join(w.WriteHeader(&h), w.Close()); err != nil {
					t.Fatalf("%v", err)
				}
				if err := c.Upload(ctx, "/tmp/kit-hostile", &b, sandbox.UploadOptions{}); err == nil {
					t.Errorf("%s: was taken", name)
				}
			}
			if out, _ := try(ctx, t, c, "find /tmp -name kit-escaped"); out != "" {
				t.Errorf("found %q", out)
			}
		},
	},
	{
		Name:   "nothing is written through a link",
		Guards: "a link that the agent put where the host will write",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			sh(ctx, t, c, "mkdir -p /tmp/kit-real && rm -rf /tmp/kit-way && mkdir /tmp/kit-way && ln -s /tmp/kit-real /tmp/kit-way/sub && echo keep > /tmp/kit-real/file")
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			body := []byte("overwritten")
			err := w.WriteHeader(&tar.Header{Name: "sub/file", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))})
			_, err2 := w.Write(body)
			if err = errors.Join(err, err2, w.Close()); err != nil {
				t.Fatalf("%v", err)
			}
			_ = c.Upload(ctx, "/tmp/kit-way", &b, sandbox.UploadOptions{})
			if got := sh(ctx, t, c, "cat /tmp/kit-real/file"); got != "keep" {
				t.Errorf("the file behind the link is %q", got)
			}
		},
	},
	{
		Name:   "a file is not read through a link, a pipe or a device",
		Guards: "a download that hangs, or brings a file that nobody named",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			b := s.common(ctx, t)
			c := b.shell(ctx, t)
			sh(ctx, t, c, "cd /tmp && rm -rf kit-odd && mkdir kit-odd && cd kit-odd && ln -s /etc/passwd link && mkfifo pipe && ln -s /dev/zero zero && ln -s /proc/1/environ environ")
			for _, name := range []string{"link", "pipe", "zero", "environ"} {
				if data, _, err := b.core.Read(ctx, "/tmp/kit-odd/"+name, 64<<10); err == nil {
					t.Errorf("%s: read %d bytes", name, len(data))
				}
			}
			dir := t.TempDir()
			if _, err := c.DownloadFolder(ctx, "/tmp/kit-odd", dir, archive.Limits{}); err != nil {
				t.Errorf("download: %v", err)
			}
			for line := range strings.Lines(tree(t, dir)) {
				t.Errorf("a link or pipe came out: %s", line)
			}
		},
	},
	{
		Name:   "a file that is too large is an error, not half a file",
		Guards: "a bomb that fills the disk of the host",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			c := s.common(ctx, t).shell(ctx, t)
			sh(ctx, t, c, "truncate -s 200G /tmp/kit-bomb || dd if=/dev/zero of=/tmp/kit-bomb bs=1 count=0 seek=200G")
			if data, err := c.ReadFile(ctx, "/tmp/kit-bomb", 1<<20); !errors.Is(err, sandbox.ErrTooLarge) {
				t.Errorf("read %d bytes, %v; want ErrTooLarge", len(data), err)
			}
			if err := c.Download(ctx, "/tmp/kit-bomb", io.Discard, archive.Limits{Bytes: 1 << 20}); err == nil {
				t.Errorf("the download ended well")
			}
			sh(ctx, t, c, "rm /tmp/kit-bomb")
		},
	},
	{
		Name:   "a path that is not there is an error with a name",
		Guards: "a missing artifact that looks like a lost sandbox",
		Run: func(ctx context.Context, t *conformance.T, s Subject) {
			if _, err := s.common(ctx, t).shell(ctx, t).Stat(ctx, "/tmp/no/such/file"); !errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("got %v; want ErrNotFound", err)
			}
		},
	},
}

// tree lists files below dir with mode and content.
func tree(t *conformance.T, dir string) string {
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		b.WriteString(info.Mode().String() + " " + rel + ": " + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b.String()
}
