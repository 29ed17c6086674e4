package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

// silent is an engine that does not answer.
type silent struct{ Engine }

func (silent) Containers(ctx context.Context, _ map[string]string) ([]Listed, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An engine that waits for a runtime that was killed does not keep gc from ending.
func TestAnEngineThatListsNothingIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &remote{Engine: silent{}, name: "Podman"}
		if _, err := r.list(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "End it (ps -C conmon)") {
			t.Errorf("got %v", err)
		}
	})
}
