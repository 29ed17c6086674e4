package sandbox_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestFolderThereAndBack(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{ManyIDs: os.Geteuid() == 0})
	c := b.ShellOf(host.Session{ID: "agent", Dir: "/app"})
	from := t.TempDir()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	for name, data := range map[string][]byte{"plain": []byte("x"), "sub/script": []byte("#!/bin/sh\necho hi\n"), "sub/deep/big": big, "skipped/x": nil} {
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(from+"/sub/script", 0o755), os.Symlink("sub/script", from+"/link"), os.Mkdir(from+"/empty", 0o755)); err != nil {
		t.Fatal(err)
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "alice"
	}
	err := c.UploadFolder(t.Context(), from, "put/here", sandbox.UploadOptions{User: user, Skip: func(n string) bool { return n == "skipped" }})
	if err != nil {
		t.Fatal(err)
	}
	out, _ := run(t, c, "cd /app/put/here && find . | sort && ./link && stat -c '%U %a' sub/script .")
	want := ".\n./empty\n./link\n./plain\n./sub\n./sub/deep\n./sub/deep/big\n./sub/script\nhi\n"
	if !strings.HasPrefix(out, want) || user != "" && !strings.HasSuffix(out, "alice 755\nalice 755\n") {
		t.Errorf("inside there is\n%swant\n%s", out, want)
	}
	to := t.TempDir()
	report, err := c.DownloadFolder(t.Context(), "put/here", to, archive.Limits{})
	if err != nil || len(report.Skipped) != 1 || report.Skipped[0].Name != "link" {
		t.Fatalf("download: %+v, %v; want the link left out", report, err)
	}
	if data, err := os.ReadFile(to + "/sub/deep/big"); err != nil || !bytes.Equal(data, big) {
		t.Errorf("the big file came back with %d bytes, %v", len(data), err)
	}
	if info, err := os.Stat(to + "/sub/script"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the script came back as %v, %v", info, err)
	}
}

func TestSingleFiles(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{})
	c := b.ShellOf(host.Session{ID: "agent", Dir: "/app"})
	ctx := t.Context()
	if err := c.WriteFile(ctx, "new/file", []byte("hello"), sandbox.FileOptions{Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if data, err := c.ReadFile(ctx, "/app/new/file", 5); err != nil || string(data) != "hello" {
		t.Errorf("read %q, %v", data, err)
	}
	if _, err := c.ReadFile(ctx, "new/file", 4); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("a file above the limit: %v", err)
	}
	if _, err := c.ReadFile(ctx, "new", 4); !errors.Is(err, sandbox.ErrUnsafe) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := c.ReadFile(ctx, "nope", 4); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
	info, err := c.Stat(ctx, "new/file")
	if err != nil || info.Kind != sandbox.File || info.Bytes != 5 || info.Mode != 0o600 {
		t.Errorf("stat: %+v, %v", info, err)
	}
	run(t, c, "cd /app; ln -s new/file link; ln -s loop loop; mkfifo pipe; ln -s ../../../../etc up")
	if info, err = c.Lstat(ctx, "link"); err != nil || info.Kind != sandbox.Link || info.Target != "new/file" {
		t.Errorf("lstat of a link: %+v, %v", info, err)
	}
	if info, err = c.Stat(ctx, "link"); err != nil || info.Kind != sandbox.File {
		t.Errorf("stat of a link: %+v, %v", info, err)
	}
	if info, err = c.Stat(ctx, "up/passwd"); err != nil || info.Kind != sandbox.File {
		t.Errorf("stat through a link: %+v, %v", info, err)
	}
	if _, err = c.Stat(ctx, "loop"); !errors.Is(err, sandbox.ErrUnsafe) {
		t.Errorf("stat of a loop: %v", err)
	}
	if _, err = c.ReadFile(ctx, "pipe", 10); err == nil {
		t.Error("a pipe was read")
	}
	if data, err := c.ReadFile(ctx, "link", 10); err != nil || string(data) != "hello" {
		t.Errorf("read through a link: %q, %v", data, err)
	}
}

