package scaffolds

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// ours are the agents of the tree that work from the host.
var ours = []scaffold{{name: "terminus", plugin: "terminus"}, {name: "minisweagent", plugin: "minisweagent"}}

// last is a reply after which the agent is done.
func (s scaffold) last(text string) string {
	if s.finish != "" {
		return s.call(text, s.finish)
	}
	return fmt.Sprintf("text: %q", text)
}

// ends is a reply after which any agent is done.
func (s scaffold) ends(text string) string {
	switch s.name {
	case "terminus":
		return fmt.Sprintf("text: %q", fmt.Sprintf(`{"analysis": %q, "plan": "", "commands": [], "task_complete": true}`, text))
	case "minisweagent":
		return fmt.Sprintf("text: %q", text+"\n\n```bash\necho TASK_IS_COMPLETE\n```")
	default:
		return s.last(text)
	}
}

// ready skips the test unless the agent is to be tried.
func (s scaffold) ready(t *testing.T) {
	t.Helper()
	if slices.ContainsFunc(ours, func(h scaffold) bool { return h.name == s.name }) {
		tree.NeedsSandbox(t)
		return
	}
	needs(t, s)
}

// edit replaces a part of a file.
func edit(t *testing.T, dir, file, from, to string) {
	t.Helper()
	text := e2etest.Read(t, dir, file)
	if !strings.Contains(text, from) {
		t.Fatalf("%s lacks %q: %s", file, from, text)
	}
	e2etest.Write(t, dir, map[string]string{file: strings.Replace(text, from, to, 1)})
}

const word = "PINEAPPLE" // what only the model says, in its first message

// steps writes an experiment with a task of two steps.
func (s scaffold) steps(t *testing.T, dir string, same bool) {
	t.Helper()
	var replies []string
	for _, at := range []string{"one", "two"} {
		replies = append(replies, fmt.Sprintf("  - {when: {last: MARK-%s}, %s, %s}\n", at, s.ends(word+"-"+at), usage))
	}
	if s.name == "terminus" { // it is asked whether it is sure
		replies = append(replies, fmt.Sprintf("  - {when: {last: say again that the task}, %s, %s}\n", s.ends("I am sure"), usage))
	}
	s.lay(t, dir, map[string]ending{"two-steps": {replies: replies, toml: "[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n"}})
	task := filepath.Join(dir, "tasks", "two-steps")
	for _, at := range []string{"one", "two"} {
		e2etest.Write(t, filepath.Join(task, "steps", at), map[string]string{"instruction.md": "Do MARK-" + at + "\n"})
	}
	if same {
		edit(t, dir, "berth.hcl", "agent \"one\" {\n", "agent \"one\" {\n  same_session = true\n")
	}
}

// With same_session, the second step of a task continues the conversation of the
// first, and its tests end no conversation: the model sees its own words again.
// Without, each step begins a new one.
func TestStepsShareASession(t *testing.T) {
	t.Parallel()
	for _, s := range slices.Concat(scaffolds, ours) {
		for _, same := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", s.name, same), func(t *testing.T) {
				t.Parallel()
				s.ready(t)
				dir := t.TempDir()
				s.steps(t, dir, same)
				if same && s.plugin == "acp" { // its process ends with each stage
					refused(t, dir, "cannot continue its session", "Remove same_session")
					return
				}
				s.shared(t, ran(t, dir), same)
			})
		}
	}
}

// shared checks an attempt of a task of two steps.
func (s scaffold) shared(t *testing.T, attempt string, same bool) {
	t.Helper()
	r := e2etest.Result(t, attempt)
	if r.Outcome != record.Passed || r.AgentEnd != record.Yielded || len(r.Stages) != 2 {
		t.Fatalf("%s / %s: %+v\n%s", r.Outcome, r.AgentEnd, r.Error, e2etest.Read(t, attempt, "turns.jsonl"))
	}
	if shared := r.Stages[0].Session == r.Stages[1].Session; shared != same || r.Stages[0].Session == "" {
		t.Errorf("sessions %q and %q", r.Stages[0].Session, r.Stages[1].Session)
	}
	asked := requests(t, attempt)
	at := slices.IndexFunc(asked, func(body string) bool { return strings.Contains(body, "MARK-two") })
	if at < 0 {
		t.Fatalf("no request of the second step among %d", len(asked))
	}
	if knows := strings.Contains(asked[at], word+"-one"); knows != same {
		t.Errorf("step 2 knows what was said in step 1: %v, want %v\n%.3000s", knows, same, asked[at])
	}
	checkTokens(t, s, attempt, r)
}

// refused plans an experiment, which must be refused for a reason.
func refused(t *testing.T, dir string, reasons ...string) {
	t.Helper()
	code, out, stderr := tree.Berth(t, dir, "plan")
	for _, why := range reasons {
		if said := out + stderr; code != 2 || !strings.Contains(said, why) {
			t.Errorf("exit code %d, and nothing says %q: %s", code, why, said)
		}
	}
}

