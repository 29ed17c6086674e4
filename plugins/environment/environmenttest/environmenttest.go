// Package environmenttest is the conformance kit of environments. It checks
// what every environment must do, however it creates sandboxes, in process and
// through a built plugin.
//
// It must not know any engine. It uses package host as the core does, and tests
// real sandboxes that need only a POSIX shell and the usual small programs
// inside.
package environmenttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// Subject is an environment under test.
type Subject struct {
	Environment environment.Environment
	// Capabilities are those that the plugin announces.
	Capabilities []string
	// Spec is the base of all sandboxes of the kit: an image with a POSIX
	// shell, and whatever else the environment requires. The kit sets labels,
	// control folder and lease.
	Spec environment.Spec
	// Variable is the name of a variable that only the plugin's process has;
	// empty: the plugin runs in this process.
	Variable string
	// Sandboxd is the path of the binary that goes into control folders.
	Sandboxd string
	// Runtime is a folder on node-local disk, not mounted noexec, with a short
	// path, in which the kit creates its own folder; empty: the system's folder
	// for temporary files.
	Runtime string

	kit *kit
}

// Run runs every clause as a subtest. Call it from the plugin's own tests, once
// in process and once through the built binary:
//
//	environmenttest.Run(t, environmenttest.Subject{Environment: mybox.New(), Spec: spec, Sandboxd: path})
func Run(t *testing.T, s Subject) {
	t.Helper()
	s, done, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := done(); err != nil {
			t.Error(err)
		}
	}()
	conformance.Test(t, s, Clauses())
}

type clause = conformance.Clause[Subject]

// Clauses returns all clauses of the kit in the order in which they run. The
// subject must come from Start.
func Clauses() []conformance.Clause[Subject] {
	return slices.Concat(lifeClauses, []clause{taskClause}, placeClauses, workClauses, wallClauses, coreClauses, limitClauses, sidecarClauses(), abilityClauses)
}

// kit is what the clauses of one trial share.
type kit struct {
	owner   string // owner label of everything that the kit creates
	folder  string // 0700
	binary  string
	counter atomic.Int64
	// refusesTasks is why taskClause is skipped; empty: it is not.
	refusesTasks string
	// copiesFiles says that the environment carries out COPY of a Dockerfile.
	copiesFiles bool

	shared *Box
}

// Start prepares what the clauses share. done removes it together with every
// sandbox of the kit that is left. If Check refuses even the base of the kit's
// sandboxes, or their image cannot be prepared, the kit cannot run on this
// machine. Then Start returns one error, which wraps environment.ErrRefused,
// instead of a failure of every clause.
func (s Subject) Start(ctx context.Context) (_ Subject, done func() error, err error) {
	dir, err := os.MkdirTemp(cmp.Or(s.Runtime, os.TempDir()), "bk") // short: it is part of a socket's path
	if err != nil {
		return s, nil, fmt.Errorf("make a folder for the kit: %w", err)
	}
	binary, _, err := host.Install(filepath.Join(dir, "bin"), s.Sandboxd)
	if err != nil {
		return s, nil, fmt.Errorf("install sandboxd for the kit: %w", err)
	}
	s.kit = &kit{owner: "kit-" + filepath.Base(dir), folder: dir, binary: binary}
	if err = s.refusal(ctx, nil); err == nil {
		err = s.prepare(ctx)
	}
	if err == nil {
		err = s.tryTask(ctx)
	}
	if err != nil {
		return s, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, func() error { return s.finish(ctx) }, nil
}

// refusal is why Check refuses a spec, and wraps environment.ErrRefused; nil if it
// does not. The clauses about Check report a Check that fails or hangs.
func (s *Subject) refusal(ctx context.Context, change func(*environment.Spec)) error {
	spec, folder, err := s.newSpec(change)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	ctx, cancel := context.WithTimeout(ctx, conformance.Patience(10*time.Second))
	defer cancel()
	report, err := s.Environment.Check(ctx, spec)
	if err != nil {
		return nil //nolint:nilerr // a clause reports it
	}
	return report.Err()
}

// prepareTime bounds the preparation of the image of the kit's sandboxes.
const prepareTime = 15 * time.Minute

// prepare prepares the image of the kit's sandboxes, if the environment has
// images. Its error wraps environment.ErrRefused: without an image, the kit
// cannot create a sandbox.
func (s *Subject) prepare(ctx context.Context) error {
	p, ok := s.Environment.(environment.Preparer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	_, err := p.Prepare(ctx, s.Spec.Image, s.Spec.Config, nil)
	if err == nil || errors.Is(err, environment.ErrUnsupported) {
		return nil
	}
	which := "the environment's own"
	if s.Spec.Image.Ref != "" {
		which = strconv.Quote(s.Spec.Image.Ref)
	}
	return refusal{fmt.Errorf("the image of the kit's sandboxes (%s) cannot be prepared: %w: connect this machine to the registry, or name an image that it has (--image of `berth plugin test`)",
		which, err)}
}

// refusal is environment.ErrRefused with its own text.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (refusal) Is(target error) bool { return target == environment.ErrRefused }

// finish destroys the kit's remaining sandboxes.
func (s *Subject) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), conformance.Patience(30*time.Second))
	defer cancel()
	ids, err := s.Environment.List(ctx, s.kit.owner)
	errs := []error{err}
	for _, id := range ids {
		if _, err := s.Environment.Destroy(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("destroy %s at the end of the kit: %w", id, err))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.kit.folder))...)
}

func (s *Subject) serves(capability string) bool { return slices.Contains(s.Capabilities, capability) }

// without is a reason to skip a clause.
func without(capability string) (is func(Subject) bool, why string) {
	return func(s Subject) bool { return !s.serves(capability) }, "it does not announce " + capability
}
