package harbor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// The published shape: dataset.toml beside the folder with the tasks, or beside the
// tasks themselves, and the owner of a task in its list alone.
func TestATaskIsComparedWithTheDigestOfItsDataset(t *testing.T) {
	t.Parallel()
	const head = "# A manifest\n[dataset]\nname = \"local/some\"\ndescription = \"x\"\nauthors = []\nkeywords = []\n\n"
	entry := func(name, digest string) string {
		return fmt.Sprintf("[[tasks]]\nname = %q\ndigest = %q\n\n", name, digest)
	}
	other := "sha256:" + strings.Repeat("0", 64)
	want, problems := minimal().load(t, task.Options{})
	if want == nil {
		t.Fatal(problems)
	}
	for name, tt := range map[string]struct {
		text string
		want string // a part of the only problem; empty: there is none
	}{
		"the same":          {head + entry("local/other", other) + entry("local/sample", want.Digest), ""},
		"another one":       {head + entry("local/other", other) + entry("local/sample", other), "dataset.toml:14:1: warning: Task is not the one that was published. Its files give the digest " + want.Digest},
		"it is not listed":  {head + entry("local/other", other), ""},
		"without a digest":  {head + "[[tasks]]\nname = \"local/sample\"\n", ""},
		"no list of tasks":  {"[dataset]\nresolution = 512\n", ""},
		"a list of numbers": {"tasks = [1]\n", "dataset.toml:1:10: warning: Wrong type"},
		"broken":            {"\n[dataset\n", "dataset.toml:2:"},
	} {
		for _, up := range []string{"..", "../.."} {
			dir := minimal().write(t)
			if up == "../.." {
				below := filepath.Join(filepath.Dir(dir), "tasks")
				if err := os.Mkdir(below, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(dir, filepath.Join(below, "sample")); err != nil {
					t.Fatal(err)
				}
				dir = filepath.Join(below, "sample")
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(up), "dataset.toml"), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, problems, err := Format{}.Load(t.Context(), dir, task.Options{})
			if got == nil || err != nil || len(problems) != min(1, len(tt.want)) || len(problems) > 0 && !strings.HasPrefix(problems[0].String(), up+"/"+tt.want) {
				t.Errorf("%s in %s: %v, %v, %q; want %q", name, up, got != nil, err, problems, tt.want)
			}
		}
	}
}

// A checkout without Git LFS has pointers in place of files.
func TestPointersAreRefused(t *testing.T) {
	t.Parallel()
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	for file, want := range map[string]string{
		"environment/input/a b.bin": "environment/input/a b.bin:1: File is a pointer of git-LFS. Its content was not downloaded: run `git lfs pull` in the dataset.",
		"tests/数据.csv":              "tests/数据.csv:1: File is a pointer of git-LFS",
		"task.toml":                 "task.toml:1: File cannot be read. It is a pointer of git-LFS, and its content was not downloaded: run `git lfs pull` in the dataset.",
		"instruction.md":            "instruction.md:1: File cannot be read. It is a pointer of git-LFS",
	} {
		got, problems := minimal().with(file, pointer).load(t, task.Options{})
		text := ""
		for _, p := range problems {
			text += p.String() + "\n"
		}
		if got != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v, %s; want %q", file, got != nil, text, want)
		}
	}
}

