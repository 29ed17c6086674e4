package trial_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
)

// judging is a client of a chat model in a shell script, such as tests may be:
// asks KEY ADDRESS prints the whole answer.
const judging = `asks() { exec bash -c 'a=${1#http://}; p=/${a#*/}; a=${a%%/*}; exec 3<>/dev/tcp/${a%:*}/${a#*:} || exit 7
	b="{\"model\":\"gpt-x\",\"messages\":[{\"role\":\"user\",\"content\":\"Is it good?\"}]}"
	printf "POST %s/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s" "$p" "$0" ${#b} "$b" >&3
	cat <&3' "$1" "$2"; }
`

// withJudge gives the verifier "judge" a scripted model, and the task a variable
// for its key.
func withJudge(t *testing.T, b *bench, script string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.yaml")
	testlevel.Must(t, os.WriteFile(file, []byte(script), 0o600))
	dir, err := os.MkdirTemp("", "gw")
	testlevel.Must(t, err)
	m := &cell.Model{Label: "m", Provider: "script", Name: "scripted", Script: file}
	g, err := gateway.New(gateway.Options{
		Dialects: dialects.All, Dir: filepath.Join(dir, "g"), Models: []*cell.Model{m}, RateLimit: ratelimit.Options{GiveUpAfter: time.Nanosecond},
	})
	testlevel.Must(t, err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	b.gateway = g
	b.cell.Verifiers = map[string]cell.Verifier{"judge": {Label: "judge", Models: map[string]*cell.Model{"default": m}}}
	b.task.Stages[0].Verify.Env = task.Env{
		"JUDGE_KEY": {Host: "OPENAI_API_KEY"}, "ANTHROPIC_API_KEY": {Host: "EVAL_KEY"}, "OPENAI_BASE_URL": {Text: "https://example.com/v1"},
		"GEMINI_API_KEY": {Text: "EMPTY"},
	}
}

const good = "replies:\n  - {text: GOOD, usage: {input: 30, output: 4}}\n"

// The tests of a task that ask for the key of a provider get a token of the
// gateway and its address, in every mode, while they run and no longer. The
// agent gets neither.
func TestATasksJudgeGetsTheVerifiersModel(t *testing.T) {
	t.Parallel()
	for _, mode := range []task.Mode{task.ModeLive, task.ModeRestarted, task.ModeImage, task.ModeSeparate} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does("mkdir -p /app/out && echo 1 > /app/out/answer && touch /app/out/run; env > /app/out/env; cat /proc/*/environ > /app/out/all 2>/dev/null; true"),
				tests(judging+`env > /logs/verifier/env; asks "$JUDGE_KEY" "$OPENAI_BASE_URL" > /logs/verifier/answer
				grep -q GOOD /logs/verifier/answer && [ "$ANTHROPIC_API_KEY" = "$JUDGE_KEY" ] && [ "$GEMINI_API_KEY" = EMPTY ] &&
				[ "${OPENAI_BASE_URL%/v1}" = "$ANTHROPIC_BASE_URL" ] && ! grep -q -e "$JUDGE_KEY" -e host-key /app/out/*`))
			if b.task.Mode = mode; mode == task.ModeSeparate {
				separate(b)
			}
			withJudge(t, b, good)
			b.envVars["OPENAI_API_KEY"], b.envVars["EVAL_KEY"] = "host-key", "host-key" // the model wins
			r := b.run(t.Context(), t)
			if r.Outcome != record.Passed {
				t.Errorf("%s, %+v", r.Outcome, r.Error)
			}
			u := r.Usage
			if len(u) != 1 || u[0].Role != "judge" || u[0].Verifier != "judge" || u[0].Requests != 1 || u[0].InputTokens != 30 || u[0].CostUSD == nil {
				t.Errorf("usage %s", pretty(u))
			}
			env, err := os.ReadFile(filepath.Join(b.dir, "verifier", "logs", "env"))
			if err != nil || !strings.Contains(string(env), "JUDGE_KEY=") || strings.Contains(string(env), "berth-") {
				t.Errorf("variables that the tests wrote: %v\n%s", err, env)
			}
		})
	}
}

// An agent that works again after the tests of a stage cannot use their token.
func TestTheTokenOfAJudgeEndsWithTheVerification(t *testing.T) {
	t.Parallel()
	a := does("")
	b := newBench(t, a, tests(judging+`[ -e /tmp/used ] || { echo "$JUDGE_KEY $OPENAI_BASE_URL" > /tmp/token; chmod 644 /tmp/token; }
		asks "$JUDGE_KEY" "$OPENAI_BASE_URL" | grep GOOD`))
	withJudge(t, b, good)
	b.task.Stages = append(b.task.Stages, b.task.Stages[0])
	b.task.Stages[1].Name = "second"
	a.turn = does("[ ! -e /tmp/token ] || { " + judging + " read k a < /tmp/token; touch /tmp/used; ! asks $k $a | grep GOOD; }").turn
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if len(r.Usage) != 2 || r.Usage[0].Requests != 1 || r.Usage[1].Requests != 1 {
		t.Errorf("usage %s", pretty(r.Usage))
	}
}

// Tests that go on without the answer of their judge say nothing about the work.
func TestAJudgeWithoutAnAnswerIsNotTheAgentsFault(t *testing.T) {
	t.Parallel()
	one, tokens := int64(1), int64(10)
	for _, tt := range []struct {
		name, script string
		budget       cell.Budget
		want         record.Outcome
		says         string
	}{
		{"the provider is down", "replies:\n  - {error: {status: 503, message: away}, times: 100}\n  - {text: GOOD}\n", cell.Budget{}, record.ModelError, "without its answer"},
		{"the budget is used up", good, cell.Budget{Requests: &one}, record.VerifierError, "without its answer"},
		{"no request fits into the budget", good, cell.Budget{Tokens: &tokens}, record.NotRun, "raise it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does("true"), tests(judging+`(asks "$JUDGE_KEY" "$OPENAI_BASE_URL"); (asks "$JUDGE_KEY" "$OPENAI_BASE_URL") | grep GOOD`))
			withJudge(t, b, tt.script)
			v := b.cell.Verifiers["judge"]
			v.Budget = tt.budget
			b.cell.Verifiers["judge"] = v
			r := b.run(t.Context(), t)
			if r.Outcome != tt.want || r.Error == nil || !strings.Contains(r.Error.Message, tt.says) {
				t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, tt.want)
			}
		})
	}
}
