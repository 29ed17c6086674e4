package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/core/gateway/dialect"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Names in the folder of an attempt.
const (
	RecordDir     = record.ModelDir
	ExchangesFile = record.ExchangesFile
)

// Exchange is one line of exchanges.jsonl: a request and what came of it. Their
// bodies are beside it.
type Exchange struct {
	recording.Entry

	Time      time.Time       `json:"time"`
	Role      string          `json:"role"`
	Name      string          `json:"name"` // by which the plugin asks for the model
	Model     string          `json:"model"`
	Asked     string          `json:"asked,omitempty"` // the model that was asked for, when it was another
	Dialect   string          `json:"dialect"`
	Stream    bool            `json:"stream,omitempty"`
	Retry     bool            `json:"retry,omitempty"`    // of a request that had no success
	Status    int             `json:"status"`             // of HTTP; 0: there was no answer
	Error     string          `json:"error,omitempty"`    // what the gateway said itself
	Upstream  string          `json:"upstream,omitempty"` // what the provider said went wrong
	Cause     Cause           `json:"cause,omitempty"`    // of a refusal (4xx), where known: request or provider
	Broken    string          `json:"broken,omitempty"`   // who cut the answer off: provider, client or gateway
	Usage     *dialect.Usage  `json:"usage,omitempty"`
	Estimated bool            `json:"estimated,omitempty"` // the provider did not say all of the usage
	Raw       json.RawMessage `json:"raw_usage,omitempty"` // the provider's own record of it
	CostUSD   *float64        `json:"cost_usd,omitempty"`  // absent: not known
	Limit     int             `json:"limit,omitempty"`     // requests allowed in flight at its provider; absent: not paced
	Tries     int             `json:"tries,omitempty"`     // that the provider refused or failed before this answer
	Waited    time.Duration   `json:"waited_ns,omitempty"` // for room in a budget, or for a provider
	Unkept    bool            `json:"unkept,omitempty"`    // only the digests of its bodies are kept: there were too many
	FirstByte time.Duration   `json:"first_byte_ns,omitempty"`
	Took      time.Duration   `json:"took_ns,omitempty"`
}

// digests names the request, for the record and for a replay of it. It takes
// longer than all else before a request leaves, so it is done while the answer
// is on its way, or after it.
func (x *exchange) digests() {
	if x.asked != nil {
		return
	}
	x.asked = x.clean(x.body.Bytes())
	x.line.Path, x.line.Kind = x.call.Path, recording.KindGenerate
	if x.call.Kind == dialect.Count {
		x.line.Kind = recording.KindCount
	}
	// The path says which model is asked and whether a stream is wanted, in
	// the dialects whose body does not.
	x.line.Match, _ = recording.DigestOf(func(w io.Writer) error { // which does not fail
		_, _ = io.WriteString(w, x.line.Path+"\n")
		if raw := x.body.Bytes(); len(raw) > 0 && &raw[0] == &x.asked[0] { // nothing is secret in it
			return x.body.WriteWithout(w, x.d.Fleeting())
		}
		_, err := w.Write(x.clean(x.body.Without(x.d.Fleeting())))
		return err
	})
}

// finish writes the exchange down while the client has its answer already, and
// then lets the turn end.
func (x *exchange) finish(leave func()) {
	x.s.count(&x.line)
	if !x.keep || x.s.spec.Append == nil {
		leave()
		return
	}
	before, done := x.s.inLine()
	go func() {
		defer leave()
		defer close(done)
		x.digests()
		if x.s.spec.Dir != "" {
			if err := x.store(); err != nil {
				x.s.find("model_record", verifier.Note, err.Error())
			}
		}
		<-before // lines stand in the order in which answers ended
		if x.line.Unkept && x.line.Usage == nil {
			return // a client may have them by the thousand
		}
		x.s.spec.Append(ExchangesFile, &x.line)
	}()
}

// inLine is when the exchange before this one is written down, and what to
// close when this one is.
func (s *session) inLine() (before <-chan struct{}, done chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done = make(chan struct{})
	if s.written == nil {
		s.written = make(chan struct{})
		close(s.written)
	}
	before, s.written = s.written, done
	return before, done
}

// maxRecord is how much of the disk the bodies of an attempt may take: 256 MiB,
// packed. A long conversation takes some 20.
const maxRecord = 256 << 20

// store keeps the bodies, as long as there is room for those of the attempt.
func (x *exchange) store() error {
	dir := filepath.Join(x.s.spec.Dir, RecordDir)
	room := x.s.g.roomOf(x.s.spec.Dir)
	digest, kept, err := recording.Store(dir, x.asked, room)
	if err != nil {
		return err
	}
	x.line.Request, x.line.Unkept = digest, !kept
	if x.answered {
		if digest, kept, err = recording.Store(dir, x.clean(x.reply.Bytes()), room); err != nil {
			return err
		}
		x.line.Reply, x.line.Unkept = digest, x.line.Unkept || !kept
	}
	if x.line.Unkept {
		return fmt.Errorf("the requests and answers of the attempt take more than %d MiB: from here on their digests are written down and not they, "+
			"requests that came to nothing are not written down at all, and the attempt cannot be replayed to its end", x.s.g.record()>>20)
	}
	return nil
}

// record is how many bytes of bodies an attempt may keep.
func (g *Gateway) record() int64 {
	if g.o.Record > 0 {
		return g.o.Record
	}
	return maxRecord
}

// roomOf is the room for bodies in the folder of an attempt, for all of its
// sessions.
func (g *Gateway) roomOf(dir string) *recording.Room {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.records[dir]
	if r == nil {
		r = recording.NewRoom(g.record())
		g.records[dir] = r
	}
	return r
}
