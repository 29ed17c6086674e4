package command

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// window is the size of an ordinary terminal.
var window = pty.Winsize{Rows: 30, Cols: 100}

// typist is a person at a terminal: it types a line whenever its text appears.
type typist struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func (p *typist) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

func (p *typist) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

// at runs a command on a terminal. After each text of script, which must appear
// after the one before it, its keys are typed.
func at(t *testing.T, dir string, script [][2]string, args ...string) (code int, seen string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tree.Binary, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm")
	f, err := pty.StartWithSize(cmd, &window)
	e2etest.Must(t, err)
	defer f.Close()
	p := &typist{}
	copied := make(chan struct{})
	go func() { defer close(copied); _, _ = io.Copy(p, f) }()
	from := 0
	for _, s := range script {
		for i := -1; i < 0; {
			if i = strings.Index(p.text()[from:], s[0]); i >= 0 {
				from += i + len(s[0])
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%q did not appear:\n%q", s[0], p.text())
			}
			time.Sleep(5 * time.Millisecond) // the context of the command ends it
		}
		if _, err = f.WriteString(s[1]); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait() // the exit code says how it ended
	select {
	case <-copied:
	case <-ctx.Done():
	}
	return cmd.ProcessState.ExitCode(), p.text()
}

// A person solves a task in a terminal of its sandbox. The tests run at the end,
// and the attempt has the same record as that of any agent.
func TestAPersonSolvesATask(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "true")
	code, seen := at(t, dir, [][2]string{
		{"Ctrl-D", ""},
		{"# ", "stty size; touch /app/done\r"},
		{"# ", "sleep 100\r"},
		{"sleep 100", "\x03"}, // ends what runs in the sandbox, and not the command
		{"# ", "\x1d"},
		{"Enter goes back", "\r"},
		{"# ", "ls /app\r"},
		{"# ", "\x04"},
		{"answer to the user", "I am done\r"},
	}, "shell", "tasks/one", "--verify")
	if code != 0 || !strings.Contains(seen, "1 passed") || !strings.Contains(seen, "30 100") {
		t.Fatalf("exit code %d:\n%s", code, seen)
	}
	attempts := playedIn(t, dir)
	for attempt, r := range attempts {
		if r.Outcome != record.Passed || r.Integrity != record.Checked || r.AgentEnd != record.Yielded {
			t.Errorf("%s, %s, %s", r.Outcome, r.Integrity, r.AgentEnd)
		}
		steps, cast := e2etest.Read(t, attempt, record.StepsFile), e2etest.Read(t, attempt, "agent", "terminal.cast")
		if !strings.Contains(steps, `touch /app/done`) || !strings.Contains(cast, "sleep 100") || !strings.Contains(e2etest.Read(t, attempt, record.TurnsFile), "I am done") {
			t.Errorf("steps:\n%s\nrecording:\n%s", steps, cast)
		}
	}
	if len(attempts) != 1 {
		t.Errorf("%d attempts", len(attempts))
	}
}

// A shell without --verify leaves no run, and shows the files that an attempt kept.
func TestAShellInAnAttempt(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done; echo of the attempt > /app/mine")
	experiment(t, dir, "agent.oracle", `keep = "all"`)
	berth(t, dir, "run").want(t, 0)
	code, seen := at(t, dir, [][2]string{{"# ", "cat /app/mine\r"}, {"# ", "\x04"}}, "shell", "last", "one")
	if code != 0 || !strings.Contains(seen, "of the attempt") {
		t.Errorf("exit code %d:\n%s", code, seen)
	}
	code, seen = at(t, dir, [][2]string{{"# ", "ls /app/mine\r"}, {"# ", "\x04"}}, "shell", "tasks/one")
	if code != 0 || !strings.Contains(seen, "No such file") {
		t.Errorf("exit code %d:\n%s", code, seen)
	}
	if n := len(playedIn(t, dir)); n != 1 {
		t.Errorf("%d attempts are stored, want that of the run only", n)
	}
}

var (
	ofPerson = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/[A-Z2-7]+/`)
	pageFile = regexp.MustCompile(`the person's page is in (\S+/page-[0-9]+\.txt)`)
)

// A person plays a game on a page. Its address is needed, and only this user can read it.
func TestAPersonPlaysOnAPage(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "levels"), os.DirFS(filepath.Join(tree.Root, "examples", "sokoban", "levels"))))
	text := strings.NewReplacer("INCLUDE", `["small-v0-1"]`, "repeat      = 3", "", "[agent.nop, agent.random, agent.oracle]", "[agent.person]", "dataset.levels, dataset.published", "dataset.levels").Replace(sokobanExperiment)
	text = text[:strings.Index(text, `dataset "published"`)] + text[strings.Index(text, "environment \"room\""):]
	e2etest.Write(t, dir, map[string]string{"berth.hcl": text + "agent \"person\" {\n  plugin = \"human\"\n  config {\n    surface = true\n  }\n}\n"})
	done := make(chan result, 1)
	go func() { done <- berth(t, dir, "run") }()
	file, address := "", ""
	testlevel.Eventually(t, "there is the address of a page", func() bool {
		if logs, _ := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1", record.LogFile)); len(logs) == 1 {
			text := e2etest.Read(t, logs[0])
			if ofPerson.MatchString(text) {
				t.Errorf("the log has the address:\n%s", text)
			}
			if m := pageFile.FindStringSubmatch(text); m != nil {
				file, address = m[1], strings.TrimSpace(e2etest.Read(t, m[1]))
			}
		}
		return address != ""
	})
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the address: %v, %v", info.Mode(), err)
	}
	get := func(code int, path string) string {
		t.Helper()
		r, err := http.Get(path) //nolint:noctx // it answers at once
		e2etest.Must(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		e2etest.Must(t, err)
		if r.StatusCode != code || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s", path, r.Status)
		}
		return string(b)
	}
	root := address[:strings.LastIndex(strings.TrimSuffix(address, "/"), "/")+1]
	get(http.StatusForbidden, root)
	page := get(http.StatusOK, address)
	if !strings.Contains(page, "What you can do") || !strings.Contains(page, `src="frame/0"`) || !strings.HasPrefix(get(http.StatusOK, address+"frame/0"), "\x89PNG") {
		t.Errorf("the page:\n%s", page)
	}
	name := regexp.MustCompile(`name="action" value="([^"]+)"`).FindStringSubmatch(page)
	if name == nil {
		t.Fatalf("no action on the page:\n%s", page)
	}
	post := func(what string, values url.Values) string {
		t.Helper()
		r, err := http.PostForm(address+what, values) //nolint:noctx // it answers at once
		e2etest.Must(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		e2etest.Must(t, err)
		return string(b)
	}
	if b := post("act", url.Values{"action": {name[1]}}); !strings.Contains(b, "1 step so far") {
		t.Errorf("after an action:\n%s", b)
	}
	if b := post("done", url.Values{"words": {"enough"}}); !strings.Contains(b, "Thank you") {
		t.Errorf("at the end:\n%s", b)
	}
	(<-done).want(t, 0)
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s is left", file)
	}
	for attempt, r := range playedIn(t, dir) {
		if r.Outcome != record.Scored || r.Integrity != record.Checked || strings.Count(e2etest.Read(t, attempt, record.SurfaceFile), `"action"`) < 1 {
			t.Errorf("%s, %s\n%s", r.Outcome, r.Integrity, e2etest.Read(t, attempt, record.SurfaceFile))
		}
	}
}
