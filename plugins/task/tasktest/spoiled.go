package tasktest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

var spoiledClauses = []clause{
	conformance.New("a file that is spoiled is reported by its name, and the other tasks stay",
		"a dataset of which one file says nothing about the file", func(t *conformance.T, s Subject) {
			s.each(t, func(dir, name, at string, was []byte) {
				for how, spoil := range spoilers {
					write(t, at, spoil(was))
					s.reported(t, dir, name, how)
				}
				s.others(t, dir, name)
			})
		}),
	conformance.New("a checkout without Git LFS is refused",
		"a task whose files are pointers of 130 bytes, and that cannot be passed", func(t *conformance.T, s Subject) {
			whole := s.load(t, s.Good[0])
			s.each(t, func(dir, name, at string, _ []byte) {
				write(t, at, []byte(pointer))
				if got := s.reported(t, dir, name, "a pointer"); got != nil && got.Digest != whole.Digest {
					t.Errorf("%s is a pointer of Git LFS, and the task is valid", name)
				}
			})
		}),
	conformance.New("Windows line ends make the same task or none", "an instruction or a rule that silently is another one", func(t *conformance.T, s Subject) {
		s.same(t, "Windows line ends", func(was []byte) []byte {
			if bytes.ContainsAny(was, "\x00\r") {
				return nil
			}
			return bytes.ReplaceAll(was, []byte("\n"), []byte("\r\n"))
		})
	}),
	conformance.New("a byte order mark makes the same task or none",
		"an instruction with a mark that no reader sees, and a file that is refused for it", func(t *conformance.T, s Subject) {
			s.same(t, "a byte order mark", func(was []byte) []byte {
				if !utf8.Valid(was) || bytes.ContainsRune(was, 0) {
					return nil
				}
				return append([]byte("\ufeff"), was...)
			})
		}),
	conformance.New("folders may have names in any language", "a dataset that only loads where its author works", func(t *conformance.T, s Subject) {
		for _, folder := range []string{"任务 一", "Übung", "مهمة"} {
			dir := filepath.Join(t.TempDir(), "数据集", folder)
			t.Must("copy", os.CopyFS(dir, os.DirFS(s.Good[0])))
			s.load(t, dir)
		}
	}),
}

// spoilers make of the content of a file one that no author meant.
var spoilers = map[string]func([]byte) []byte{
	"5 MB more": func(b []byte) []byte {
		return append(slices.Clone(b), bytes.Repeat([]byte("0123456789abcde\n"), 5<<16)...)
	},
	"cut in half":  func(b []byte) []byte { return b[:len(b)/2] },
	"not text":     func([]byte) []byte { return []byte("\x00\xff\xfe\x01") },
	"another file": func([]byte) []byte { return []byte("<!DOCTYPE html>\n<html>Not Found</html>\n") },
}

// pointer is a file of a checkout without Git LFS.
const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

// each calls do with a copy of the good folder for each of its files, by the name and
// the place of the file.
func (s *Subject) each(t *conformance.T, do func(dir, name, at string, was []byte)) {
	files := os.DirFS(s.Good[0])
	t.Must("read "+s.Good[0], fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		was, err := fs.ReadFile(files, name)
		if err == nil {
			dir := t.Copy(s.Good[0])
			do(dir, name, filepath.Join(dir, filepath.FromSlash(name)), was)
		}
		return err
	}))
}

// reported checks that a task of which one file was spoiled is a task, or says which
// file it is, and in which line.
func (s *Subject) reported(t *conformance.T, dir, name, how string) *task.Task {
	got, problems, err := s.read(t, dir)
	t.Check(name+": "+how, err)
	if err == nil && got == nil && !slices.ContainsFunc(problems, func(p task.Problem) bool { return p.Severity == task.Error && p.File != "" && p.Line > 0 }) {
		t.Errorf("%s: %s: no file and line are named by %v", name, how, problems)
	}
	return got
}

// others checks that a dataset has its other tasks, whatever became of one.
func (s *Subject) others(t *conformance.T, dir, name string) {
	all := t.TempDir()
	t.Must("copy", errors.Join(os.CopyFS(filepath.Join(all, "a"), os.DirFS(s.Good[0])), os.CopyFS(filepath.Join(all, "b"), os.DirFS(dir))))
	l, err := task.List(t.Context(), s.Format, all, task.ListOptions{Options: s.Options})
	if err != nil || !slices.ContainsFunc(l.Items, func(it task.Item) bool { return it.Task != nil && strings.HasPrefix(it.Path, "a") }) {
		t.Errorf("%s is spoiled, and the other tasks of the dataset are gone: %d items, %v", name, len(l.Items), err)
	}
}

// same checks that a task stays the same, or is refused, when a file is written in
// another way; nil: the file is left out.
func (s *Subject) same(t *conformance.T, how string, rewrite func([]byte) []byte) {
	want := s.load(t, s.Good[0])
	plain := func(tk *task.Task) string { return strings.ReplaceAll(text(t, tk.Stages[0].Instruction), `\r\n`, `\n`) }
	s.each(t, func(dir, name, at string, was []byte) {
		data := rewrite(was)
		if data == nil {
			return
		}
		write(t, at, data)
		got := s.reported(t, dir, name, how)
		if got == nil || len(got.Stages) == 0 {
			return
		}
		if plain(got) != plain(want) || len(got.Stages) != len(want.Stages) || got.Name != want.Name {
			t.Errorf("%s with %s: %q with %s, want %q with %s", name, how, got.Name, plain(got), want.Name, plain(want))
		}
	})
}
