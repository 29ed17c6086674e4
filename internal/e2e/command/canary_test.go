package command

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// canary begins each secret of these tests. What follows says where it was given.
const canary = "canary-7d0c41e9b2f6-"

// secrets are the places where a secret may be given, as variables of berth. A
// sensitive variable comes from a file beside them.
var secrets = []string{"KEY", "AGENT", "SURFACE", "CONFIG", "TASK", "TESTS"}

func secretVariables() (env []string) {
	for _, s := range secrets {
		env = append(env, "CANARY_"+s+"="+canary+strings.ToLower(s))
	}
	return env
}

// gossip is a verifier that tells its secret wherever it can, and ends with an error
// that has it.
const gossip = `#!/usr/bin/python3
import os
import sys
from dataclasses import dataclass
from berth_plugin import Score, Verdict, Verifier, option, serve

@dataclass
class Config:
    token: str = option(doc="A secret.", secret=True)

class Gossip(Verifier):
    name = "gossip"
    Config = Config

    def verify(self, request):
        token = request.config.token
        print("gossip:", token, file=sys.stderr, flush=True)
        won = b'"reward":1' in request.read("attempt/surface.jsonl").replace(b" ", b"") if os.path.exists(os.path.join(request.view, "attempt", "surface.jsonl")) else True
        if not won:
            raise KeyError("no game was won with " + token)
        return Verdict("pass", {"reward": 1.0}, rationale="the token is " + token)

serve(Gossip())
`

// leaky makes a surface of the example that shows its secret in texts, structures,
// pictures, errors and captures.
func leaky(t *testing.T) string {
	t.Helper()
	text := e2etest.Read(t, tree.Root, "examples", "plugins-python", "berth-plugin-tictactoe", "berth-plugin-tictactoe")
	for _, r := range [][2]string{
		{"/usr/bin/env python3", "/usr/bin/python3"},
		{"import zlib\n", "import sys\nimport zlib\nfrom dataclasses import dataclass\n"},
		{"Step, Surface, SurfaceNeeds, serve", "Step, Surface, SurfaceNeeds, option, serve"},
		{"class Game:", "@dataclass\nclass Config:\n    token: str = option(doc=\"A secret.\", secret=True)\n\n\nclass Game:"},
		{"    name = \"tictactoe\"\n", "    name = \"leaky\"\n    Config = Config\n"},
		{"        game = Game()\n", "        game = Game()\n        game.token = config.token\n        print('surface:', config.token, file=sys.stderr, flush=True)\n"},
		{`"\n-----\n".join("|".join(r) for r in rows)`, `"token " + game.token`},
		{`{"board": rows}`, `{"board": rows, game.token: [game.token]}`},
		{"picture(game.cells))]", "picture(game.cells) + game.token.encode())]"},
		{`raise NotNow("there is`, `raise NotNow(game.token + " there is`},
		{`info={"winner": end}`, `info={"winner": end, "token": game.token}`},
		{`{"winner": game.winner(),`, `{"token": game.token, "winner": game.winner(),`},
	} {
		if !strings.Contains(text, r[0]) {
			t.Fatalf("the example has no %q any more", r[0])
		}
		text = strings.Replace(text, r[0], r[1], 1)
	}
	return text
}

// telltale is a provider that wants the key, and repeats it in an error.
func telltale(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		var q struct{ Messages []struct{ Role string } }
		_ = json.Unmarshal(body.Bytes(), &q) // without messages it is the first turn
		w.Header().Set("Content-Type", "application/json")
		if key := r.Header.Get("Authorization"); strings.Contains(body.String(), "tic-tac-toe") || key != "Bearer "+canary+"key" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"not now with the key %s"}}`, key)
			return
		}
		say := "```bash\nenv; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; mkdir -p /logs/artifacts; env > /logs/artifacts/env; touch /app/done\n```"
		if len(q.Messages) > 2 {
			say = "```bash\necho TASK_IS_COMPLETE\n```"
		}
		e2etest.Say(w, "m1", say)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// prepared writes plugins, tasks and the experiment to dir.
func prepared(t *testing.T, dir, more string) {
	t.Helper()
	pythonPlugin(t, dir, "leaky", leaky(t))
	pythonPlugin(t, dir, "gossip", gossip)
	e2etest.Must(t, os.CopyFS(filepath.Join(dir, "tasks", "board"), os.DirFS(filepath.Join(tree.Root, "examples", "surface", "tasks", "tictactoe"))))
	board := filepath.Join(dir, "tasks", "board")
	e2etest.Write(t, board, map[string]string{"task.toml": strings.Replace(e2etest.Read(t, board, "task.toml"), `"won"`, `"gossip"`, 1)})
	tells := "env; printf 'canary-7d0c'; sleep 0.1; echo \"41e9b2f6-task\"; mkdir -p /logs/artifacts; env > /logs/artifacts/env; touch /app/done"
	task(t, filepath.Join(dir, "tasks"), "shell", tells)
	shell := filepath.Join(dir, "tasks", "shell")
	e2etest.Write(t, shell, map[string]string{
		"task.toml":     e2etest.Read(t, shell, "task.toml") + "[environment.env]\nE_TOKEN = \"${CANARY_TASK}\"\n[verifier.env]\nV_TOKEN = \"${CANARY_TESTS}\"\n",
		"tests/test.sh": "#!/bin/sh\nenv\necho \"$V_TOKEN\" | tee /logs/verifier/note.txt >&2\necho 1 > /logs/verifier/reward.txt\n",
	})
	e2etest.Write(t, dir, map[string]string{"secret.hcl": "token = \"" + canary + "variable\"\n", "berth.hcl": fmt.Sprintf(`
