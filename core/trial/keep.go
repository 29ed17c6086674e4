package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/system"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Keep says whether an attempt keeps the files of its sandbox.
type Keep struct {
	Passed   bool  // also if it passed
	MaxBytes int64 // of the files; with more, none is kept. 0: nothing is kept
}

// keepFiles stores what differs from the image when the agent's programs have
// ended and before anything of the verification is there. What cannot be kept is a
// note: it does not affect the result.
func (s *stage) keepFiles(ctx context.Context) error {
	a := s.a
	if a.in.Keep.MaxBytes == 0 || a.in.Origin != nil {
		return nil
	}
	p := s.phase(record.PhaseCollect, record.ByEnvironment)
	return a.phase(ctx, p, limits.Collect, func(ctx context.Context) error {
		err := a.unkeepable()
		frozen := err == nil && s.mode == task.ModeImage && !a.sandbox.Frozen().IsZero()
		if frozen { // nothing can be started in it
			err = a.resume(ctx)
		}
		if err == nil {
			err = a.storeFiles(ctx)
		}
		if frozen {
			if halted := a.sandbox.Halt(ctx); halted != nil {
				return halted
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			a.recorder.Note(p, "files_not_kept", "the files of the sandbox are not kept: %s", err)
		}
		return nil
	})
}

// unkeepable says why the files of the main container are not all that the agent
// worked on.
func (a *attempt) unkeepable() error {
	switch e := &a.task.Environment; {
	case len(a.task.Stages) > 1:
		return errors.New("a task of several stages is verified in each of them, with the files that it had then")
	case len(e.Sidecars) > 0:
		return errors.New("those of further containers would be missing")
	case len(e.Volumes) > 0 || len(a.sandbox.Made.Image.Volumes) > 0:
		return errors.New("those of volumes would be missing")
	}
	return nil
}

// storeFiles writes the archive of the attempt.
func (a *attempt) storeFiles(ctx context.Context) (err error) {
	name := filepath.Join(a.in.Record.Dir(), record.FilesFile)
	f, err := os.OpenFile(name+".part", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), name)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
			return
		}
		a.res.Files = record.FilesFile
	}()
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	masked := a.recorder.Redactor().Writer(z)
	err = host.Keep(ctx, a.sandbox.Core(), a.sandbox.Asked, a.in.Keep.MaxBytes, masked)
	if err != nil && strings.Contains(err.Error(), "too large") {
		err = fmt.Errorf("they are more than %d MiB (keep_mib): %w", a.in.Keep.MaxBytes>>20, err)
	}
	return errors.Join(err, masked.Close(), z.Close())
}

// dropFiles removes the kept files of an attempt that passed, unless all are kept.
func (a *attempt) dropFiles() {
	if a.res.Files == "" || a.in.Keep.Passed || a.res.Outcome != record.Passed {
		return
	}
	if err := os.Remove(filepath.Join(a.in.Record.Dir(), a.res.Files)); err == nil {
		a.res.Files = ""
	}
}

// restore makes the files of a new sandbox those of the origin. In mode image, only the
// work is taken.
func (s *stage) restore(ctx context.Context, p record.Phase) error {
	a := s.a
	in, err := os.Open(filepath.Join(a.in.Origin.Dir, record.FilesFile))
	if err != nil {
		return outcome.On(record.ByCore, err)
	}
	defer in.Close()
	z, err := zstd.NewReader(in, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return outcome.On(record.ByCore, err)
	}
	defer z.Close()
	if s.mode == task.ModeImage {
		err = s.takeWork(ctx, p, z)
	} else {
		_, err = host.Restore(ctx, a.sandbox.Core(), system.RestoreQuery{}, z)
	}
	if err != nil {
		return outcome.On(record.ByEnvironment, fmt.Errorf("restore the files of attempt %d: %w", a.in.Origin.Number, err))
	}
	return nil
}

// inherited are the findings of the origin that concern its integrity. In mode
// image, processes and changed programs of the origin are not there: those findings are
// only notes here.
func (o *Origin) inherited(c cell.Cell) []record.Finding {
	all := slices.DeleteFunc(slices.Clone(o.Result.Findings), func(f record.Finding) bool {
		return f.Severity == verifier.Note || f.Code == "tests_changed"
	})
	for i := range all {
		if c.Verify == task.ModeImage && slices.Contains(replaced, all[i].Code) {
			all[i].Severity = verifier.Note
		}
	}
	return all
}

// replaced are the findings about what is not there in mode image: processes, and
// programs that the agent changed.
var replaced = []string{"left_running", "system_changed", "changes_unknown", "service_changed", "service_traceable"}
