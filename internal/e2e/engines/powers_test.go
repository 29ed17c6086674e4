package engines

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// What sandboxd is given to keep the tests from what an agent left, no process of the
// agent has: neither a capability, nor a system call that the engine allows because
// of it, nor a way into PID 1. The program that tries it all is one of sandboxd's
// tests, which show what it can do without these guards.
func TestAnAgentHasNothingOfWhatSandboxdIsGiven(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m *machine) {
		p := newPlace(t, m.env())
		p.attack(m.Name, "powers", "mkdir -p /logs/artifacts; (setsid sleep 1000 > /dev/null 2>&1 &); "+
			"{ $attacker powers; $attacker intrude; } > /logs/artifacts/report 2>&1; : > /app/done")
		tr := p.attacked(m.Name, "live").Trials[0]
		text, err := os.ReadFile(filepath.Join(tr.Attempts[0].Dir, "artifacts", "logs", "artifacts", "report"))
		if err != nil {
			t.Fatal(err)
		}
		report, sets := string(text), 0
		for line := range strings.Lines(report) {
			name, value, _ := strings.Cut(line, ":")
			if !strings.HasPrefix(name, "Cap") {
				continue
			}
			sets++
			if caps, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil || caps&^become.EngineCaps != 0 {
				t.Errorf("a process of the agent has %s: %v", strings.TrimSpace(line), err)
			}
		}
		if sets < 3*5 || strings.Contains("\n"+report, "\n+") || !strings.Contains(report, "- mount a tmpfs") || !strings.Contains(report, "- quotactl") || !strings.Contains(report, "- ptrace") {
			t.Errorf("want only refusals, and the capabilities of three processes:\n%s", report)
		}
		if got := string(tr.Attempts[0].Integrity); got != "exposed" {
			t.Errorf("beside a process that is left, the result is %s, want exposed", got)
		}
	})
}
