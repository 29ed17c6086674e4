package collect_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// archives are what a sandbox answers, by path.
type archives map[string][]byte

func (a archives) fetch(_ context.Context, _, path string, w io.Writer) error {
	b, ok := a[path]
	if !ok {
		return fmt.Errorf("download %q: %w", path, sandbox.ErrNotFound)
	}
	_, err := w.Write(b)
	return err
}

func pack(t testing.TB, hs ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		body := h.Uname // the content of a file
		h.Uname = ""
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(body))
		}
		testlevel.Must(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	testlevel.Must(t, w.Close())
	return b.Bytes()
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o4777} }

func file(name, body string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o6755, Uname: body}
}

func tree(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() && !info.IsDir() {
			t.Errorf("%s is a %s", p, info.Mode())
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s has mode %s", p, info.Mode())
		}
		if rel, _ := filepath.Rel(root, p); !d.IsDir() {
			out = append(out, rel)
		}
		return nil
	})
	testlevel.Must(t, err)
	return out
}

func run(t *testing.T, c *collect.Collector, as ...collect.Artifact) []collect.Entry {
	t.Helper()
	c.Into = filepath.Join(t.TempDir(), "artifacts")
	es, err := c.All(t.Context(), as)
	testlevel.Must(t, err)
	return es
}

func artifact(source, to string, exclude ...string) collect.Artifact {
	return collect.Artifact{Artifact: task.Artifact{Source: source, To: to, Exclude: exclude}}
}

func TestStatusOfEachArtifact(t *testing.T) {
	t.Parallel()
	a := archives{
		"/logs/artifacts": pack(t, dir("./"), file("a.txt", "A"), dir("sub/"), file("sub/b", "BB")),
		"/app/one.txt":    pack(t, file("one.txt", "1")),
		"/empty":          pack(t, dir("./"), dir("deep/")),
		"/pipe":           pack(t, tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}),
	}
	c := &collect.Collector{Workdir: "/app", Fetch: a.fetch}
	es := run(t, c,
		artifact("/logs/artifacts", ""), artifact("one.txt", "named/1.txt"), artifact("/empty", ""), artifact("/missing", ""),
		artifact("/app/one.txt", "named/1.txt"), artifact("/app/one.txt", "../up"), artifact("/app/one.txt", "manifest.json"),
		artifact("/pipe", ""), collect.Artifact{Artifact: task.Artifact{Source: "/nobody/asked"}, Implied: true})
	want := []struct {
		status      collect.Status
		kind, place string
		files       int64
	}{
		{collect.OK, "directory", "artifacts/logs/artifacts", 2},
		{collect.OK, "file", "artifacts/named/1.txt", 1},
		{collect.Empty, "directory", "artifacts/empty", 0},
		{collect.Failed, "", "artifacts/missing", 0},
		{collect.Skipped, "", "artifacts/named/1.txt", 0},
		{collect.Failed, "", "up", 0},
		{collect.Failed, "", "artifacts/manifest.json", 0},
		{collect.Failed, "other", "artifacts/pipe", 0},
	}
	if len(es) != len(want) {
		t.Fatalf("got %d entries: %+v", len(es), es)
	}
	for i, w := range want {
		e := es[i]
		if e.Status != w.status || e.Type != w.kind || e.Destination != w.place || e.Files != w.files || (e.Status == collect.Failed) != (e.Reason != "" && e.Status != collect.Skipped) {
			t.Errorf("%s: %+v; want %+v", e.Source, e, w)
		}
	}
	if got := tree(t, c.Into); !slices.Equal(got, []string{"logs/artifacts/a.txt", "logs/artifacts/sub/b", "manifest.json", "named/1.txt"}) {
		t.Errorf("files %q", got)
	}
	var stored []collect.Entry
	b, err := os.ReadFile(filepath.Join(c.Into, collect.ManifestFile))
	if err != nil || json.Unmarshal(b, &stored) != nil || len(stored) != len(es) {
		t.Errorf("manifest %s, %v", b, err)
	}
}

