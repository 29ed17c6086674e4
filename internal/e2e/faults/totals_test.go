package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// totals are what some attempts used.
type totals struct {
	requests, tokens int64
	usd              float64
	estimated        int64
	outcome          record.Outcome // of one attempt
}

func (t *totals) add(o totals) {
	t.requests += o.requests
	t.tokens += o.tokens
	t.usd += o.usd
	t.estimated += o.estimated
}

func (t *totals) equal(o totals) bool {
	return t.requests == o.requests && t.tokens == o.tokens && t.estimated == o.estimated && math.Abs(t.usd-o.usd) < 1e-12+1e-9*math.Abs(t.usd)
}

func sum(by map[string]totals) (all totals) {
	for _, one := range by {
		all.add(one)
	}
	return all
}

func dollars(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// journaled returns what the journals of a run say of each attempt that ended, by
// trial and attempt.
func journaled(t *testing.T, dir string) map[string]totals {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journal", "*.jsonl"))
	e2etest.Must(t, err)
	all := map[string]totals{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		e2etest.Must(t, err)
		for text := range bytes.Lines(b) {
			var l struct {
				Entry struct {
					Kind, Trial string
					Attempt     int
					Result      struct {
						Outcome   record.Outcome
						Requests  int64
						Tokens    int64
						CostUSD   *float64 `json:"cost_usd"`
						Estimated int64    `json:"estimated_requests"`
					}
				}
			}
			if json.Unmarshal(text, &l) != nil || l.Entry.Kind != "attempt_ended" {
				continue // also a line that a kill cut off
			}
			r := &l.Entry.Result
			all[fmt.Sprintf("%s/%d", l.Entry.Trial, l.Entry.Attempt)] = totals{r.Requests, r.Tokens, dollars(r.CostUSD), r.Estimated, r.Outcome}
		}
	}
	return all
}

// resulting returns what result.json of each published attempt says.
func resulting(t *testing.T, dir string) (all map[string]totals, folders map[string]string) {
	t.Helper()
	all, folders = map[string]totals{}, map[string]string{}
	for file, text := range published(t, dir) {
		var r struct {
			Trial   string
			Attempt int
			Outcome record.Outcome
			Usage   []record.Usage
		}
		e2etest.Must(t, json.Unmarshal(text, &r))
		one := totals{outcome: r.Outcome}
		for _, u := range r.Usage {
			one.add(totals{u.Requests, u.InputTokens + u.OutputTokens, dollars(u.CostUSD), u.Estimated, ""})
		}
		key := fmt.Sprintf("%s/%d", r.Trial, r.Attempt)
		all[key], folders[filepath.Dir(file)] = one, key
	}
	return all, folders
}

// metered returns what the gateway measured for each attempt, by its folder. whole
// counts the whole answers of the provider.
func metered(t *testing.T, dir string) (all map[string]totals, whole int64) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(dir, "trials", "*", "attempt-*"))
	e2etest.Must(t, err)
	all = map[string]totals{}
	for _, folder := range folders {
		all[folder] = totals{}
		b, err := os.ReadFile(filepath.Join(folder, record.ExchangesFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		e2etest.Must(t, err)
		one, counted := totals{}, map[string]bool{}
		for text := range bytes.Lines(b) {
			var x struct {
				Request   string
				Retry     bool
				Usage     *struct{ Input, Output int64 }
				CostUSD   *float64 `json:"cost_usd"`
				Estimated bool
			}
			if json.Unmarshal(text, &x) != nil || x.Usage == nil {
				continue // cut off by a kill, or it came to nothing
			}
			line := totals{requests: 1, tokens: x.Usage.Input + x.Usage.Output, usd: dollars(x.CostUSD)}
			if x.Retry && counted[x.Request] {
				line.requests = 0
			}
			counted[x.Request] = true
			if x.Estimated {
				line.estimated = 1
			} else {
				whole++
			}
			one.add(line)
		}
		all[folder] = one
	}
	return all, whole
}

// sameTotals checks that the journals, the results, the records of the gateway and
// the summary of a run that no process writes agree. over says that its last process
// was not killed. It returns how many whole answers of the provider were measured.
func (p *place) sameTotals(dir string, over bool) (whole int64, show *output.ShowRun) {
	t := p.test
	t.Helper()
	journal := journaled(t, dir)
	results, folders := resulting(t, dir)
	meter, whole := metered(t, dir)
	for key, one := range journal {
		if r, ok := results[key]; !ok || !r.equal(one) || r.outcome != one.outcome {
			t.Errorf("attempt %s: the journal has %+v, its result %+v", key, one, r)
		}
	}
	if over && len(journal) != len(results) {
		t.Errorf("%d attempts ended in the journals, %d have a result", len(journal), len(results))
	}
	lost := 0
	for folder, one := range meter {
		key, ended := folders[folder]
		if !ended {
			lost++
		} else if r := results[key]; !r.equal(one) {
			t.Errorf("attempt %s: its result has %+v, the gateway measured %+v", key, r, one)
		}
	}
	show = p.show(dir)
	all := sum(meter)
	s := show.Summary
	if got := (totals{requests: all.requests, tokens: s.Tokens, usd: dollars(s.CostUSD), estimated: s.Estimated}); !got.equal(all) {
		t.Errorf("the summary has %+v, the gateway measured %+v", got, all)
	}
	if s.Attempts != len(results) || s.Lost != lost {
		t.Errorf("the summary counts %d attempts and %d lost ones; there are %d results, and %d folders without one", s.Attempts, s.Lost, len(results), lost)
	}
	if over {
		var kept summary.Summary
		e2etest.Must(t, json.Unmarshal([]byte(read(filepath.Join(dir, "summary.json"))), &kept))
		if kept.Tokens != s.Tokens || kept.Attempts != s.Attempts || kept.Lost != s.Lost || kept.Estimated != s.Estimated || math.Abs(dollars(kept.CostUSD)-dollars(s.CostUSD)) > 1e-12 {
			t.Errorf("summary.json has %+v, show %+v", kept, *s)
		}
	}
	outcomes := map[record.Outcome]int{}
	for i := range show.Trials {
		outcomes[show.Trials[i].Outcome]++
	}
	for _, o := range record.Outcomes {
		if s.Outcomes[o] != outcomes[o] {
			t.Errorf("%s: %d in the summary, %d trials", o, s.Outcomes[o], outcomes[o])
		}
	}
	return whole, show
}

// Wherever a run with faults, retries and budgets is killed, its journals, its
// results, what the gateway measured and its summary have the same totals, and a
// budget that is used up is used up to the last request.
func TestTotalsAreTheSameWhereverARunIsKilled(t *testing.T) {
	t.Parallel()
	points := 6
	if testlevel.All() {
		points = 200
	}
	k := killed{test: t}
	for k.kills < points {
		k.round(points)
	}
	t.Logf("%d kills in %d runs, %d of them before an attempt began; %d attempts lost, %d more attempts than trials; %d budgets used up; %d requests, refused: %v",
		k.kills, k.runs, k.early, k.lost, k.again, k.stops, k.asked, k.refused)
	if testlevel.All() && (k.stops < 20 || k.again < 20 || k.lost < 50) {
		t.Error("too few budgets were used up, attempts repeated or lost: the test proves little")
	}
}

// killed counts what happened in runs that were killed.
type killed struct {
	test                                          *testing.T
	kills, runs, early, lost, again, stops, asked int
	refused                                       map[string]int
}

// round kills a run until it is complete or there were enough kills, and then ends
// it without.
func (k *killed) round(points int) {
	t := k.test
	t.Helper()
	const repeat, more, inFlight = 10, 25, 4
	p, s := newPlace(t), newUnsteady(t)
	p.task("spends", "", solveTiny, testTiny)
	run, cell, before := more, more, map[string][]byte{}
	s.experiment(p, repeat, run, cell)
	args, dir, kills, began := []string{"run", ".", "--no-live"}, "", 0, 0
	for {
		b := p.start(nil, args...)
		if dir == "" {
			poll(t, "there is a run folder", b, func() bool {
				m, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", "manifest.jsonl"))
				return err == nil && len(m) == 1
			})
			dir = p.run()
			args = []string{"resume", dir, "--experiment", ".", "--no-live"}
		}
		if k.kills < points {
			began = count(t, dir, "attempt_began")
			k.await(b, dir, kills)
			b.signal(syscall.SIGKILL)
		}
		r := b.wait()
		over := r.Signal != syscall.SIGKILL
		if !over {
			k.kills++
			kills++
			if count(t, dir, "attempt_began") == began {
				k.early++
			}
		}
		after := published(t, dir)
		still(t, before, after)
		before = after
		whole, show := p.sameTotals(dir, over)
		s.mu.Lock()
		served := s.served
		s.mu.Unlock()
		if whole > served || served-whole > int64(kills*inFlight) {
			t.Errorf("after %d kills: the provider gave %d whole answers, of which %d were measured", kills, served, whole)
		}
		if !over {
			continue
		}
		if show.Summary.Complete {
			k.ended(p, s, dir, show)
			return
		}
		r.want(t, 3)
		k.stops++
		switch u := p.used(dir, show, cell); { // what is told is what the gateway counted, up to the last request
		case u.requests == int64(run) && (strings.Contains(r.stdout, fmt.Sprintf("the budget of the run is used up: %d of %d requests", run, run)) ||
			strings.Contains(r.stdout, fmt.Sprintf("the run has used its limit of %d requests", run))):
			run += more
		case slices.ContainsFunc(u.cells, func(c string) bool {
			return strings.Contains(r.stdout, fmt.Sprintf("the budget of the cell %s is used up: %d of %d requests", c, cell, cell))
		}):
			cell += more
		default:
			t.Fatalf("it stopped after %+v:\n%s\n%s", u, r.stdout, r.stderr)
		}
		s.experiment(p, repeat, run, cell)
	}
}

// usage is what the gateway measured in a run, and the cells that used up their
// budget.
type usage struct {
	requests int64
	cells    []string
}

func (p *place) used(dir string, show *output.ShowRun, budget int) (u usage) {
	meter, _ := metered(p.test, dir)
	cells := map[string]int64{}
	for i := range show.Trials {
		for _, a := range show.Trials[i].Attempts {
			n := meter[filepath.Join(dir, "trials", filepath.Base(filepath.Dir(a.Dir)), filepath.Base(a.Dir))].requests
			cells[show.Trials[i].CellKey] += n
			u.requests += n
		}
	}
	for c, n := range cells {
		if n == int64(budget) {
			u.cells = append(u.cells, c)
		}
	}
	return u
}

// await waits for the moment of the next kill.
func (k *killed) await(b *session, dir string, kills int) {
	t := k.test
	t.Helper()
	if kills%2 == 0 { // any time, most often while it starts
		wait(b, rand.N(600*time.Millisecond))
	} else { // while trials run
		for ended := count(t, dir, "attempt_ended") + rand.N(4); count(t, dir, "attempt_ended") < ended+1; wait(b, 5*time.Millisecond) {
			select {
			case <-b.ended:
				return
			default:
			}
		}
		wait(b, rand.N(300*time.Millisecond))
	}
}

// ended checks a run that is complete.
func (k *killed) ended(p *place, s *unsteady, dir string, show *output.ShowRun) {
	t := k.test
	t.Helper()
	settled := p.settled(dir)
	endedOnce(t, dir)
	if !settled.Summary.Complete || settled.Damaged != 0 {
		t.Errorf("at the end: %+v", settled.Summary)
	}
	k.runs++
	k.lost += show.Summary.Lost
	k.again += show.Summary.Attempts - show.Summary.Planned
	s.mu.Lock()
	defer s.mu.Unlock()
	k.asked += s.asked
	if k.refused == nil {
		k.refused = map[string]int{}
	}
	for why, n := range s.refused {
		k.refused[why] += n
	}
	p.clean()
}
