package system

import (
	"archive/tar"
	"bufio"
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
	"time"

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
		must(t, err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// copied copies the files of one tree to another as two sandboxes do.
func copied(t *testing.T, from, to tree, k KeepQuery, r RestoreQuery) (Restored, error) {
	t.Helper()
	query := func(q any) []byte {
		b, err := json.Marshal(q)
		must(t, err)
		return append(b, '\n')
	}
	var kept, answer bytes.Buffer
	if err := from.do([]string{Keep}, bufio.NewReader(bytes.NewReader(query(k))), &kept); err != nil {
		return Restored{}, err
	}
	if err := to.do([]string{Restore}, bufio.NewReader(bytes.NewReader(append(query(r), kept.Bytes()...))), &answer); err != nil {
		return Restored{}, err
	}
	var done Restored
	must(t, json.Unmarshal(answer.Bytes(), &done))
	return done, nil
}

// names are those below a tree, with what links say.
func (t tree) names(test *testing.T) (all []string) {
	test.Helper()
	must(test, filepath.WalkDir(t.root, func(full string, _ os.DirEntry, err error) error {
		if err != nil || full == t.root {
			return err
		}
		name := strings.TrimPrefix(full, t.root+"/")
		if target, err := os.Readlink(full); err == nil {
			name += " -> " + target
		}
		all = append(all, name)
		return nil
	}))
	return all
}

var image = []string{"usr/bin/cat", "usr/bin/tool", "opt/v1/bin/tool", "etc/profile.d/a.sh", "home/bob/.bashrc", "app/own", "app/lib/mine.py", "app/gone/x", "srv/data"}

const big = 1 << 20

// Everything is as it was, or only the work, whatever the agent did to folders and links.
func TestFilesAreCopied(t *testing.T) {
	t.Parallel()
	for _, workOnly := range []bool{false, true} {
		from, to := tree{root: t.TempDir()}, tree{root: t.TempDir()}
		for _, tr := range []tree{from, to} {
			grow(t, tr.root, image...)
		}
		must(t, os.Remove(from.at("/usr/bin/cat")), os.RemoveAll(from.at("/app/gone")), os.RemoveAll(from.at("/home/bob")), os.RemoveAll(from.at("/srv")),
			os.Chmod(from.at("/app/own"), os.ModeSetuid|0o755), os.Link(from.at("/app/own"), from.at("/app/again")), syscall.Mkfifo(from.at("/app/pipe"), 0o600),
			os.Chtimes(from.at("/app/lib"), time.Unix(5, 0), time.Unix(5, 0)))
		grow(t, from.root, "usr/bin/added", "home/bob -> /app", "app/\xffname", "app/all -> ../tests", "app/one -> /tests/x", "app/out -> /usr/bin", "srv -> /app", "logs", "new/")
		done, err := copied(t, from, to, KeepQuery{MaxBytes: big}, RestoreQuery{
			WorkOnly: workOnly, Commands: Commands{Env: []string{"HOME=/home/bob"}}, Aside: []string{"/tests", "/logs/verifier"},
		})
		must(t, err)
		want := from.names(t)
		if workOnly {
			want = slices.DeleteFunc(want, func(name string) bool {
				return strings.HasPrefix(name, "usr") || slices.Contains([]string{"home/bob -> /app", "app/all -> ../tests", "app/one -> /tests/x", "logs"}, name)
			})
			want = append(want, "usr", "usr/bin", "usr/bin/cat", "usr/bin/tool", "home/bob", "home/bob/.bashrc")
			slices.Sort(want)
			if len(done.Aside.Paths) != 3 {
				t.Errorf("aside %q", done.Aside.Paths)
			}
		}
		got := to.names(t)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("work only: %t\n got %q\nwant %q", workOnly, got, want)
		}
		own, err := os.Stat(to.at("/app/own"))
		must(t, err)
		again, err := os.Stat(to.at("/app/again"))
		must(t, err)
		lib, err := os.Stat(to.at("/app/lib"))
		must(t, err)
		if own.Mode()&os.ModeSetuid == 0 || !os.SameFile(own, again) || lib.ModTime().Unix() != 5 {
			t.Errorf("mode %s, the same file: %t, time %s", own.Mode(), os.SameFile(own, again), lib.ModTime())
		}
	}
}

func TestWhatIsTooLargeIsNotKept(t *testing.T) {
	t.Parallel()
	from := tree{root: t.TempDir()}
	grow(t, from.root, "app/hole")
	must(t, os.Truncate(from.at("/app/hole"), big+1))
	if _, err := copied(t, from, from, KeepQuery{MaxBytes: big}, RestoreQuery{}); err == nil || !strings.Contains(err.Error(), "/app/hole: too large: the files have more than 1 MiB") {
		t.Errorf("%v", err)
	}
}

// An archive is written by a program in a sandbox that an agent had: no name in it leads
// out of the folder that it names, or through a link.
func TestAnArchiveLeadsThroughNoLink(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	for _, name := range []string{"/app/link/x", "/../x", "x"} {
		to := tree{root: t.TempDir()}
		grow(t, to.root, "app/link -> "+outside)
		var kept bytes.Buffer
		w := tar.NewWriter(&kept)
		must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Format: tar.FormatPAX}), w.Close())
		_, err := to.restore(RestoreQuery{}, &kept)
		if left, _ := os.ReadDir(outside); len(left) > 0 || name != "/../x" && err == nil {
			t.Errorf("%s: %v, %v", name, left, err)
		}
	}
}

// With one user id, files of the machine's root show as the overflow id, which nothing
// can belong to. They are copied all the same. An owner that the sandbox could have had,
// but does not have, is an error that says so.
func TestFilesAreCopiedWithOneID(t *testing.T) {
	t.Parallel()
	const inside = "BERTH_TEST_ROLE"
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
			h.Mode, h.Uid, h.Gid, h.PAXRecords = 0o755, id, id, map[string]string{"BERTH.kept": "y"}
			must(t, w.WriteHeader(h))
		}
		must(t, w.Close())
		_, err := tr.restore(RestoreQuery{}, &packed)
		return err
	}
	for _, id := range []int{0, 65534} {
		if err := put(id); err != nil {
			t.Errorf("files of user %d: %v", id, err)
		}
	}
	if err := put(1000); !errors.Is(err, fault.ErrDenied) || !strings.Contains(err.Error(), "user id 1000") {
		t.Errorf("files of user 1000: %v; want that there is no such user", err)
	}
}
