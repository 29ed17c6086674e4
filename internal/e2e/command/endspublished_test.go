package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// publishedEnds are sequences of judgements and how UniClawBench's own program (at
// f8dd80f) ends them. Each line was printed by that program, with an agent that is
// none of its own, a supervisor and a simulated user that say what the line says, and
// a threshold of 0.9. A line has
//
//	messages of the user, at most; rounds | status, passed or not, final score,
//	how often the user was asked | verdict and state of each round
//
// A round is a letter, a sign, a score and what the user replies.
//
//	P pass, C continue; F fail; H fail, with a rationale; T fail, with a tag; K fail, as
//	complete_but_failed; I infra_error; L fail, in the state infra_error; continue, as
//	complete_and_passed (A), complete_but_failed (B), incomplete (N), terminal_failure (X)
//	+ the agent says that it has finished; - it does not; ! it does, and exits with 3;
//	@ it does not, and its turn is ended by the time of a turn
//	nothing: a message; ~ a message, as "silent"; _ no message; ? no JSON
const publishedEnds = `
0 P+1 | pass passed 1 0 | pass/complete_and_passed
0 P-1 | fail failed 1 0 | fail/incomplete
0 C+4 | budget_exhausted failed 0.4 0 | continue/in_progress
0 C-4 | budget_exhausted failed 0.4 0 | continue/in_progress
0 F+4 | fail failed 0.4 0 | fail/terminal_failure
0 H+4 | fail failed 0.4 0 | fail/terminal_failure
0 K+4 | fail failed 0.4 0 | fail/complete_but_failed
0 T+4 | fail failed 0.4 0 | fail/terminal_failure
0 I+4 | fail failed 0.4 0 | fail/terminal_failure
1 P+1 | pass passed 1 0 | pass/complete_and_passed
1 P-1 | executor_incomplete failed 1 0 | continue/incomplete
1 P!1 | executor_incomplete failed 1 0 | continue/incomplete
1 F+4 | fail failed 0.4 0 | fail/terminal_failure
1 I+4 | fail failed 0.4 0 | fail/terminal_failure
1 L+4 | fail failed 0.4 0 | fail/terminal_failure
1 C+4 P+1 | pass passed 1 1 | continue/in_progress pass/complete_and_passed
1 C+4 P-1 | fail failed 1 1 | continue/in_progress fail/incomplete
1 C+4 C+5 | budget_exhausted failed 0.5 1 | continue/in_progress continue/in_progress
1 C+4 C-5 | budget_exhausted failed 0.5 1 | continue/in_progress continue/in_progress
1 C+4 F+5 | fail failed 0.5 1 | continue/in_progress fail/terminal_failure
1 C+4 K+5 | fail failed 0.5 1 | continue/in_progress fail/complete_but_failed
1 C-4 P+1 | pass passed 1 1 | continue/in_progress pass/complete_and_passed
1 H+4 P+1 | pass passed 1 1 | continue/complete_but_failed pass/complete_and_passed
1 H+4 P-1 | fail failed 1 1 | continue/complete_but_failed fail/incomplete
1 H+4 C+5 | budget_exhausted failed 0.5 1 | continue/complete_but_failed continue/in_progress
1 H-4 F+5 | fail failed 0.5 1 | continue/complete_but_failed fail/terminal_failure
1 K+4 P+1 | pass passed 1 1 | continue/complete_but_failed pass/complete_and_passed
1 T+4 P+1 | pass passed 1 1 | continue/complete_but_failed pass/complete_and_passed
1 T+4 C-5 | budget_exhausted failed 0.5 1 | continue/complete_but_failed continue/in_progress
2 C+4 P+1 | pass passed 1 1 | continue/in_progress pass/complete_and_passed
2 C+4 P-1 | executor_incomplete failed 1 1 | continue/in_progress continue/incomplete
2 C+4 F+5 | fail failed 0.5 1 | continue/in_progress fail/terminal_failure
2 C-4 P-1 | executor_incomplete failed 1 1 | continue/in_progress continue/incomplete
2 H+4 P-1 | executor_incomplete failed 1 1 | continue/complete_but_failed continue/incomplete
2 C+4 C+5 P+1 | pass passed 1 2 | continue/in_progress continue/in_progress pass/complete_and_passed
2 C+4 C+5 P-1 | fail failed 1 2 | continue/in_progress continue/in_progress fail/incomplete
2 C+4 C+5 C+4 | budget_exhausted failed 0.5 2 | continue/in_progress continue/in_progress continue/in_progress
2 C+4 C+5 F+4 | fail failed 0.5 2 | continue/in_progress continue/in_progress fail/terminal_failure
2 C+4 C-5 P-1 | fail failed 1 2 | continue/in_progress continue/in_progress fail/incomplete
2 C-4 C+5 P+1 | pass passed 1 2 | continue/in_progress continue/in_progress pass/complete_and_passed
2 C-4 C-5 C+4 | budget_exhausted failed 0.5 2 | continue/in_progress continue/in_progress continue/in_progress
0 P+5 | pass failed 0.5 0 | pass/complete_and_passed
0 C+9 | pass passed 0.95 0 | continue/in_progress
0 K+9 | fail failed 0.95 0 | fail/complete_but_failed
1 C+9 C+4 | pass passed 0.95 1 | continue/in_progress continue/in_progress
1 C-9 C-4 | pass passed 0.95 1 | continue/in_progress continue/in_progress
1 C+9 F+4 | fail failed 0.95 1 | continue/in_progress fail/terminal_failure
1 C-9 P-4 | fail failed 0.95 1 | continue/in_progress fail/incomplete
2 C+9 P-4 | executor_incomplete failed 0.95 1 | continue/in_progress continue/incomplete
2 C-4 P-9 | executor_incomplete failed 0.95 1 | continue/in_progress continue/incomplete
1 C+4 P+5 | pass failed 0.5 1 | continue/in_progress pass/complete_and_passed
2 C+9 P@4 | pass passed 0.95 1 | continue/in_progress continue/incomplete
2 C+4 P@5 | global_timeout failed 0.5 1 | continue/in_progress continue/incomplete
1 P@1 | executor_incomplete failed 1 0 | continue/incomplete
2 H+9 C+4 C+4 | pass passed 0.95 2 | continue/complete_but_failed continue/in_progress continue/in_progress
1 A+4 P+1 | pass passed 1 1 | continue/incomplete pass/complete_and_passed
1 C+4 A+5 | budget_exhausted failed 0.5 1 | continue/in_progress continue/incomplete
1 B+4 P+1 | pass passed 1 1 | continue/complete_but_failed pass/complete_and_passed
1 C+4 B+5 | budget_exhausted failed 0.5 1 | continue/in_progress continue/complete_but_failed
1 N+4 P+1 | pass passed 1 1 | continue/incomplete pass/complete_and_passed
1 C+4 N+5 | budget_exhausted failed 0.5 1 | continue/in_progress continue/incomplete
1 X+4 P+1 | pass passed 1 1 | continue/incomplete pass/complete_and_passed
1 C+4 X+5 | budget_exhausted failed 0.5 1 | continue/in_progress continue/incomplete
1 C+4~ P+1 | pass passed 1 1 | continue/in_progress pass/complete_and_passed
1 H+4~ C+5 | budget_exhausted failed 0.5 1 | continue/complete_but_failed continue/in_progress
2 N+4~ C+4 P+1 | pass passed 1 2 | continue/incomplete continue/in_progress pass/complete_and_passed
1 C+4_ P-1 | fail failed 1 1 | continue/in_progress fail/incomplete
1 H+4_ C-5 | budget_exhausted failed 0.5 1 | continue/complete_but_failed continue/in_progress
2 N+4_ C-4_ P-1 | fail failed 1 2 | continue/incomplete continue/in_progress fail/incomplete
1 C+4? P-1 | fail failed 1 1 | continue/in_progress fail/incomplete
1 H+4? C-5 | budget_exhausted failed 0.5 1 | continue/complete_but_failed continue/in_progress
2 N+4? C-4_ P-1 | fail failed 1 2 | continue/incomplete continue/in_progress fail/incomplete
`

