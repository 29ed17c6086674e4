package slurm

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// providerEnv makes the program of these tests a provider of models: it is the address
// on which it listens.
const providerEnv = "BERTH_E2E_PROVIDER"

// What the tests have in common with the provider.
const (
	providerAt  = "10.121.7.1:7100" // on the login node
	providerKey = "canary-of-podman-91c4"
	seesNetwork = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' > /app/done"
	heldFile    = "hold"  // while it is there, requests are not answered
	countsFile  = "asked" // one line for each request: how many were answered, and how many had no key
)

func TestMain(m *testing.M) {
	if at := os.Getenv(providerEnv); at != "" {
		fmt.Fprintln(os.Stderr, provide(at))
		os.Exit(1)
	}
	os.Exit(testlevel.Main("test-slurm", m.Run))
}

// provide serves a model. Its working folder has the files above.
func provide(at string) error {
	p := &e2etest.Provider{Key: providerKey, Command: seesNetwork + "; env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'"}
	log, err := os.OpenFile(countsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // the test reads it as another user
	if err != nil {
		return err
	}
	var mu sync.Mutex
	s := &http.Server{Addr: at, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		_, _ = fmt.Fprintln(log, p.Served.Load(), p.Strange.Load()) // the test misses the line
		mu.Unlock()
		for r.Context().Err() == nil {
			if _, missing := os.Stat(heldFile); missing != nil {
				break
			}
			time.Sleep(50 * time.Millisecond) // until the test lets it go on, in another process
		}
		p.ServeHTTP(w, r)
	})}
	return s.ListenAndServe()
}

// provider starts the provider on the login node, in a folder of its own, whose path
// here it returns.
func (s *site) provider() string {
	s.t.Helper()
	dir := filepath.Join(s.shared, "provider")
	e2etest.Must(s.t, os.MkdirAll(dir, 0o755)) //nolint:gosec // the user works in it
	self, err := os.ReadFile(os.Args[0])
	e2etest.Must(s.t, err)
	e2etest.Must(s.t, os.WriteFile(filepath.Join(dir, "serve"), self, 0o755)) //nolint:gosec // the user executes it
	e2etest.Must(s.t, os.Chmod(dir, 0o777))                                   //nolint:gosec // the user writes to it
	s.on("login", fmt.Sprintf("cd %s/provider && %s=%s setsid ./serve > out 2>&1 < /dev/null & true", s.shared, providerEnv, providerAt))
	s.await("the provider listens", func() bool {
		return s.on("login", "ss -Hltn 'sport = :7100' || true") != ""
	})
	return dir
}
