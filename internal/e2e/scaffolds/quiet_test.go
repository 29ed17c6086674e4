package scaffolds

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// outside is a network namespace with rootless Podman, a way out that leads
// nowhere, and a packet filter that counts. slirp4netns sends the packets of a
// sandbox with a public network there. An open file keeps the namespace: the
// first thread of Podman's server may be in the namespace of a container,
// because Go parks it there when a goroutine that was locked to it ends.
type outside struct{ net *os.File }

// nowhere creates the way out, counts what leaves, and becomes Podman's server.
// A tun device that nobody reads takes every packet.
const nowhere = `set -e
ip link set lo up
ip tuntap add dev out0 mode tun
ip addr add 203.0.113.1/24 dev out0
ip link set out0 up
ip route add default via 203.0.113.2 dev out0
iptables -w 60 -A OUTPUT -p udp --dport 53
iptables -w 60 -A OUTPUT
echo ready
exec setpriv --reuid "$1" --regid "$2" --clear-groups --inh-caps=-all env -i HOME="$3" XDG_RUNTIME_DIR="/run/user/$1" \
	PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin podman system service --time=0 "$4"
`

// outsideOf starts a Podman server for the user of e. The way out of its
// sandboxes leads nowhere.
func outsideOf(t *testing.T, e *engine) outside {
	t.Helper()
	testlevel.Root(t, "make a network namespace with a way out")
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bsq")
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e.Own(t, dir)
	e.Socket = "unix://" + filepath.Join(dir, "podman.sock")
	cmd := exec.Command("unshare", "--net", "sh", "-c", nowhere, "sh", e.User.Uid, e.User.Gid, e.User.HomeDir, e.Socket) //nolint:noctx // it is ended below, with its group
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	e2etest.Must(t, err)
	e2etest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		_ = cmd.Wait()
		testlevel.Cannot(t, "root may not make a network namespace with a packet filter: run the tests outside of a container", strings.TrimSpace(said.String()))
	}
	o := outside{}
	o.net, err = os.Open(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "ns", "net"))
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = o.net.Close() })
	ready := func() bool {
		_, err := e.as(t, "/", "podman", "--url", e.Socket, "version")
		return err == nil
	}
	for i := 0; !ready(); i++ { // each try takes its time
		if i == 100 {
			t.Fatalf("Podman's server does not answer: %s", &said)
		}
	}
	return o
}

// countedBy matches a rule of the filter, as iptables lists it with exact
// numbers.
var countedBy = regexp.MustCompile(`(?m)^\s*(\d+)\s+\d+\s.*0\.0\.0\.0/0\s*(udp dpt:53)?\s*$`)

// packets returns how many packets have left so far, and how many of them were
// DNS queries.
func (o outside) packets(t *testing.T) (all, questions int) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "nsenter", "--net=/proc/self/fd/3", "iptables", "-w", "60", "-nvxL", "OUTPUT")
	list.ExtraFiles = []*os.File{o.net}
	out, err := list.CombinedOutput()
	e2etest.Must(t, err)
	rules := countedBy.FindAllStringSubmatch(string(out), -1)
	if len(rules) != 2 || rules[0][2] == "" || rules[1][2] != "" {
		t.Fatalf("no counters in:\n%s", out)
	}
	questions, err = strconv.Atoi(rules[0][1])
	e2etest.Must(t, err)
	all, err = strconv.Atoi(rules[1][1])
	e2etest.Must(t, err)
	return all, questions
}

// chatter are settings that enable again what the declarations disable, such as
// telemetry and updates. A CLI without an entry is not known to send anything
// when nobody uses it interactively.
var chatter = map[string]string{
	"claude-code": `env = { CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = "", DISABLE_TELEMETRY = "", DISABLE_ERROR_REPORTING = "", DISABLE_AUTOUPDATER = "" }`,
	"codex":       `args = ["-c", "analytics.enabled=true", "-c", "features.plugins=true", "-c", "features.apps=true"]`,
	"gemini-cli":  `env = { GEMINI_TELEMETRY_ENABLED = "true", GEMINI_TELEMETRY_TARGET = "local", GEMINI_TELEMETRY_OTLP_ENDPOINT = "http://telemetry.example:4317" }`,
	"opencode":    `env = { OPENCODE_DISABLE_MODELS_FETCH = "" }`,
	"qwen-code":   `args = ["--telemetry", "--telemetry-otlp-endpoint", "http://telemetry.example:4317"]`,
}

// While it works in a sandbox with a public network, a CLI sends no packet and
// no DNS query. The counter sees the same CLI with its telemetry enabled, and a
// command of the model.
func TestNothingLeavesASandbox(t *testing.T) {
	t.Parallel()
	for _, s := range scaffolds {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			e := find(t, "podman")
			needs(t, s)
			o := outsideOf(t, &e)
			if all, questions := o.during(t, &e, s, "true"); all != 0 || questions != 0 {
				t.Errorf("%d packets left, %d of them questions to a name server; want none", all, questions)
			}
			if all, questions := o.during(t, &e, s, "printf x >/dev/udp/198.51.100.7/53"); all == 0 || questions == 0 {
				t.Errorf("a command sent a packet, and %d packets and %d questions were counted", all, questions)
			}
			if loud, has := chatter[s.name]; has {
				s.config = loud
				all, questions := o.during(t, &e, s, "true")
				t.Logf("with its chatter switched on: %d packets, %d questions to a name server", all, questions)
				if all == 0 || questions == 0 {
					t.Errorf("%d packets left, and %d questions, with its chatter switched on; want some", all, questions)
				}
			}
		})
	}
}

// during runs a trial in which the model calls a command. It returns how many
// packets and DNS queries left during the trial.
func (o outside) during(t *testing.T, e *engine, s scaffold, command string) (all, questions int) {
	t.Helper()
	replies := []string{ // Gemini CLI takes a shell in front of a command away
		"  - {when: {turn: 0}, " + s.call("I write it.", ": ; bash -c '"+command+"'; echo MARK-solve | tee /app/done") + ", " + usage + "}\n",
		"  - {when: {turn: 1}, " + s.last("finished") + ", " + usage + "}\n",
	}
	dir, x := e.lay(t, s, map[string]ending{"solve": {replies: replies, verify: "[ -s /app/done ] && [ $(wc -l </proc/net/route) -gt 1 ]"}})
	toml, file := "tasks/solve/task.toml", "berth.hcl"
	e2etest.Write(t, x, map[string]string{
		toml: change(t, e2etest.Read(t, x, toml), `"no-network"`, `"public"`),
		// The environment's own network: packets are counted, and a proxy sends none of its client's.
		file: change(t, e2etest.Read(t, x, file), `environment "local" {`, "environment \"local\" {\n  network = \"public\""),
	})
	e.Own(t, dir)
	before, asked := o.packets(t)
	out, err := e.as(t, x, filepath.Join(dir, "bin", "berth"), "run", "--require", "passed = planned")
	if err != nil {
		t.Errorf("run: %v\n%s", err, out)
	}
	all, questions = o.packets(t)
	found, err := filepath.Glob(filepath.Join(x, "runs", "*", "trials", "*", "attempt-1", "result.json"))
	e2etest.Must(t, err)
	var r record.Result
	if len(found) == 1 {
		r = *e2etest.Result(t, filepath.Dir(found[0]))
	}
	if r.AgentEnd != record.Yielded || slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "trajectory" }) {
		t.Errorf("%d results, the agent ended as %q: %+v %+v", len(found), r.AgentEnd, r.Error, r.Findings)
	}
	return all - before, questions - asked
}
