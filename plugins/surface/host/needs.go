package host

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/task"
)

// Needs is what a surface needs for the stages of a task, by their names.
type Needs map[string]environment.SurfaceNeeds

// Ask asks the plugin p, which has the block conf, what its surface needs for
// the stages of a task, and says why they cannot have what they ask for. It
// calls the plugin with ask, which may cache answers.
func Ask(p environment.Environment, t *task.Task, conf json.RawMessage,
	ask func(environment.Surface, environment.SurfaceRequest) (environment.SurfaceNeeds, error),
) (needs Needs, ps []environment.Problem, err error) {
	s, ok := p.(environment.Surface)
	if !ok || !environment.Has(p, environment.CapabilitySurface) {
		return nil, []environment.Problem{{Summary: "the environment has no surface", Detail: "The task needs one. Set surface = \"PLUGIN\" in the environment block."}}, nil
	}
	needs = Needs{}
	for i := range t.Stages {
		st := &t.Stages[i]
		if st.Surface == nil {
			continue
		}
		n, err := ask(s, environment.SurfaceRequest{Config: conf, Settings: t.Environment.Settings, Level: st.Surface.Level})
		if err != nil {
			return nil, nil, err
		}
		needs[st.Name] = n
		for _, why := range Problems(n, st.Surface) {
			if len(t.Stages) > 1 {
				why.Detail = fmt.Sprintf("In stage %q. %s", st.Name, why.Detail)
			}
			ps = append(ps, why)
		}
	}
	return needs, ps, nil
}

// Furnish adds to what is requested of the environment what the surface needs,
// and says why the sandbox does not suffice.
func (n Needs) Furnish(spec *environment.Spec) (ps []environment.Problem) {
	for _, of := range n {
		for _, m := range of.Mounts {
			if !slices.Contains(spec.Mounts, m) {
				spec.Mounts = append(spec.Mounts, m)
			}
		}
		spec.Limits.ShmMiB = max(spec.Limits.ShmMiB, of.ShmMiB)
		if has := spec.Limits.MemoryMiB; has > 0 && has < of.MemoryMiB && len(ps) == 0 {
			ps = append(ps, environment.Problem{
				Summary: fmt.Sprintf("the surface needs %d MiB of memory", of.MemoryMiB), Detail: fmt.Sprintf("The sandbox has %d MiB.", has),
			})
		}
	}
	if len(n) > 1 { // a map has no order, and answers to the same spec are cached
		slices.SortFunc(spec.Mounts, func(a, b environment.Mount) int { return cmp.Compare(a.Target, b.Target) })
	}
	return ps
}

// Problems says why a stage cannot have what it asks of a surface that needs n.
func Problems(n environment.SurfaceNeeds, asks *task.Surface) (ps []environment.Problem) {
	add := func(summary, format string, args ...any) {
		ps = append(ps, environment.Problem{Summary: summary, Detail: fmt.Sprintf(format, args...)})
	}
	for _, r := range n.Refusals {
		add("the surface refuses", "%s", r)
	}
	if len(ps) > 0 {
		return ps
	}
	var names []string
	for _, a := range n.Actions {
		names = append(names, a.Name)
	}
	for _, list := range []struct {
		what        string
		asks, known []string
	}{{"action", asks.Actions, names}, {"kind of observation", asks.Observations, n.Observations}} {
		for _, name := range list.asks {
			if !slices.Contains(list.known, name) {
				add(fmt.Sprintf("the surface has no %s %q", list.what, name), "%s", strings.TrimSpace("The task asks for it."+suggest.Hint(name, list.known)))
			}
		}
	}
	if n.ResetTime < 0 || n.ResetTime > surface.MaxReset {
		add("the surface cannot be used", "It asks for %s for a reset, and at most %s are allowed.", n.ResetTime, surface.MaxReset)
	}
	for _, k := range n.Pictures {
		if !slices.Contains(n.Observations, k) {
			add("the surface cannot be used", "It has no kind of observation %q, which it names as a picture.", k)
		}
	}
	if _, err := newStage("", n, &task.Surface{}); err != nil {
		add("the surface cannot be used", "%s.", err)
	}
	return ps
}
