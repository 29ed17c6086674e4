package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/dialect"
)

// The headers between a gateway and the one that it forwards requests to. Both
// are JSON: an origin with the request, a forwarded with the answer.
const (
	originHeader    = "Berth-Origin"
	forwardedHeader = "Berth-Forwarded"
)

// origin says for whom a request is forwarded.
type origin struct {
	Trial    string `json:"trial"`
	Attempt  int    `json:"attempt"`
	Role     string `json:"role"`
	Verifier string `json:"verifier,omitempty"`
	Agent    string `json:"agent,omitempty"`
	InFlight int    `json:"in_flight,omitempty"` // of the agent
	Hosted   bool   `json:"hosted,omitempty"`
	Model    string `json:"model,omitempty"` // its id
	Once     bool   `json:"once,omitempty"`  // it has a fallback: while its provider is down, it is not asked again
	End      bool   `json:"end,omitempty"`   // there is no request: the attempt sends none for now
}

// forwarded is the result of a request. Without a failure, the answer is that
// of the provider.
type forwarded struct {
	Failure  dialect.FailureKind `json:"failure,omitempty"`
	Message  string              `json:"message,omitempty"`
	Hopeless bool                `json:"hopeless,omitempty"` // the provider would fail again
	Scope    record.Scope        `json:"scope,omitempty"`    // of the budget that has no room
	First    bool                `json:"first,omitempty"`    // nothing of the budget was used
	Cause    Cause               `json:"cause,omitempty"`
	Wait     time.Duration       `json:"wait_ns,omitempty"` // the provider asks for it, and it is too long
	Why      string              `json:"why,omitempty"`
	Key      int                 `json:"key,omitempty"`
	Limit    int                 `json:"limit,omitempty"`
	Tries    int                 `json:"tries,omitempty"`
	Waited   time.Duration       `json:"waited_ns,omitempty"` // for room in a budget, or for the provider
}

// remoteError is a failure that the other gateway reports. It has tried what can
// be tried.
type remoteError struct{ forwarded }

// Error implements error.
func (e *remoteError) Error() string { return e.Message }

// uplinkError says that the other gateway did not answer. It does not wrap the
// cause, which would look like one of the provider.
type uplinkError struct{ why string }

// Error implements error.
func (e *uplinkError) Error() string { return "the connection to the machine with the keys: " + e.why }

// modelID identifies a model in all processes that have read the same experiment.
func modelID(m *cell.Model) string {
	one := *m
	one.Fallback = nil // has its own id
	b, err := json.Marshal(&one)
	if err != nil { // it has no member that could fail
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// relayed reports whether requests to a model are forwarded.
func (g *Gateway) relayed(m *cell.Model) bool {
	return g.o.Uplink != nil && (g.o.Relayed == nil || g.o.Relayed(m))
}

// forwards prepares a model whose requests are forwarded: the other gateway has
// its keys, and limits its requests.
func (g *Gateway) forwards(u *upstream) {
	o, log := g.o.RateLimit, g.o.Log
	o.Max = 1 << 20
	o.Tell = func(s ratelimit.State) { log.Warn().Msg(told(u.model.Name, s)) }
	u.relayed, u.keys, u.health = true, []*apiKey{{limiter: ratelimit.New(o)}}, &health{}
}

func (s *session) origin() origin {
	p := &s.spec
	return origin{Trial: p.Trial, Attempt: p.Attempt, Role: p.Role, Verifier: p.Verifier, Agent: p.Agent, InFlight: p.InFlight, Hosted: p.Hosted}
}

// endUp tells the other gateway that the attempt sends no more requests for now.
// If that fails, it finds out when the attempt has ended.
func (s *session) endUp(ctx context.Context) {
	if !s.uplink.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	o := s.origin()
	o.End = true
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, uplinkBase, http.NoBody)
	if err != nil {
		return
	}
	req.Header.Set(originHeader, string(dialect.JSON(o)))
	if resp, err := s.g.o.Uplink.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
}

// uplinkBase takes the place of a provider's address. The uplink knows where it
// leads.
const uplinkBase = "https://gateway/forward"

// Bounds of a forwarded request. The other gateway watches the provider and is the
// first to give up; that it is gone itself is found out within pingTime.
const (
	pingTime = 45 * time.Second
	longest  = 24 * time.Hour
)

// askUp forwards the request, and returns when an answer has begun.
func (x *exchange) askUp(ctx context.Context, req *http.Request) (*http.Response, error) {
	x.s.uplink.Store(true)
	o := x.s.origin()
	o.Model, o.Once = x.e.up.id, x.e.next != nil
	req.Header.Set(originHeader, string(dialect.JSON(o)))
	_, idle := silenceLimits(&x.e.up.model)
	return x.watched(ctx, longest, idle+pingTime, func(ctx context.Context) (*http.Response, error) {
		defer x.signing()()
		resp, err := x.s.g.o.Uplink.RoundTrip(req.WithContext(ctx))
		switch {
		case err != nil && context.Cause(ctx) == nil:
			return nil, &uplinkError{clip(err.Error())}
		case err != nil:
			return nil, err
		}
		if err = x.became(resp); err != nil {
			_ = resp.Body.Close()
		}
		return resp, err
	})
}

// became reads the result of a forwarded request.
func (x *exchange) became(resp *http.Response) error {
	text := resp.Header.Get(forwardedHeader)
	resp.Header.Del(forwardedHeader)
	var f forwarded
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return fmt.Errorf("unexpected answer with status %d", resp.StatusCode)
	}
	x.line.Key, x.line.Limit, x.remote = f.Key, f.Limit, f
	x.line.Tries += f.Tries
	x.line.Waited += f.Waited
	x.s.wait.addSince(time.Now().Add(-f.Waited))
	if f.Wait > 0 {
		return &longError{f.Wait, f.Why}
	}
	if f.Failure != 0 {
		return &remoteError{f}
	}
	return nil
}

// refusedUp answers a request that the other gateway did not send to the provider
// although that would serve. It returns false for other errors.
func (x *exchange) refusedUp(err error) bool {
	r, ok := errors.AsType[*remoteError](err)
	switch {
	case !ok || r.Failure == dialect.Unreachable || r.Failure == dialect.Overloaded:
		return false
	case r.Failure == dialect.Spent:
		x.s.endTurn(&models.Refusal{Scope: r.Scope, First: r.First, Err: r})
	default:
		x.s.setDown(r)
	}
	x.refuse(dialect.Failure{Kind: r.Failure, Message: r.Message})
	return true
}
