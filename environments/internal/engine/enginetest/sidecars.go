package enginetest

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// sidecars tries what the kit cannot: that a sandbox of several containers,
// whose maker is gone, is found and removed whole by another process. again
// makes another environment, as another process has it.
func sidecars(t *testing.T, again func() *engine.Environment, spec environment.Spec) {
	t.Helper()
	spec.Labels.Owner = "sidecars-" + filepath.Base(t.TempDir()) + time.Now().String()
	spec.Scratch = t.TempDir()
	spec.Volumes = []environment.Volume{{Name: "data", Target: "/data"}}
	spec.Address = "172.30.255.2"
	for i, name := range []string{"one", "two"} {
		f := control(t)
		spec.Sidecars = append(spec.Sidecars, environment.Sidecar{Name: name, Image: spec.Image, Control: f.Path, Address: fmt.Sprint("172.30.255.", 3+i), Volumes: spec.Volumes})
	}
	b := Open(t, again(), spec)
	if len(b.Sidecars) != 2 || b.Sidecars[0].Name != "one" || b.Sidecars[1].Name != "two" || b.Sidecars[1].PID == 0 {
		t.Errorf("sidecars: %+v", b.Sidecars)
	}
	other := again()
	plain := spec
	plain.Labels.Owner, plain.Sidecars, plain.Volumes = spec.Labels.Owner+" of another", nil, nil
	neighbor := Open(t, other, plain)
	if _, err := again().Destroy(bounded(t), neighbor.ID); err != nil { // which touches nothing of the first
		t.Errorf("destroy a neighbor: %v", err)
	}
	if ids, err := other.List(bounded(t), spec.Labels.Owner); err != nil || !slices.Equal(ids, []string{b.ID}) {
		t.Errorf("list: %q, %v; want %q alone", ids, err, b.ID)
	}
	if _, err := other.Destroy(bounded(t), b.ID); err != nil {
		t.Errorf("destroy: %v", err)
	}
	if ids, err := other.List(bounded(t), spec.Labels.Owner); err != nil || len(ids) != 0 {
		t.Errorf("left: %q, %v", ids, err)
	}
}
