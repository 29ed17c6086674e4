package gateway

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// recordedRun is a run with one attempt, which sent the request ask.
func recordedRun(t *testing.T, m cell.Model, ask func(*bench)) string {
	t.Helper()
	run, err := store.Create(t.TempDir(), &store.Manifest{
		Header: store.Header{Experiment: "x", Created: time.Now()}, Cells: []store.Cell{{}},
		Trials: []store.Trial{{ID: strings.Repeat("a", 64), Dir: "x", Task: "x", Repetition: 1}},
	}, nil)
	testlevel.Must(t, err)
	at, err := run.Begin(strings.Repeat("a", 64))
	testlevel.Must(t, err)
	b := start(t, m, func(_ *cell.Model, _ *Options, s *models.Spec) {
		s.Dir, s.Append = at.Dir(), func(file string, v any) {
			if lost := at.Append(file, v); lost != nil {
				t.Error(lost)
			}
		}
	})
	ask(b)
	testlevel.Must(t, b.Close(t.Context()))
	testlevel.Must(t, at.Publish(record.Result{Version: 1, Outcome: record.Passed}))
	testlevel.Must(t, run.Close())
	return run.Dir
}

// A replay on another day: what changes from run to run is ignored, and said in
// the record. Another text is a warning at once, with its place.
func TestAReplayIgnoresWhatChangesFromRunToRun(t *testing.T) {
	t.Parallel()
	path, body := streaming(1)
	on := func(day, text string) string {
		return strings.Replace(body, `"hi"`, `[{"type":"message","role":"user","id":"msg_`+day[8:]+`a1b2c3d4","content":"Today is `+day+`. `+text+`"}]`, 1)
	}
	p := provide(t, inPieces(recorded(t, "openai"), 100))
	dir := recordedRun(t, p.model("openai"), func(b *bench) { b.ask(t.Context(), t, path, on("2026-11-22", "Look.")) })
	p.Close()
	for _, tt := range []struct{ request, want, finding, warning string }{
		{on("2026-11-22", "Look."), "世界", "", ""},
		{on("2026-11-23", "Look."), "世界", `replay_alike: requests differ from the recorded run in values that change from run to run, which is ignored (alike in the record of requests); ` +
			`the first: message 0, at input[0].content: recorded "Today is 2026-11-22. Look.", now "Today is 2026-11-23. Look."`, ""},
		{on("2026-11-23", "Listen."), "differs", `replay_differs: the request differs from exchange 1 of the recorded run: message 0, at input[0].content: ` +
			`recorded "…day is ‹time›. Look.", now "…day is ‹time›. Listen."`, `replay of task x (repetition 1, attempt 1), model \"m1\": the request differs from exchange 1`},
	} {
		var log bytes.Buffer
		b := start(t, cell.Model{Provider: "openai", Name: "m1", Replay: dir}, func(_ *cell.Model, o *Options, s *models.Spec) {
			o.Log = zerolog.New(&log)
			s.Trial, s.Task, s.Repetition = "other", "x", 1
		})
		got := b.ask(t.Context(), t, path, tt.request)
		if !strings.Contains(got.body, tt.want) {
			t.Errorf("%s: %d %s", tt.request, got.status, got.body)
		}
		said := ""
		for _, f := range b.Findings() {
			said += f.Code + ": " + f.Text
		}
		if said != tt.finding || !strings.Contains(log.String(), tt.warning) || (log.Len() == 0) != (tt.warning == "") {
			t.Errorf("%s: finding\n%s\nwant\n%s\nlog %s", tt.request, said, tt.finding, &log)
		}
		if x := b.last(t); x.Alike != strings.HasPrefix(tt.finding, "replay_alike") {
			t.Errorf("%s: alike %v in the record", tt.request, x.Alike)
		}
	}
}
