package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/plugins/dialect"
)

// Exchange is one line of exchanges.jsonl: a request and its result. The bodies
// are stored separately.
type Exchange struct {
	recording.Entry

	Time  time.Time `json:"time"`
	Role  string    `json:"role"`
	Name  string    `json:"name"` // name by which the plugin asks for the model
	Model string    `json:"model"`
	Asked string    `json:"asked,omitempty"` // the model that was requested, if it differs
	// FallbackFor is the model that should have served the request. Empty: it
	// is Model.
	FallbackFor string `json:"fallback_for,omitempty"`
	// Key is the position of the key in api_keys, from 1. Absent: the model has
	// one key, or none.
	Key int `json:"key,omitempty"`

	Dialect   string          `json:"dialect"`
	Stream    bool            `json:"stream,omitempty"`
	Retry     bool            `json:"retry,omitempty"`    // of a request that had failed
	Status    int             `json:"status"`             // HTTP status; 0: there was no answer
	Error     string          `json:"error,omitempty"`    // error of the gateway itself
	Upstream  string          `json:"upstream,omitempty"` // error that the provider reported
	Cause     Cause           `json:"cause,omitempty"`    // of a refusal (4xx), where known: request or provider
	Broken    string          `json:"broken,omitempty"`   // which side cut the answer off: provider, client or gateway
	Stop      string          `json:"stop,omitempty"`     // why the model stopped, in the provider's word
	Usage     *dialect.Usage  `json:"usage,omitempty"`
	Estimated bool            `json:"estimated,omitempty"`  // the provider did not report all of the usage
	Raw       json.RawMessage `json:"raw_usage,omitempty"`  // the provider's own record of it
	CostUSD   *float64        `json:"cost_usd,omitempty"`   // absent: not known
	Price     *dialect.Price  `json:"price,omitempty"`      // from which CostUSD was computed; absent: it is StatedUSD
	StatedUSD *float64        `json:"stated_usd,omitempty"` // cost that the provider states; absent: it states none
	Limit     int             `json:"limit,omitempty"`      // requests allowed in flight at its provider; absent: not limited
	Tries     int             `json:"tries,omitempty"`      // tries that the provider refused or failed before this answer
	Waited    time.Duration   `json:"waited_ns,omitempty"`  // for room in a budget, or for a provider
	// ResponseID is the provider's id of the answer, which clients may report;
	// empty: it has none.
	ResponseID string `json:"response_id,omitempty"`

	Alike     bool          `json:"alike,omitempty"`  // replayed: the recorded request differs in values that change from run to run, such as ids and times
	Unkept    bool          `json:"unkept,omitempty"` // only the digests of its bodies are kept, because there was no room
	FirstByte time.Duration `json:"first_byte_ns,omitempty"`
	Took      time.Duration `json:"took_ns,omitempty"`
}

// digests computes the digests of the request, for the record and for a replay.
func (x *exchange) digests() {
	if x.asked != nil {
		return
	}
	x.asked = x.recorded(x.body.Bytes())
	x.line.Path, x.line.Kind = x.call.Path, recording.KindGenerate
	if x.call.Kind == dialect.Count {
		x.line.Kind = recording.KindCount
	}
	if x.line.Match != "" { // of the request to the model for which this one is the fallback
		return
	}
	// In some dialects only the path contains the model and whether a stream is
	// requested.
	x.line.Match = recording.Digest(slices.Concat([]byte(x.line.Path+"\n"), x.recorded(x.body.Without(x.d.Fleeting()))))
}

// finish records the exchange.
func (x *exchange) finish() {
	x.s.count(&x.line)
	if !x.keep || x.s.spec.Append == nil {
		return
	}
	x.digests()
	if x.s.spec.Dir != "" {
		if err := x.store(); err != nil {
			x.s.find("model_record", err.Error())
		}
	}
	if x.line.Unkept && x.line.Usage == nil {
		return // a client may have thousands of them
	}
	x.s.spec.Append(record.ExchangesFile, &x.line)
}

// maxRecord is how many bytes on disk the compressed bodies of an attempt may
// take: 256 MiB. A long conversation takes some 20 MiB.
const maxRecord = 256 << 20

// store keeps the bodies while the attempt has room for them.
func (x *exchange) store() error {
	dir := filepath.Join(x.s.spec.Dir, record.ModelDir)
	room := x.s.g.roomOf(x.s.spec.Dir)
	digest, kept, err := recording.Store(dir, x.asked, room)
	if err != nil {
		return err
	}
	x.line.Request, x.line.Unkept = digest, !kept
	if x.answered {
		if digest, kept, err = recording.Store(dir, x.recorded(x.reply.Bytes()), room); err != nil {
			return err
		}
		x.line.Reply, x.line.Unkept = digest, x.line.Unkept || !kept
	}
	if x.line.Unkept {
		return fmt.Errorf("the requests and answers of the attempt take more than %d MiB: from here on their digests are written down and not they, "+
			"requests that came to nothing are not written down at all, and the attempt cannot be replayed to its end", cmp.Or(x.s.g.o.Record, maxRecord)>>20)
	}
	return nil
}

// roomOf returns the room for bodies in the folder of an attempt, shared by all
// of its sessions.
func (g *Gateway) roomOf(dir string) *recording.Room {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.records[dir]
	if r == nil {
		r = recording.NewRoom(cmp.Or(g.o.Record, maxRecord))
		g.records[dir] = r
	}
	return r
}

// secrets are values that must not be recorded or sent to a client: the keys of
// a session, also in their JSON and URL encodings.
type secrets struct {
	forms  []string
	redact *redact.Redactor
}

// minSecret is the smallest length in bytes of a key that is removed from text:
// servers that need no key get words such as "EMPTY", which are not secret and
// may occur in a conversation.
const minSecret = 12

func (s *secrets) add(value string) {
	if len(value) < minSecret {
		return
	}
	s.forms = append(s.forms, value, url.QueryEscape(value), url.PathEscape(value))
	if b, err := json.Marshal(value); err == nil {
		s.forms = append(s.forms, string(b[1:len(b)-1]))
	}
	s.redact = redact.New(s.forms...)
}

// clean returns b without secrets. It does not change b.
func (s *secrets) clean(b []byte) []byte { return s.redact.Bytes(b) }

func (s *secrets) cleanAll(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(s.clean([]byte(v)))
	}
	return out
}
