package engines

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// Of twelve tasks, the tests of three have a mistake. They are repaired, and the
// attempts verified again: three verdicts change, and nothing else.
func TestARepairedTestChangesOnlyItsVerdicts(t *testing.T) {
	t.Parallel()
	everyPlugin(t, func(t *testing.T, p *place, plugin string) {
		for i := range 12 {
			p.tampered(numbered(i, i%4 == 0))
		}
		p.experiment(plugin, "", "keep = \"all\"")
		p.berth(0, "run", ".")
		before := p.verdicts(1)
		for i := range 12 {
			p.tampered(numbered(i, false))
		}
		s := p.start("regrade", "last")
		if code := p.end(s); code != 0 {
			t.Fatalf("exit code %d\n%s", code, s.err.String())
		}
		out := s.out.String() + s.err.String()
		if changed := regraded(t, before, p.verdicts(2)); changed != 3 || !strings.Contains(out, "note: 3 of 12 verdicts changed\n  engines/n00 (oracle, repetition 1): failed 0 → passed 1\n") || !strings.Contains(out, "12 trials planned = 9 passed + 3 failed") ||
			!strings.Contains(out, "12 trials have more than one attempt") {
			t.Errorf("%d verdicts changed, want 3:\n%s", changed, out)
		}
	})
}

// regraded checks that only verdicts differ between attempts and those that verified
// them again, and counts the ones that do.
func regraded(t *testing.T, before, after map[string]verdict) (changed int) {
	t.Helper()
	for name, is := range after {
		was := before[name]
		if was.text != e2etest.Read(t, filepath.Join(was.dir, record.ResultFile)) {
			t.Errorf("%s: the first attempt was changed", name)
		}
		if o := is.result.Regraded; o == nil || o.Attempt != 1 || !o.Files || is.result.AgentTime != was.result.AgentTime {
			t.Errorf("%s: %+v after %s; want the first attempt as its origin, and its time", name, o, is.result.AgentTime)
		}
		if is.result.Integrity != was.result.Integrity {
			t.Errorf("%s: %s, was %s: %+v", name, is.result.Integrity, was.result.Integrity, is.result.Findings)
		}
		if is.result.Outcome != was.result.Outcome {
			changed++
		}
	}
	return changed
}

// numbered is a task whose agent writes its number, and removes and adds files. One
// in four solutions is wrong. A mistaken test wants another number.
func numbered(i int, mistaken bool) tampering {
	want, wrote := i, i
	if i%4 == 1 {
		wrote = -1
	}
	if mistaken {
		want = 1000
	}
	return tampering{
		name: fmt.Sprintf("n%02d", i), files: map[string]string{"given": "x"},
		solve: fmt.Sprintf("rm /srv/given; mkdir -p /app/sub/empty /opt/new; echo %d > /app/answer; ln -s /app/answer /opt/new/link", wrote),
		test: fmt.Sprintf("#!/bin/sh\n[ \"$(cat /opt/new/link)\" = %d ] && [ ! -e /srv/given ] && [ -d /app/sub/empty ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
			want),
	}
}

// verdict is the result of an attempt, with the text of its file.
type verdict struct {
	dir    string
	text   string
	result *record.Result
}

// verdicts returns the attempts with a number, by task.
func (p *place) verdicts(number int) map[string]verdict {
	p.test.Helper()
	all := map[string]verdict{}
	for _, tr := range p.show().Trials {
		if len(tr.Attempts) != number {
			p.test.Fatalf("%s has %d attempts, want %d", tr.Task, len(tr.Attempts), number)
		}
		dir := tr.Attempts[number-1].Dir
		text, err := os.ReadFile(filepath.Join(dir, record.ResultFile))
		if err != nil {
			p.test.Fatal(err)
		}
		r := e2etest.Result(p.test, dir)
		all[tr.Task] = verdict{dir, string(text), r}
	}
	return all
}
