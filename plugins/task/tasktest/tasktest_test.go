package tasktest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/task"
)

// plain is a format that keeps every promise, unless spoil changes what it
// makes: a folder with a file "task" and a folder "files".
type plain struct {
	spoil func(dir string, o task.Options, t *task.Task) *task.Task
	// follow lets links, pipes, pointers and byte order marks pass.
	follow bool
}

func (plain) Name() string { return "plain" }

func (plain) Detect(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "task"))
	return err == nil
}

func (p plain) Load(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if fi, err := os.Stat(filepath.Join(dir, "task")); err != nil || !fi.Mode().IsRegular() {
		return nil, []task.Problem{{File: "task", Line: 1, Severity: task.Error, Summary: "Not a file"}}, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "task"))
	if err != nil {
		return nil, nil, err
	}
	if !p.follow {
		text = bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	if len(text) == 0 || !p.follow && strings.HasPrefix(string(text), "version https://git-lfs") {
		return nil, []task.Problem{{File: "task", Line: 1, Severity: task.Error, Summary: "Empty"}}, nil
	}
	h := sha256.New()
	h.Write(text)
	r := task.Resource{Name: "files", Path: "files", Audience: []task.Role{task.RoleVerifier}, Place: "/tests", Phase: task.PlaceVerify, Folder: true}
	entries, err := os.ReadDir(filepath.Join(dir, "files"))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if e.Type()&(fs.ModeSymlink|fs.ModeNamedPipe) != 0 && !p.follow {
			return nil, []task.Problem{{File: "files/" + e.Name(), Line: 1, Severity: task.Error, Summary: "Not a file"}}, nil
		}
		if e.Type()&fs.ModeNamedPipe != 0 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, "files", e.Name()))
		if err != nil {
			return nil, nil, err
		}
		if !p.follow && strings.HasPrefix(string(data), "version https://git-lfs") {
			return nil, []task.Problem{{File: "files/" + e.Name(), Line: 1, Severity: task.Error, Summary: "A pointer"}}, nil
		}
		h.Write(data)
		r.Entries = append(r.Entries, task.Entry{Path: e.Name(), Mode: 0o644, Size: int64(len(data))})
	}
	t := &task.Task{
		Name: "plain", Dir: dir, Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Resources: []task.Resource{r},
		Stages:      []task.Stage{{Name: "main", Instruction: []task.Part{{Text: string(text)}}, Verifiers: []task.VerifierUse{{Name: "script"}}}},
		Environment: task.Environment{OS: "linux", Network: task.Network{Mode: task.NetworkNone}},
	}
	if p.spoil != nil {
		t = p.spoil(dir, o, t)
	}
	return t, nil, nil
}

func folder(t *testing.T, text string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sample")
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"task": text, "files/a": "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAGoodFormatPasses(t *testing.T) {
	t.Parallel()
	Run(t, Subject{Format: plain{}, Good: []string{folder(t, "Do it.\n")}, Broken: []string{folder(t, "")}})
}

