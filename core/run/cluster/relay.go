package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Relayed returns which models pilots reach through the coordinator: those that
// the executor block says, else those that need a key, and all if attempts share a
// budget.
func Relayed(x *experiment.Experiment) func(*cell.Model) bool {
	all := x.Executor.Models == "relay" || x.Executor.Models == "" && shared(x)
	return func(m *cell.Model) bool { return all || x.Executor.Models == "" && len(m.Keys()) > 0 }
}

// shared reports whether attempts share a budget: that of the run or of a cell.
func shared(x *experiment.Experiment) bool {
	return !x.Limits.None() || slices.ContainsFunc(x.Cells, func(c *experiment.Cell) bool { return !c.PerCell.None() })
}

// relay is the coordinator's end of the connections of its pilots.
type relay struct {
	gateway *gateway.Gateway // nil: the run uses no models
	server  *uplink.Server
	ready   chan struct{} // closed when c is set
	c       *Coordinator
}

// newRelay starts a relay that listens at an address; empty: at all of this
// machine.
func newRelay(ctx context.Context, s *run.Spec, address string) (*relay, error) {
	g, err := s.Gateway("")
	if err != nil {
		return nil, err
	}
	r := &relay{gateway: g, ready: make(chan struct{})}
	o := uplink.Options{Address: address, Token: r.token, Makes: r.makes, Secrets: secretsOf(s.Plan)}
	if g != nil {
		o.Gateway = g
	}
	r.server, err = uplink.Listen(ctx, o)
	return r, err
}

// begin lets requests in.
func (r *relay) begin(c *Coordinator) {
	r.c = c
	close(r.ready)
}

// close ends all connections.
func (r *relay) close() error {
	err := r.server.Close()
	if r.gateway != nil {
		err = errors.Join(err, r.gateway.Close())
	}
	return err
}

// letGo is how long requests of an attempt that has a result may take to end.
const letGo = 5 * time.Second

// release forgets an attempt that has a result.
func (r *relay) release(trial string, attempt int) {
	if r == nil || r.gateway == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), letGo)
	defer cancel()
	r.gateway.Release(ctx, trial, attempt)
}

// token returns the token of a pilot, from its file, which only its user can read.
func (r *relay) token(ctx context.Context, name string) (string, error) {
	if err := r.begun(ctx); err != nil {
		return "", err
	}
	if !safe.MatchString(name) {
		return "", errors.New("no such pilot")
	}
	f, err := untrusted.Open(r.c.root, relayDir+"/"+name+".json", maxJob)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err = private(f); err != nil {
		return "", err
	}
	b, err := io.ReadAll(f)
	return strings.TrimSpace(string(b)), err
}

// private fails if other users can read a file, or if it is one of theirs.
func private(f *os.File) error {
	fi, err := f.Stat()
	if err == nil && fi.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s can be read by other users", f.Name())
	}
	return errors.Join(err, ours(f))
}

