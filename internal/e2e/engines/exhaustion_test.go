package engines

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/environment"
)

// greedy are agents that take as much as they get of one resource, at most so much
// that a machine without limits survives them, and hold it for some seconds. Each
// prints how much it got.
var greedy = map[string]string{
	"memory":      `perl -e '$| = 1; push @m, "x" x (1 << 20) for 1..160; print "took ".@m." memory\n"; sleep 4'; exit 0`,
	"disk":        `dd if=/dev/zero of=/app/big bs=1M count=160 2> /dev/null; echo "took $(du -m /app/big | cut -f 1) disk"; sleep 4`,
	"inodes":      `perl -e 'mkdir "/app/i"; $n = 0; while ($n < 40000) { open F, ">", "/app/i/$n" or last; $n++ } print "took $n inodes\n"'; sleep 4`,
	"processes":   `perl -e '$| = 1; $n = 0; while ($n < 400) { $p = fork; last if !defined $p; if (!$p) { sleep 5; exit } $n++ } print "took $n processes\n"; sleep 4'`,
	"descriptors": `perl -e '$| = 1; while (@f < 30000 && open my $f, "<", "/dev/null") { push @f, $f } print "took ".@f." descriptors\n"; sleep 4'`,
}

// neighbour works for a while with all these resources, and stops at the first thing
// that fails.
const neighbour = `end=$(($(date +%s) + 12))
while [ $(date +%s) -lt $end ]; do
  for i in 1 2 3; do { echo $i > /app/n$i; } & done; wait
  cat /app/n1 /app/n2 /app/n3 > /dev/null || exit 1
  perl -e 'for (1..200) { open my $f, ">", "/app/f$_" or die; push @f, $f } $x = "x" x (8 << 20); unlink "/app/f$_" for 1..200' || exit 1
  sleep 0.2
done
: > /app/done`

// An agent that uses up memory, disk, inodes, processes or descriptors of its
// sandbox has no reward and no further attempt. A trial beside it passes as checked,
// and the machine is as usable as before. Limits that an environment cannot enforce
// here are those that docs/engines.md says.
func TestATrialThatTakesAllLeavesItsNeighboursAndTheHostAlone(t *testing.T) {
	t.Parallel()
	everyPlugin(t, func(_ *testing.T, p *place, plugin string) { p.exhausted(plugin) })
}

func (p *place) exhausted(plugin string) {
	t := p.test
	t.Helper()
	p.task("neighbour", "", neighbour, e2etest.TestTiny)
	for name, solve := range greedy {
		more := ""
		if name == "memory" {
			more = "memory_mb = 96\n"
		}
		solve = strings.Replace(solve, "perl -e '", "perl -e '# "+p.dir+"\n", 1) // by which the host knows them
		p.task(name, more, "sleep 2 # so that the neighbour is at work\n"+solve, e2etest.TestTiny)
	}
	p.images(plugin)
	config := "pids = 128" // as many as the neighbour needs, and a few more
	if plugin == "local" {
		config += "\nstorage_mib = 96"
	}
	p.experiment(plugin, config, "retry {\n    max  = 2\n    wait = \"0s\"\n  }\n  limits {\n    in_flight = 6\n  }")
	s := p.start("run", ".")
	for !s.hasEnded() {
		usable(t, p.dir)
		time.Sleep(500 * time.Millisecond) // it samples for as long as the run takes
	}
	if code := p.end(s); code > 1 {
		t.Fatalf("exit code %d\n%s\n%s", code, s.out.String(), s.err.String())
	}
	for _, tr := range p.show().Trials {
		name := strings.TrimPrefix(tr.Task, "engines/")
		if len(tr.Attempts) != 1 {
			t.Errorf("%s: %d attempts", name, len(tr.Attempts))
			continue
		}
		r := e2etest.Result(t, tr.Attempts[0].Dir)
		if name == "neighbour" {
			if r.Outcome != record.Passed || r.Integrity != record.Checked {
				t.Errorf("the neighbour: %s, %s %q, %+v", r.Outcome, r.Integrity, r.Reasons, r.Error)
			}
			continue
		}
		p.failed(plugin, name, r, p.took(tr.Attempts[0].Dir, name))
	}
	if left := processes("perl", p.dir+"\n"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// failed checks the attempt of a greedy agent that took so much.
func (p *place) failed(plugin, name string, r *record.Result, took int) {
	t := p.test
	t.Helper()
	t.Logf("%s: %s, took %d; %s", name, r.Outcome, took, r.Granted.How)
	if r.Outcome != record.Failed && r.Outcome != record.AgentError && r.Outcome != record.VerifierError {
		t.Errorf("%s: %s, %+v; want that the agent failed", name, r.Outcome, r.Error)
	}
	most := limited(plugin, name, r.Granted)
	if most > 0 && took > most {
		t.Errorf("%s: it took %d, at most %d are allowed: %+v", name, took, most, r.Granted)
	}
	if killed := name == "memory" && most > 0; took == 0 && !killed {
		t.Errorf("%s: it does not say how much it took", name)
	}
}

// limited is the most that an agent may take of a resource where there is a limit; 0:
// there is none.
func limited(plugin, name string, g *environment.Granted) int {
	switch {
	case name == "memory" && g.Memory == environment.GrantEnforced:
		return 96
	case name == "disk" && plugin == "local":
		return 96
	case name == "inodes" && plugin == "local":
		return 96 << 8 // a page each
	case name == "processes" && !strings.Contains(g.How, "which all sandboxes of this user share"):
		return 128
	case name == "descriptors":
		var limit syscall.Rlimit
		if plugin == "local" && syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
			return int(min(limit.Max, 1<<20)) //nolint:gosec // bounded
		}
	}
	return 0
}

// took returns what a greedy agent says that it got. It says nothing if it was killed.
func (p *place) took(attempt, name string) int {
	p.test.Helper()
	says := regexp.MustCompile(`took (\d+) ` + name)
	files, err := filepath.Glob(filepath.Join(attempt, "agent", "*"))
	if err != nil {
		p.test.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // a folder
		}
		if m := says.FindSubmatch(text); m != nil {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				p.test.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// usable fails if the host cannot start a process, write a file or open files.
func usable(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, "host")
	err := errors.Join(exec.CommandContext(t.Context(), "true").Run(), os.WriteFile(file, make([]byte, 1<<20), 0o600), os.Remove(file))
	for range 100 {
		f, openErr := os.Open("/dev/null")
		err = errors.Join(err, openErr)
		defer f.Close()
	}
	if err != nil {
		t.Errorf("the host: %v", err)
	}
}