// A link that the sandbox planted is replaced, never written through.
func TestUploadReplacesLinks(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	run(t, c, "mkdir -p /tmp/l/real /tmp/outside; cd /tmp/l; echo kept > ../outside/victim; ln -s ../outside/victim file; ln -s ../outside dir; ln real2 x 2>/dev/null; true")
	if err := c.WriteFile(t.Context(), "/tmp/l/file", []byte("new"), sandbox.FileOptions{}); err != nil {
		t.Errorf("a file over a link: %v", err)
	}
	from := t.TempDir()
	if err := errors.Join(os.Mkdir(from+"/dir", 0o755), os.WriteFile(from+"/dir/victim", []byte("bad"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := c.UploadFolder(t.Context(), from, "/tmp/l", sandbox.UploadOptions{}); !errors.Is(err, sandbox.ErrUnsafe) {
		t.Errorf("a folder over a link: %v, want ErrUnsafe", err)
	}
	if out, _ := run(t, c, "cat /tmp/outside/victim /tmp/l/file; ls /tmp/outside"); out != "kept\nnewvictim\n" {
		t.Errorf("afterwards there is %q", out)
	}
	// The folder of the upload itself may be a link: an agent may move /app.
	if err := c.WriteFile(t.Context(), "/tmp/l/dir/second", []byte("x"), sandbox.FileOptions{}); err != nil {
		t.Errorf("below a folder that is a link: %v", err)
	}
}

func TestHostileUploadsAreRefused(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	for _, tt := range []struct {
		name string
		head tar.Header
		want error
	}{
		{"dots", tar.Header{Name: "../escaped", Typeflag: tar.TypeReg}, sandbox.ErrUnsafe},
		{"hard link", tar.Header{Name: "x", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}, sandbox.ErrUnsafe},
		{"bomb", tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 1 << 40}, sandbox.ErrTooLarge},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tt.head); err != nil {
			t.Fatal(err)
		}
		_ = w.Flush()
		if err := c.Upload(t.Context(), "/tmp/u", &b, sandbox.UploadOptions{}); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
	if out, _ := run(t, c, "ls -A /tmp/u / | grep -c escaped"); out != "0\n" {
		t.Errorf("%s files escaped", out)
	}
}

func TestFullDiskIsNoRoom(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{SizeMiB: 8}).Shell("agent")
	if err := c.WriteFile(t.Context(), "/tmp/big", bytes.Repeat([]byte("x"), 12<<20), sandbox.FileOptions{}); !errors.Is(err, sandbox.ErrNoRoom) {
		t.Errorf("12 MiB into 8: %v, want ErrNoRoom", err)
	}
	if err := c.WriteFile(t.Context(), "/tmp/big", []byte("small"), sandbox.FileOptions{}); err != nil {
		t.Errorf("a small file in its place: %v", err)
	}
}

func TestDownloadIsBounded(t *testing.T) {
	t.Parallel()
	c := sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent")
	run(t, c, `mkdir /tmp/d /tmp/many /tmp/deep; cd /tmp/d
		truncate -s 1T sparse; mkfifo pipe; ln -s /proc/1/environ env; echo x > fine
		cd /tmp/many; touch 1 2 3 4 5 6 7 8 9
		cd /tmp/deep; i=0; while [ $i -lt 200 ]; do mkdir d; cd d; i=$((i+1)); done`)
	ctx := t.Context()
	if _, err := c.DownloadFolder(ctx, "/tmp/d", t.TempDir(), archive.Limits{Bytes: 1 << 20}); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("a sparse terabyte: %v, want ErrTooLarge", err)
	}
	if _, err := c.DownloadFolder(ctx, "/tmp/many", t.TempDir(), archive.Limits{Entries: 5}); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("too many files: %v, want ErrTooLarge", err)
	}
	to := t.TempDir()
	run(t, c, "rm /tmp/d/sparse")
	if _, err := c.DownloadFolder(ctx, "/tmp/d", to, archive.Limits{}); err != nil {
		t.Errorf("pipes and links: %v", err)
	}
	entries, err := os.ReadDir(to)
	if names := slices.Collect(func(yield func(string) bool) {
		for _, e := range entries {
			if !yield(e.Name()) {
				return
			}
		}
	}); err != nil || !slices.Equal(names, []string{"fine"}) {
		t.Errorf("downloaded %v, %v; want the one plain file", names, err)
	}
	if _, err := c.DownloadFolder(ctx, "/tmp/deep", t.TempDir(), archive.Limits{}); err != nil {
		t.Errorf("a tree deeper than allowed: %v; want its upper part", err)
	}
	for _, name := range []string{"/proc/1/environ", "/proc", "/proc/self/mem", "/sys", "/tmp/d/env"} {
		if err := c.Download(ctx, name, &bytes.Buffer{}, archive.Limits{}); err == nil {
			t.Errorf("%s was downloaded", name)
		}
	}
}
