package view

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
)

// A run of many trials opens, and its list of trials comes in parts.
func TestLargeRunOpens(t *testing.T) {
	t.Parallel()
	w := newSite(t, 10_000)
	a, err := w.run.Begin(w.trials[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if err = a.Publish(record.Result{Version: 1, Outcome: record.Failed, Start: time.Now(), End: time.Now()}); err != nil {
		t.Fatal(err)
	}
	run := "/run/" + filepath.Base(w.run.Dir) + "/"
	for _, path := range []string{run, run + "report", run + "trials"} {
		began := time.Now()
		page := w.get(t, path, http.StatusOK)
		t.Logf("%s of 10,000 trials: %v, %d KiB", path, time.Since(began), len(page)>>10)
		if n := strings.Count(page, "<tr>"); n > rowsPage+10 || n < 1 && path != run {
			t.Errorf("%s: %d rows", path, n)
		}
	}
}
