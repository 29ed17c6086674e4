package uplink_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
)

func TestATokenOpensOnlyWhatItsPilotMakes(t *testing.T) {
	t.Parallel()
	var p *provider
	p = provide(t, func(w http.ResponseWriter, _ *http.Request) { p.answer(w) })
	b := newBed(t, p)
	b.makes = func(client, trial string, attempt int) error {
		if client != "two" && trial == "t1" && attempt == 1 {
			return nil
		}
		return fmt.Errorf("%s does not make attempt %d of %s", client, attempt, trial)
	}
	one, two := b.pilot("one"), b.pilot("two")
	other := *one.model
	other.Name, other.Label = "m2", "other"
	good := one.attempt("t1")
	if status, text, err := good.ask(t.Context(), padded); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", status, err, text)
	}
	_ = good.end()
	for name, a := range map[string]*attempt{
		"an attempt of another pilot": two.attempt("t1"),
		"another attempt":             one.attempt("t1", func(s *models.Spec) { s.Attempt = 2 }),
		"another trial":               one.attempt("t2"),
		"a model that the trial does not use": func() *attempt {
			q := b.pilot("three", func(o *gateway.Options) { o.Models = []*cell.Model{&other} })
			q.asks = &other
			return q.attempt("t1")
		}(),
	} {
		status, text, err := a.ask(t.Context(), padded)
		if err != nil || status < 400 || a.State().Down == nil {
			t.Errorf("%s: status %d, %v, down %v: %s", name, status, err, a.State().Down, text)
		}
		_ = a.Close(t.Context())
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("%d requests reached the provider", n)
	}
	b.mu.Lock()
	b.tokens["one"] = "" // its file is gone
	b.mu.Unlock()
	for _, token := range []string{"", "guessed"} {
		c := uplink.NewClient("one", token, b.where)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://gateway/forward/v1/messages", strings.NewReader(padded))
		must(t, err)
		resp, err := c.RoundTrip(r)
		must(t, err)
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("token %q: status %d", token, resp.StatusCode)
		}
		c.Close()
	}
}

// The server is gone, and comes back elsewhere with another certificate: the
// request waits, and that is not a time of the attempt.
func TestARequestWaitsForTheOtherMachine(t *testing.T) {
	t.Parallel()
	var p *provider
	p = provide(t, func(w http.ResponseWriter, _ *http.Request) { p.answer(w) })
	b := newBed(t, p)
	one := b.pilot("one")
	first := one.attempt("t1")
	if status, text, err := first.ask(t.Context(), padded); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", status, err, text)
	}
	_ = first.end()
	must(t, b.server.Close())
	a := one.attempt("t2")
	done := make(chan error, 1)
	go func() {
		status, text, err := a.ask(t.Context(), padded)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, text)
		}
		done <- err
	}()
	testlevel.Eventually(t, "it waits", func() bool { return a.Waited() > 300*time.Millisecond })
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	b.listen()
	must(t, <-done)
	if x := a.end(); x.Waited < 300*time.Millisecond || x.Tries == 0 {
		t.Errorf("waited %s, %d tries", x.Waited, x.Tries)
	}
	if a.State().Refusal != nil || a.State().Down != nil {
		t.Errorf("refusal %v, down %v", a.State().Refusal, a.State().Down)
	}
}

func TestAnotherCertificateIsNotAccepted(t *testing.T) {
	t.Parallel()
	p := provide(t, func(http.ResponseWriter, *http.Request) {})
	b := newBed(t, p)
	good := b.where()
	reach := func(at uplink.Place) error {
		c := uplink.NewClient("one", "t", func() uplink.Place { return at })
		defer c.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://gateway/forward", http.NoBody)
		must(t, err)
		resp, err := c.RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	must(t, reach(good))
	bad := good
	bad.Fingerprint = strings.Repeat("0", 64)
	if err := reach(bad); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("another one: %v", err)
	}
	late := good
	late.Addresses = append([]string{"127.0.0.1:1"}, good.Addresses...) // nothing listens at the first
	must(t, reach(late))
}