func TestNothingLeavesTheFolder(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	long := strings.Repeat("n", 300)
	a := archives{"/out": pack(t,
		dir("./"), file("../escape", "x"), file("/abs", "x"), file("ok", "fine"),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: outside}, file("link/through", "x"),
		tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "/etc/passwd"},
		tar.Header{Typeflag: tar.TypeChar, Name: "dev"}, tar.Header{Typeflag: tar.TypeFifo, Name: "fifo"},
		file("ok", "again"), file("ok/below", "x"), file(long, "x"), file(strings.Repeat("d/", 200)+"deep", "x"),
		file("a/../../b", "x"), file("bad\xff", "x"), file(strings.Repeat(strings.Repeat("n", 200)+"/", 6)+"far", "x"), dir(strings.Repeat("d/", 70)))}
	c := &collect.Collector{Fetch: a.fetch}
	es := run(t, c, artifact("/out", "."+"/got"))
	got := tree(t, c.Into)
	slices.Sort(got)
	if want := []string{"got/bad\xff", "got/link/through", "got/ok", "manifest.json"}; !slices.Equal(got, want) {
		t.Errorf("files %q; want %q", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(c.Into, "got/ok")); string(b) != "fine" {
		t.Errorf("the first of two files of one name holds %q, %v", b, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("written through a link: %v, %v", left, err)
	}
	if es[0].Status != collect.OK || len(es[0].Dropped) != 13 {
		t.Errorf("entry %+v; want 13 names dropped", es[0])
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	var many []tar.Header
	for i := range 50 {
		many = append(many, file(fmt.Sprint(i), "12345678"))
	}
	a := archives{"/many": pack(t, append([]tar.Header{dir("./")}, many...)...), "/big": pack(t, file("big", strings.Repeat("x", 1000)))}
	for _, tt := range []struct {
		name string
		c    collect.Collector
		path string
		want string
	}{
		{"files", collect.Collector{MaxFiles: 10}, "/many", "more than 10 files"},
		{"bytes", collect.Collector{MaxBytes: 100}, "/many", "more than 100 bytes"},
		{"one big file", collect.Collector{MaxBytes: 999}, "/big", "more than 999 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.c.Fetch = a.fetch
			es := run(t, &tt.c, artifact(tt.path, ""))
			if es[0].Status != collect.Failed || !strings.Contains(es[0].Reason, tt.want) {
				t.Errorf("entry %+v; want a failure with %q", es[0], tt.want)
			}
			if tt.c.MaxBytes > 0 && es[0].Bytes > tt.c.MaxBytes {
				t.Errorf("%d bytes were written", es[0].Bytes)
			}
		})
	}
}

// A file is refused by the size that it claims before anything of it is written:
// one that is sparse takes no room in the sandbox.
func TestASparseFileIsNotWrittenOut(t *testing.T) {
	t.Parallel()
	c := &collect.Collector{Fetch: func(_ context.Context, _, _ string, w io.Writer) error {
		out := tar.NewWriter(w)
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: 1 << 50}); err != nil {
			return err
		}
		zeros := make([]byte, 1<<20)
		for {
			if _, err := out.Write(zeros); err != nil {
				return err
			}
		}
	}}
	es := run(t, c, artifact("/big", ""))
	if es[0].Status != collect.Failed || !strings.Contains(es[0].Reason, "more than ") || es[0].Bytes != 0 || c.Bytes() != 0 {
		t.Errorf("entry %+v; want a failure and nothing written", es[0])
	}
}

// fill is a sandbox with one file of mib MiB. When all but two of them were read,
// somebody else fills the disk by way of filler, unless that is empty.
func fill(mib int, filler string) collect.Fetch {
	return func(_ context.Context, _, _ string, w io.Writer) error {
		out := tar.NewWriter(w)
		err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: int64(mib) << 20})
		for i := range mib {
			if i == mib-2 && filler != "" { // somebody else needs the disk
				_ = os.WriteFile(filler, make([]byte, 64<<20), 0o600)
			}
			if err == nil {
				_, err = out.Write(bytes.Repeat([]byte("a"), 1<<20))
			}
		}
		return errors.Join(err, out.Close())
	}
}

