// Package trial runs one attempt, phase by phase: it makes the sandbox, lets
// the agent work, cuts its access, has the work verified, and leaves a record
// of what happened, who caused which error, and how far the result can be
// trusted.
//
// It must not know any plugin, engine, benchmark or task format by name, must
// not start a process, and must not read configuration: everything comes in
// through [Input]. It decides nothing about other attempts; retries and
// resuming belong to the caller.
package trial

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/egress"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Input is everything that an attempt is made from.
type Input struct {
	Run        string         // id of the run
	Label      string         // owner label of what is made, unique on this machine; empty: Run
	Trial      string         // trial id
	Repetition int            // 1…; the seed of surfaces
	Attempt    int            // 1…
	Host       string         // name of this machine, for the record
	Worker     *record.Worker // this process, for the record; nil: it is not a worker
	Berth      string         // version of this program, for the record

	Task *task.Task
	Cell cell.Cell

	Record   Attempt           // where the attempt is recorded
	Runtime  string            // new or empty node-local folder, 0700, perhaps in memory, with a path of at most 60 bytes; removed at the end
	Disk     string            // new folder for what is too large for memory, made when it is needed; removed at the end; empty: use Runtime
	Sandboxd string            // path of sandboxd as installed on this machine
	Plugins  Plugins           // never nil
	Checker  *feasible.Checker // shared by the attempts of a run; nil asks plugins each time
	Gateway  models.Gateway    // nil: there are no models
	Keep     Keep              // whether the files of the sandbox are kept
	Ends     <-chan error      // ends a turn of the agent with an outcome.ByHand; nil: nothing does
	Origin   *Origin           // verifies this attempt again, and runs no agent; nil: a whole attempt
	Places   Places            // how many attempts are in the same part; nil: no limit
	Memory   JobMemory         // of the job that this process is in; nil: not known
	Egress   egress.Options    // for hosts that a task lists; zero values are this machine's
	// Drift fails when an attempt would use something other than earlier
	// attempts did; nil: there is nothing to compare.
	Drift     func(r *record.Result) error
	LookupEnv func(name string) (string, bool)
	Live      func(record.Event) // nil: no watcher; must not block
	Now       func() time.Time   // nil: time.Now
}

// Attempt is where an attempt is recorded (package store).
type Attempt interface {
	// Dir is the folder of the attempt.
	Dir() string
	// Append adds v as one line of JSON to a file of the folder, at once.
	Append(file string, v any) error
	// WriteFile writes a file of the folder, completely or not at all.
	WriteFile(file string, data []byte) error
	// Publish writes the result. It is the last call.
	Publish(r record.Result) error
}

// Plugins gives access to the plugins of a run. Each call returns a plugin with
// a running process, restarted if it had died. If the plugin dies during a
// call, the error of the call wraps plugin.ErrPluginGone.
type Plugins interface {
	Agent(ctx context.Context, name string) (agent.Agent, record.PluginUsed, error)
	Environment(ctx context.Context, name string) (environment.Environment, record.PluginUsed, error)
	Verifier(ctx context.Context, name string) (VerifierPlugin, record.PluginUsed, error)
	// Incarnation grows with each start of an environment's process. If a sandbox is
	// lost and the process that made it no longer runs, that process was the cause,
	// and not the agent.
	Incarnation(environment string) int
}

// VerifierPlugin is a verifier, which may also be a verifier.Rewriter, with its
// traits.
type VerifierPlugin struct {
	verifier.Verifier
	Traits verifier.Traits

	// OwnProcess starts the verifier in its own process, for one caller,
	// who stops it. Nil: this is not possible.
	OwnProcess func(ctx context.Context) (v verifier.Verifier, stop func(), err error)
}

// seed is where chance begins in a session: the same number for the same task and
// repetition, whatever the cell, the attempt, the run and the machine.
func (in *Input) seed(session string) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", in.Task.Name, in.Task.Digest, in.Repetition, session))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1)
}

// unchanged fails if a file of the experiment is not as it was when the run was
// planned: its content is part of the ids of trials.
func unchanged(file, digest string) error {
	b, err := os.ReadFile(file)
	if sum := sha256.Sum256(b); err == nil && "sha256:"+hex.EncodeToString(sum[:]) != digest {
		err = fmt.Errorf("%s has changed since the run was planned: restore it, or start a new run", file)
	}
	return err
}

// Part is a part of an attempt whose number at the same time may be limited.
type Part int

// The parts. An attempt begins in Building. A task of several stages goes through
// Working and Verifying in each stage.
const (
	Building  Part = iota + 1 // its image is prepared, its sandbox is created
	Working                   // its agent works
	Verifying                 // its verifiers work, until the next stage or the end
)

// Places limits how many attempts are in the same part. An attempt leaves a part
// when it enters another one.
type Places interface {
	// Try enters a part if there is a place. It does not wait.
	Try(p Part) bool
	// Enter waits for a place. Fails with the cause of ctx when that ends before.
	Enter(ctx context.Context, p Part) error
}

// enter waits for a place. The wait is in no phase, and is charged to no role.
func (a *attempt) enter(ctx context.Context, p Part) error {
	if a.in.Places == nil {
		return nil
	}
	return a.in.Places.Enter(ctx, p)
}

// awaitVerification waits for a place to verify the stage. In mode live the
// sandbox is frozen meanwhile, because processes that the agent left could
// otherwise work for longer when other attempts are slow. In the other modes
// they have ended.
func (s *stage) awaitVerification(ctx context.Context) (failed error) {
	a := s.a
	if a.in.Places == nil || a.in.Places.Try(Verifying) {
		return nil
	}
	if s.mode == task.ModeLive {
		thaw, err := s.freeze(ctx, 0)
		if err != nil {
			return err
		}
		defer func() { failed = cmp.Or(failed, thaw()) }()
	}
	return a.at(s.phase(record.PhaseVerify, record.ByCore), a.enter(ctx, Verifying))
}

// PluginsOf makes the plugins of a host available to attempts.
func PluginsOf(h *plugin.Host) Plugins { return hosted{h} }

type hosted struct{ *plugin.Host }

func (p hosted) Verifier(ctx context.Context, name string) (VerifierPlugin, record.PluginUsed, error) {
	v, traits, used, err := p.Host.Verifier(ctx, name)
	own := func(ctx context.Context) (verifier.Verifier, func(), error) { return p.VerifierOwnProcess(ctx, name) }
	return VerifierPlugin{Verifier: v, Traits: traits, OwnProcess: own}, used, err
}
