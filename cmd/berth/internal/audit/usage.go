package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/model/answer"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of reading a record of exchanges, in bytes.
const (
	maxExchange  = 16 << 20 // of one line
	maxExchanges = 4 << 30
)

// usage computes what an attempt used of its models again: by the record of its
// requests, and each request by the reply that was kept.
func (a *audit) usage(name, dir string, r *record.Result) {
	file := path.Join(name, record.ExchangesFile)
	has := store.BriefOf(r).Spend
	e := exchanges{audit: a, file: file, bodies: filepath.Join(dir, filepath.FromSlash(record.ModelDir)), counted: map[string]bool{}, rows: map[user]*record.Usage{}}
	cut, err := untrusted.Lines(dir, record.ExchangesFile, maxExchange, maxExchanges, e.line)
	if errors.Is(err, fs.ErrNotExist) {
		if has.Requests > 0 {
			a.problem(usage, file, 0, "it is missing, and the result has %d requests", has.Requests)
		}
		return
	}
	if err == nil && cut {
		err = errors.New("a line of it, or all of it, is too long")
	}
	if err != nil {
		a.problem(usage, file, 0, "it cannot be read: %v", err)
		return
	}
	a.did(usage, 1)
	e.compare(r)
	for _, f := range r.Findings {
		if f.Code == "model_record" {
			a.skip(usage, "requests of an attempt for which there was no room: "+strings.SplitN(f.Text, ":", 2)[0])
		}
	}
}

// user is who used a model. Verifiers of the same role and model are one, because
// a request does not say which of them made it.
type user struct{ role, model, fallbackFor string }

func (u user) String() string {
	s := fmt.Sprintf("role %q", u.role)
	if u.model != "" {
		s += fmt.Sprintf(", model %q", u.model)
	}
	if u.fallbackFor != "" {
		s += fmt.Sprintf(", as a fallback for %q", u.fallbackFor)
	}
	return s
}

// exchanges adds up the requests of one attempt.
type exchanges struct {
	*audit

	file    string          // for messages
	bodies  string          // folder with the replies
	counted map[string]bool // requests that came to something
	rows    map[user]*record.Usage
	n       int // lines so far
}

// line adds a line of the record. One that is damaged was named by its checksum, or
// was cut off by a kill.
func (e *exchanges) line(text []byte) {
	e.n++
	var x gateway.Exchange
	if json.Unmarshal(text, &x) != nil || x.Usage == nil {
		return
	}
	e.reply(&x)
	e.cost(&x)
	who := user{x.Role, x.Model, x.FallbackFor}
	row := e.rows[who]
	if row == nil {
		row = &record.Usage{CostUSD: new(float64)}
		e.rows[who] = row
	}
	if !x.Retry || !e.counted[x.Request] {
		row.Requests++
	}
	e.counted[x.Request] = true
	if x.Estimated {
		row.Estimated++
	}
	one := record.Usage{
		InputTokens: x.Usage.Input, CachedTokens: x.Usage.Cached, CacheWrite: x.Usage.CacheWrite, OutputTokens: x.Usage.Output, ReasoningTokens: x.Usage.Reasoning, CostUSD: x.CostUSD,
	}
	row.Add(&one)
}

// reply reads the usage in a reply again.
func (e *exchanges) reply(x *gateway.Exchange) {
	switch {
	case x.Estimated:
		e.skip(usage, "requests whose usage the provider did not report: it was estimated")
		return
	case x.Unkept || x.Reply == "":
		e.skip(usage, "requests whose reply was not kept")
		return
	}
	d := dialects.All.Named(model.Dialect(x.Dialect))
	if d == nil {
		e.skip(usage, fmt.Sprintf("replies in the dialect %q, which this berth does not know", x.Dialect))
		return
	}
	body, err := recording.Fetch(e.bodies, x.Reply)
	if err != nil {
		e.problem(usage, e.file, e.n, "its reply cannot be read: %v", err)
		return
	}
	m := answer.NewMeter(d.Name())
	m.Body(body)
	e.did(usage, 1)
	if got := m.Read().Usage; got != *x.Usage {
		e.problem(usage, e.file, e.n, "its reply gives %+v as usage, and the line has %+v", got, *x.Usage)
	}
}