// Artifacts get half of what is free on the disk. If it is full nevertheless, the
// artifact that filled it is removed and has failed, and the host's disk is no
// cause for another attempt.
func TestArtifactsThatFillTheDisk(t *testing.T) {
	t.Parallel()
	testlevel.Root(t, "mount a small disk")
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64m,mode=755"); err != nil {
		testlevel.Cannot(t, testlevel.NoMounts, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name   string
		mib    int
		filler bool
		reason string
		host   bool
	}{
		{name: "more than half", mib: 40, reason: "half of what is free on this host's disk"},
		{name: "full in the middle", mib: 30, filler: true, reason: "no room on this host's disk"},
		{name: "full for others' reasons", mib: 3, filler: true, host: true},
	} {
		filler := filepath.Join(disk, "filler")
		c := &collect.Collector{Into: filepath.Join(disk, tt.name), Plain: true, Fetch: fill(tt.mib, "")}
		if tt.filler {
			c.Fetch = fill(tt.mib, filler)
		}
		es, err := c.All(t.Context(), []collect.Artifact{artifact("/big", "")})
		_ = os.Remove(filler)
		switch {
		case tt.host:
			if !untrusted.NoSpace(err) {
				t.Errorf("%s: %v, want an error of the host", tt.name, err)
			}
		case err != nil || es[0].Status != collect.Failed || !strings.Contains(es[0].Reason, tt.reason):
			t.Errorf("%s: %+v, %v; want a failed artifact with %q", tt.name, es, err, tt.reason)
		default:
			if left := tree(t, disk); len(left) > 0 {
				t.Errorf("%s: %q is left", tt.name, left)
			}
		}
		if err = os.RemoveAll(c.Into); err != nil {
			t.Error(err)
		}
	}
}

func TestExclude(t *testing.T) {
	t.Parallel()
	a := archives{"/app": pack(t, dir("./"), file("keep.txt", "1"), dir("node_modules/"), file("node_modules/x/y.js", "2"),
		file("src/a.pyc", "3"), file("src/a.py", "4"), file("logs/old/x", "5"), file("logs/new", "6"))}
	c := &collect.Collector{Fetch: a.fetch}
	run(t, c, artifact("/app", "", "node_modules", "*.pyc", "logs/old/"))
	want := []string{"app/keep.txt", "app/logs/new", "app/src/a.py", "manifest.json"}
	if got := tree(t, c.Into); !slices.Equal(got, want) {
		t.Errorf("files %q; want %q", got, want)
	}
}