// Each format is broken in one way, and the kit names it.
func TestABrokenFormatIsNamed(t *testing.T) {
	t.Parallel()
	change := func(f func(dir string, t *task.Task)) plain {
		return plain{spoil: func(dir string, _ task.Options, t *task.Task) *task.Task {
			f(dir, t)
			return t
		}}
	}
	var loads atomic.Int64
	tried := map[string]bool{}
	for _, tt := range []struct {
		format task.Format
		clause string
	}{
		{change(func(_ string, t *task.Task) { t.Stages[0].Verifiers = nil }), "what is loaded obeys the rules of plugins/task"},
		{change(func(_ string, t *task.Task) { t.Resources[0].Entries[0].Size++ }), "every resource is there"},
		{change(func(dir string, t *task.Task) { t.Description = dir }), "the same folder elsewhere is the same task"},
		{change(func(_ string, t *task.Task) { t.Metadata = json.RawMessage(`{ }`) }), "JSON keeps everything"},
		{change(func(_ string, t *task.Task) { t.Digest = "sha256:" + strings.Repeat("0", 64) }), "a changed file changes the digest"},
		{change(func(dir string, _ *task.Task) { cache(dir) }), "loading changes nothing"},
		{change(func(_ string, t *task.Task) { t.Resources[0].Audience = task.Public() }), "an agent sees neither tests nor solution"},
		{change(func(_ string, t *task.Task) { t.Dir = "sample" }), "a good folder is detected and loaded"},
		{change(func(_ string, t *task.Task) { t.Description = strconv.FormatInt(loads.Add(1), 10) }), "sixteen at once get the same"},
		{unmindful{}, "a folder that is not there is an error"},
		{plain{follow: true}, "a pipe in the folder is reported, and does not hang"},
		{plain{follow: true}, "a checkout without Git LFS is refused"},
		{plain{follow: true}, "a byte order mark makes the same task or none"},
		{brittle{}, "a file that is spoiled is reported by its name, and the other tasks stay"},
		{change(func(_ string, t *task.Task) {
			if strings.Contains(t.Stages[0].Instruction[0].Text, "\r") {
				t.Stages[0].Instruction[0].Text = "Do."
			}
		}), "Windows line ends make the same task or none"},
		{plain{spoil: func(dir string, _ task.Options, t *task.Task) *task.Task {
			if strings.Contains(dir, "数据") {
				return nil
			}
			return t
		}}, "folders may have names in any language"},
		{plain{follow: true}, "a link out of the folder is reported, not followed"},
		{plain{spoil: func(_ string, o task.Options, t *task.Task) *task.Task {
			if o.LookupEnv != nil {
				t.Description, _ = o.LookupEnv("HOME")
			}
			return t
		}}, "host variables are asked for only when allowed"},
		{silent{}, "a broken folder is detected and reported"},
		{everything{}, "an empty folder is not detected"},
		{forgetful{}, "a Finder finds the task, and its files"},
		{patient{}, "a context that has ended ends a load"},
	} {
		var failed []string
		s := Subject{Format: tt.format, Good: []string{folder(t, "Do it.\n")}, Broken: []string{folder(t, "")}}
		conformance.Run(t.Context(), s, Clauses(), func(r conformance.Result) {
			if r.Status == conformance.Fail {
				failed = append(failed, r.Clause)
			}
		})
		if !slices.Contains(failed, tt.clause) {
			t.Errorf("want %q to fail, failed: %q", tt.clause, failed)
		}
		tried[tt.clause] = true
	}
	for _, c := range Clauses() {
		if !tried[c.Name] {
			t.Errorf("no format of the table breaks the clause %q", c.Name)
		}
	}
}

// cache writes a file, and does not wait if a pipe is there.
func cache(dir string) {
	if f, err := os.OpenFile(filepath.Join(dir, "cache"), os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600); err == nil {
		_, _ = f.WriteString("x")
		_ = f.Close()
	}
}

// silent says nothing of a task that is broken.
type silent struct{ plain }

func (s silent) Load(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	t, _, err := s.plain.Load(ctx, dir, o)
	return t, nil, err
}

// brittle gives up without a word about the file.
type brittle struct{ plain }

func (b brittle) Load(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	if fi, err := os.Stat(filepath.Join(dir, "task")); err == nil && fi.Size() > 1<<20 {
		return nil, nil, errors.New("too large")
	}
	return b.plain.Load(ctx, dir, o)
}

// unmindful makes a task of what is not there.
type unmindful struct{ plain }

func (u unmindful) Load(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	t, problems, err := u.plain.Load(ctx, dir, o)
	if errors.Is(err, fs.ErrNotExist) {
		return &task.Task{}, nil, nil
	}
	return t, problems, err
}

// forgetful finds tasks, and forgets their files.
type forgetful struct{ plain }

func (forgetful) Find(context.Context, string, task.Options) ([]string, error) {
	return []string{""}, nil
}

func (forgetful) Files(t *task.Task) []string { return []string{t.HostPath("task")} }

// everything takes any folder for a task.
type everything struct{ plain }

func (everything) Detect(string) bool { return true }

// patient goes on when nobody waits any more.
type patient struct{ plain }

func (p patient) Load(ctx context.Context, dir string, o task.Options) (*task.Task, []task.Problem, error) {
	return p.plain.Load(context.WithoutCancel(ctx), dir, o)
}