experiment "canary" {
  datasets    = [dataset.d]
  environment = environment.table
  matrix {
    agent = [agent.oracle, agent.loop]
  }
}
variable "token" {
  type      = string
  sensitive = true
}
dataset "d" {
  format    = "harbor"
  path      = "tasks"
  allow_env = ["CANARY_*"]
}
environment "table" {
  plugin  = "local"
  surface = "leaky"
  surface_config {
    token = secret("CANARY_SURFACE")
  }
}
verifier "gossip" {
  plugin = "gossip"
  config {
    token = secret("CANARY_CONFIG")
  }
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
agent "loop" {
  plugin = "minisweagent"
  model  = model.m
  env    = { A_TOKEN = secret("CANARY_AGENT"), B_TOKEN = var.token }
}
model "m" {
  provider = "openai-chat"
  name     = "m1"
  base_url = "%s/v1"
  api_key  = secret("CANARY_KEY")
}
%s`, telltale(t), more)})
}

// A canary in every place where a secret may be given is in no file of a run, no
// output of a command that reads runs, no argument list, and in the
// environment of no process on the host but berth, whatever agents, tests, surfaces,
// verifiers and providers do with it.
func TestACanaryIsInNothingThatIsKeptOrPrinted(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	prepared(t, dir, "")
	run := begun(t, dir, secretVariables(), "run", "berth.hcl", "-v", "--var-file", "secret.hcl")
	watched(t, run)
	r := run.end(t)
	if r.code > 1 || !strings.Contains(r.out, "3 passed") {
		t.Fatalf("code %d\n%s\n%s", r.code, r.out, r.stderr)
	}
	hasNone(t, "the output of run", r.out+r.stderr)
	kept := everything(t, filepath.Join(dir, "runs"))
	for _, told := range []string{"gossip: [secret]", "surface: [secret]", "E_TOKEN=*", "V_TOKEN=*", "A_TOKEN=*", "B_TOKEN=*", "not now with the key", `"text":"token `, "no game was won"} {
		if !strings.Contains(kept+r.stderr, told) {
			t.Errorf("%q is nowhere: the test proves nothing", told)
		}
	}
	hasNone(t, "the run folder", kept)
	trial := "e2e_shell--loop"
	for _, args := range [][]string{
		{"show", "last", "--json"},
		{"show", "last", trial, "--all"},
		{"plan", "berth.hcl", "--json"},
		{"validate", "berth.hcl", "-v"},
		{"report", "last", "-o", "report.html"},
		{"export", "last", "--to", "jsonl", "-o", "t.jsonl"},
		{"export", "last", "--to", "harbor", "-o", "harbor"},
		{"export", "last", "--to", "bundle", "-o", "run.tar.zst"},
		{"replay", "last", trial, "--runs", "replayed"},
		{"regrade", "last"},
	} {
		r := berthWith(t, dir, append(secretVariables(), "BERTH_VAR_token="+canary+"variable"), args...)
		if r.code > 1 {
			t.Errorf("%q ended with %d:\n%s%s", args, r.code, r.out, r.stderr)
		}
		hasNone(t, fmt.Sprintf("the output of %q", args), r.out+r.stderr)
	}
	shown := berth(t, dir, "show", "last", "board--loop").out
	for _, want := range []string{"\noutput of plugins\n", " gossip: error: KeyError: ", "\n    traceback:\n      Traceback (most recent call last):\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	e2etest.Must(t, os.Remove(filepath.Join(dir, "secret.hcl")))
	hasNone(t, "a file beside the run", everything(t, dir))
}