// Of a folder that was copied before, only what is new or changed is copied.
func TestWhatIsKnownIsNotCopiedAgain(t *testing.T) {
	t.Parallel()
	before, into := t.TempDir(), t.TempDir()
	big := strings.Repeat("0123456789", 20_000)
	for name, body := range map[string]string{"same": big, "changed": big, "longer": "x"} {
		testlevel.Must(t, os.WriteFile(filepath.Join(before, name), []byte(body), 0o600))
	}
	end := big[:len(big)-1] + "!"
	a := archives{"/a": pack(t, dir("./"), dir("./sub/"), file("./same", big), file("./changed", end), file("./longer", "xy"), file("./sub/new", "new"), dir("./empty/"))}
	c := collect.Collector{Into: into, Fetch: a.fetch, Redactor: redact.New(), Plain: true, Known: before}
	es, err := c.All(t.Context(), []collect.Artifact{{Artifact: task.Artifact{Source: "/a", To: "a"}, Implied: true}})
	if err != nil || len(es) != 1 || es[0].Status != collect.OK || es[0].Files != 3 {
		t.Fatalf("%+v, %v", es, err)
	}
	for name, want := range map[string]string{"changed": end, "longer": "xy", "sub/new": "new"} {
		if got, err := os.ReadFile(filepath.Join(into, "a", name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
		}
	}
	for _, name := range []string{"same", "empty"} {
		if _, err := os.Lstat(filepath.Join(into, "a", name)); err == nil {
			t.Errorf("%s was copied", name)
		}
	}
}

func TestATornArchiveKeepsWhatCame(t *testing.T) {
	t.Parallel()
	whole := pack(t, dir("./"), file("a", "1"), file("b", strings.Repeat("2", 2000)))
	broken := errors.New("the connection broke")
	c := &collect.Collector{Fetch: func(_ context.Context, _, _ string, w io.Writer) error {
		if _, err := w.Write(whole[:len(whole)/2]); err != nil {
			return err
		}
		return broken
	}}
	es := run(t, c, artifact("/x", ""))
	if es[0].Status != collect.Failed || !strings.Contains(es[0].Reason, broken.Error()) || es[0].Files == 0 {
		t.Errorf("entry %+v", es[0])
	}
}

func TestSecretsAreMaskedInWhatIsTaken(t *testing.T) {
	t.Parallel()
	const secret = "sk-canary-0001"
	a := archives{"/app": pack(t, dir("./"), file("env", "KEY="+secret+"\n"))}
	c := &collect.Collector{Fetch: a.fetch, Redactor: redact.New(secret)}
	es := run(t, c, artifact("/app", ""))
	b, err := os.ReadFile(filepath.Join(c.Into, "app/env"))
	if err != nil || string(b) != "KEY=**************\n" || es[0].Secrets != 1 {
		t.Errorf("file %q, %v; entry %+v", b, err, es[0])
	}
}

// Files that held secrets are as they were in a folder of their own, byte for byte,
// and only these.
func TestWhatWasMaskedIsThereUnmasked(t *testing.T) {
	t.Parallel()
	const one, other = "sk-canary-0001", "https://canary.example/sk-canary-0001"
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "%d,%s,%s\n", i, one, strings.Repeat(other, i%3))
	}
	a := archives{"/app": pack(t, dir("./"), file("sub/table.csv", text.String()), file("plain", "nothing"), file("odd\xff", one))}
	c := &collect.Collector{Fetch: a.fetch, Redactor: redact.New(one, other), Unmasked: t.TempDir()}
	es := run(t, c, artifact("/app", ""))
	if got := tree(t, c.Unmasked); !slices.Equal(got, []string{"app/odd\xff", "app/sub/table.csv"}) {
		t.Errorf("unmasked are %q", got)
	}
	got, err := os.ReadFile(filepath.Join(c.Unmasked, "app/sub/table.csv"))
	if err != nil || string(got) != text.String() {
		t.Errorf("%d bytes, %v; want the %d of the file", len(got), err, text.Len())
	}
	if kept, err := os.ReadFile(filepath.Join(c.Into, "app/sub/table.csv")); err != nil || len(kept) != text.Len() || strings.Contains(string(kept), "canary") {
		t.Errorf("kept are %d bytes, %v", len(kept), err)
	}
	if es[0].Secrets == 0 {
		t.Errorf("entry %+v", es[0])
	}
}

func TestFolderKeepsRegularFilesOnly(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "agent")
	for name, body := range map[string]string{"a.txt": "x sk-canary-0001 y", "sub/b": "2", "odd\xff/c\xfe": "3"} {
		p := filepath.Join(from, name)
		testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(body), 0o600)))
	}
	testlevel.Must(t, os.Symlink("/etc/passwd", filepath.Join(from, "link")))
	testlevel.Must(t, collect.Folder(from, to, redact.New("sk-canary-0001")))
	if got := tree(t, to); !slices.Equal(got, []string{"a.txt", "odd\xff/c\xfe", "sub/b"}) {
		t.Errorf("kept %q", got)
	}
	if b, _ := os.ReadFile(filepath.Join(to, "a.txt")); strings.Contains(string(b), "canary") {
		t.Errorf("kept %q", b)
	}
	if err := collect.Folder(filepath.Join(from, "none"), filepath.Join(to, "none"), nil); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}

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
