package untrusted_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// strange makes a folder with a file of every kind, for readers that must cope
// with all of them.
func strange(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(
		os.WriteFile(at("file"), []byte("one\ntwo"), 0o600),
		os.Mkdir(at("folder"), 0o700),
		os.WriteFile(at("folder/inner"), []byte("inner\n"), 0o600),
		syscall.Mkfifo(at("pipe"), 0o600),
		os.Symlink("/dev/zero", at("zero")),
		os.Symlink("file", at("alias")),
		os.Symlink("folder", at("other")),
		os.Symlink("/etc", at("etc")),
		os.WriteFile(at("huge"), nil, 0o600),
		os.Truncate(at("huge"), 1<<40),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOnlyRegularFilesOfABoundedSizeAreRead(t *testing.T) {
	t.Parallel()
	dir := strange(t)
	for name, want := range map[string]string{
		"file": "", "folder/inner": "", "folder": "a folder", "pipe": "a pipe", "zero": "a link", "alias": "a link", "other/inner": "a link",
		"etc/passwd": "a link", "huge": "at most 100 are read", "none": "no such file", "../x": "escapes", "file/x": "not a",
	} {
		_, err := untrusted.Read(dir, name, 100)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := untrusted.Read(dir, "none", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := untrusted.Read(dir, "pipe", 100); !errors.Is(err, untrusted.ErrNotPlain) {
		t.Errorf("a pipe: %v", err)
	}
}

func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("a\n\nlong long line\nb\nc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		longest int
		limit   int64
		want    string
		cut     bool
	}{
		{100, 100, "a|long long line|b|c", false},
		{5, 100, "a|b|c", true},
		{100, 20, "a|long long line|b", true},
		{100, 4, "a|l", true},
	} {
		var got []string
		cut, err := untrusted.Lines(dir, "f", tt.longest, tt.limit, func(line []byte) { got = append(got, string(line)) })
		if s := strings.Join(got, "|"); s != tt.want || cut != tt.cut || err != nil {
			t.Errorf("%d, %d: %q, %t, %v; want %q, %t", tt.longest, tt.limit, s, cut, err, tt.want, tt.cut)
		}
	}
	huge := strange(t)
	if cut, err := untrusted.Lines(huge, "huge", 100, 1<<20, func([]byte) { t.Error("a line of zeros") }); !cut || err != nil {
		t.Errorf("a terabyte of zeros: %t, %v", cut, err)
	}
}

func TestAListIsBoundedAndFollowsNothing(t *testing.T) {
	t.Parallel()
	dir := strange(t)
	names, more, err := untrusted.List(dir, 100)
	if want := []string{"alias", "etc", "file", "folder/inner", "huge", "other", "pipe", "zero"}; !slices.Equal(names, want) || more || err != nil {
		t.Errorf("%q, %t, %v; want %q", names, more, err, want)
	}
	if names, more, err = untrusted.List(dir, 3); len(names) != 3 || !more || err != nil {
		t.Errorf("three of them: %q, %t, %v", names, more, err)
	}
	deep(t, dir)
	if names, more, err = untrusted.List(dir, 100); len(names) != 8 || !more || err != nil {
		t.Errorf("with a path that is too long for the kernel: %q, %t, %v", names, more, err)
	}
}

// deep makes nested folders in dir until their path is longer than any system
// call accepts.
func deep(t *testing.T, dir string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		name := strings.Repeat("d", 200)
		sub := root
		if err = root.Mkdir(name, 0o700); err == nil {
			sub, err = root.OpenRoot(name)
		}
		if err = errors.Join(err, root.Close()); err != nil {
			t.Fatal(err)
		}
		root = sub
	}
	for i := range 70 { // deeper than List descends
		name := fmt.Sprint(i)
		sub := root
		if err = root.Mkdir(name, 0o700); err == nil {
			sub, err = root.OpenRoot(name)
		}
		if err = errors.Join(err, root.Close()); err != nil {
			t.Fatal(err)
		}
		root = sub
	}
	if err = root.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderIsListedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	dir := strange(t)
	if entries, err := untrusted.Dir(dir, "folder", 1); len(entries) != 1 || err != nil {
		t.Errorf("folder: %v, %v", entries, err)
	}
	for name, want := range map[string]string{"folder": "more than 0 files", "other": "a link", "file": "not a folder", "none": "no such file"} {
		if _, err := untrusted.Dir(dir, name, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestAFolderThatIsAPipeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(strange(t), "pipe")
	_, read := untrusted.Read(pipe, "file", 100)
	_, _, list := untrusted.List(pipe, 100)
	_, dir := untrusted.Dir(pipe, ".", 100)
	for _, err := range []error{read, list, dir} {
		if !errors.Is(err, syscall.ENOTDIR) || !strings.Contains(err.Error(), pipe) {
			t.Errorf("%v, want an error that says that %s is not a folder", err, pipe)
		}
	}
}
