package trial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
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

// purse is a gateway whose budget runs out when a test says so.
type purse struct {
	spent   chan struct{}
	waited  atomic.Int64 // nanoseconds
	silent  atomic.Bool
	state   models.State
	allowed int
	revoked int
	spec    *models.Spec // of the last session
}

func (p *purse) Session(_ context.Context, s models.Spec) (models.Session, error) {
	if p.spec != nil {
		*p.spec = s
	}
	return p, nil
}

func (p *purse) Endpoints() map[string]model.Endpoint {
	return map[string]model.Endpoint{"default": {Name: "m", Token: "token-of-the-session"}}
}
func (p *purse) Variables() (keys, addresses map[string]string) { return nil, nil }

func (p *purse) Allow(context.Context)        { p.allowed++ }
func (p *purse) Revoke(context.Context) error { p.revoked++; return nil }
func (p *purse) Spent() <-chan struct{}       { return p.spent }
func (p *purse) State() models.State          { return p.state }
func (p *purse) Silent(time.Time) bool        { return p.silent.Load() }
func (p *purse) Waited() time.Duration        { return time.Duration(p.waited.Load()) }
func (p *purse) Usage() []record.Usage {
	return []record.Usage{{Role: "agent", Model: "m", Requests: 3}}
}
func (p *purse) Findings() []verifier.Finding { return nil }
func (p *purse) Close(context.Context) error  { return nil }

func TestABudgetEndsTheTurnAndTheWorkIsGraded(t *testing.T) {
	t.Parallel()
	p := &purse{spent: make(chan struct{})}
	a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
		if err := act.sh(ctx, "echo 1 > /app/x"); err != nil {
			return agent.Yield{}, err
		}
		close(p.spent)
		<-ctx.Done()
		return agent.Yield{}, ctx.Err()
	})
	r := withModel(t, a, tests("test -s /app/x"), p).run(t.Context(), t)
	want(t, r, record.Passed, record.Budget, record.Checked)
	if len(r.Usage) != 1 || p.allowed != 2 || p.revoked < 2 || a.setups[0].Models["default"].Token == "" {
		t.Errorf("usage %+v, allowed %d, revoked %d", r.Usage, p.allowed, p.revoked)
	}
}

// withModel returns an attempt whose agent has a model.
func withModel(t *testing.T, a *scripted, j *judge, p *purse) *bench {
	t.Helper()
	a.needs.Dialects = []model.Dialect{model.DialectAnthropic}
	b := newBench(t, a, j)
	b.gateway = p
	b.cell.Agent.Models = map[string]*cell.Model{"default": {Label: "m"}}
	return b
}

// judgeModel gives the verifier "judge" a model with that name.
func (b *bench) judgeModel(name string) {
	b.cell.Verifiers = map[string]cell.Verifier{"judge": {Label: "judge", Models: map[string]*cell.Model{name: {Label: "m"}}}}
}

// When its time ends, the agent is waiting for a provider that does not
// respond. Only the end of the wait tells whether the time counts as the
// agent's.
func TestATurnDoesNotEndWhileAProviderIsSilent(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		p := &purse{spent: make(chan struct{})}
		p.silent.Store(true)
		a := turn(func(ctx context.Context, _ *actor) (agent.Yield, error) {
			select {
			case <-ctx.Done():
				t.Error("the turn ended while the provider was silent")
			case <-time.After(time.Second):
			}
			end := agent.Done
			if fails {
				p.waited.Store(int64(time.Hour))
				end = agent.Crashed
			}
			p.silent.Store(false)
			if !fails {
				<-ctx.Done()
			}
			return agent.Yield{End: end}, nil
		})
		b := withModel(t, a, tests("true"), p)
		b.cell.Limits.AgentTime = 200 * time.Millisecond
		end := record.Timeout
		if fails {
			end = record.Crashed
		}
		want(t, b.run(t.Context(), t), record.Passed, end, record.Checked)
	}
}

