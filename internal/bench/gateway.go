package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/dialects"
)

// The load for the gateway: a request as agents send it late in a conversation,
// and streams as providers send them.
const (
	requestBytes  = 50 << 10
	firstBytes    = 400 // requests for each way
	streamEvents  = 400
	streamPace    = 5 * time.Millisecond
	manyStreams   = 64
	longestSilent = 30 * time.Second
)

// way is a connection to a provider: direct or through the gateway.
type way struct {
	url, token string
	client     *http.Client
}

// gateway measures what the gateway adds to a request while it records.
func (b *bench) gateway(ctx context.Context, f *figures) (err error) {
	provider := httptest.NewServer(http.HandlerFunc(provide))
	defer provider.Close()
	key := cell.Plain("k")
	m := &cell.Model{Label: "m", Provider: "anthropic", Name: "m", BaseURL: provider.URL, APIKey: &key}
	g, err := gateway.New(gateway.Options{Dialects: dialects.All, Dir: filepath.Join(b.dir, "g"), Models: []*cell.Model{m}})
	if err != nil {
		return err
	}
	defer g.Close()
	lines, err := os.Create(filepath.Join(b.dir, "lines"))
	if err != nil {
		return err
	}
	defer lines.Close()
	var mu sync.Mutex
	s, err := g.Session(ctx, models.Spec{
		Trial: "t", Attempt: 1, Role: "agent", Dir: b.dir, Models: map[string]*cell.Model{"default": m},
		Append: func(_ string, line any) {
			mu.Lock()
			defer mu.Unlock()
			_ = json.NewEncoder(lines).Encode(line) // a measurement, so a failed write does not matter
		},
	})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	s.Allow(ctx)
	e := s.Endpoints()["default"]
	direct := way{provider.URL, "k", &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: manyStreams}}}
	through := way{"http://gateway", e.Token, &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: manyStreams,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", strings.TrimPrefix(e.Host, "unix:"))
		},
	}}}
	if err = firstByte(ctx, f, direct, through); err != nil {
		return err
	}
	return atOnce(ctx, f, direct, through)
}

// provide answers like a provider: with a stream of as many events as the
// header asks for.
func provide(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	n, err := strconv.Atoi(r.Header.Get("X-Events"))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n")
	_ = c.Flush()
	for range n {
		time.Sleep(streamPace)
		_, _ = io.WriteString(w, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"some words \"}}\n\n")
		_ = c.Flush()
	}
	_, _ = io.WriteString(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
}

// bodies makes request bodies differ, as in a conversation, so that each is
// recorded.
var bodies atomic.Int64

// ask sends one request and returns the times of its first and last byte.
func (w way) ask(ctx context.Context, events int) (first, last time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestSilent)
	defer cancel()
	body := fmt.Sprintf(`{"model":"m","max_tokens":100,"stream":true,"n":%d,"messages":[{"role":"user","content":%q}]}`,
		bodies.Add(1), strings.Repeat("some words of a tool ", requestBytes/21))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/messages", strings.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("X-Api-Key", w.token)
	req.Header.Set("X-Events", strconv.Itoa(events))
	begin := time.Now()
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("gateway: status %d", resp.StatusCode)
	}
	r := bufio.NewReader(resp.Body)
	if _, err = r.ReadByte(); err != nil {
		return 0, 0, err
	}
	first = time.Since(begin)
	_, err = io.Copy(io.Discard, r)
	return first, time.Since(begin), err
}

func firstByte(ctx context.Context, f *figures, direct, through way) error {
	var a, b []time.Duration
	for i := range firstBytes + 20 {
		x, _, err := direct.ask(ctx, 0)
		if err != nil {
			return err
		}
		y, _, err := through.ask(ctx, 0)
		if err != nil {
			return err
		}
		if i >= 20 { // the first ones open connections
			a, b = append(a, x), append(b, y)
		}
	}
	for _, q := range []struct {
		name   string
		at     float64
		wanted string
	}{{"p50", 0.5, "≤ 1 ms more"}, {"p99", 0.99, "≤ 5 ms more"}} {
		x, y := quantile(a, q.at), quantile(b, q.at)
		f.add("first byte through the gateway, "+q.name, ms(y), ms(x)+" without it", ms(y-x)+" more", q.wanted)
	}
	return nil
}

// atOnce measures the memory of many streams, with the gateway and without it.
// This process is client, gateway and provider.
func atOnce(ctx context.Context, f *figures, direct, through way) error {
	var peak [2]int64
	for i, w := range []way{direct, through} {
		debug.FreeOSMemory()
		before := resident()
		var wg sync.WaitGroup
		errs := make(chan error, manyStreams)
		for range manyStreams {
			wg.Go(func() {
				if _, _, err := w.ask(ctx, streamEvents); err != nil {
					errs <- err
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for running := true; running; {
			peak[i] = max(peak[i], resident()-before)
			select {
			case <-done:
				running = false
			case <-time.After(20 * time.Millisecond):
			}
		}
		select {
		case err := <-errs:
			return err
		default:
		}
	}
	f.add(fmt.Sprintf("memory of %d streams through the gateway", manyStreams), fmt.Sprintf("%d MB", peak[1]>>20),
		fmt.Sprintf("%d MB of client and provider alone", peak[0]>>20), fmt.Sprintf("%d MB more", (peak[1]-peak[0])>>20), "< 100 MB")
	return nil
}

// resident returns the memory of this process, in bytes; 0: not known.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