// publishedEnd is a line of publishedEnds.
type publishedEnd struct {
	line, name    string
	messages      int
	rounds        []string
	status, ended string
	final         float64
	asked         int
	states        []string // verdict/state of each round
}

// What the letters, signs and scores of a round stand for.
var (
	publishedVerdicts = map[byte][2]string{ // the verdict's word, and what else the reply says
		'P': {"pass"}, 'C': {"continue"}, 'F': {"fail"}, 'I': {"infra_error", `{"attempt_state": "terminal_failure"}`}, 'L': {"fail", `{"attempt_state": "infra_error"}`},
		'H': {"fail", `{"rationale": "The file is missing."}`}, 'T': {"fail", `{"guidance_tags": ["follow_public_task"]}`}, 'K': {"fail", `{"attempt_state": "complete_but_failed"}`},
		'A': {"continue", `{"attempt_state": "complete_and_passed"}`}, 'B': {"continue", `{"attempt_state": "complete_but_failed"}`},
		'N': {"continue", `{"attempt_state": "incomplete"}`}, 'X': {"continue", `{"attempt_state": "terminal_failure"}`},
	}
	publishedTurns  = map[byte]string{'+': says, '-': saysLess, '!': says + "; exit 3", '@': saysLess + "; sleep 600"}
	publishedScores = map[byte]float64{'1': 1, '4': .4, '5': .5, '9': .95}
	// What is sent in place of a message, by the state of the round: our words for what the
	// program sends.
	fixedLines = map[string]string{
		"in_progress": "Please go on with what I asked for.", "complete_but_failed": "Please check the result against what I asked for, and correct what does not match.",
		"incomplete": "Please finish the remaining work, and tell me when it is finished.",
	}
)

