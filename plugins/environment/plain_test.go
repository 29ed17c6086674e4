package environment

import (
	"errors"
	"strings"
	"testing"
)

func TestAProblemIsOneLineOfSentences(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ summary, detail, want string }{
		{"No image", "", "No image"},
		{"No image", "use environment x.", "No image: use environment x."},
		{"No image", "Use environment x.", "No image. Use environment x."},
	} {
		if got := (Problem{Summary: tt.summary, Detail: tt.detail}).String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestPlainRefusesWhatItHasNot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		spec              Spec
		refused, degraded string
	}{
		{name: "nothing", spec: Spec{Network: Network{Mode: NetworkNone}}},
		{name: "listed hosts", spec: Spec{Network: Network{Mode: NetworkAllow}}},
		{"any host", Spec{Network: Network{Mode: NetworkPublic}}, `Network "public"`, ""},
		{"no mode", Spec{}, `Network ""`, ""},
		{"an image", Spec{Network: Network{Mode: NetworkNone}, Image: Image{Ref: "x"}}, "An image", ""},
		{"a build", Spec{Network: Network{Mode: NetworkNone}, Image: Image{Build: "x"}}, "An image", ""},
		{"a sidecar", Spec{Network: Network{Mode: NetworkNone}, Sidecars: make([]Sidecar, 1)}, "Several containers", ""},
		{"a volume", Spec{Network: Network{Mode: NetworkNone}, Volumes: make([]Volume, 1)}, "volumes", ""},
		{"a user", Spec{Network: Network{Mode: NetworkNone}, Users: []string{"bob"}}, "A second user", ""},
		{"a GPU", Spec{Network: Network{Mode: NetworkNone}, Limits: Limits{GPUs: 1}}, "A GPU", ""},
		{"a limit", Spec{Network: Network{Mode: NetworkNone}, Limits: Limits{Pids: 1}}, "", "Limits"},
	} {
		r, err := Plain{Name: "box"}.Check(t.Context(), tt.spec)
		if err != nil || (tt.refused == "") != (len(r.Refusals) == 0) || (tt.degraded == "") != (len(r.Degraded) == 0) {
			t.Errorf("%s: %+v, %v", tt.name, r, err)
		}
		if err = r.Err(); (err != nil) != errors.Is(err, ErrRefused) || (err != nil && !strings.Contains(err.Error(), tt.refused)) || (err == nil) != (tt.refused == "") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.refused)
		}
	}
}
