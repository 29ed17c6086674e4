package environment

import (
	"context"
	"fmt"
)

// Plain implements Check for an environment that runs the host's own programs
// as root and has no images, other users, sandbox network, sidecars or limits.
// Embed it and set Name, which appears in its messages.
type Plain struct{ Name string }

// Check refuses what such an environment does not have.
func (e Plain) Check(_ context.Context, s Spec) (r Report, err error) {
	refuse := func(yes bool, what, todo string) {
		if yes {
			r.Refusals = append(r.Refusals, Problem{Summary: what, Detail: e.Name + " " + todo})
		}
	}
	none := s.Network.Mode == NetworkNone || s.Network.Mode == NetworkAllow // reached through the core's proxy
	refuse(!none, fmt.Sprintf("Network %q", s.Network.Mode), "has none: use another environment")
	refuse(s.Image.Ref != "" || s.Image.Build != "", "An image", "shows the host's programs: use an environment with images")
	refuse(len(s.Sidecars)+len(s.Volumes) > 0, "Several containers, or volumes", "makes one container: use an environment with sidecars")
	refuse(len(s.Users) > 0, "A second user", "has only root: use another environment")
	refuse(s.Limits.GPUs > 0, "A GPU", "has none: use another environment")
	if l := s.Limits; l.CPUMilli+l.MemoryMiB+l.StorageMiB+l.ShmMiB+l.Pids > 0 {
		r.Degraded = append(r.Degraded, Problem{Summary: "Limits", Detail: e.Name + " keeps none"})
	}
	return r, nil
}

// Err returns the first refusal as an error for Create to return, which wraps
// ErrRefused; nil when there is none.
func (r Report) Err() error {
	if len(r.Refusals) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", r.Refusals[0], ErrRefused)
}
