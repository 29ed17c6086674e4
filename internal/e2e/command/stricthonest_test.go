package command

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// What honest agents leave behind beside their work, and how their work is checked.
var (
	besides = []string{
		"true",
		"printf '#!/bin/sh\\necho hi\\n' > /usr/local/bin/greet; chmod 755 /usr/local/bin/greet",
		"mkdir -p /usr/local/lib/tool && echo x > /usr/local/lib/tool/lib.so",
		"setsid sleep 300 > /dev/null 2>&1 &",
		"echo 'alias ll=\"ls -l\"' >> ~/.bashrc; echo 'umask 022' >> ~/.profile",
		"echo welcome > /etc/motd",
		"for i in 1 2 3; do echo $i > /tmp/scratch$i; done",
		"ln -s /app /srv/link; mkdir -p /opt/tool/bin && echo x > /opt/tool/bin/t",
		"chmod -R g+w /app",
		"printf '#!/bin/sh\\nexec /usr/bin/sort \"$@\"\\n' > /usr/local/bin/sort; chmod 755 /usr/local/bin/sort", // which tests use
	}
	works = []struct{ solve, check string }{
		{"echo 42 > /app/answer", `[ "$(cat /app/answer)" = 42 ]`},
		{"printf 'b\\na\\n' > /app/list; sort /app/list -o /app/list", `[ "$(sort /app/list | head -n 1)" = a ] && sort -c /app/list`},
		{"mkdir /app/d && touch /app/d/1 /app/d/2", `[ "$(ls /app/d | wc -l)" -eq 2 ]`},
		{"printf '#!/bin/sh\\necho $(($1 + 1))\\n' > /app/inc; chmod 755 /app/inc", `[ "$(/app/inc 41)" = 42 ]`},
		{"seq 100 | sort -R > /app/n", `[ "$(sort -n /app/n | tail -n 1)" = 100 ] && [ "$(sort -u /app/n | wc -l)" = 100 ]`},
	}
)

// A strict experiment gives the verdicts of one that is not, if agents are honest: on
// the quickstart, on the other examples that need nothing installed, and on 50 tasks.
func TestStrictChangesNoHonestVerdict(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	if !testlevel.All() {
		t.Skip("it runs more than 100 trials: set BERTH_TEST=all")
	}
	dir := t.TempDir()
	for i, beside := range besides {
		for j, w := range works {
			name := fmt.Sprintf("t%d-%d", i, j)
			task(t, filepath.Join(dir, "generated", "tasks"), name, w.solve+"\n"+beside)
			e2etest.Write(t, filepath.Join(dir, "generated", "tasks", name), map[string]string{
				"tests/test.sh": "#!/bin/sh\nr=0\nif " + w.check + "; then r=1; fi\necho $r > /logs/verifier/reward.txt\n",
			})
		}
	}
	experiment(t, filepath.Join(dir, "generated"), "agent.oracle", "")
	again := 0
	for name, plugins := range map[string][]string{"generated": nil, "quickstart": nil, "terminus": nil, "uniclaw": nil, "closed-loop": {"reviewer", "customer"}} {
		if name != "generated" {
			e2etest.Must(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(tree.Root, "examples", name))))
		}
		if len(plugins) > 0 {
			loopPlugins(t, dir, plugins...)
		}
		was, _ := verdictsOf(t, dir, name)
		files, err := filepath.Glob(filepath.Join(dir, name, "*.hcl"))
		e2etest.Must(t, err)
		text := e2etest.Read(t, files[0])
		at := strings.Index(text, "\nexperiment \"") + 1
		line := at + strings.Index(text[at:], "{\n") + 2
		e2etest.Must(t, os.WriteFile(files[0], []byte(text[:line]+"  integrity = \"strict\"\n"+text[line:]), 0o600))
		now, graded := verdictsOf(t, dir, name)
		if !slices.Equal(was, now) || len(now) == 0 {
			t.Errorf("%s:\n%s\nstrict:\n%s", name, strings.Join(was, "\n"), strings.Join(now, "\n"))
		}
		t.Logf("%s: %d verdicts, %d of them were given twice", name, len(now), graded)
		again += graded
	}
	if again == 0 {
		t.Error("nothing was graded again, so nothing could differ")
	}
}

// verdictsOf runs an experiment, and returns the outcome and scores of each trial,
// and how many were graded a second time.
func verdictsOf(t *testing.T, dir, name string) (all []string, again int) {
	t.Helper()
	runs := filepath.Join(dir, "runs-"+name)
	e2etest.Must(t, os.RemoveAll(runs))
	berthWith(t, dir, nil, "run", name, "--no-live", "--runs", runs).want(t, 0)
	found, err := filepath.Glob(filepath.Join(runs, "*"))
	e2etest.Must(t, err)
	show := answer[types.ShowRun](t, berthWith(t, dir, nil, "show", found[0], "--json"), "cli-show-run")
	for i := range show.Trials {
		r := e2etest.Result(t, show.Trials[i].Attempts[0].Dir)
		all = append(all, fmt.Sprint(r.Task, r.Cell, r.Repetition, r.Outcome, r.Scores))
		if slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "graded_again" }) {
			again++
		}
	}
	slices.Sort(all)
	return all, again
}
