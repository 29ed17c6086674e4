package faults

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/internal/testlevel"
)

// traced are the system calls that work on names.
const traced = "openat,openat2,open,creat,link,linkat,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,symlink,symlinkat," +
	"truncate,flock,fcntl,stat,lstat,newfstatat,statx,access,faccessat,faccessat2,getdents64,utimensat,fchmodat,fchmod"

// call is one system call on a shared disk.
var call = regexp.MustCompile(`^\d+ +(\w+)\((.*)\) += (-?\d+|\?)`)

// sharedCalls reads what strace wrote, and returns the calls below dir: name of the
// call and what it is about, with dir taken away. failed are those that found
// nothing.
func sharedCalls(t *testing.T, file, dir string) (done, failed []string) {
	t.Helper()
	open := map[string]string{} // calls that are not over, by thread
	for line := range strings.Lines(read(file)) {
		pid, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if before, cut := strings.CutSuffix(rest, "<unfinished ...>"); cut {
			open[pid] = before
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(rest), "<... ") {
			_, after, _ := strings.Cut(rest, " resumed>")
			rest = open[pid] + after
		}
		m := call.FindStringSubmatch(pid + " " + strings.TrimSpace(rest))
		if m == nil || !strings.Contains(rest, dir) {
			continue
		}
		what := m[1] + " " + about(m[2], dir)
		if m[1] == "fcntl" && !strings.Contains(m[2], ">, F_SETLK") && !strings.Contains(m[2], ">, F_OFD_SETLK") {
			continue // flags of a descriptor
		}
		if strings.Contains(rest, "= -1 ENOENT") {
			failed = append(failed, what)
		} else {
			done = append(done, what)
		}
	}
	return done, failed
}

// Arguments of system calls as strace -y writes them: a path, a folder with a name
// in it, or a descriptor.
var (
	inFolder = regexp.MustCompile(`(?:AT_FDCWD|\d+)<([^>]*)>, "([^"]*)"`)
	opened   = regexp.MustCompile(`\d+<([^>]*)>`)
	quoted   = regexp.MustCompile(`"([^"]*)"`)
	part     = regexp.MustCompile(`\.part-\d+`)
)

// about returns the paths and the flags that matter of the arguments of a call.
func about(args, dir string) string {
	var found []string
	add := func(path string) {
		if path = strings.TrimSuffix(path, "/."); path != "" {
			found = append(found, strings.TrimPrefix(strings.TrimPrefix(path, dir), "/"))
		}
	}
	for _, m := range inFolder.FindAllStringSubmatch(args, -1) {
		if filepath.IsAbs(m[2]) {
			add(m[2])
		} else {
			add(filepath.Join(m[1], m[2]))
		}
	}
	if len(found) == 0 {
		for _, m := range quoted.FindAllStringSubmatch(args, -1) {
			add(m[1])
		}
	}
	if len(found) == 0 {
		if m := opened.FindStringSubmatch(args); m != nil {
			add(m[1])
		}
	}
	for _, flag := range []string{"O_APPEND", "O_EXCL", "O_TRUNC"} {
		if strings.Contains(args, flag) {
			found = append(found, flag)
		}
	}
	return strings.Join(found, " ")
}

// sharedChanges are all changes that a pilot makes on the shared disk for one
// attempt.
var sharedChanges = []string{
	"openat cluster/pilots/PILOT.jsonl O_EXCL",
	"openat cluster/pilots/PILOT.jsonl O_APPEND", // it began
	"openat cluster/relay/PILOT.json O_EXCL",     // where its relay for models listens
	"openat cluster/log/PILOT.plugins.jsonl O_EXCL",
	"openat cluster/pilots/.part-N O_EXCL", // the file that leases are links to
	"fchmod cluster/pilots/.part-N",
	"linkat cluster/pilots/.part-N cluster/pilots/PILOT.claim-0",
	"unlinkat cluster/pilots/.part-N",
	"linkat cluster/pilots/PILOT.claim-0 cluster/leases/ATTEMPT",
	"openat cluster/pilots/PILOT.jsonl O_APPEND", // claimed
	"mkdirat FOLDER/.PILOT.part",
	"openat FOLDER/.PILOT.part/events.jsonl O_EXCL",
	"openat FOLDER/.PILOT.part/files.json O_EXCL",
	"openat FOLDER/.PILOT.part/result.json O_EXCL",
	"openat FOLDER/.PILOT.part/steps.jsonl O_EXCL",
	"openat FOLDER/.PILOT.part/trajectory.json O_EXCL",
	"openat FOLDER/.PILOT.part/turns.jsonl O_EXCL",
	"openat FOLDER/.PILOT.part/verdicts.jsonl O_EXCL",
	"mkdirat FOLDER/.PILOT.part/verifier",
	"mkdirat FOLDER/.PILOT.part/verifier/logs",
	"openat FOLDER/.PILOT.part/verifier/logs/reward.txt O_EXCL",
	"renameat FOLDER/.PILOT.part/events.jsonl FOLDER/events.jsonl",
	"renameat FOLDER/.PILOT.part/steps.jsonl FOLDER/steps.jsonl",
	"renameat FOLDER/.PILOT.part/trajectory.json FOLDER/trajectory.json",
	"renameat FOLDER/.PILOT.part/turns.jsonl FOLDER/turns.jsonl",
	"renameat FOLDER/.PILOT.part/verdicts.jsonl FOLDER/verdicts.jsonl",
	"renameat FOLDER/.PILOT.part/verifier FOLDER/verifier",
	"renameat FOLDER/.PILOT.part/files.json FOLDER/files.json",
	"linkat FOLDER/.PILOT.part/result.json FOLDER/result.json",
	"unlinkat FOLDER/.PILOT.part/result.json",
	"unlinkat FOLDER/.PILOT.part",
	"openat cluster/pilots/PILOT.jsonl O_APPEND", // published
	"unlinkat cluster/relay/PILOT.json",
	"openat cluster/pilots/PILOT.jsonl O_APPEND", // ended
}