// Editors of Windows write marks and line ends that Linux does not expect.
func TestFilesOfWindows(t *testing.T) {
	t.Parallel()
	const mark = "\ufeff"
	for _, tt := range []struct {
		file, text, want string
		broken           bool
	}{
		{file: "task.toml", text: mark + "schema_version = \"1.4\"\n", want: "task.toml:1:1: warning: Byte order mark"},
		{file: "instruction.md", text: mark + "Do it.\n", want: "instruction.md:1:1: warning: Byte order mark"},
		{file: "instruction.md", text: "a\nDo\x00 it.\n", want: "instruction.md:2: Not a text. It has a NUL byte in this line", broken: true},
		{file: "instruction.md", text: "a\n\nf\xfcr mich\n", want: "instruction.md:3: Not a text. It has bytes in this line that are not UTF-8", broken: true},
		{file: "tests/test.sh", text: "#!/bin/sh\r\ntrue\r\n", want: `tests/test.sh:1: warning: Script has line ends of Windows. Its first line is "#!/bin/sh\r"`},
		{file: "tests/test.sh", text: "#!/bin/sh\n\ntrue\r\n", want: "tests/test.sh:3: warning: Script has line ends of Windows"},
		{file: "tests/test.sh", text: mark + "#!/bin/sh\ntrue\n", want: "tests/test.sh:1: warning: Script begins with a byte order mark"},
		{file: "tests/check.py", text: "#!/usr/bin/env python3\r\n", want: "tests/check.py:1: warning: Script has line ends of Windows"},
		{file: "tests/data.csv", text: "a,b\r\n"},
		{file: "tests/blob.bin", text: "\x00#!\r\n"},
	} {
		got, problems := minimal().with(tt.file, tt.text).load(t, task.Options{})
		text := ""
		for _, p := range problems {
			text += p.String() + "\n"
		}
		if (got == nil) != tt.broken || !strings.Contains(text, tt.want) || tt.want == "" && text != "" || strings.Count(text, "\n") > 1 {
			t.Errorf("%s %q: %v, %s; want %q", tt.file, tt.text, got != nil, text, tt.want)
		}
		if got != nil && got.Stages[0].Instruction[0].Text != "Do it.\n" {
			t.Errorf("%s %q: the instruction is %q", tt.file, tt.text, got.Stages[0].Instruction[0].Text)
		}
	}
}

// A task of Terminal-Bench 1, whose files have other names, is no empty dataset.
func TestATaskOfTerminalBench1IsRefused(t *testing.T) {
	t.Parallel()
	dir := files{
		"task.yaml": "instruction: |-\n  Do it.\ndifficulty: easy\n", "Dockerfile": "FROM debian\n", "docker-compose.yaml": "services: {}\n",
		"run-tests.sh": "true\n", "solution.sh": "true\n", "tests/test_outputs.py": "pass\n",
	}.write(t)
	const want = "task.yaml:1: Task is of Terminal-Bench 1. Berth reads tasks of Harbor, which have a task.toml: convert them with `harbor task migrate`."
	got, problems, err := Format{}.Load(t.Context(), dir, task.Options{})
	if !(Format{}).Detect(dir) || got != nil || err != nil || len(problems) != 1 || problems[0].String() != want {
		t.Errorf("%v, %v, %q", got != nil, err, problems)
	}
}

// A task that the dataset lists and the checkout has not got is named, whatever of the
// dataset is taken. What lies in another folder beside the list is there.
func TestListedTasksThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	const list = "[dataset]\nname = \"x/y\"\n\n[[tasks]]\nname = \"local/sample\"\n\n[[tasks]]\nname = \"x/broken\"\n\n[[tasks]]\nname = \"x/gone\"\ndigest = \"sha256:0\"\n\n[[tasks]]\nname = \"x/elsewhere\"\n"
	root := t.TempDir()
	for _, dir := range []string{"tasks/broken/tests", "tasks/broken/solution", "more/elsewhere", "tasks/empty"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.FromSlash(dir)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(minimal().write(t), filepath.Join(root, "tasks", "sample")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "dataset.toml"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		".":     "dataset.toml:11:1: warning: Listed task is missing. There is no folder of \"x/gone\".",
		"tasks": "../dataset.toml:11:1: warning: Listed task is missing. There is no folder of \"x/gone\".",
	} {
		l, err := task.List(t.Context(), Format{}, filepath.Join(root, filepath.FromSlash(dir)), task.ListOptions{Exclude: []string{"broken"}})
		if err != nil || len(l.Problems) != min(1, len(want)) || want != "" && !strings.HasPrefix(l.Problems[0].String(), want) {
			t.Errorf("%s: %v, %q; want %q", dir, err, l.Problems, want)
		}
	}
}
