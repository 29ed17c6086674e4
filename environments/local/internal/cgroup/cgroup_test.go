package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree is a folder that looks like a file system of control groups: name of a
// group → what groups below it can have.
func tree(t *testing.T, groups map[string]string) string {
	t.Helper()
	at := t.TempDir()
	for name, control := range groups {
		dir := filepath.Join(at, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"cgroup.subtree_control": control, "cgroup.procs": ""} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return at
}

func TestNearestGroupWithControllersIsFound(t *testing.T) {
	at := tree(t, map[string]string{
		"/": "cpu memory pids", "/user": "memory pids", "/user/app": "memory pids\n", "/user/app/scope": "", "/system": "io",
	})
	for path, want := range map[string]string{
		"/user/app/scope": "/user/app", "/user": "/user", "/system": "/", "/": "/", "/gone/away": "/", "/../else": "", "relative": "",
	} {
		got := ""
		if p := search(at, path); p != nil {
			got = filepath.Join("/", p.dir[len(at):])
		}
		if got != want {
			t.Errorf("from %q: %q, want %q", path, got, want)
		}
	}
	p := search(at, "/user/app/scope")
	if !slices.Equal(p.has, []Controller{Memory, Pids}) || p.Has(CPU) || !p.Has(Memory) {
		t.Errorf("controllers: %v", p.has)
	}
	if (*Parent)(nil).Has(Pids) {
		t.Error("no group keeps a limit")
	}
	if p := search(tree(t, map[string]string{"/": "io", "/a": ""}), "/a"); p != nil {
		t.Errorf("found %q where there are no controllers", p.dir)
	}
}

func TestGroupOfSomebodyElseIsNotUsed(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere: run the tests as another user")
	}
	at := tree(t, map[string]string{"/": "memory", "/a": "memory"})
	if err := os.Chmod(filepath.Join(at, "a", "cgroup.procs"), 0o444); err != nil {
		t.Fatal(err)
	}
	if p := search(at, "/a"); p == nil || p.dir != at {
		t.Errorf("got %+v, want the one above", p)
	}
}

func TestLimitsAreThoseOfTheKernel(t *testing.T) {
	all := search(tree(t, map[string]string{"/": "cpu memory pids"}), "/")
	some := search(tree(t, map[string]string{"/": "memory"}), "/")
	limits := Limits{CPUMilli: 1500, MemoryMiB: 64, Pids: 100}
	memory := []setting{{file: "memory.max", text: "67108864"}, {file: "memory.swap.max", text: "0", optional: true}}
	for _, tt := range []struct {
		name string
		p    *Parent
		l    Limits
		want []setting
	}{
		{"all", all, limits, append([]setting{{file: "cpu.max", text: "150000 100000"}, {file: "pids.max", text: "100"}}, memory...)},
		{"those that are there", some, limits, memory},
		{"none", all, Limits{}, nil},
		{"the least that the kernel takes", all, Limits{CPUMilli: 1}, []setting{{file: "cpu.max", text: "1000 100000"}}},
	} {
		if got := tt.p.settings(tt.l); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestGroupThatIsGoneIsNoError(t *testing.T) {
	if err := Remove(filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Error(err)
	}
}
