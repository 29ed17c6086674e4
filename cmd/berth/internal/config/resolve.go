package config

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/source"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// secret is a secret of the block, with its place noted; nil: there is none at
// the path.
func (c *builder) secret(h *source.Hole) *cell.Secret {
	if h == nil {
		return nil
	}
	c.l.exp.places[&h.Secret] = h.At
	return &h.Secret
}

// text is a text of the block, or its secret.
func (c *builder) text(r *source.Reading, path pluginconfig.Path, s string) cell.Text {
	if secret := c.secret(r.Holes[path]); secret != nil {
		return cell.Hidden(secret)
	}
	return cell.Plain(s)
}

func (c *builder) texts(r *source.Reading, path pluginconfig.Path, m map[string]string) map[string]cell.Text {
	if len(m) == 0 {
		return nil
	}
	out := map[string]cell.Text{}
	for k, s := range m {
		out[k] = c.text(r, path.Key(k), s)
	}
	return out
}

func (c *builder) dataset(label string) *experiment.Dataset {
	return once(c, "dataset", label, func(r *source.Reading, d *datasetBlock) *experiment.Dataset {
		dir := c.abs(d.Path)
		if moved := c.l.opts.Datasets[label]; moved != "" {
			dir, d.Path = moved, moved
		}
		r.Report(checkDataset(d, folderProblem(dir, c.shown(d.Path)), c.l.opts.Formats))
		if known := c.l.opts.Formats; len(known) == 0 || slices.Contains(known, d.Format) {
			d.Dataset.Config = c.config(r, "config", KindFormat, d.Format, "format")
		}
		d.Label, d.Path = label, dir
		if d.Success != nil {
			d.Dataset.Success = &task.Success{Score: d.Success.Key, AtLeast: &d.Success.AtLeast}
		}
		return &d.Dataset
	})
}

func (c *builder) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(c.l.exp.Dir, path)
}

// shown is a path as the user would name it.
func (c *builder) shown(path string) string {
	if filepath.IsAbs(path) || c.l.opts.BaseDir != "" {
		return c.abs(path)
	}
	return filepath.Join(c.l.src.Dir, path)
}

func (c *builder) environment(label string) *cell.Environment {
	return once(c, "environment", label, func(r *source.Reading, e *environmentBlock) *cell.Environment {
		r.Report(checkEnvironment(e))
		out := &cell.Environment{
			Label: label, Plugin: e.Plugin, Env: c.texts(r, "env", e.Env), Surface: e.Surface,
			Limits: task.Limits{
				CPUMilli: int64(e.Limits.CPUs*1000 + 0.5), MemoryMiB: e.Limits.MemoryMiB, StorageMiB: e.Limits.StorageMiB,
				Pids: e.Limits.Pids, GPUs: e.Limits.GPUs,
			},
			Config: c.config(r, "config", plugins.KindEnvironment, e.Plugin, "plugin"),
		}
		if e.Network != "" {
			out.Network = &task.Network{Mode: task.NetworkMode(e.Network), Allow: e.AllowHosts}
		}
		if e.Surface != "" {
			out.SurfaceConfig = c.config(r, "surface_config", plugins.KindEnvironment, e.Surface, "surface")
		}
		return out
	})
}

// model is the same pointer for all cells in which the block is the same.
func (c *builder) model(label string) *cell.Model {
	return once(c, "model", label, func(r *source.Reading, m *modelBlock) *cell.Model {
		r.Report(checkModel(m, c.l.opts.Providers))
		if m.Price != nil {
			slices.SortFunc(m.Price.Tiers, func(a, b dialect.PriceTier) int { return cmp.Compare(a.Above, b.Above) })
		}
		out := &cell.Model{
			Label: label, Provider: m.Provider, Name: m.Name, BaseURL: m.BaseURL, Price: m.Price, Parameters: compact(m.Parameters),
			AllowModels: m.AllowModels, AllowHosted: m.AllowHosted, Replay: m.Replay, InFlight: m.InFlight,
			ContextTokens: m.ContextTokens, FirstByteTimeout: m.FirstByteTimeout, IdleTimeout: m.IdleTimeout,
		}
		if m.APIKey != "" {
			out.APIKey = new(c.text(r, "api_key", m.APIKey))
		}
		for i, key := range m.APIKeys {
			out.APIKeys = append(out.APIKeys, c.text(r, pluginconfig.Path("api_keys").Index(i), key))
		}
		out.Fallback = c.fallback(r, out, m.Fallback)
		if m.Script != "" {
			c.script(r, out, m.Script)
		}
		if m.CAFile != "" {
			c.authority(r, out, m.CAFile)
		}
		if r.Broken {
			return nil
		}
		id, err := json.Marshal(out)
		if err != nil { // every value was checked, so that it can be written
			r.Report([]pluginconfig.Problem{{Summary: "Model cannot be used", Detail: err.Error() + "."}})
			return nil
		}
		if c.l.models[string(id)] == nil {
			c.l.models[string(id)] = out
		}
		return c.l.models[string(id)]
	})
}

