package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// pace says how a model answered in the last minutes.
type pace struct {
	Model               string
	Requests            int
	PerMinute           float64
	Limited, Failed     int // answers with status 429, and other answers that failed
	TokensPerMinute     float64
	Took, First, Waited time.Duration // medians: until the end and the beginning of an answer, and in the queue before it

	tokens              int64
	took, first, waited []time.Duration
}

// paceLine is what is read of a line of the record of exchanges.
type paceLine struct {
	Time   time.Time `json:"time"`
	Model  string    `json:"model"`
	Status int       `json:"status"`
	Usage  *struct {
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
	} `json:"usage"`
	Waited time.Duration `json:"waited_ns"`
	First  time.Duration `json:"first_byte_ns"`
	Took   time.Duration `json:"took_ns"`
}

// Bounds of what is read for the paces.
const (
	paceAttempts = 60       // attempts, the newest ones
	paceBytes    = 64 << 10 // at the end of the record of each
)

// paces returns the paces of the models in the last minutes, by the exchanges of the
// newest attempts. It reads the end of each record.
func paces(k *kept, now time.Time) []pace {
	type recent struct {
		dir   string
		began time.Time
	}
	var all []recent
	for _, t := range k.Index.Trials {
		if n := len(t.Attempts); n > 0 {
			a := &t.Attempts[n-1]
			if a.Result == nil && k.Index.UnderWay(t) || a.Result != nil && now.Sub(a.Result.End) < window {
				all = append(all, recent{report.Folder(k.Dir, t, a.Number), a.Began})
			}
		}
	}
	slices.SortFunc(all, func(a, b recent) int { return b.began.Compare(a.began) })
	models, first := map[string]*pace{}, now
	for _, r := range all[:min(len(all), paceAttempts)] {
		for _, l := range exchangesSince(r.dir, now.Add(-window)) {
			if l.Time.Before(first) {
				first = l.Time
			}
			p := models[l.Model]
			if p == nil {
				p = &pace{Model: l.Model}
				models[l.Model] = p
			}
			p.take(&l)
		}
	}
	minutes := max(now.Sub(first), time.Second).Minutes()
	out := make([]pace, 0, len(models))
	for _, name := range slices.Sorted(maps.Keys(models)) {
		p := models[name]
		p.PerMinute, p.TokensPerMinute = float64(p.Requests)/minutes, float64(p.tokens)/minutes
		p.Took, p.First, p.Waited = middle(p.took), middle(p.first), middle(p.waited)
		out = append(out, *p)
	}
	return out[:min(len(out), 20)]
}

func (p *pace) take(l *paceLine) {
	p.Requests++
	switch {
	case l.Status == http.StatusTooManyRequests:
		p.Limited++
	case l.Status < 200 || l.Status > 299:
		p.Failed++
	default:
		p.took, p.first = append(p.took, l.Took), append(p.first, l.First)
	}
	p.waited = append(p.waited, l.Waited)
	if l.Usage != nil {
		p.tokens += l.Usage.Input + l.Usage.Output
	}
}

// middle is the median; 0 of nothing.
func middle(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// exchangesSince returns the exchanges at the end of the record of an attempt that
// are not older than a time.
func exchangesSince(dir string, then time.Time) (all []paceLine) {
	for line := range bytes.Lines(lastBytes(dir, record.ExchangesFile, paceBytes)) {
		var l paceLine
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &l) == nil && l.Time.After(then) {
			all = append(all, l)
		}
	}
	return all
}

// lastBytes returns whole lines at the end of a file: at most that many bytes. It
// returns nothing if the file cannot be read.
func lastBytes(dir, name string, most int64) []byte {
	f, err := untrusted.Open(dir, name, maxFile)
	if err != nil {
		return nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil
	}
	at := max(0, fi.Size()-most)
	b, err := io.ReadAll(io.NewSectionReader(f, at, most))
	if err != nil {
		return nil
	}
	if at > 0 {
		b = b[cmp.Or(bytes.IndexByte(b, '\n')+1, len(b)):]
	}
	return b
}