// checkTokens compares the metrics of the steps with the usage of the trial.
func checkTokens(t *testing.T, s scaffold, attempt string, r *record.Result) {
	t.Helper()
	var tr trajectory.Trajectory
	e2etest.Must(t, json.Unmarshal([]byte(e2etest.Read(t, attempt, "trajectory.json")), &tr))
	var in, cached, out int64
	var cost float64
	for _, step := range tr.Steps {
		if step.Source != trajectory.Model || step.LLMCallCount != nil && *step.LLMCallCount == 0 {
			continue
		}
		m := step.Metrics
		if m == nil || m.PromptTokens == nil || m.CompletionTokens == nil || m.CachedTokens == nil || m.CostUSD == nil {
			if !s.chatty {
				t.Errorf("step %d has no tokens or no cost: %+v", step.StepID, step)
			}
			continue
		}
		in, cached, out, cost = in+*m.PromptTokens, cached+*m.CachedTokens, out+*m.CompletionTokens, cost+*m.CostUSD
	}
	var used record.Usage
	for _, u := range r.Usage {
		used.InputTokens, used.CachedTokens, used.OutputTokens = used.InputTokens+u.InputTokens, used.CachedTokens+u.CachedTokens, used.OutputTokens+u.OutputTokens
		if u.CostUSD == nil {
			t.Fatalf("usage without a cost: %+v", u)
		}
		sum := *u.CostUSD
		if used.CostUSD != nil {
			sum += *used.CostUSD
		}
		used.CostUSD = &sum
	}
	if s.chatty {
		return // in_no_step says how many tokens it used besides
	}
	if in != used.InputTokens || cached != used.CachedTokens || out != used.OutputTokens || math.Abs(cost-*used.CostUSD) > 1e-9 {
		t.Errorf("the steps have %d (%d cached) and %d tokens for %g USD; the trial used %+v", in, cached, out, cost, used)
	}
	for _, f := range r.Findings {
		if f.Code == "usage_differs" || f.Code == "trajectory" {
			t.Errorf("finding %s: %s", f.Code, f.Text)
		}
	}
}

// prior is a trajectory that another agent left.
const prior = `{"schema_version": "ATIF-v1.7", "agent": {"name": "other", "version": "1", "model_name": "m"}, "steps": [
  {"step_id": 1, "source": "system", "message": "You are another agent."},
  {"step_id": 2, "source": "user", "message": "Look for the fruit."},
  {"step_id": 3, "source": "agent", "message": "I look.", "tool_calls": [{"tool_call_id": "a b", "function_name": "look.for", "arguments": {"what": "fruit"}}],
   "observation": {"results": [{"source_call_id": "a b", "content": "It is a PINEAPPLE."}]}},
  {"step_id": 4, "source": "agent", "message": "I look again.", "tool_calls": [{"tool_call_id": "a b", "function_name": "look.for", "arguments": {}}]},
  {"step_id": 5, "source": "agent", "message": "I found it."}]}`

// An agent continues from the trajectory of the experiment in place of that of the
// task, and one that cannot is refused.
func TestAPriorTrajectory(t *testing.T) {
	t.Parallel()
	for _, s := range slices.Concat(scaffolds, ours) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.ready(t)
			s.continues(t)
		})
	}
}

// continues runs a task with a prior trajectory in an experiment with another one.
func (s scaffold) continues(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	var replies []string
	for turn := range 5 { // whatever it makes of the trajectory
		replies = append(replies, reply(turn, s.ends("finished")))
	}
	s.lay(t, dir, map[string]ending{"go-on": {replies: replies}})
	shipped := filepath.Join(dir, "tasks", "go-on")
	e2etest.Write(t, dir, map[string]string{"before.json": prior})
	e2etest.Write(t, shipped, map[string]string{"trajectory.json": strings.ReplaceAll(prior, word, "MANGO-SALAD")})
	edit(t, dir, "berth.hcl", "agent \"one\" {\n", "agent \"one\" {\n  prior_trajectory = \"before.json\"\n")
	if slices.Contains([]string{"claude-code", "codex", "terminus", "minisweagent"}, s.name) {
		s.continued(t, ran(t, dir))
	} else {
		refused(t, dir, "cannot continue from a prior trajectory")
	}
}

// continued checks an attempt that continued from the trajectory.
func (s scaffold) continued(t *testing.T, attempt string) {
	t.Helper()
	r := e2etest.Result(t, attempt)
	if r.Outcome != record.Passed || r.AgentEnd != record.Yielded {
		t.Fatalf("%s / %s: %+v\n%s", r.Outcome, r.AgentEnd, r.Error, e2etest.Read(t, attempt, "turns.jsonl"))
	}
	first := requests(t, attempt)[0]
	for _, want := range []string{"Look for the fruit.", "It is a PINEAPPLE.", "I look again.", "I found it.", "MARK-go-on"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first request lacks %q: %.6000s", want, first)
		}
	}
	if strings.Contains(first, "MANGO-SALAD") || strings.Contains(first, "You are another agent.") && s.plugin == "" {
		t.Errorf("the first request has another trajectory, or its system prompt: %.6000s", first)
	}
	checkTokens(t, s, attempt, r)
}
