package audit

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// usage adds up what an attempt used of its models, by the record of its requests.
func (a *audit) usage(name, dir string, r *record.Result) {
	has := store.BriefOf(r).Spend
	_, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(record.ExchangesFile)))
	if errors.Is(err, fs.ErrNotExist) {
		if has.Requests > 0 {
			a.problem(usage, path.Join(name, record.ExchangesFile), 0, "it is missing, and the result has %d requests", has.Requests)
		}
		return
	}
	got, err := store.Exchanged(dir)
	if err != nil {
		a.problem(usage, path.Join(name, record.ExchangesFile), 0, "it cannot be read: %v", err)
		return
	}
	a.did(usage, 1)
	if got.Requests != has.Requests || got.Tokens != has.Tokens {
		a.problem(usage, path.Join(name, record.ExchangesFile), 0, "it gives %d requests and %d tokens, and the result has %d and %d",
			got.Requests, got.Tokens, has.Requests, has.Tokens)
	}
	if x, y := cost(got), cost(has); !near(x, y) {
		a.problem(usage, path.Join(name, record.ExchangesFile), 0, "it gives %.6f USD, and the result has %.6f USD", x, y)
	}
	for _, f := range r.Findings {
		if f.Code == "model_record" {
			a.skip(usage, "requests of an attempt for which there was no room: "+strings.SplitN(f.Text, ":", 2)[0])
		}
	}
}

func cost(s store.Spend) float64 {
	if s.CostUSD == nil {
		return 0
	}
	return *s.CostUSD
}

func lines(text []byte) []string { return strings.Split(string(text), "\n") }

func at(lines []string, i int) string {
	if i < len(lines) {
		return strings.TrimSpace(lines[i])
	}
	return "no such line"
}