// cost computes the cost of a request again, from its price.
func (e *exchanges) cost(x *gateway.Exchange) {
	if x.Price == nil {
		if x.CostUSD != nil && *x.CostUSD != 0 {
			e.skip(usage, "costs that the provider states, because no price is known")
		}
		return
	}
	if got, known := x.Price.Cost(*x.Usage); !known || x.CostUSD == nil || !near(got, *x.CostUSD) {
		e.problem(usage, e.file, e.n, "its tokens cost %g USD at its price, and the line has %s", got, dollars(x.CostUSD))
	}
}

// compare compares the sums with those of a result, by who used which model.
func (e *exchanges) compare(r *record.Result) {
	has := map[user]*record.Usage{}
	roles := map[string]bool{}
	spent := r.Spent()
	for i := range spent {
		u := &spent[i]
		who := user{u.Role, u.Model, u.FallbackFor}
		if has[who] == nil {
			has[who] = &record.Usage{CostUSD: new(float64)}
		}
		has[who].Add(u)
		roles[u.Role] = true
	}
	for who := range e.rows {
		roles[who.role] = true
	}
	for role := range roles {
		is, should := of(has, role), of(e.rows, role)
		if !sameUsers(is, should) { // a model that answers under several names is one in the result
			e.skip(usage, "which models a role used: its requests name others than the result. Their sum was compared")
			is, should = summed(is, role), summed(should, role)
		}
		for who := range is {
			e.differ(who, should[who], is[who])
		}
	}
}

// of returns the rows of a role.
func of(rows map[user]*record.Usage, role string) map[user]*record.Usage {
	some := maps.Clone(rows)
	maps.DeleteFunc(some, func(who user, _ *record.Usage) bool { return who.role != role })
	return some
}

func sameUsers(a, b map[user]*record.Usage) bool {
	return maps.EqualFunc(a, b, func(*record.Usage, *record.Usage) bool { return true })
}

// summed adds up the rows of a role.
func summed(rows map[user]*record.Usage, role string) map[user]*record.Usage {
	sum := &record.Usage{CostUSD: new(float64)}
	for _, row := range rows {
		sum.Add(row)
	}
	return map[user]*record.Usage{{role: role}: sum}
}

func (e *exchanges) differ(who user, should, is *record.Usage) {
	for _, x := range []struct {
		what    string
		got, is int64
	}{
		{"requests", should.Requests, is.Requests},
		{"input tokens", should.InputTokens, is.InputTokens},
		{"cached tokens", should.CachedTokens, is.CachedTokens},
		{"tokens written to a cache", should.CacheWrite, is.CacheWrite},
		{"output tokens", should.OutputTokens, is.OutputTokens},
		{"reasoning tokens", should.ReasoningTokens, is.ReasoningTokens},
		{"requests without a reported usage", should.Estimated, is.Estimated},
	} {
		if x.got != x.is {
			e.problem(usage, e.file, 0, "%s: it gives %d %s, and the result has %d", who, x.got, x.what, x.is)
		}
	}
	known := should.CostUSD != nil && is.CostUSD != nil
	if known && !near(*should.CostUSD, *is.CostUSD) || !known && (should.CostUSD != nil || is.CostUSD != nil) {
		e.problem(usage, e.file, 0, "%s: it gives %s, and the result has %s", who, dollars(should.CostUSD), dollars(is.CostUSD))
	}
}

func dollars(v *float64) string {
	if v == nil {
		return "an unknown cost"
	}
	return fmt.Sprintf("%.6f USD", *v)
}
