package gateway

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/dialects"
)

// recordedRun is a run with one attempt, which sent the request ask.
func recordedRun(t *testing.T, m cell.Model, ask func(*bench)) string {
	t.Helper()
	run, err := store.Create(t.TempDir(), &store.Manifest{
		Header: store.Header{Experiment: "x", Created: time.Now()}, Cells: []store.Cell{{}},
		Trials: []store.Trial{{ID: strings.Repeat("a", 64), Dir: "x", Task: "x", Repetition: 1}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	at, err := run.Begin(strings.Repeat("a", 64))
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, m, func(_ *cell.Model, _ *Options, s *models.Spec) {
		s.Dir, s.Append = at.Dir(), func(file string, v any) {
			if lost := at.Append(file, v); lost != nil {
				t.Error(lost)
			}
		}
	})
	ask(b)
	if err = b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err = at.Publish(record.Result{Version: 1, Outcome: record.Passed}); err != nil {
		t.Fatal(err)
	}
	if err = run.Close(); err != nil {
		t.Fatal(err)
	}
	return run.Dir
}

// A recording is replayed byte for byte without the provider. The first
// difference is reported with its position.
func TestARunIsReplayed(t *testing.T) {
	t.Parallel()
	for i, r := range requests {
		t.Run(r.dialect, func(t *testing.T) {
			t.Parallel()
			path, body := streaming(i)
			var first reply
			whole := recorded(t, r.dialect)
			p := provide(t, inPieces(whole, 100))
			dir := recordedRun(t, p.model(r.dialect), func(b *bench) { first = b.ask(t.Context(), t, path, body) })
			p.Close()
			m := cell.Model{Provider: r.dialect, Name: "m1", Replay: dir}
			b := start(t, m, func(_ *cell.Model, _ *Options, s *models.Spec) { s.Trial, s.Task, s.Repetition = "other", "x", 1 })
			again := strings.Replace(body, `{`, `{"metadata":{"user_id":"another"},`, 1)
			if r.dialect == "gemini" {
				again = body
			}
			got := b.ask(t.Context(), t, path, again)
			if got.body != first.body || got.status != http.StatusOK || !strings.Contains(first.body, "世界") {
				t.Errorf("%d: %s\nwant %s", got.status, got.body, first.body)
			}
			if b.Usage()[0].OutputTokens != 42 {
				t.Errorf("usage %+v", b.Usage())
			}
			b2 := start(t, m, func(_ *cell.Model, _ *Options, s *models.Spec) { s.Trial, s.Task, s.Repetition = "other", "x", 1 })
			got = b2.ask(t.Context(), t, path, strings.Replace(body, "hi", "ho", 1))
			if got.status != http.StatusBadRequest || !strings.Contains(got.body, "now") || b2.Down() == nil || len(b2.Findings()) != 1 {
				t.Errorf("%d: %s, down %v, findings %v", got.status, got.body, b2.Down(), b2.Findings())
			}
		})
	}
}

func TestAReplayOfNothing(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Dialects: dialects.All, Replay: recordingIn, Dir: filepath.Join(t.TempDir(), "g"), Models: []*cell.Model{{Label: "m", Provider: "openai", Name: "m1", Replay: t.TempDir()}}})
	if err == nil || !strings.Contains(err.Error(), "replay") {
		t.Errorf("got %v", err)
	}
}