func TestAProviderThatIsDownIsNotTheAgentsFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		down, gaveUp error
		end          agent.End
		want         record.Outcome
	}{
		{errors.New("529"), nil, agent.Crashed, record.ModelError},
		{models.ErrRateLimited, nil, agent.Crashed, record.RateLimited},
		{models.ErrRateLimited, nil, agent.Done, record.RateLimited}, // its last request was not served, whatever it makes of that
		{errors.New("an answer in HTML"), nil, agent.Done, record.ModelError},
		{errors.New("an answer in HTML"), nil, agent.MaxSteps, record.ModelError},
		{nil, errors.New("status 503"), agent.Crashed, record.ModelError},
		// An agent that leaves a request behind has ended by itself, and a rate limit
		// is no reason to leave.
		{nil, errors.New("status 503"), agent.Done, record.Failed},
		{nil, models.ErrRateLimited, agent.Done, record.Failed},
		{nil, models.ErrRateLimited, agent.Crashed, record.Failed},
	} {
		a := turn(func(context.Context, *actor) (agent.Yield, error) { return agent.Yield{End: tt.end}, nil })
		b := withModel(t, a, tests("false"), &purse{spent: make(chan struct{}), state: models.State{Down: tt.down, GaveUp: tt.gaveUp}})
		if r := b.run(t.Context(), t); r.Outcome != tt.want {
			t.Errorf("%v, %v, %s: %s; want %s", tt.down, tt.gaveUp, tt.end, r.Outcome, tt.want)
		}
	}
	// One that says so itself does not know what of the model was wrong.
	a := turn(func(context.Context, *actor) (agent.Yield, error) {
		return agent.Yield{}, fmt.Errorf("ask: 429: %w", agent.ErrModel)
	})
	b := withModel(t, a, tests("true"), &purse{spent: make(chan struct{}), state: models.State{Down: models.ErrRateLimited}})
	if r := b.run(t.Context(), t); r.Outcome != record.RateLimited || r.Error == nil || r.Error.Boundary != record.ByModel || !strings.Contains(r.Error.Message, "ask: 429") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.RateLimited)
	}
	// So is the model of a verifier, which nothing in the sandbox can take down.
	judge := says(verifier.Verdict{})
	judge.traits.Models = []string{"default"}
	judge.verify = func(context.Context, verifier.Request) (verifier.Verdict, error) {
		return verifier.Verdict{}, errors.New("no answer from the judge")
	}
	b = newBench(t, does("true"), judge)
	b.gateway = &purse{spent: make(chan struct{}), state: models.State{Down: errors.New("529")}}
	b.judgeModel("default")
	if r := b.run(t.Context(), t); r.Outcome != record.ModelError || r.Error == nil || !strings.Contains(r.Error.Message, "529; the verifier says: no answer from the judge") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.ModelError)
	}
	// If the budget of a verifier is used up, the error says so.
	spec := models.Spec{}
	b = newBench(t, does("true"), judge)
	one := int64(1)
	b.gateway = &purse{spent: make(chan struct{}), spec: &spec, state: models.State{Refusal: &models.Refusal{Err: errors.New("the budget is used up")}}}
	b.judgeModel("default")
	limited := b.cell.Verifiers["judge"]
	limited.Budget = cell.Budget{Requests: &one}
	b.cell.Verifiers["judge"] = limited
	r := b.run(t.Context(), t)
	if r.Outcome != record.VerifierError || r.Error == nil || !strings.Contains(r.Error.Message, "the budget is used up; the verifier says: no answer from the judge") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.VerifierError)
	}
	if spec.Verifier != "judge" || spec.Budget.Requests != &one {
		t.Errorf("the gateway was asked for %+v; want the budget of the verifier", spec)
	}
	// And is not believed when the gateway answered all that it asked: a way out
	// of a task that goes badly.
	b = withModel(t, a, tests("false"), &purse{spent: make(chan struct{}), state: models.State{Served: true}})
	if r := b.run(t.Context(), t); r.Outcome != record.AgentError || r.Error == nil || r.Error.Boundary != record.ByAgent || !strings.Contains(r.Error.Message, "ask: 429") {
		t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, record.AgentError)
	}
}

// If a provider refuses a request because of its content, the agent is at
// fault, on the host as well as in the sandbox. The refusal is named, and the
// work is graded.
func TestARequestThatIsRefusedIsTheAgents(t *testing.T) {
	t.Parallel()
	refused := errors.New("the agent sent POST /v1/traces, which the gateway does not serve")
	says := func(y agent.Yield, err error) *scripted {
		return turn(func(context.Context, *actor) (agent.Yield, error) { return y, err })
	}
	for name, tt := range map[string]struct {
		agent  *scripted
		passes string
		want   record.Outcome
		named  bool
	}{
		"it crashes":             {says(agent.Yield{End: agent.Crashed}, nil), "false", record.AgentError, true},
		"it says model error":    {says(agent.Yield{}, fmt.Errorf("ask: 404: %w", agent.ErrModel)), "false", record.AgentError, true},
		"its work passes":        {says(agent.Yield{End: agent.Crashed}, nil), "true", record.Passed, true},
		"done, and was answered": {says(agent.Yield{End: agent.Done}, nil), "false", record.Failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withModel(t, tt.agent, tests(tt.passes), &purse{spent: make(chan struct{}), state: models.State{Refused: refused}})
			r := b.run(t.Context(), t)
			if r.Outcome != tt.want || (r.Error != nil && strings.Contains(r.Error.Message, "POST /v1/traces")) != tt.named {
				t.Errorf("%s, %+v; want %s", r.Outcome, r.Error, tt.want)
			}
		})
	}
}