func (r *relay) begun(ctx context.Context) error {
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// seeing is how long a lease may take to be seen here, and look the time between
// two looks at it.
const (
	seeing = time.Minute
	look   = 100 * time.Millisecond
)

// makes returns why a pilot may not ask models for an attempt, or nil. A lease may
// be seen here late.
func (r *relay) makes(ctx context.Context, name, trial string, attempt int) error {
	if err := r.begun(ctx); err != nil {
		return err
	}
	attemptName := AttemptName(trial, attempt)
	for end := time.Now().Add(seeing); ; {
		by, waits := r.c.claimant(attemptName)
		if waits && by == "" {
			if l, err := holderOf(r.c.root, attemptName); err == nil {
				by = l.Holder
			}
		}
		switch {
		case !waits:
			return fmt.Errorf("attempt %d of trial %s has a result, or none was asked for", attempt, trial)
		case by == name:
			return nil
		case by != "" || time.Now().After(end):
			return fmt.Errorf("pilot %s does not make attempt %d of trial %s", name, attempt, trial)
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// claimant returns who makes an attempt, as far as is known, and whether it has no
// result yet.
func (c *Coordinator) claimant(name string) (by string, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[name]
	if w == nil {
		return "", false
	}
	return w.by, true
}

// secretsOf returns the secrets of a plan that pilots need: all but the keys of
// models.
func secretsOf(p *plan.Plan) (needed []*cell.Secret) {
	var keys []*cell.Secret
	for _, m := range run.Models(p.Experiment.Cells...) {
		for _, key := range m.ChainKeys() {
			keys = append(keys, key.Secret())
		}
	}
	for _, c := range p.Experiment.Cells {
		for _, s := range c.Uses() {
			if !slices.Contains(keys, s) && !slices.Contains(needed, s) {
				needed = append(needed, s)
			}
		}
	}
	return needed
}

// Uplink makes the pilot's end of the connection to the coordinator, and writes the
// file with its token. It makes the secrets of the plan, but the keys of models,
// come over the connection. Nil: the coordinator has no relay, because the run
// needs none. The file is removed when the pilot ends.
func (p *Pilot) Uplink() (*uplink.Client, error) {
	if p.settings.Relay == nil {
		return nil, nil
	}
	token, err := uplink.Token()
	if err != nil {
		return nil, err
	}
	file := p.ticket()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("token for models: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, fmt.Errorf("token for models: %w", err)
	}
	c := uplink.NewClient(p.o.Identity.Pilot, token, func() uplink.Place {
		if at := p.relay.Load(); at != nil {
			return *at
		}
		return uplink.Place{}
	})
	c.Fetch(secretsOf(p.o.Plan))
	return c, nil
}

// ticket returns the path of the file with the pilot's token.
func (p *Pilot) ticket() string {
	return filepath.Join(p.root, relayDir, p.o.Identity.Pilot+".json")
}

// giveUpToken removes the file with the pilot's token.
func (p *Pilot) giveUpToken() error {
	err := os.Remove(p.ticket())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// Check returns what of a plan pilots cannot run.
func Check(p *plan.Plan) []plan.Problem {
	if x := p.Experiment; x.Executor.Models == "direct" && shared(x) {
		return append(tooShort(p), plan.Problem{
			Severity: plan.Error, Summary: fmt.Sprintf("executor %q: models = \"direct\" and a budget of the run or of cells", x.Executor.Kind),
			Detail: "Only the coordinator can hold a budget that attempts on several machines share. Write models = \"relay\", or bound each attempt in per_trial instead.",
		})
	}
	return tooShort(p)
}

// tooShort returns what does not fit into the time limit of a pilot.
func tooShort(p *plan.Plan) (ps []plan.Problem) {
	x := &p.Experiment.Executor
	if x.Time <= 0 {
		return nil
	}
	seen := map[string]bool{}
	for i := range p.Trials {
		t := &p.Trials[i]
		task := p.Tasks[t.Place].Task
		if task == nil || t.Invalid != "" || t.Refused != "" || seen[t.Task] {
			continue
		}
		bounded, limited := longest(task, &p.Experiment.Cells[t.Cell].Limits)
		need := bounded + x.Grace
		of := plan.Problem{Severity: plan.Error, Dataset: t.Dataset, Tasks: []string{t.Task}, Summary: "an attempt does not fit into the time of a pilot"}
		switch {
		case need > x.Time && limited:
			of.Detail = fmt.Sprintf("It may take %s with grace, and a pilot has %s. Raise time in the executor block, or lower agent_time or verifier_time in per_trial.", need, x.Time)
		case need > x.Time:
			of.Detail = fmt.Sprintf("It may take %s with grace even if the agent, which has no time limit, needs none, and a pilot has %s. Raise time in the executor block.", need, x.Time)
		case !limited:
			of.Severity, of.Summary = plan.Warning, "an attempt has no time limit, and a pilot has one"
			of.Detail = fmt.Sprintf("The task does not limit the agent, so an attempt may not fit into the %s of a pilot. Pilots take such attempts as long as they have any time left. An attempt that is under way when this time is over ends as preempted. Set agent_time in per_trial.", x.Time)
		default:
			continue
		}
		seen[t.Task] = true
		ps = append(ps, of)
	}
	return ps
}

// around is what an attempt takes at most besides the times that its task and its
// cell say: its sandbox is removed, and its files are copied.
const around = 2 * time.Minute

// Longest returns how long an attempt of a trial may take at most, as its task and its
// cell say; 0: they do not say how long the agent may work.
func Longest(p *plan.Plan, t *plan.Trial) time.Duration {
	task := p.Tasks[t.Place].Task
	if task == nil {
		return 0
	}
	sum, limited := longest(task, &p.Experiment.Cells[t.Cell].Limits)
	if !limited {
		return 0
	}
	return sum
}

// longest returns how long an attempt may take at most. If some agent has no time
// limit, it is not limited, and the time of that agent is left out.
func longest(t *task.Task, l *cell.Limits) (sum time.Duration, limited bool) {
	sum, limited = around+cell.Scaled(t.Environment.StartTime.Std(), l.StartTime, l.TimeFactor), true
	for i := range t.Stages {
		s := &t.Stages[i]
		agent := cell.Scaled(s.Agent.Time.Std(), l.AgentTime, l.TimeFactor)
		if agent == 0 {
			agent = cell.Scaled(t.Stages[0].Agent.Time.Std(), l.AgentTime, l.TimeFactor)
		}
		limited = limited && agent > 0
		sum += agent + cell.Scaled(s.Verify.Time.Std(), l.VerifierTime, l.TimeFactor)
	}
	return sum, limited
}
