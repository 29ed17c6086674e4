package faults

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
)

// canary stands for a secret.
const canary = "canary-4f1d9b7ae2c05368"

// A secret of the experiment, and a variable of the host that a task asked for,
// reach no file of the run, no argument list and no log, although the solution
// prints the latter, in pieces and whole.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.task("secret", "[environment.env]\nE2E_TOKEN = \"${E2E_TOKEN}\"\n",
		`echo "token $E2E_TOKEN"; echo "$E2E_TOKEN" >&2; printf 'canary-4f1d'; sleep 0.2; echo '9b7ae2c05368-token'
mkdir -p /logs/artifacts; [ -n "$E2E_TOKEN" ] && echo "$E2E_TOKEN" > /logs/artifacts/token.txt; `+solveTiny,
		`echo "test sees $E2E_TOKEN"; `+testTiny)
	p.experiment("matrix {\n    agent = [agent.oracle, agent.nop]\n    model = [model.m]\n  }", `model "m" {
  provider = "anthropic"
  name     = "some-model"
  api_key  = secret("E2E_KEY")
}
`)
	env := []string{"E2E_TOKEN=" + canary + "-token", "E2E_KEY=" + canary + "-key"}
	s := p.start(env, "run", ".", "--no-live", "-v", "--allow-env", "E2E_TOKEN")
	seen := 0
	for looking := true; looking; {
		select {
		case <-s.ended:
			looking = false
		default:
			for _, pid := range append(descendants(s.pid), s.pid) {
				seen++
				if c := cmdline(pid); strings.Contains(c, canary) {
					t.Errorf("in the arguments of process %d: %s", pid, c)
				}
			}
		}
	}
	r := s.wait().want(t, 0)
	if seen == 0 {
		t.Error("no argument list was looked at")
	}
	show := p.settled(p.run())
	if show.Summary.Outcomes[record.Passed] != 1 {
		t.Errorf("outcomes %v: the oracle did not get as far as to print the secret", show.Summary.Outcomes)
	}
	if !strings.Contains(allOf(t, p.dir, "trials"), "token ***") {
		t.Error("the solution's output is nowhere: the test proves nothing")
	}
	for where, text := range map[string]string{
		"stdout": r.stdout, "stderr": r.stderr, "a file of the place": allOf(t, p.dir, ""), "show": p.berth("show", p.run(), "--json").stdout,
	} {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("the secret is in %s: …%s…", where, text[max(0, at-300):min(len(text), at+100)])
		}
	}
	p.clean()
}

// allOf is the content of all files below dir whose path has part in it, each
// after its name.
func allOf(t *testing.T, dir, part string) string {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.Contains(path, part) {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&all, "\n== %s ==\n%s", path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