// Pilots have no secret of their own. Nothing that they and their run leave in the
// shared folder, while they work or afterwards, has one.
func TestACanaryIsInNothingThatPilotsShare(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	prepared(t, dir, "executor \"pilots\" {}\n")
	e2etest.Must(t, os.RemoveAll(filepath.Join(dir, "tasks", "board")))
	text := e2etest.Read(t, dir, "berth.hcl")
	before, after, _ := strings.Cut(text, "verifier \"gossip\"") // which only that task names
	_, after, _ = strings.Cut(after, "\n}\n")
	e2etest.Write(t, dir, map[string]string{"berth.hcl": before + after})
	run := begun(t, dir, secretVariables(), "run", "berth.hcl", "-v", "--var-file", "secret.hcl")
	var claimed []string
	testlevel.Eventually(t, "there is a coordinator", func() bool {
		select {
		case <-run.ended:
			t.Fatalf("there is no run: %+v", run.result)
		default:
		}
		claimed, _ = filepath.Glob(filepath.Join(dir, "runs", "*", "cluster", "coordinators", "1.claim-0"))
		return len(claimed) > 0
	})
	pilot := begun(t, dir, secretVariables()[4:], "pilot", "last", "--in-flight", "2", "-v", "--var-file", "secret.hcl")
	watched(t, pilot)
	for name, s := range map[string]*started{"run": run, "pilot": pilot} {
		r := s.end(t)
		if r.code != 0 {
			t.Errorf("%s ended with %d:\n%s%s", name, r.code, r.out, r.stderr)
		}
		hasNone(t, "the output of "+name, r.out+r.stderr)
	}
	kept := everything(t, filepath.Join(dir, "runs"))
	if !strings.Contains(kept, "A_TOKEN=*") || !strings.Contains(kept, "V_TOKEN=*") || !strings.Contains(kept, "/cluster/leases/") {
		t.Error("the pilot did nothing: the test proves nothing")
	}
	hasNone(t, "the run folder", kept)
}

func hasNone(t *testing.T, where, text string) {
	t.Helper()
	if at := strings.Index(text, canary); at >= 0 {
		t.Errorf("a secret is in %s: …%q…", where, text[max(0, at-300):min(len(text), at+60)])
	}
}

// started is a command that is running.
type started struct {
	pid    int
	ended  chan struct{}
	result result
}

func begun(t *testing.T, dir string, env []string, args ...string) *started {
	t.Helper()
	cmd, out, stderr := tree.Command(t, dir, args...)
	cmd.Env = append(append(cmd.Env, "BERTH_PLUGIN_PATH="+filepath.Join(dir, "plugins")), env...)
	e2etest.Must(t, cmd.Start())
	s := &started{pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = cmd.Wait()
		s.result = result{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}
	}()
	return s
}

func (s *started) end(t *testing.T) result {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(4 * time.Minute):
		t.Fatal("it does not end")
	}
	return s.result
}

// watched looks at all processes below a command until it ends.
func watched(t *testing.T, s *started) {
	t.Helper()
	host, err := os.Readlink("/proc/self/ns/user")
	e2etest.Must(t, err)
	lists, environments := 0, 0
	for {
		for _, pid := range below(s.pid) {
			at := "/proc/" + strconv.Itoa(pid)
			if args, err := os.ReadFile(at + "/cmdline"); err == nil && len(args) > 0 {
				lists++
				hasNone(t, "the arguments of a process", string(args))
			}
			args, _ := os.ReadFile(at + "/cmdline")
			space, err := os.Readlink(at + "/ns/user")
			if err != nil || space != host || bytes.HasPrefix(args, []byte(tree.Binary)) {
				continue // in a sandbox, where the variables of agents and tests are, or berth before it is another program
			}
			if env, err := os.ReadFile(at + "/environ"); err == nil && len(env) > 0 {
				environments++
				hasNone(t, fmt.Sprintf("the environment of %q", args), string(env))
			}
		}
		select {
		case <-s.ended:
			if lists == 0 || environments == 0 {
				t.Errorf("%d argument lists and %d environments were looked at", lists, environments)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// below returns the processes below pid.
func below(pid int) (all []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		_, rest, ok := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); err == nil && ok && len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children[parent] = append(children[parent], child)
		}
	}
	for next := children[pid]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, children[next[0]]...)
	}
	return all
}

// everything returns all files below dir after their names, those that are packed
// also unpacked.
func everything(t *testing.T, dir string) string {
	t.Helper()
	z, err := zstd.NewReader(nil)
	e2etest.Must(t, err)
	defer z.Close()
	var all strings.Builder
	e2etest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "\n== %s ==\n%s", path, b)
		if filepath.Ext(path) == ".zst" {
			plain, err := z.DecodeAll(b, nil)
			if err != nil {
				return err
			}
			all.Write(plain)
			all.WriteString(inside(z, plain))
		}
		return nil
	}))
	return all.String()
}

// inside returns the packed files of an archive, unpacked.
func inside(z *zstd.Decoder, archive []byte) string {
	var all strings.Builder
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err != nil {
			return all.String()
		}
		if filepath.Ext(h.Name) != ".zst" {
			continue
		}
		b, err := io.ReadAll(r)
		if err == nil {
			b, err = z.DecodeAll(b, nil)
		}
		if err == nil {
			all.Write(b)
		}
	}
}
