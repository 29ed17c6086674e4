package feasible

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// HostVars refuses a task if a host variable that it needs in a cell is not let
// through or not set. A key that a verifier's model supplies is not needed.
func HostVars(t *task.Task, o task.Options, c cell.Cell, k Known, dialects *dialect.Set) []Problem {
	needed := supplied(t, func(u task.VerifierUse) []dialect.Dialect {
		var ds []dialect.Dialect
		if v := c.Verifiers[u.Name]; JudgesInside(k.Verifiers[u.Name], v) {
			for _, m := range v.Models {
				ds = append(ds, dialects.Speaks(m.Provider)...)
			}
		}
		return ds
	})
	others := supplied(t, func(u task.VerifierUse) []dialect.Dialect {
		if k.Verifiers[u.Name].Needs == verifier.NeedsSandbox {
			return dialects.Speaks(string(model.DialectScript))
		}
		return nil
	})
	var why []string
	for _, name := range needed {
		instead := "."
		if !slices.Contains(others, name) {
			instead = ", or give the verifier a model, which supplies it to the task's tests."
		}
		if !o.EnvAllowed(name) {
			why = append(why, fmt.Sprintf("%s is not let through: allow it with --allow-env %s, or with allow_env in the dataset%s", name, name, instead))
		} else if _, ok := o.Lookup(name); !ok {
			why = append(why, name+" is not set"+instead)
		}
	}
	if why == nil {
		return nil
	}
	return []Problem{{Summary: "task needs host variables", Detail: strings.Join(why, " ")}}
}

// supplied returns the host variables that a task needs if the models of each
// verifier answer in these dialects.
func supplied(t *task.Task, by func(task.VerifierUse) []dialect.Dialect) []string {
	as := *t
	as.Stages = nil
	for _, s := range t.Stages {
		env := s.Verify.Env
		s.Verify.Env = nil
		as.Stages = append(as.Stages, s)
		for _, u := range s.Verifiers { // each gets all of them
			keys, addresses := map[string]string{}, map[string]string{}
			for _, d := range by(u) {
				v := d.Variables()
				for _, name := range v.Keys {
					keys[name] = ""
				}
				for _, name := range v.Addresses {
					addresses[name] = ""
				}
			}
			s.Verify.Env, _ = FromModels(env, keys, addresses)
			as.Stages = append(as.Stages, s)
		}
	}
	return as.HostVars()
}

// JudgesInside reports whether the models of a verifier serve the programs of
// the task, in the sandbox.
func JudgesInside(t verifier.Traits, v cell.Verifier) bool {
	return t.Needs == verifier.NeedsSandbox && len(v.Models) > 0
}

// FromModels replaces in e what a model supplies, and reports whether e asks for
// a key at all. That is a host variable with the name of a key, or a variable
// with such a name that takes its value from the host. With a key, addresses are
// supplied as well.
func FromModels(e task.Env, keys, addresses map[string]string) (_ task.Env, asks bool) {
	out := make(task.Env, len(e))
	for name, v := range e {
		if key, ok := keys[name]; ok && v.Host != "" {
			v, asks = task.Value{Text: key}, true
		}
		asks = asks || slices.ContainsFunc(task.Env{name: v}.HostVars(), func(host string) bool { _, ok := keys[host]; return ok })
		out[name] = v
	}
	if !asks {
		return e, false
	}
	for name, v := range out {
		out[name] = replaced(replaced(v, keys), addresses)
	}
	return out, true
}

// replaced returns v with the texts of some host variables in it.
func replaced(v task.Value, texts map[string]string) task.Value {
	if s, ok := texts[v.Host]; ok {
		return task.Value{Text: s}
	}
	v.Parts = slices.Clone(v.Parts)
	for i := range v.Parts {
		v.Parts[i] = replaced(v.Parts[i], texts)
	}
	return v
}
