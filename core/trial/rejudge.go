package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/collect"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// turns returns how many turns of a stage the origin has.
func (o *Origin) turns(stage string) (n int, err error) {
	err = o.eachTurn(func(t *record.Turn) {
		if t.Kind == record.TurnYield && t.Stage == stage {
			n = max(n, t.Turn)
		}
	})
	return n, err
}

// hasRounds returns an error if the origin does not have what the verifiers of rounds
// judged.
func (o *Origin) hasRounds(s *task.Stage) error {
	turns, err := o.turns(s.Name)
	if err != nil {
		return err
	}
	for n := 1; n <= turns && len(s.Artifacts) > 0; n++ {
		if info, err := os.Lstat(filepath.Join(o.Dir, record.RoundsDir, fmt.Sprint(n))); err != nil || !info.IsDir() {
			return fmt.Errorf("the copies of round %d were not kept", n)
		}
	}
	return nil
}

// rejudge lets the verifiers of rounds judge the rounds of the origin. No turn is
// repeated. It ends with the round after which they want no further turn, because
// with them the agent would not have had one.
func (s *stage) rejudge(ctx context.Context) error {
	uses := s.ofRounds()
	if len(uses) == 0 {
		return nil
	}
	o := s.a.in.Origin
	turns, err := o.turns(s.task.Name)
	if err == nil {
		err = s.createOwn(ctx, uses)
	}
	if err != nil {
		return err
	}
	at := s.phase(record.PhaseJudge, record.ByVerifier)
	for s.turns < turns {
		s.turns++
		folder := filepath.Join(record.RoundsDir, fmt.Sprint(s.turns))
		copies := filepath.Join(o.Dir, folder)
		if len(s.own) > 0 {
			copies = filepath.Join(s.a.in.Record.Dir(), folder)
			if s.copied, err = s.originArtifacts(folder); err != nil {
				return s.a.at(at, err)
			}
		}
		verdicts, err := s.judgeCopies(ctx, uses, copies)
		s.out.Rounds = append(s.out.Rounds, verdicts...)
		if err != nil {
			s.out.Rounds = s.reducedRounds()
			return err
		}
		if goOn := outcome.GoOn(verdicts); !goOn || s.turns == turns {
			s.whole = s.turns == turns
			if goOn && s.followUps() > 0 {
				s.a.recorder.Note(at, "rounds_over", "the verifiers want a further turn after round %d, and attempt %d has no more", s.turns, o.Number)
			}
			if !goOn && !s.whole {
				s.a.recorder.Note(at, "rounds_left", "the verdict ends the loop after round %d of the %d of attempt %d", s.turns, turns, o.Number)
			}
			return nil
		}
	}
	return nil
}

// originArtifacts copies a folder of artifacts of the origin, for verifiers with a
// sandbox of their own. The folder of the origin may be another user's.
func (s *stage) originArtifacts(folder string) (entries []collect.Entry, err error) {
	a := s.a
	to := filepath.Join(a.in.Record.Dir(), folder)
	if err = collect.Folder(filepath.Join(a.in.Origin.Dir, folder), to, a.recorder.Redactor()); err != nil {
		return nil, outcome.On(record.ByCore, err)
	}
	text, err := untrusted.Read(to, collect.ManifestFile, 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there are none
	}
	if err == nil {
		err = json.Unmarshal(text, &entries)
	}
	workdir := a.task.Environment.Workdir
	if im := a.in.Origin.Result.Image; workdir == "" && im != nil {
		workdir = im.Workdir
	}
	for i := range entries {
		e := &entries[i]
		if !filepath.IsLocal(filepath.FromSlash(strings.TrimPrefix(e.Destination, record.ArtifactsDir+"/"))) {
			err = errors.Join(err, fmt.Errorf("the place of %q is %q, which is not among the artifacts", e.Source, e.Destination))
		}
		if !path.IsAbs(e.Source) { // there is no sandbox of the agent that it could be relative to
			e.Source = path.Join("/", workdir, e.Source)
		}
	}
	if err != nil {
		err = outcome.On(record.ByCore, fmt.Errorf("artifacts of attempt %d: %w", a.in.Origin.Number, err))
	}
	return entries, err
}
