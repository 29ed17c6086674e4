package experiment

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/berth-eval/berth/core/cell"
)

// omitempty is a JSON object without its empty values, as the option of that name
// leaves them out.
type omitempty map[string]any

// MarshalJSON implements [json.Marshaler].
func (o omitempty) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	for k, x := range o {
		switch v := reflect.ValueOf(x); v.Kind() {
		case reflect.Invalid:
			continue
		case reflect.Map, reflect.Slice, reflect.String:
			if v.Len() == 0 {
				continue
			}
		case reflect.Struct:
		default:
			if v.IsZero() {
				continue
			}
		}
		out[k] = x
	}
	return json.Marshal(out)
}

// Identity is the canonical JSON of the cell for the tasks of a dataset, for
// trial ids: keys sorted, no spaces, secrets as their labels. Two cells of an
// experiment differ in it, unless only their datasets differ.
//
// It holds everything that can change a result, and nothing else: no label, path,
// address, price, key or time of the run. Empty values are left out, so that the
// ids of trials stay when a field is added.
func (c *Cell) Identity(d *Dataset) json.RawMessage {
	verifiers := map[string]any{}
	for label, v := range c.Verifiers {
		verifiers[label] = omitempty{
			"plugin": v.Plugin, "config": settings(v.Config), "env": v.Env, "models": identityOfModels(v.Models),
			"cost_usd": v.CostUSD, "tokens": v.Tokens, "requests": v.Requests,
		}
	}
	id := omitempty{
		"agent": identityOfAgent(&c.Agent), "environment": identityOfEnvironment(&c.Environment), "verifiers": verifiers, "per_trial": c.Limits,
	}
	if u := c.User; u != nil {
		id["user"] = omitempty{
			"agent": identityOfAgent(&u.Agent), "persona": u.Persona, "on_user_error": u.OnError,
			"time_ns": u.Time, "cost_usd": u.CostUSD, "tokens": u.Tokens, "requests": u.Requests,
		}
	}
	set := omitempty{
		"verify": d.Verify, "work": d.Work, "lenient": d.Lenient, "allow_env": d.AllowEnv, "config": settings(d.Config),
	}
	if r := d.Success; r != nil {
		set["success"] = map[string]any{"key": r.Score, "at_least": r.AtLeast}
	}
	id["datasets"] = []any{set}
	return cell.Canonical(id)
}

func identityOfAgent(a *cell.Agent) any {
	return omitempty{
		"plugin": a.Plugin, "oracle": a.Oracle, "config": settings(a.Config), "env": a.Env, "models": identityOfModels(a.Models), "same_session": a.SameSession, "prior": a.PriorDigest,
	}
}

func identityOfEnvironment(e *cell.Environment) any {
	return omitempty{
		"plugin": e.Plugin, "network": e.Network, "limits": e.Limits, "config": settings(e.Config), "env": e.Env,
		"surface": e.Surface, "surface_config": settings(e.SurfaceConfig),
	}
}

func identityOfModels(ms map[string]*cell.Model) any {
	out := omitempty{}
	for role, m := range ms {
		out[role] = identityOfModel(m)
	}
	return out
}

func identityOfModel(m *cell.Model) any {
	var fallback []any
	for _, f := range m.Fallback {
		fallback = append(fallback, identityOfModel(f))
	}
	return omitempty{
		"provider": m.Provider, "name": m.Name, "script": m.ScriptDigest, "parameters": m.Parameters,
		"allow_models": m.AllowModels, "allow_hosted": m.AllowHosted, "fallback": fallback,
	}
}

// settings are the configuration of a plugin; "secrets" says which of its strings
// are labels of secrets, so that no plain text is taken for one.
func settings(v cell.Values) any {
	if v.JSON() == nil || string(v.JSON()) == "{}" {
		return nil
	}
	return omitempty{"values": v.JSON(), "secrets": slices.Sorted(maps.Keys(v.Secrets()))}
}