// Every operation of a pilot on the shared disk, from its start to its end, for one
// attempt. Nothing is renamed over a name, locked, changed in place or opened for
// appending but the journal of the pilot, and no name is looked up that another
// process is about to make.
func TestWhatAPilotDoesOnTheSharedDisk(t *testing.T) {
	t.Parallel()
	strace := testlevel.Program(t, "strace", "strace")
	p := newPlace(t)
	p.task("tiny", "", solveTiny, testTiny)
	p.piloted("agent = agent.nop", "")
	c, dir := p.coordinated()
	poll(t, "there is a job", c, func() bool {
		m, globErr := filepath.Glob(filepath.Join(dir, cluster.Dir, "queue", "*.json"))
		return globErr == nil && len(m) == 1
	})
	trace := filepath.Join(p.dir, "trace")
	r := p.shepherd(nil, nil, strace, "-f", "--seccomp-bpf", "-y", "-s", "4096", "-e", "trace="+traced, "-o", trace, filepath.Join(bin, "berth"), "pilot", dir, "--in-flight", "1").wait()
	if strings.Contains(r.stderr, "ptrace") && strings.Contains(r.stderr, "not permitted") {
		testlevel.Cannot(t, "processes may not be traced here: sysctl kernel.yama.ptrace_scope=0", r.stderr)
	}
	r.want(t, 0)
	c.wait().want(t, 0)
	journals, err := filepath.Glob(filepath.Join(dir, cluster.Dir, "pilots", "*.jsonl"))
	if err != nil || len(journals) != 1 {
		t.Fatalf("journals: %q, %v", journals, err)
	}
	leases, err := filepath.Glob(filepath.Join(dir, cluster.Dir, "leases", "*"))
	if err != nil || len(leases) != 1 {
		t.Fatalf("leases: %q, %v", leases, err)
	}
	attempts, err := filepath.Glob(filepath.Join(dir, "trials", "*", "attempt-1"))
	if err != nil || len(attempts) != 1 {
		t.Fatalf("attempts: %q, %v", attempts, err)
	}
	short := strings.NewReplacer(
		strings.TrimSuffix(filepath.Base(journals[0]), ".jsonl"), "PILOT", filepath.Base(leases[0]), "ATTEMPT", strings.TrimPrefix(attempts[0], dir+"/"), "FOLDER",
	)
	done, failed := sharedCalls(t, trace, dir)
	changes := func(calls []string) (changes []string) {
		for _, d := range calls {
			d = part.ReplaceAllString(short.Replace(d), ".part-N")
			kind, _, _ := strings.Cut(d, " ")
			if reads := kind == "getdents64" || strings.Contains(kind, "stat") || kind == "openat" && !strings.Contains(d, " O_"); !reads {
				changes = append(changes, d)
			}
		}
		return changes
	}
	if got := withoutBeats(changes(done)); !slices.Equal(got, sharedChanges) {
		t.Errorf("a pilot did on the shared disk:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(sharedChanges, "\n"))
	}
	// Names that were looked up and were not there. Names of this process alone may
	// be; what others make is found by a list, or after it was announced.
	missed := map[string]bool{}
	for _, f := range failed {
		f = short.Replace(f)
		if strings.Contains(f, cluster.Dir+"/") || strings.Contains(f, "FOLDER") {
			missed[f] = true
		}
	}
	if len(missed) > 0 {
		t.Errorf("looked up and not there: %q", slices.Sorted(maps.Keys(missed)))
	}
}

// withoutBeats leaves out the lines that only say that the pilot lives: one line of
// several in a row stays.
func withoutBeats(calls []string) (kept []string) {
	const line = "openat cluster/pilots/PILOT.jsonl O_APPEND"
	for i, c := range calls {
		if c != line || i == 0 || calls[i-1] != line {
			kept = append(kept, c)
		}
	}
	return kept
}
