package system

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
)

// grow makes files below root: a name that ends with a slash is a folder, and
// "name -> target" is a link.
func grow(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, line := range names {
		name, target, link := strings.Cut(line, " -> ")
		at := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// image has a system, the work of a task, and links between both.
var image = []string{
	"usr/bin/cat", "usr/bin/own -> ../../app/own", "usr/bin/tool -> /opt/current/bin/tool", "opt/current -> v1", "opt/v1/bin/tool", "opt/v1/lib/x",
	"usr/lib/libc.so", "usr/lib/libblas.so -> ../../srv/blas/libblas.so", "srv/blas/libblas.so", "bin -> usr/bin", "etc/profile.d/a.sh", "etc/hosts",
	"home/bob/.bashrc", "home/bob/file", "app/own", "app/lib/sitecustomize.py", "app/lib/mine.py", "app/start", "opt/venv/bin/python", "opt/venv/pyvenv.cfg",
}

func TestWhichFilesAreTheSystems(t *testing.T) {
	t.Parallel()
	t1 := tree{root: t.TempDir()}
	grow(t, t1.root, image...)
	if err := os.WriteFile(t1.at("/etc/passwd"), []byte("bob:x:1000:1000::/home/bob:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := t1.places(Query{Dir: "/app", Env: []string{"PATH=/bin:/opt/venv/bin:/app", "BASH_ENV=/app/start", "PYTHONPATH=/app/lib"}, Programs: []string{"./judge", "sh"}})
	for name, want := range map[string]bool{
		"/usr/bin/new": true, "/bin": true, "/usr/lib/python3/any": true, "/opt/current": true, "/opt/v1/lib/x": true, "/srv/blas/libblas.so": true,
		"/srv/blas/other": false, "/app/own": false, "/app/lib/sitecustomize.py": true, "/app/lib/mine.py": false, "/app/start": true, "/app/judge": true,
		"/etc/profile.d/b.sh": true, "/etc/hosts": false, "/etc/ld.so.preload": true, "/home/bob/.bashrc": true, "/home/bob/file": false,
		"/root/.bashrc": true, "/opt/venv/pyvenv.cfg": true, "/opt/other": false, "/usr/share/doc": false, "/app": false,
	} {
		if p.is(name) != want {
			t.Errorf("%s is a system file: %v", name, !want)
		}
	}
	if !slices.Equal(p.open, []string{"/app"}) {
		t.Errorf("open: %q", p.open)
	}
}

func named(names ...string) (out [][]byte) {
	for _, n := range names {
		out = append(out, []byte(n))
	}
	return out
}

// A file of the system is found under its own name, whatever that is.
func TestANameNeedNotBeUTF8(t *testing.T) {
	t.Parallel()
	tr := tree{root: t.TempDir()}
	grow(t, tr.root, image...)
	const name = "/usr/lib/added\xff.pth"
	grow(t, tr.root, name[1:])
	in, err := json.Marshal(Query{Dir: "/app", Changed: named(name)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var found Found
	if err = errors.Join(tr.do([]string{Find}, bytes.NewReader(in), &out), json.Unmarshal(out.Bytes(), &found)); err != nil {
		t.Fatal(err)
	}
	if len(found.Files) != 1 || string(found.Files[0].Path) != name || found.Files[0].Kind != kindFile {
		t.Errorf("found %+v", found.Files)
	}
}

// What an agent did to the system is undone, through no link that it made.
func TestFilesArePutBack(t *testing.T) {
	t.Parallel()
	from, to := tree{root: t.TempDir()}, tree{root: t.TempDir()}
	for _, tr := range []tree{from, to} {
		grow(t, tr.root, image...)
	}
	change := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	change(os.Remove(to.at("/usr/bin/cat")), os.Remove(to.at("/bin")), os.Chmod(to.at("/usr/lib/libc.so"), 0o755), os.Rename(to.at("/opt"), to.at("/app/opt")),
		os.Rename(to.at("/etc/profile.d"), to.at("/app/was")), os.WriteFile(to.at("/app/own"), []byte("mine"), 0o600))
	grow(t, to.root, "usr/bin/added/deep", "opt -> "+to.at("/app/opt"), "bin/cat", "etc/profile.d/", "etc/profile.d/b\xff.sh", "home/bob/.zshrc", "app/lib/x.pth")
	q := Query{Dir: "/app", Env: []string{"PATH=/bin:/opt/venv/bin", "PYTHONPATH=/app/lib"}, Changed: named(
		"/usr", "/usr/bin", "/usr/bin/cat", "/usr/bin/added", "/usr/bin/added/deep", "/usr/lib", "/usr/lib/libc.so", "/opt", "/bin", "/bin/cat", "/etc",
		"/etc/profile.d", "/etc/profile.d/b\xff.sh", "/home", "/home/bob", "/home/bob/.zshrc", "/app", "/app/own", "/app/lib", "/app/lib/x.pth", "/app/opt",
	)}
	q.Env = append(q.Env, "HOME=/home/bob")
	q.Files = from.find(q).Files
	for i := range q.Files {
		q.Files[i] = to.look(string(q.Files[i].Path), q.Files[i].Kind == kindFile)
	}
	in, err := json.Marshal(q)
	change(err)
	var packed bytes.Buffer
	change(from.do([]string{Pack}, bytes.NewReader(in), &packed), to.do([]string{Apply}, &packed, nil))
	for _, name := range []string{"/usr/bin", "/usr/bin/cat", "/usr/lib/libc.so", "/opt", "/opt/v1/bin/tool", "/opt/current", "/bin", "/etc/profile.d", "/etc/profile.d/a.sh"} {
		if a, b := from.look(name, true), to.look(name, true); !same(a, b) || !slices.EqualFunc(a.Names, b.Names, bytes.Equal) {
			t.Errorf("%s: %+v, want %+v", name, b, a)
		}
	}
	for name, want := range map[string]bool{"/home/bob/.zshrc": false, "/app/lib/x.pth": false, "/app/own": true, "/app/lib/mine.py": true, "/app/opt/v1/bin/tool": true, "/home/bob/file": true} {
		if got := to.look(name, false).Kind != ""; got != want {
			t.Errorf("%s exists: %v", name, got)
		}
	}
	if b, err := os.ReadFile(to.at("/app/own")); string(b) != "mine" {
		t.Errorf("the work of the agent: %q, %v", b, err)
	}
}

// With one user id, files of the machine's root show as the overflow id, which nothing
// can belong to. They are put back all the same. An owner that the sandbox could have
// had, but does not have, is an error that says so.
func TestFilesArePutBackWithOneID(t *testing.T) {
	t.Parallel()
	const inside = "BERTH_TEST_ONE_ID"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	tr := tree{root: t.TempDir()}
	put := func(id int) error {
		var packed bytes.Buffer
		w := tar.NewWriter(&packed)
		for _, h := range []*tar.Header{{Name: "/usr", Typeflag: tar.TypeDir}, {Name: "/usr/tool", Typeflag: tar.TypeReg}, {Name: "/usr/link", Typeflag: tar.TypeSymlink, Linkname: "tool"}} {
			h.Mode, h.Uid, h.Gid, h.PAXRecords = 0o755, id, id, map[string]string{Replaced: "1"}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return tr.do([]string{Apply}, &packed, nil)
	}
	for _, id := range []int{0, 65534} {
		if err := put(id); err != nil {
			t.Errorf("files of user %d: %v", id, err)
		}
		for _, name := range []string{"/usr", "/usr/tool", "/usr/link"} {
			if f := tr.look(name, false); f.UID != 0 || f.GID != 0 || f.Kind == "" {
				t.Errorf("files of user %d: %s is %+v", id, name, f)
			}
		}
	}
	if err := put(1000); !errors.Is(err, fault.ErrDenied) || !strings.Contains(err.Error(), "user id 1000") {
		t.Errorf("files of user 1000: %v; want that there is no such user", err)
	}
}