// A key that the provider refuses is told, and not shown.
func TestAProviderThatRefusesTheKeyEndsTheRun(t *testing.T) {
	t.Parallel()
	p := provide(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"bad key `+r.Header.Get("X-Api-Key")+`"}}`)
	})
	b := newBed(t, p)
	a := b.pilot("one").attempt("t1")
	status, text, err := a.ask(t.Context(), padded)
	if err != nil || status != http.StatusUnauthorized || strings.Contains(text, canary) {
		t.Errorf("status %d, %v: %s", status, err, text)
	}
	if r := a.State().Refusal; r == nil || r.Scope != record.ScopeRun || !r.Provider {
		t.Errorf("refusal %+v", r)
	}
	if x := a.end(); strings.Contains(fmt.Sprintf("%+v", x), canary) {
		t.Errorf("the key is in the record: %+v", x)
	}
}

// A client that goes away takes its request with it, at the provider too.
func TestAClientThatGoesAwayEndsItsRequest(t *testing.T) {
	t.Parallel()
	begun, over := make(chan struct{}), make(chan struct{})
	p := provide(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(over)
	})
	b := newBed(t, p)
	a := b.pilot("one").attempt("t1")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, _, err := a.ask(ctx, padded); err == nil {
		t.Error("it was answered")
	}
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Fatal("the request to the provider does not end")
	}
	_ = a.end()
	b.g.Release(t.Context(), "t1", 1)
	if got := b.g.Settled(); got.USD != 1 { // the provider may charge for it
		t.Errorf("settled %+v", got)
	}
}

// An attempt that has ended, or whose pilot is lost, keeps nothing of the budget
// and asks nothing.
func TestWhatIsReleasedIsFree(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 2)
	p := provide(t, func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	})
	limit := 2.5
	b := newBed(t, p, func(o *gateway.Options) { o.Run = cell.Budget{CostUSD: &limit} })
	var released atomic.Bool
	b.makes = func(string, string, int) error {
		if released.Load() {
			return errors.New("it has a result")
		}
		return nil
	}
	one := b.pilot("one")
	a := one.attempt("t1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = a.ask(t.Context(), padded)
	}()
	<-begun
	released.Store(true) // as a coordinator does: the attempt has a result
	b.g.Release(t.Context(), "t1", 1)
	<-done
	if got := b.g.Settled(); got.USD != 1 { // the provider may charge for it
		t.Errorf("settled %+v", got)
	}
	_ = a.Close(t.Context())
}

func TestSecretsComeOverTheConnection(t *testing.T) {
	t.Parallel()
	p := provide(t, func(http.ResponseWriter, *http.Request) {})
	b := newBed(t, p)
	one := b.pilot("one")
	ask := func(label string) (string, error) {
		s := &cell.Secret{Label: label, Read: noKey}
		one.client.Fetch([]*cell.Secret{s})
		return s.Read()
	}
	if v, err := ask("one"); err != nil || v != "first value" {
		t.Errorf("%q, %v", v, err)
	}
	for label, want := range map[string]string{"two": "several secrets", `${secret("KEY")}`: "no such secret"} {
		if v, err := ask(label); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", label, v, err)
		}
	}
}

// cutter stands between pilots and the server, and can close all connections.
type cutter struct {
	net.Listener
	to string

	mu   sync.Mutex
	open []net.Conn
}

func cut(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	c := &cutter{Listener: l, to: to}
	var copying sync.WaitGroup
	copying.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			target, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", c.to)
			if err != nil {
				_ = from.Close()
				continue
			}
			c.mu.Lock()
			c.open = append(c.open, from, target)
			c.mu.Unlock()
			for _, ends := range [][2]net.Conn{{from, target}, {target, from}} {
				copying.Go(func() {
					_, _ = io.Copy(ends[0], ends[1])
					_ = ends[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.all()
		copying.Wait()
	})
	return c
}

// all closes all connections.
func (c *cutter) all() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.open {
		_ = one.Close()
	}
	c.open = nil
}

// The connection is lost while the provider works on a request, and comes back. The
// request is sent again, the client notices nothing, and what the lost one may have
// cost is counted.
func TestAConnectionThatIsLostInTheMiddleComesBack(t *testing.T) {
	t.Parallel()
	under, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	var p *provider
	p = provide(t, func(w http.ResponseWriter, r *http.Request) {
		if p.asked.Load() > 1 {
			p.answer(w)
			return
		}
		under <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	b := newBed(t, p)
	c := cut(t, b.where().Addresses[0])
	b.mu.Lock()
	b.place.Addresses = []string{c.Addr().String()}
	b.mu.Unlock()
	a := b.pilot("one").attempt("t1")
	done := make(chan error, 1)
	go func() {
		status, text, err := a.ask(t.Context(), padded)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, text)
		}
		done <- err
	}()
	<-under
	c.all()
	<-gone // nobody waits for the first one any more
	must(t, <-done)
	if a.State().Refusal != nil || a.State().Down != nil || p.asked.Load() != 2 {
		t.Errorf("refusal %v, down %v, %d requests", a.State().Refusal, a.State().Down, p.asked.Load())
	}
	if x := a.end(); x.Tries == 0 || x.Status != http.StatusOK {
		t.Errorf("recorded %+v", x)
	}
	if got := b.g.Settled(); got.USD < 1 || got.USD > 2 {
		t.Errorf("settled %+v", got)
	}
}
