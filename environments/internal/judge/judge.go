// Package judge holds what all environments check alike of a Spec. It must not know
// an engine, images or limits.
package judge

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/environment"
)

// Judgement is the result of checking a Spec.
type Judgement struct {
	Report  environment.Report
	Granted environment.Granted
}

// Refuse adds a reason why the sandbox is not made.
func (j *Judgement) Refuse(summary, detail string) {
	j.Report.Refusals = append(j.Report.Refusals, environment.Problem{Summary: summary, Detail: detail})
}

// Degrade adds what is not as the task asks for it.
func (j *Judgement) Degrade(summary, detail string) {
	j.Report.Degraded = append(j.Report.Degraded, environment.Problem{Summary: summary, Detail: detail})
}

// Refused returns the error of Create for the refusals; nil: there are none.
func (j *Judgement) Refused() error {
	if len(j.Report.Refusals) == 0 {
		return nil
	}
	texts := make([]string, len(j.Report.Refusals))
	for i, p := range j.Report.Refusals {
		texts[i] = p.String()
	}
	return fmt.Errorf("%w: %s", environment.ErrRefused, strings.Join(texts, "\n"))
}

// Network checks the requested network. missing says why there is no public one, and
// what to do; empty: there is one.
func (j *Judgement) Network(mode environment.NetworkMode, missing string) {
	j.Granted.Network = environment.GrantEnforced
	switch mode {
	case environment.NetworkNone, environment.NetworkAllow:
	case environment.NetworkPublic:
		if missing != "" {
			j.Granted.Network = environment.GrantNo
			j.Refuse("The task needs the public network", missing+"; or grant less (network = \"none\" in the environment block; the result is then marked modified).")
		}
	default:
		j.Granted.Network = ""
		j.Refuse("The network mode is not known", fmt.Sprintf("Got %q: it is \"none\", \"allow\" or \"public\".", mode))
	}
}

// Reserved reports whether a path inside is one of the sandbox's own folders.
func Reserved(p string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(p), "/"), "/")
	return top == "" || slices.Contains([]string{"proc", "dev", "sys", "berth"}, top)
}

// Workdir checks the working folder; empty: there is none.
func (j *Judgement) Workdir(dir string) {
	switch {
	case dir == "":
	case !path.IsAbs(dir):
		j.Refuse("The working folder is not absolute", fmt.Sprintf("Got %q.", dir))
	case path.Clean(dir) != "/" && Reserved(dir):
		j.Refuse("The working folder is reserved", fmt.Sprintf("The sandbox itself creates %q.", dir))
	}
}

// Mounts checks folders to mount.
func (j *Judgement) Mounts(all []environment.Mount) {
	for _, m := range all {
		switch {
		case !path.IsAbs(m.Source) || !path.IsAbs(m.Target):
			j.Refuse("A mount is not absolute", fmt.Sprintf("Got %q on %q.", m.Source, m.Target))
		case Reserved(m.Target):
			j.Refuse("A mount is where the sandbox's own folders are", fmt.Sprintf("Nothing can be mounted on %q.", m.Target))
		}
	}
}
