package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestPullsFromOneRegistryAreSpread(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	const apart, pulls = 50 * time.Millisecond, 5
	began := time.Now()
	var all sync.WaitGroup
	for range pulls {
		all.Go(func() {
			if err := pullTurn(t.Context(), "registry.example", apart); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took < (pulls-1)*apart {
		t.Errorf("%d pulls in %v; want %v between them", pulls, took, apart)
	}
	if err := pullTurn(t.Context(), "another.example", time.Hour); err != nil {
		t.Errorf("another registry: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pullTurn(ctx, "another.example", time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled wait: %v", err)
	}
}