func publishedTable(t *testing.T) (all []publishedEnd) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(publishedEnds)) {
		e := publishedEnd{line: strings.TrimSpace(line), name: fmt.Sprint("s", len(all))}
		parts := strings.Split(e.line, " | ")
		in := strings.Fields(parts[0])
		_, err := fmt.Sscan(in[0]+" "+parts[1], &e.messages, &e.status, &e.ended, &e.final, &e.asked)
		e2etest.Must(t, err)
		e.rounds, e.states = in[1:], strings.Fields(parts[2])
		all = append(all, e)
	}
	return all
}

// fixed reports whether the message before a round, counted from 0, is a fixed line.
func (e *publishedEnd) fixed(round int) bool {
	return round > 0 && strings.ContainsAny(e.rounds[round-1], "_?")
}

// message is what the agent is told before a round, as the instruction of the task or by
// the user.
func (e *publishedEnd) message(round int) string {
	if e.fixed(round) {
		_, state, _ := strings.Cut(e.states[round-1], "/")
		return fixedLines[state]
	}
	return fmt.Sprintf("echo ENDING-%s_ %d; %s", e.name, round, publishedTurns[e.rounds[round][1]])
}

// judge returns the replies of the supervisor's model.
func (e *publishedEnd) judge() (replies []map[string]any) {
	for i, r := range e.rounds {
		v := publishedVerdicts[r[0]]
		replies = append(replies, reply(fmt.Sprintf(`(?s)ENDING-%s_.*"messages_of_the_user_so_far":%d,`, e.name, i), verdict(v[0], publishedScores[r[2]], v[1])))
	}
	return replies
}

// user returns the replies of the simulated user's model.
func (e *publishedEnd) user() (replies []map[string]any) {
	for i := range len(e.rounds) - 1 {
		heard := fmt.Sprintf("ENDING-%s_ %d", e.name, i)
		if e.fixed(i) {
			heard = "Please(:| )" // the agent's shell knows no such command; all these users are silent
		}
		say := feedback(e.message(i + 1))
		switch e.rounds[i][3:] {
		case "~":
			say = strings.Replace(say, "instruction", "silent", 1)
		case "_":
			say = strings.Replace(feedback(""), "instruction", "silent", 1)
		case "?":
			say = "I have no idea."
		}
		replies = append(replies, reply(heard, say))
	}
	return replies
}