// An agent that gives up after a refusal ends its turn because of the budget.
// This is not an error of the model.
func TestABudgetEndsTheTurnOfAnAgentThatGivesUpFirst(t *testing.T) {
	t.Parallel()
	p := &purse{spent: make(chan struct{})}
	a := turn(func(context.Context, *actor) (agent.Yield, error) {
		close(p.spent)
		return agent.Yield{}, fmt.Errorf("ask: refused: %w", agent.ErrModel)
	})
	want(t, withModel(t, a, tests("true"), p).run(t.Context(), t), record.Passed, record.Budget, record.Checked)
}

// The result says why an agent crashed, with its last exchange.
func TestTheLastTurnOfAnAgentThatCrashedIsInTheResult(t *testing.T) {
	t.Parallel()
	p := &purse{spent: make(chan struct{}), state: models.State{Last: &record.Exchange{Model: "m", Status: 400, Upstream: "no such field"}}}
	says := func(y agent.Yield) *scripted {
		return turn(func(context.Context, *actor) (agent.Yield, error) { return y, nil })
	}
	crash := says(agent.Yield{End: agent.Crashed, ExitCode: 7, Reason: "exit code 7: oh no", Message: "let me see"})
	r := withModel(t, crash, tests("false"), p).run(t.Context(), t)
	last := r.Stages[0].LastTurn
	if last == nil || last.ExitCode != 7 || last.Reason != "exit code 7: oh no" || last.Message != "let me see" || last.Exchange == nil || last.Exchange.Upstream != "no such field" {
		t.Errorf("%+v", last)
	}
	done := says(agent.Yield{End: agent.Done, Message: "done"})
	if r = withModel(t, done, tests("true"), &purse{spent: make(chan struct{}), state: models.State{Served: true}}).run(t.Context(), t); r.Stages[0].LastTurn != nil {
		t.Errorf("an agent that yielded has a last turn: %+v", r.Stages[0].LastTurn)
	}
}

// If a budget is shared with other attempts, or was too small from the start, a
// refusal says nothing about the agent, however the agent reacts to it.
func TestABudgetThatIsNotTheAttemptsFailsNoTrial(t *testing.T) {
	t.Parallel()
	why := errors.New("60 of 60 requests")
	ends := map[string]func() (agent.Yield, error){
		"it yields":     func() (agent.Yield, error) { return agent.Yield{End: agent.Done}, nil },
		"it crashes":    func() (agent.Yield, error) { return agent.Yield{End: agent.Crashed}, nil },
		"it complains":  func() (agent.Yield, error) { return agent.Yield{}, fmt.Errorf("403: %w", agent.ErrModel) },
		"its call ends": func() (agent.Yield, error) { return agent.Yield{}, errors.New("403") },
	}
	for _, refusal := range []models.Refusal{
		{Scope: record.ScopeRun, Err: why}, {Scope: record.ScopeCell, Err: why}, {First: true, Err: why},
	} {
		for name, end := range ends {
			t.Run(fmt.Sprintf("%s/first=%v/%s", refusal.Scope, refusal.First, name), func(t *testing.T) {
				t.Parallel()
				p := &purse{spent: make(chan struct{}), state: models.State{Refusal: &refusal}}
				a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
					close(p.spent)
					if err := act.sh(ctx, "true"); err != nil {
						return agent.Yield{}, err
					}
					return end()
				})
				r := withModel(t, a, tests("false"), p).run(t.Context(), t)
				if r.Outcome != record.NotRun || r.AgentEnd != "" || r.Error == nil || r.Error.Stops != refusal.Scope || len(r.Usage) != 1 {
					t.Errorf("%s, %q, error %+v, usage %+v", r.Outcome, r.AgentEnd, r.Error, r.Usage)
				}
			})
		}
	}
}

// A judge also uses the budgets of the cell and of the run. Its reaction to a
// refusal is not a verdict.
func TestAJudgeWithoutBudgetGivesNoVerdict(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"it judges": nil, "it fails": errors.New("403")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := tests("true")
			j.traits.Models = []string{"judge"}
			verify := j.verify
			j.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
				v, err := verify(ctx, r)
				return v, errors.Join(err, fails)
			}
			b := newBench(t, does("true"), j)
			b.judgeModel("judge")
			b.gateway = &purse{spent: make(chan struct{}), state: models.State{Refusal: &models.Refusal{Scope: record.ScopeRun, Err: errors.New("60 of 60 requests")}}}
			r := b.run(t.Context(), t)
			if r.Outcome != record.NotRun || r.Error == nil || r.Error.Stops != record.ScopeRun || !strings.HasPrefix(r.Error.Message, "limit used: 60 of 60 requests: raise it") {
				t.Errorf("%s, error %+v", r.Outcome, r.Error)
			}
		})
	}
}
