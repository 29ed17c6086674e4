package tasktest

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

func spoiledClauses() []conformance.Clause[Subject] {
	return []conformance.Clause[Subject]{
		{
			Name: "a file that is spoiled is reported by its name, and the other tasks stay", Guards: "a dataset of which one file says nothing about the file",
			Run: spoiledIsReported,
		},
		{
			Name: "a checkout without Git LFS is refused", Guards: "a task whose files are pointers of 130 bytes, and that cannot be passed",
			Run: pointersAreRefused,
		},
		{
			Name: "Windows line ends make the same task or none", Guards: "an instruction or a rule that silently is another one",
			Run: lineEndsDoNotMatter,
		},
		{
			Name: "a byte order mark makes the same task or none", Guards: "an instruction with a mark that no reader sees, and a file that is refused for it",
			Run: marksDoNotMatter,
		},
		{
			Name: "folders may have names in any language", Guards: "a dataset that only loads where its author works",
			Run: anyLanguage,
		},
	}
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
	err := filepath.WalkDir(s.Good[0], func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(s.Good[0], at)
		if err != nil {
			return err
		}
		was, err := os.ReadFile(at)
		if err == nil {
			dir := clone(t, s.Good[0])
			do(dir, filepath.ToSlash(name), filepath.Join(dir, name), was)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// reported checks that a task of which one file was spoiled is a task, or says which
// file it is, and in which line.
func (s *Subject) reported(ctx context.Context, t *conformance.T, dir, name, how string) *task.Task {
	got, problems, err := s.read(ctx, dir, s.Options)
	if err != nil {
		t.Errorf("%s: %s: %v; want a problem", name, how, err)
		return nil
	}
	if got == nil && !slices.ContainsFunc(problems, func(p task.Problem) bool { return p.Severity == task.Error && p.File != "" && p.Line > 0 }) {
		t.Errorf("%s: %s: no file and line are named by %v", name, how, problems)
	}
	return got
}

// others checks that a dataset has its other tasks, whatever became of one.
func (s *Subject) others(ctx context.Context, t *conformance.T, dir, name string) {
	all := t.TempDir()
	for at, from := range map[string]string{"a": s.Good[0], "b": dir} {
		if err := os.CopyFS(filepath.Join(all, at), os.DirFS(from)); err != nil {
			t.Fatalf("%v", err)
		}
	}
	l, err := task.List(ctx, s.Format, all, task.ListOptions{Options: s.Options})
	if err != nil || !slices.ContainsFunc(l.Items, func(it task.Item) bool { return it.Task != nil && strings.HasPrefix(it.Path, "a") }) {
		t.Errorf("%s is spoiled, and the other tasks of the dataset are gone: %d items, %v", name, len(l.Items), err)
	}
}

func spoiledIsReported(ctx context.Context, t *conformance.T, s Subject) {
	s.each(t, func(dir, name, at string, was []byte) {
		for how, spoil := range spoilers {
			write(t, at, spoil(was))
			s.reported(ctx, t, dir, name, how)
		}
		s.others(ctx, t, dir, name)
	})
}

func pointersAreRefused(ctx context.Context, t *conformance.T, s Subject) {
	good := s.load(ctx, t, s.Good[0])
	s.each(t, func(dir, name, at string, _ []byte) {
		write(t, at, []byte(pointer))
		if got := s.reported(ctx, t, dir, name, "a pointer"); got != nil && got.Digest != good.Digest {
			t.Errorf("%s is a pointer of Git LFS, and the task is valid", name)
		}
	})
}

func lineEndsDoNotMatter(ctx context.Context, t *conformance.T, s Subject) {
	good := s.load(ctx, t, s.Good[0])
	s.each(t, func(dir, name, at string, was []byte) {
		if bytes.ContainsAny(was, "\x00\r") {
			return
		}
		write(t, at, bytes.ReplaceAll(was, []byte("\n"), []byte("\r\n")))
		got := s.reported(ctx, t, dir, name, "CRLF")
		if got == nil || len(got.Stages) == 0 {
			return
		}
		plain := func(tk *task.Task) string { return strings.ReplaceAll(text(t, tk.Stages[0].Instruction), `\r\n`, `\n`) }
		if is, want := plain(got), plain(good); is != want || len(got.Stages) != len(good.Stages) || got.Name != good.Name {
			t.Errorf("%s with Windows line ends: %q with %s, want %q with %s", name, got.Name, is, good.Name, want)
		}
	})
}

func marksDoNotMatter(ctx context.Context, t *conformance.T, s Subject) {
	good := s.load(ctx, t, s.Good[0])
	s.each(t, func(dir, name, at string, was []byte) {
		if !utf8.Valid(was) || bytes.ContainsRune(was, 0) {
			return
		}
		write(t, at, append([]byte("\ufeff"), was...))
		got := s.reported(ctx, t, dir, name, "a byte order mark")
		if got == nil || len(got.Stages) == 0 {
			return
		}
		if is, want := text(t, got.Stages[0].Instruction), text(t, good.Stages[0].Instruction); is != want || len(got.Stages) != len(good.Stages) || got.Name != good.Name {
			t.Errorf("%s with a byte order mark: %q with %s, want %q with %s", name, got.Name, is, good.Name, want)
		}
	})
}

func anyLanguage(ctx context.Context, t *conformance.T, s Subject) {
	for _, folder := range []string{"任务 一", "Übung", "مهمة"} {
		dir := filepath.Join(t.TempDir(), "数据集", folder)
		if err := os.CopyFS(dir, os.DirFS(s.Good[0])); err != nil {
			t.Fatalf("%v", err)
		}
		s.load(ctx, t, dir)
	}
}