// authority checks the file with the certificates of a private authority.
func (c *builder) authority(r *source.Reading, out *cell.Model, path string) {
	out.CAFile = c.l.env.Place(path)
	content, err := c.l.env.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("no such file: %q", path)
	case err == nil && !x509.NewCertPool().AppendCertsFromPEM(content):
		err = fmt.Errorf("%q has no certificate: it has to be a PEM file with a line BEGIN CERTIFICATE", path)
	}
	if err != nil {
		r.Report([]pluginconfig.Problem{{Path: "ca_file", Summary: "Certificates cannot be read", Detail: err.Error() + "."}})
	}
}

// script reads and checks the replies of a scripted model.
func (c *builder) script(r *source.Reading, out *cell.Model, path string) {
	out.Script = c.l.env.Place(path)
	content, err := c.l.env.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no such file: %q", path)
	}
	if err != nil {
		r.Report([]pluginconfig.Problem{{Path: "script", Summary: "Script cannot be read", Detail: err.Error() + "."}})
		return
	}
	out.ScriptDigest = digest(content)
	if check := c.l.opts.CheckScript; check != nil {
		if err = check(path, content); err != nil {
			r.Report([]pluginconfig.Problem{{Path: "script", Summary: "Script is malformed", Detail: fmt.Sprintf("%s: %v", path, err)}})
		}
	}
}

// fallback resolves the models that serve if m does not.
func (c *builder) fallback(r *source.Reading, m *cell.Model, labels []string) (out []*cell.Model) {
	c.chain = append(c.chain, m.Label)
	defer func() { c.chain = c.chain[:len(c.chain)-1] }()
	wrong := func(i int, summary, detail string, args ...any) {
		r.Report([]pluginconfig.Problem{{Path: pluginconfig.Path("fallback").Index(i), Summary: summary, Detail: fmt.Sprintf(detail, args...)}})
	}
	for i, label := range labels {
		if at := slices.Index(c.chain, label); at >= 0 {
			wrong(i, "Fallbacks form a loop", "%s: a model cannot be its own fallback. Remove one of these references.",
				strings.Join(append(slices.Clone(c.chain[at:]), label), " → "))
			continue
		}
		if slices.Contains(labels[:i], label) {
			wrong(i, "Fallback is written twice", "model.%s is in the list already. Remove one of them.", label)
			continue
		}
		f := c.model(label)
		switch {
		case f == nil: // reported
		case f.Provider == string(model.DialectScript) || m.Provider == string(model.DialectScript):
			wrong(i, "A scripted model has no fallback", "A fallback serves for a provider that is down, and a script is not a provider: neither model.%s nor model.%s can be scripted.", m.Label, label)
		case f.Provider != m.Provider:
			wrong(i, "Fallback has another provider", "model.%s speaks %s, and model.%s speaks %s. Requests are not translated: choose a model with provider = %q.",
				label, f.Provider, m.Label, m.Provider, m.Provider)
		default:
			out = append(out, f)
		}
	}
	return out
}

func (c *builder) agent(label string) *cell.Agent {
	if label == "" {
		return nil
	}
	return once(c, "agent", label, func(r *source.Reading, a *agentBlock) *cell.Agent {
		out := &cell.Agent{
			Label: label, Plugin: a.Plugin, Oracle: a.Oracle, Env: c.texts(r, "env", a.Env), Models: c.models(r, a.Model, a.Models),
			Config: c.config(r, "config", plugins.KindAgent, a.Plugin, "plugin"), InFlight: a.InFlight, SameSession: a.SameSession,
		}
		if a.PriorTrajectory != "" {
			c.prior(r, a.PriorTrajectory, out)
		}
		return out
	})
}

