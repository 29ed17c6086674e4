package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
)

// relayRequests is how many requests are sent each way.
const relayRequests = 400

// relay measures what a request takes longer if the gateway of a pilot sends it
// through the gateway of the coordinator, with TLS between them, than if it asks the
// provider itself. Both ways take turns.
func (b *bench) relay(ctx context.Context, f *figures) error {
	provider := httptest.NewServer(http.HandlerFunc(provide))
	defer provider.Close()
	model := func() *cell.Model {
		key := cell.Plain("k")
		return &cell.Model{Label: "m", Provider: "anthropic", Name: "m", BaseURL: provider.URL, APIKey: &key}
	}
	up, end, err := b.uplink(ctx, model())
	if err != nil {
		return err
	}
	defer end()
	var ways [2]way
	for i, o := range []gateway.Options{{}, {Uplink: up}} {
		var over func()
		if ways[i], over, err = b.pilotWay(ctx, o, model()); err != nil {
			return err
		}
		defer over()
	}
	var times [2][]time.Duration
	for i := range relayRequests + 20 {
		for k := range ways {
			first, _, err := ways[k].ask(ctx, 0)
			if err != nil {
				return err
			}
			if i >= 20 { // the first ones open connections
				times[k] = append(times[k], first)
			}
		}
	}
	for _, q := range []struct {
		name   string
		at     float64
		wanted string
	}{{"p50", 0.5, "≤ 2 ms more"}, {"p99", 0.99, "for information"}} {
		x, y := quantile(times[0], q.at), quantile(times[1], q.at)
		f.add("first byte through the relay of a cluster, "+q.name, ms(y), ms(x)+" directly", ms(y-x)+" more", q.wanted)
	}
	return nil
}

// uplink starts the end of a coordinator, and returns the beginning of a connection
// of a pilot to it.
func (b *bench) uplink(ctx context.Context, m *cell.Model) (up *uplink.Client, end func(), err error) {
	g, err := gateway.New(gateway.Options{
		Dialects: dialects.All, Dir: filepath.Join(b.dir, "rc"), Models: []*cell.Model{m},
		Cells: []gateway.Cell{{Name: "a", Trials: []string{"t"}, Models: []*cell.Model{m}}},
	})
	if err != nil {
		return nil, nil, err
	}
	token, err := uplink.Token()
	if err != nil {
		return nil, nil, errors.Join(err, g.Close())
	}
	s, err := uplink.Listen(ctx, uplink.Options{
		Address: "127.0.0.1", Gateway: g,
		Token: func(context.Context, string) (string, error) { return token, nil },
		Makes: func(context.Context, string, string, int) error { return nil },
	})
	if err != nil {
		return nil, nil, errors.Join(err, g.Close())
	}
	up = uplink.NewClient("pilot", token, s.Place)
	return up, func() {
		up.Close()
		_ = s.Close()
		_ = g.Close()
	}, nil
}

// pilotWay starts the gateway of a pilot with a session of an attempt.
func (b *bench) pilotWay(ctx context.Context, o gateway.Options, m *cell.Model) (w way, over func(), err error) {
	name := map[bool]string{true: "rp", false: "dp"}[o.Uplink != nil]
	o.Dialects, o.Dir, o.Models = dialects.All, filepath.Join(b.dir, name), []*cell.Model{m}
	g, err := gateway.New(o)
	if err != nil {
		return w, nil, err
	}
	s, err := g.Session(ctx, models.Spec{
		Trial: "t", Attempt: 1, Role: "agent", Dir: b.dir, Models: map[string]*cell.Model{"default": m}, Append: func(string, any) {},
	})
	if err == nil {
		err = s.Allow(ctx)
	}
	if err != nil {
		return w, nil, errors.Join(err, g.Close())
	}
	e := s.Endpoints()["default"]
	w = way{"http://gateway", e.Token, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", strings.TrimPrefix(e.Host, "unix:"))
		},
	}}}
	return w, func() {
		_ = s.Close(context.WithoutCancel(ctx))
		_ = g.Close()
	}, nil
}
