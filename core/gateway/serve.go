package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/dialect"
)

// ServeHTTP answers one request of the session's plugin.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) { //nolint:contextcheck // a request ends with the turn, too
	d, call, ok := s.g.o.Dialects.Of(r)
	if !ok {
		s.other(w, r)
		return
	}
	e := s.entries[d.Token(r)]
	if e == nil {
		s.notServed("a request with a token that is not good for its address")
		answer(w, d.Failure(dialect.Failure{Kind: dialect.BadToken, Message: "this token is not good for this address: use the one that came with it"}))
		return
	}
	life, leave, ok := s.enter()
	if !ok {
		answer(w, d.Failure(dialect.Failure{Kind: dialect.Over, Message: "the turn that this token is good for is over"}))
		return
	}
	x := &exchange{s: s, e: e, d: d, call: call, w: w, r: r, life: life, control: http.NewResponseController(w)}
	x.run(leave) //nolint:contextcheck // as above
}

// run answers the request, and then lets the turn end.
func (x *exchange) run(leave func()) {
	defer func() {
		x.finish()
		x.release(x.held)
		leave()
	}()
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(x.life, func() { cancel(context.Cause(x.life)) })() //nolint:contextcheck // a request ends with the turn, too
	if x.call.Kind == dialect.List {
		answer(x.w, dialect.Response{Status: http.StatusOK, Header: jsonHeader(), Body: x.d.Listed([]string{x.e.up.model.Name})})
		return
	}
	x.serve(ctx)
}

// endWithTurn keeps a client that does not read or write from outliving its turn.
// The caller must call end before the request is over: a server's connection must
// not be touched afterwards.
func (x *exchange) endWithTurn() (end func()) {
	var mu sync.Mutex
	over := false
	stop := context.AfterFunc(x.life, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			_ = x.control.SetReadDeadline(time.Unix(1, 0))
			_ = x.control.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	return func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// other answers requests that belong to no dialect: checks whether the server
// is up, offers of another protocol, mistakes.
func (s *session) other(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		// Clients that try a web socket first then send an ordinary request.
		w.WriteHeader(http.StatusUpgradeRequired)
	case r.Method == http.MethodHead, r.Method == http.MethodGet && r.URL.Path == "/":
		w.WriteHeader(http.StatusOK)
	default:
		s.notServed(fmt.Sprintf("%s %q, which the gateway does not serve", clip(r.Method), clip(r.URL.Path)))
		d := s.g.o.Dialects.Usual()
		answer(w, d.Failure(dialect.Failure{
			Kind: dialect.NotServed, Message: fmt.Sprintf("the gateway does not serve %s %q: it serves models and nothing else of a provider", r.Method, r.URL.Path),
		}))
	}
}

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func answer(w http.ResponseWriter, f dialect.Response) {
	maps.Copy(w.Header(), f.Header)
	w.WriteHeader(f.Status)
	_, _ = w.Write(f.Body) // the client may be gone
}

// Variables implements models.Session.
func (s *session) Variables() (keys, addresses map[string]string) {
	keys, addresses = map[string]string{}, map[string]string{}
	names := slices.SortedFunc(maps.Keys(s.endpoints), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		e := s.endpoints[name]
		if e.Inside == "" {
			continue
		}
		for _, d := range s.g.o.Dialects.Speaks(s.entries[e.Token].up.model.Provider) {
			v := d.Variables()
			for _, k := range v.Keys {
				keys[k] = cmp.Or(keys[k], e.Token)
			}
			for _, k := range v.Addresses {
				addresses[k] = cmp.Or(addresses[k], e.Inside+pathOf(d.Base()))
			}
		}
	}
	return keys, addresses
}

// rank puts the default model first.
func rank(name string) int {
	if name == "default" {
		return 0
	}
	return 1
}

// pathOf returns the path of a base address.
func pathOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return u.Path
}