// prior reads the trajectory from which an agent continues.
func (c *builder) prior(r *source.Reading, file string, a *cell.Agent) {
	content, err := c.l.env.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no such file: %q", file)
	}
	if err == nil {
		if _, problems := trajectory.Parse(content); len(problems) > 0 {
			err = fmt.Errorf("%s is not a valid trajectory: %s", file, problems[0])
		}
	}
	if err != nil {
		r.Report([]pluginconfig.Problem{{Path: "prior_trajectory", Summary: "Trajectory cannot be used", Detail: err.Error() + "."}})
		return
	}
	a.Prior, a.PriorDigest = c.l.env.Place(file), digest(content)
}

// models resolves the models of a block; one is short for the default.
func (c *builder) models(r *source.Reading, one string, several map[string]string) map[string]*cell.Model {
	if one != "" {
		if _, ok := several["default"]; ok {
			r.Report([]pluginconfig.Problem{{Path: "model", Summary: "Two default models", Detail: "model is short for models = { default = … }, which is there as well. Keep one of them."}})
		}
		several = maps.Clone(several)
		if several == nil {
			several = map[string]string{}
		}
		several["default"] = one
	}
	out := map[string]*cell.Model{}
	for _, name := range slices.Sorted(maps.Keys(several)) {
		if m := c.model(several[name]); m != nil {
			out[name] = m
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// withModels is the agent with the cell's model as its default.
func (c *builder) withModels(a cell.Agent, m *cell.Model) cell.Agent {
	if m == nil {
		return a
	}
	models := map[string]*cell.Model{"default": m}
	maps.Copy(models, a.Models)
	a.Models = models
	return a
}

func (c *builder) verifier(b *hclsyntax.Block) {
	out := read(c, b, func(r *source.Reading, v *verifierBlock) *cell.Verifier {
		out := &cell.Verifier{Label: b.Labels[0], Plugin: v.Plugin, Env: c.texts(r, "env", v.Env), Models: c.models(r, v.Model, v.Models), Budget: v.Budget}
		at := "plugin"
		if out.Plugin == "" {
			out.Plugin, at = out.Label, ""
		}
		out.Config = c.config(r, "config", plugins.KindVerifier, out.Plugin, at)
		return out
	})
	if out == nil {
		return
	}
	if c.cell.Verifiers == nil {
		c.cell.Verifiers = map[string]cell.Verifier{}
	}
	c.cell.Verifiers[out.Label] = *out
}

func (c *builder) user(r *source.Reading, u *userBlock) *cell.User {
	a := c.agent(u.Agent)
	if a == nil {
		return nil
	}
	if a.Oracle {
		r.Report([]pluginconfig.Problem{{Path: "agent", Summary: "An oracle cannot play the user", Detail: "It knows the reference solution. Use an agent without oracle = true."}})
	}
	agent := *a
	if own := c.models(r, u.Model, nil); own != nil {
		merged := maps.Clone(agent.Models)
		if merged == nil {
			merged = map[string]*cell.Model{}
		}
		maps.Copy(merged, own)
		agent.Models = merged
	}
	return &cell.User{Agent: agent, Persona: u.Persona, Time: u.Time, OnError: u.OnError, Budget: u.Budget}
}

// folderProblem is what is wrong with a folder that must exist, or "".
func folderProblem(dir, shown string) string {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("No such folder: %s.", shown)
	case err != nil:
		return fmt.Sprintf("%s: %s.", shown, source.Plain(err))
	case !info.IsDir():
		return fmt.Sprintf("%s is not a folder.", shown)
	}
	return ""
}

// oneOf is the problem of a name that is not among those that are known.
func oneOf(path pluginconfig.Path, what, got string, known []string) []pluginconfig.Problem {
	if len(known) == 0 || slices.Contains(known, got) {
		return nil
	}
	return []pluginconfig.Problem{{Path: path, Summary: "Unknown " + what, Detail: fmt.Sprintf("There is no %s %q.%s", what, got, suggest.Hint(got, known))}}
}