// files are those of the task, as UniClawBench lays them out.
func (e *publishedEnd) files() map[string]string {
	limit := 1200
	if strings.Contains(e.line, "@") {
		limit = 10 // a turn that ends by its time: its first one takes a moment
	}
	return map[string]string{
		"tasks/c/" + e.name + ".yaml": fmt.Sprintf("task_id: %s\ncategory: c\ntask: %q\nsuccess_threshold: 0.9\ntimeout_seconds: %d\nreferences: [eval_rule.md]\ncodex:\n  max_user_followups: %d\n",
			e.name, e.message(0), limit, e.messages),
		"injection/c/" + e.name + "/references/eval_rule.md": "It is complete.\n",
	}
}

// Sequences of verdicts, of turns that are complete or not, and of users who speak or do
// not, end as they do in UniClawBench's own program.
func TestLoopsEndAsUniClawBenchEndsThem(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	loopPlugins(t, dir, "greeter")
	files := map[string]string{"berth.hcl": strings.NewReplacer(
		"harbor", "uniclaw", "./tasks", ".", "{ plugin = \"local\" }", "{\n  plugin  = \"local\"\n  network = \"none\"\n}",
	).Replace(loopExperiment)}
	var judge, user []map[string]any
	all := publishedTable(t)
	for i := range all {
		judge, user = append(judge, all[i].judge()...), append(user, all[i].user()...)
		maps.Copy(files, all[i].files())
	}
	user = append(user, reply("could not be read", "I still have no idea."))
	for name, replies := range map[string][]map[string]any{"judge.yaml": judge, "user.yaml": user} {
		b, err := json.Marshal(map[string]any{"replies": replies})
		e2etest.Must(t, err)
		files[name] = string(b) // JSON is YAML
	}
	e2etest.Write(t, dir, files)
	run := berthWith(t, dir, nil, "run", "--in-flight", "4")
	folders, err := filepath.Glob(filepath.Join(dir, "runs", "*", "trials", "*", "attempt-1"))
	e2etest.Must(t, err)
	at := map[string]string{}
	for _, folder := range folders {
		at[e2etest.Result(t, folder).Task] = folder
	}
	if len(at) != len(all) {
		t.Fatalf("%d results of %d tasks\n%s\n%s", len(at), len(all), run.out, run.stderr)
	}
	for i := range all {
		t.Run(all[i].line, func(t *testing.T) { all[i].check(t, at["c/"+all[i].name]) })
	}
}

func (e *publishedEnd) check(t *testing.T, attempt string) {
	t.Helper()
	r := e2etest.Result(t, attempt)
	outcome := map[string]record.Outcome{"passed": record.Passed, "failed": record.Failed}[e.ended]
	if final := r.Scores["final_score"]; r.Outcome != outcome || r.Labels["status"] != e.status || math.Abs(final-e.final) > 1e-9 {
		t.Errorf("%s, status %q, final score %g: %s", r.Outcome, r.Labels["status"], final, pretty(r.Error))
	}
	asked := 0
	for _, p := range r.Phases {
		if p.Name == record.PhaseUser {
			asked++
		}
	}
	if asked != e.asked {
		t.Errorf("the user was asked %d times", asked)
	}
	var heard, states []string
	for _, turn := range e2etest.Lines[record.Turn](t, attempt, record.TurnsFile) {
		if turn.From == "user" {
			heard = append(heard, turn.Text)
		}
	}
	var want []string
	for i := range e.rounds[1:] {
		want = append(want, e.message(i+1))
	}
	if !slices.Equal(heard, want) {
		t.Errorf("the agent heard %q, want %q", heard, want)
	}
	for _, v := range e2etest.Lines[record.Verdict](t, attempt, record.VerdictsFile) {
		if state := v.Labels["attempt_state"]; state != "" {
			states = append(states, v.Labels["verdict"]+"/"+state)
		}
	}
	if !slices.Equal(states, e.states) {
		t.Errorf("judged %q", states)
	}
}
