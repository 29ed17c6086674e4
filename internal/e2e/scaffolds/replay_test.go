package scaffolds

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// talkative prints what differs from one run to the next: dates and times in
// several forms, what the machine is called, names that nobody else has, the
// number of a process, how long something took.
const talkative = `[ ! -e /var/clock ] || . /var/clock; date; date +%F; date +%s; hostname; uname -a; cat /proc/sys/kernel/random/uuid; mktemp -u; ` +
	`echo pid $$; sleep 0.01; mkdir -p /app/d; touch /app/d/f; ls -l --full-time /app/d; ls -l /app/d; echo MARK-solve | tee /app/done`

// A run of each CLI is replayed a day later and by a host of another name. The
// clock that the CLI and its commands see is a day ahead, which their requests
// show, and each of them gets the recorded answer. Codex is a static program,
// which libfaketime cannot reach, and OpenHands and mini-SWE-agent have a Python
// whose sleep fails under it: there only the commands load it, from a file.
func TestARunOfEachIsReplayedTheNextDay(t *testing.T) {
	table(t)
	ahead := map[string]string{"LD_PRELOAD": faketime(t), "FAKETIME": "+1d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
	for _, s := range append(scaffolds, scaffold{name: "terminus"}, scaffold{name: "minisweagent"}) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.replayed(t, ahead)
		})
	}
}

// faketime is the library that shows the programs that load it another time.
func faketime(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	e2etest.Must(t, err)
	if len(found) == 0 {
		t.Skip(testlevel.Missing("libfaketime", "libfaketime"))
	}
	return found[0]
}

func (s scaffold) replayed(t *testing.T, ahead map[string]string) {
	dir := t.TempDir()
	trials := map[string]ending{"solve": {verify: "[ -s /app/done ]", replies: []string{
		reply(0, s.call("I look.", talkative)), reply(1, s.call("I look again.", talkative)), reply(2, s.last("all is done")),
	}}}
	switch s.name {
	case "terminus":
		keys, err := json.Marshal(talkative + "\n")
		e2etest.Must(t, err)
		types := func(keys, done string) string {
			return fmt.Sprintf("text: %q", fmt.Sprintf(`{"analysis": "", "plan": "", "commands": [%s], "task_complete": %s}`, keys, done))
		}
		once := fmt.Sprintf(`{"keystrokes": %s, "duration": 2}`, keys)
		trials["solve"] = ending{verify: "[ -s /app/done ]", replies: []string{
			reply(0, types(once, "false")), reply(1, types(once, "false")), reply(2, types("", "true")), reply(3, types("", "true")),
		}}
	case "minisweagent":
		says := func(command string) string { return fmt.Sprintf("text: %q", "I go.\n\n```bash\n"+command+"\n```") }
		trials["solve"] = ending{verify: "[ -s /app/done ]", replies: []string{
			reply(0, says(talkative)), reply(1, says(talkative)), reply(2, says("echo TASK_IS_COMPLETE")),
		}}
	default:
		needs(t, s)
	}
	s.lay(t, dir, trials)
	first := ran(t, dir)
	before, tomorrow := strings.Join(requests(t, first), "\n"), time.Now().UTC().Add(24*time.Hour).Format(time.DateOnly)
	if r := e2etest.Result(t, first); r.Outcome != record.Passed || strings.Contains(before, tomorrow) {
		t.Fatalf("%s / %s, %s in the requests: %+v", r.Outcome, r.AgentEnd, tomorrow, r.Error)
	}
	s.later(t, dir, ahead)
	e2etest.Must(t, os.Rename(filepath.Join(dir, "replies.yaml"), filepath.Join(dir, "unread.yaml")))
	e2etest.Write(t, dir, map[string]string{"replies.yaml": "replies: [{text: this is never said}]\n"})
	cmd, _, stderr := tree.Command(t, dir, "run", "--json", "--replay", "last")
	if os.Getuid() == 0 {
		args := append([]string{"--uts", "sh", "-c", `hostname other && exec "$@"`, "sh"}, cmd.Args...)
		other := exec.CommandContext(t.Context(), "unshare", args...)
		other.Dir, other.Env, other.Stderr = cmd.Dir, cmd.Env, stderr
		cmd = other
	}
	if err := cmd.Run(); err != nil {
		t.Errorf("replay: %v\n%s", err, stderr)
	}
	second := lastAttempt(t, dir)
	r := e2etest.Result(t, second)
	after := strings.Join(requests(t, second), "\n")
	if r.Outcome != record.Passed || r.AgentEnd != record.Yielded || !strings.Contains(after, tomorrow) {
		t.Errorf("%s / %s, %s in the requests: %v; %+v %+v %+v\n%s", r.Outcome, r.AgentEnd, tomorrow, strings.Contains(after, tomorrow), r.Error, r.Stages[0].LastTurn, r.Findings, stderr)
	}
	if a, b := answers(t, first), answers(t, second); a != b || a == "" {
		t.Errorf("recorded answers\n%s\nreplayed\n%s", a, b)
	}
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Code, "replay_") {
			t.Logf("%s: %s", f.Code, f.Text)
		}
	}
}

// later has the sandbox of the experiment show another time.
func (s scaffold) later(t *testing.T, dir string, ahead map[string]string) {
	t.Helper()
	folder := filepath.Join(dir, "tasks", "solve", "environment")
	text, clock := e2etest.Read(t, folder, "Dockerfile"), ""
	commands := slices.Contains([]string{"codex", "openhands", "mini-swe-agent"}, s.name)
	for k, v := range ahead {
		clock += fmt.Sprintf("export %s=%q\n", k, v)
		if !commands {
			text += fmt.Sprintf("ENV %s=%q\n", k, v)
		}
	}
	if commands {
		text += "COPY clock /var/clock\n"
	}
	e2etest.Write(t, folder, map[string]string{"Dockerfile": text, "clock": clock})
}

// lastAttempt is the folder of the only attempt of the last run.
func lastAttempt(t *testing.T, dir string) string {
	t.Helper()
	_, out, _ := tree.Berth(t, dir, "show", "last", "--json")
	found := regexp.MustCompile(`"dir": ?"([^"]*/attempt-1)"`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no attempt: %s", out)
	}
	return found[1]
}

// answers are the digests of the answers of an attempt, one a line.
func answers(t *testing.T, attempt string) string {
	t.Helper()
	var all strings.Builder
	for _, x := range e2etest.Lines[gateway.Exchange](t, attempt, record.ExchangesFile) {
		fmt.Fprintln(&all, x.Kind, x.Status, x.Reply)
	}
	return all.String()
}
