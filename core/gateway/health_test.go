package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway/ratelimit"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/internal/testlevel"
)

// usualPace waits ten minutes for a provider that fails, so a test that waited
// would not end.
func usualPace(_ *cell.Model, o *Options, _ *models.Spec) { o.RateLimit = ratelimit.Options{} }

// closedPort is an address on which no process listens.
func closedPort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	testlevel.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// If a provider cannot be reached, or rejects the key, the first request ends
// the run with the address and the cause.
func TestAProviderThatNobodyCanReachEndsTheRun(t *testing.T) {
	t.Parallel()
	status := func(n int) string {
		return provide(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }).URL
	}
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = nil
	untrusted.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	untrusted.StartTLS()
	defer untrusted.Close()
	plain := provide(t, func(http.ResponseWriter, *http.Request) {})
	unknown := "no such host: provider.invalid"
	if _, err := net.DefaultResolver.LookupHost(t.Context(), "provider.invalid"); !namesServed(err) {
		unknown = "the name provider.invalid cannot be looked up: "
	}
	for name, tt := range map[string]struct{ base, says string }{
		"refused":        {"http://" + closedPort(t), "connection refused by 127.0.0.1:"},
		"no such host":   {"http://provider.invalid", unknown},
		"no certificate": {untrusted.URL, "the certificate of 127.0.0.1:"},
		"no TLS":         {strings.Replace(plain.URL, "http:", "https:", 1), "does not speak TLS (https)"},
		"401":            {status(401), "does not accept the api_key (status 401)"},
		"402":            {status(402), "wants to be paid first (status 402)"},
		"403":            {status(403), "does not allow it with this api_key (status 403)"},
	} {
		t.Run(name, func(t *testing.T) {
			m := provide(t, func(http.ResponseWriter, *http.Request) {}).model("anthropic")
			m.BaseURL = tt.base
			b := start(t, m, usualPace)
			if got := b.ask(t.Context(), t, requests[0].path, requests[0].body); got.status < 400 {
				t.Errorf("answered with %d %s", got.status, got.body)
			}
			select {
			case <-b.Spent():
			case <-time.After(time.Minute):
				t.Fatal("the turn goes on")
			}
			r := b.State().Refusal
			if r == nil || !r.Provider || r.Scope != record.ScopeRun || !strings.Contains(r.Err.Error(), tt.says) || !strings.Contains(r.Err.Error(), `model "m1"`) {
				t.Errorf("refusal %+v; want %q", r, tt.says)
			}
			if strings.Contains(fmt.Sprint(r), canaryKey) {
				t.Error("the key is in it")
			}
		})
	}
}

// namesServed reports whether an error of a look-up is the answer of a server for names, which
// a machine without a network does not reach.
func namesServed(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// The gateway waits for a provider that has served before; such a provider
// alone does not end the run.
func TestAProviderThatHasServedIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 503} {
		var asked atomic.Int64
		p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) > 1 {
				w.WriteHeader(status)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"content":[],"usage":{"input_tokens":3,"output_tokens":4}}`)
		})
		b := start(t, p.model("anthropic"))
		for range 2 {
			b.ask(t.Context(), t, requests[0].path, requests[0].body)
		}
		if b.State().Refusal != nil || b.State().Down == nil {
			t.Errorf("%d: refusal %+v, down %v", status, b.State().Refusal, b.State().Down)
		}
	}
}

// If several attempts in a row have ended in the same way, the next one ends
// the run. A response in between resets the count.
func TestEqualFailuresInARowEndTheRun(t *testing.T) {
	t.Parallel()
	var good atomic.Bool
	good.Store(true)
	p := provide(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if good.Load() {
			_, _ = io.WriteString(w, `{"content":[],"usage":{"input_tokens":3,"output_tokens":4}}`)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	first := start(t, p.model("anthropic"), func(_ *cell.Model, o *Options, _ *models.Spec) {
		o.RateLimit = ratelimit.Options{GiveUpAfter: time.Nanosecond, First: time.Millisecond, Longest: time.Millisecond}
	})
	asked := first.spec.Models
	attempt := func(n int, ok bool) *models.Refusal {
		good.Store(ok)
		b := &bench{g: first.g}
		b.session = b.open(t, models.Spec{Trial: fmt.Sprint("t", n), Attempt: 1, Role: "agent", Models: asked})
		b.e = b.Endpoints()["default"]
		b.c = unixClient(b.e.Host)
		for range 3 { // the agent tries again
			b.ask(t.Context(), t, requests[0].path, requests[0].body)
		}
		b.c.CloseIdleConnections()
		r := b.State().Refusal
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return r
	}
	attempt(0, true)
	for n := 1; n <= maxEqual; n++ {
		if r := attempt(n, false); r != nil {
			t.Fatalf("attempt %d: %v", n, r.Err)
		}
	}
	attempt(10, true)
	for n := 11; n <= 10+maxEqual; n++ {
		if r := attempt(n, false); r != nil {
			t.Fatalf("attempt %d: %v", n, r.Err)
		}
	}
	if r := attempt(20, false); r == nil || !r.Provider || !strings.Contains(r.Err.Error(), "status 500 from 127.0.0.1:") || !strings.Contains(r.Err.Error(), "5 attempts in a row have ended so") {
		t.Errorf("refusal %+v", r)
	}
}

// A provider with the certificate of a private authority serves with ca_file;
// otherwise the error names ca_file.
func TestAPrivateAuthority(t *testing.T) {
	t.Parallel()
	served := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"content":[],"usage":{"input_tokens":3,"output_tokens":4}}`)
	}))
	served.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	served.StartTLS()
	t.Cleanup(served.Close)
	file := func(der []byte) string {
		path := filepath.Join(t.TempDir(), "ca.pem")
		testlevel.Must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
		return path
	}
	unrelated := file(selfSigned(t))
	for name, tt := range map[string]struct{ ca, says string }{
		"with it":      {ca: file(served.Certificate().Raw)},
		"without it":   {says: `name the file with its certificate in ca_file of model "m"`},
		"with another": {ca: unrelated, says: fmt.Sprintf("ca_file %q does not have that authority", unrelated)},
	} {
		m := provide(t, func(http.ResponseWriter, *http.Request) {}).model("anthropic")
		m.BaseURL, m.CAFile = served.URL, tt.ca
		b := start(t, m, usualPace)
		got := b.ask(t.Context(), t, requests[0].path, requests[0].body)
		if down := b.State().Down; (got.status == http.StatusOK) != (tt.says == "") || tt.says != "" && !strings.Contains(fmt.Sprint(down), tt.says) {
			t.Errorf("%s: %d, down %v; want %q", name, got.status, down, tt.says)
		}
	}
	m := provide(t, func(http.ResponseWriter, *http.Request) {}).model("anthropic")
	m.CAFile = filepath.Join(t.TempDir(), "none.pem")
	if _, err := New(Options{Dialects: dialects.All, Models: []*cell.Model{&m}}); err == nil || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// selfSigned makes the certificate of an authority that signs nothing.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testlevel.Must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another"}, IsCA: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	testlevel.Must(t, err)
	return der
}
