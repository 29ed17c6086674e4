package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// modelled writes an experiment in which minisweagent uses model.m.
func modelled(t *testing.T, dir, inExperiment, model string) {
	t.Helper()
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": fmt.Sprintf(`experiment "e2e" {
  datasets    = [dataset.tasks]
  environment = environment.local
  model       = model.m
%s
}
dataset "tasks" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin = "local"
}
agent "one" {
  plugin = "minisweagent"
  config {
    max_tokens = 40
  }
}
agent "two" {
  plugin = "minisweagent"
  config {
    max_tokens = 41
  }
}
model "m" {
%s
}
`, inExperiment, model)})
}

// exchangesOf returns the requests of the only attempt of a trial.
func exchangesOf(t *testing.T, tr *types.ShowTrial) []gateway.Exchange {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(tr.Attempts[0].Dir, filepath.FromSlash(record.ExchangesFile)))
	e2etest.Must(t, err)
	var out []gateway.Exchange
	for line := range bytes.Lines(b) {
		var x gateway.Exchange
		e2etest.Must(t, json.Unmarshal(line, &x))
		out = append(out, x)
	}
	return out
}

const twoSteps = `replies:
  - text: "I write the file.\n\n` + "```bash\\ntouch /app/done\\n```" + `"
    usage: {input: 600, output: 40}
  - text: "` + "```bash\\necho TASK_IS_COMPLETE\\n```" + `"
    usage: {input: 600, output: 40}
`

// Each of 64 attempts costs 0.128 USD, and one request could cost some 0.2, so
// the budget suffices for about ten. It is never exceeded, and the other trials
// do not run; none fails because of it. What has begun finishes before others begin.
func TestABudgetThatOnlySomeCanAfford(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	const most = 1.4
	for name, inExperiment := range map[string]string{
		"run":  "  agent  = agent.one\n  repeat = 64\n  limits {\n    cost_usd = 1.4\n  }",
		"cell": "  repeat = 64\n  matrix {\n    agent = [agent.one, agent.two]\n  }\n  per_cell {\n    cost_usd = 1.4\n  }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
			e2etest.Write(t, dir, map[string]string{"replies.yaml": twoSteps})
			modelled(t, dir, inExperiment, "  provider = \"script\"\n  script = \"replies.yaml\"\n  price {\n    input = 100\n    output = 100\n  }")
			r := berth(t, dir, "run", "--json", "--in-flight", "64")
			r.want(t, 3)
			show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
			spent, outcomes := map[string]float64{}, map[string]map[record.Outcome]int{}
			for i := range show.Trials {
				tr := &show.Trials[i]
				if outcomes[tr.CellKey] == nil {
					outcomes[tr.CellKey] = map[record.Outcome]int{}
				}
				outcomes[tr.CellKey][tr.Outcome]++
				if len(tr.Attempts) == 0 {
					continue // not begun
				}
				for _, u := range e2etest.Result(t, tr.Attempts[0].Dir).Usage {
					spent[tr.CellKey] += *u.CostUSD
				}
			}
			for cell, usd := range spent {
				o := outcomes[cell]
				if usd > most+1e-9 || usd < most-0.4 || o[record.Passed] < 8 || o[record.Passed] > 10 || o[record.Passed]+o[record.NotRun] != 64 {
					t.Errorf("cell %s: %.3f USD spent of %g, outcomes %v", cell, usd, most, o)
				}
			}
		})
	}
}

// refuses is a provider of Chat Completions. After a number of answers it
// refuses requests for a time.
type refuses struct {
	after   int64
	lasting time.Duration

	asked, served, refused atomic.Int64
	until                  atomic.Int64 // in ns; 0: it has not begun
}

// ServeHTTP implements http.Handler.
func (p *refuses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct{ Messages []struct{ Role string } }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	now := time.Now().UnixNano()
	if p.asked.Add(1) == p.after {
		p.until.Store(now + p.lasting.Nanoseconds())
	}
	w.Header().Set("Content-Type", "application/json")
	if now < p.until.Load() {
		p.refused.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.served.Add(1)
	turn := 0
	for _, m := range q.Messages {
		if m.Role == "assistant" {
			turn++
		}
	}
	say := "```bash\ntouch /app/done\n```"
	if turn == 7 {
		say = "```bash\necho TASK_IS_COMPLETE\n```"
	}
	e2etest.Say(w, "m1", say)
}

// In the middle of a run, a provider refuses everything for longer than the
// agents' time limit: no attempt fails, and no agent's clock runs.
func TestAProviderThatRefusesForAWhile(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	const lasting = 24 * time.Second
	p := &refuses{after: 60, lasting: lasting}
	s := httptest.NewServer(p)
	defer s.Close()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	modelled(t, dir, fmt.Sprintf("  agent  = agent.one\n  repeat = 64\n  per_trial {\n    agent_time = %q\n  }", lasting*5/6),
		fmt.Sprintf("  provider = \"openai-chat\"\n  name = \"m1\"\n  base_url = %q", s.URL+"/v1"))
	r := berth(t, dir, "run", "--json", "--in-flight", "24", "--require", "passed = planned")
	r.want(t, 0)
	for _, want := range []string{"status 429 from ", "the provider takes as many requests as before"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("nobody was told that %s:\n%s", want, r.stderr)
		}
	}
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	var all []gateway.Exchange
	waited := 0
	for i := range show.Trials {
		res := e2etest.Result(t, show.Trials[i].Attempts[0].Dir)
		if res.AgentEnd != record.Yielded {
			t.Errorf("%s ended with %s", show.Trials[i].Dir, res.AgentEnd)
		}
		if w := time.Duration(res.Usage[0].WaitedMS) * time.Millisecond; w > lasting/2 {
			waited++
		}
		all = append(all, exchangesOf(t, &show.Trials[i])...)
	}
	if waited < 2 || p.refused.Load() == 0 || len(all) != 64*8 {
		t.Errorf("%d attempts waited, %d requests refused, %d exchanges", waited, p.refused.Load(), len(all))
	}
}
