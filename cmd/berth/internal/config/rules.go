package config

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/executors/slurm"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
)

// rules collects what is wrong with the values of a block.
type rules struct{ ps []pluginconfig.Problem }

func (r *rules) add(path pluginconfig.Path, summary, format string, a ...any) {
	r.ps = append(r.ps, pluginconfig.Problem{Path: path, Summary: summary, Detail: fmt.Sprintf(format, a...)})
}

// positive checks numbers that may be absent, and otherwise are above zero.
func positive[N int | int64 | float64](r *rules, path pluginconfig.Path, n *N) {
	if n != nil && *n <= 0 {
		r.add(path, "Wrong value", "Got %v. Write a number above 0, or leave it out.", *n)
	}
}

// natural checks numbers whose zero means something.
func natural[N int | int64 | float64](r *rules, path pluginconfig.Path, n N) {
	if n < 0 {
		r.add(path, "Wrong value", "Got %v. Write 0 or more.", n)
	}
}

// lastingOrZero checks times whose zero means something.
func lastingOrZero(r *rules, path pluginconfig.Path, d time.Duration) {
	if d < 0 {
		r.add(path, "Wrong value", "Got %s. Write \"0s\" or more.", d)
	}
}

func lasting(r *rules, path pluginconfig.Path, d *time.Duration) {
	if d != nil && *d <= 0 {
		r.add(path, "Wrong value", "Got %s. Write a duration above 0, such as \"10m\", or leave it out.", *d)
	}
}

// either checks that a time and its factor are not both given.
func either(r *rules, path pluginconfig.Path, d *time.Duration, factor *float64) {
	f := path + "_factor"
	lasting(r, path, d)
	positive(r, f, factor)
	if d != nil && factor != nil {
		r.add(f, "Two times", "%s replaces the task's time, %s multiplies it. Keep one of them.", last(path), last(f))
	}
}

// last is the name at the end of a path.
func last(p pluginconfig.Path) string { return string(p[strings.LastIndexByte(string(p), '.')+1:]) }

// mostKeptMiB is more than any disk has, and still a number of bytes.
const mostKeptMiB = 1 << 40

func checkRun(b *experimentBlock) []pluginconfig.Problem {
	r := &rules{}
	if b.Repeat < 1 || b.Repeat > 100_000 {
		r.add("repeat", "Wrong value", "Got %d. Write a number from 1 to 100000.", b.Repeat)
	}
	if b.KeepMiB < 1 || b.KeepMiB > mostKeptMiB {
		r.add("keep_mib", "Wrong value", "Got %d. Write a number of MiB from 1 to %d.", b.KeepMiB, mostKeptMiB)
	}
	places(r, "limits", b.Limits.Places)
	for kind, of := range b.Limits.Blocks() {
		for label, l := range of {
			places(r, pluginconfig.Path("limits."+kind).Key(label), l)
		}
	}
	positive(r, "limits.memory_mib", b.Limits.MemoryMiB)
	lasting(r, "limits.time", b.Limits.Time)
	budget(r, "limits", b.Limits.Budget)
	if b.Retry != nil {
		checkRetry(r, b.Retry)
	}
	if s := b.Report.MaxInfrastructure; !(s >= 0 && s <= 1) {
		r.add("report.max_infrastructure", "Wrong value", "Got %g. Write a share from 0 to 1, such as 0.02.", s)
	}
	return r.ps
}

func checkRetry(r *rules, b *experiment.Retry) {
	if b.Max < 0 || b.Max > 100 {
		r.add("retry.max", "Wrong value", "Got %d. Write a number from 0 to 100.", b.Max)
	}
	if b.Wait < 0 {
		r.add("retry.wait", "Wrong value", "Got %s. Write \"0s\" or more.", b.Wait)
	}
}

func budget(r *rules, path pluginconfig.Path, b cell.Budget) {
	positive(r, path.Attr("cost_usd"), b.CostUSD)
	positive(r, path.Attr("tokens"), b.Tokens)
	positive(r, path.Attr("requests"), b.Requests)
}

func places(r *rules, path pluginconfig.Path, p experiment.Places) {
	positive(r, path.Attr("in_flight"), p.InFlight)
	positive(r, path.Attr("building"), p.Building)
	positive(r, path.Attr("verifying"), p.Verifying)
}

// leastLost is the shortest time after which a pilot may count as lost.
const leastLost = time.Second

func checkExecutor(b *experiment.Executor) []pluginconfig.Problem {
	r := &rules{}
	natural(r, "workers", b.Workers)
	natural(r, "cpus", b.CPUs)
	natural(r, "memory_mib", b.MemoryMiB)
	natural(r, "gpus", b.GPUs)
	lastingOrZero(r, "time", b.Time)
	natural(r, "in_flight", b.InFlight)
	lastingOrZero(r, "grace", b.Grace)
	lastingOrZero(r, "idle", b.Idle)
	if b.Scratch != "" && !filepath.IsAbs(b.Scratch) {
		r.add("scratch", "Not an absolute path", "Got %q. Write a path that begins with /. Variables of the shell are not replaced here; without scratch, a pilot takes the first of the job's own folder, $TMPDIR and /tmp that will do.", b.Scratch)
	}
	for i, o := range b.Options {
		if b.Kind == "slurm" && slurm.Reserved(o) {
			r.add(pluginconfig.Path("options").Index(i), "Not an option for pilots", "%q: Berth sets this one itself, or cannot submit pilots with it. Remove it.", o)
		}
	}
	if b.Kind != "local" && b.LostAfter < leastLost {
		r.add("lost_after", "Time is too short", "A pilot says every few seconds that it lives. Write at least %s.", leastLost)
	}
	return r.ps
}

func checkCell(b *experimentBlock) []pluginconfig.Problem {
	r := &rules{}
	t := b.PerTrial
	either(r, "per_trial.agent_time", t.AgentTime, t.AgentTimeFactor)
	either(r, "per_trial.verifier_time", t.VerifierTime, t.VerifierTimeFactor)
	either(r, "per_trial.start_time", t.StartTime, t.StartTimeFactor)
	positive(r, "per_trial.max_steps", t.MaxSteps)
	budget(r, "per_trial", t.Budget)
	budget(r, "per_cell", b.PerCell)
	seen := map[string]bool{}
	for i, d := range b.Datasets {
		if seen[d] {
			r.add(pluginconfig.Path("datasets").Index(i), "Dataset is listed twice", "dataset.%s is already in the list. To repeat trials, set repeat.", d)
		}
		seen[d] = true
	}
	return r.ps
}

func checkDataset(b *datasetBlock, folder string, formats []string) []pluginconfig.Problem {
	r := &rules{}
	r.ps = append(r.ps, oneOf("format", "task format", b.Format, formats)...)
	if folder != "" {
		r.add("path", "Dataset cannot be read", "%s", folder)
	}
	for name, patterns := range map[pluginconfig.Path][]string{"include": b.Include, "exclude": b.Exclude} {
		for i, p := range patterns {
			if !doublestar.ValidatePattern(p) {
				r.add(name.Index(i), "Not a pattern", "%q: use *, ?, [a-z] and {a,b}.", p)
			}
		}
	}
	for i, dir := range b.Work {
		if !path.IsAbs(dir) || path.Clean(dir) == "/" {
			r.add(pluginconfig.Path("work").Index(i), "Not a folder of the sandbox", "%q: write the absolute path of a folder below /, such as \"/usr/local\".", dir)
		}
	}
	natural(r, "limit", b.Limit)
	natural(r, "sample", b.Sample)
	if b.Limit > 0 && b.Sample > 0 {
		r.add("sample", "Two limits", "limit keeps the first tasks, sample draws tasks at random. Keep one of them.")
	}
	if b.Seed != 0 && b.Sample == 0 {
		r.add("seed", "Unused seed", "It decides which tasks sample draws. Set sample, or remove seed.")
	}
	if b.Success != nil && b.Success.Key == "" {
		r.add("success.key", "Wrong value", "Write the name of a score, such as \"reward\".")
	}
	return r.ps
}

func checkEnvironment(b *environmentBlock) []pluginconfig.Problem {
	r := &rules{}
	switch {
	case b.Network == "allow" && len(b.AllowHosts) == 0:
		r.add("network", "No host is allowed", "List the hosts in allow_hosts, or write network = \"none\".")
	case b.Network != "allow" && len(b.AllowHosts) > 0:
		r.add("allow_hosts", "Unused allow_hosts", "Only network = \"allow\" uses it. Set that, or remove allow_hosts.")
	}
	for i, host := range b.AllowHosts {
		if _, err := task.NormalHost(host); err != nil {
			r.add(pluginconfig.Path("allow_hosts").Index(i), "Malformed host", "%q %v.", host, err)
		}
	}
	natural(r, "limits.cpus", b.Limits.CPUs)
	if b.Limits.CPUs > 1e6 {
		r.add("limits.cpus", "Wrong value", "Got %v cores.", b.Limits.CPUs)
	}
	natural(r, "limits.memory_mib", b.Limits.MemoryMiB)
	natural(r, "limits.storage_mib", b.Limits.StorageMiB)
	natural(r, "limits.shm_mib", b.Limits.ShmMiB)
	natural(r, "limits.pids", b.Limits.Pids)
	natural(r, "limits.gpus", b.Limits.GPUs)
	checkNames(r, "env", b.Env)
	if b.Surface == "" && len(b.SurfaceConfig) > 0 {
		r.add("surface_config", "Unused surface_config", "It configures the plugin that surface names. Set surface, or remove the block.")
	}
	return r.ps
}

// checkNames checks the names of variables for commands.
func checkNames(r *rules, path pluginconfig.Path, env map[string]string) {
	for name := range env {
		for i, c := range name {
			if c == '=' || c == 0 || i == 0 && c >= '0' && c <= '9' {
				r.add(path.Key(name), "Not a name", "%q: the name of a variable has no \"=\" and does not begin with a digit.", name)
				break
			}
		}
		if name == "" {
			r.add(path, "Not a name", "The name of a variable is not empty.")
		}
	}
}

func checkModel(b *modelBlock, providers []string) []pluginconfig.Problem {
	r := &rules{}
	r.ps = append(r.ps, oneOf("provider", "provider", b.Provider, providers)...)
	if b.Name == "" && b.Script == "" {
		r.add("name", "\"name\" is required", "Write the model as the provider calls it.")
	}
	if b.Script != "" && b.Provider != string(model.DialectScript) {
		r.add("script", "Only a scripted model has a script", "The provider is %q. Write provider = %q, or remove this line.", b.Provider, model.DialectScript)
	}
	if b.BaseURL != "" {
		u, err := url.Parse(b.BaseURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			r.add("base_url", "Wrong value", "Write an address such as \"https://host/v1\", without a user or password.")
		}
	}
	if b.CAFile != "" && strings.HasPrefix(b.BaseURL, "http://") {
		r.add("ca_file", "No certificate is checked", "The base_url begins with http. Write https, or remove this line.")
	}
	checkKeys(r, b)
	checkPrice(r, b.Price)
	if len(b.Parameters) > 0 && b.Parameters[0] != '{' && string(b.Parameters) != "null" {
		r.add("parameters", "Wrong value", "Write names and values: parameters { temperature = 0 }.")
	}
	natural(r, "in_flight", b.InFlight)
	natural(r, "context_tokens", b.ContextTokens)
	lasting(r, "first_byte_timeout", b.FirstByteTimeout)
	lasting(r, "idle_timeout", b.IdleTimeout)
	return r.ps
}

func checkKeys(r *rules, b *modelBlock) {
	if b.APIKey != "" && len(b.APIKeys) > 0 {
		r.add("api_keys", "Two ways to write keys", "api_key is there as well. Keep one of them.")
	}
	if b.APIKeys != nil && len(b.APIKeys) == 0 {
		r.add("api_keys", "No key", "The list is empty. Write api_keys = [secret(\"NAME\"), …], or remove it.")
	}
	for i, key := range b.APIKeys {
		if slices.Contains(b.APIKeys[:i], key) {
			r.add(pluginconfig.Path("api_keys").Index(i), "Key is written twice", "It is in the list already. Remove one of them.")
		}
	}
}

func checkPrice(r *rules, p *priceBlock) {
	if p == nil {
		return
	}
	part := func(path pluginconfig.Path, t *tierBlock) {
		for name, n := range map[string]*float64{"input": t.Input, "cached_input": t.CachedInput, "cache_write": t.CacheWrite, "cache_write_1h": t.CacheHour, "output": t.Output} {
			if n != nil {
				natural(r, path.Attr(name), *n)
			}
		}
	}
	part("price", &tierBlock{Input: p.Input, CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, CacheHour: p.CacheHour, Output: p.Output})
	seen := map[int64]bool{}
	for i := range p.Tiers {
		t := &p.Tiers[i]
		path := pluginconfig.Path("price.tier").Index(i)
		part(path, t)
		if t.Above <= 0 {
			r.add(path.Attr("above"), "Wrong value", "Got %d. Write the number of input tokens above which these prices apply.", t.Above)
		}
		if seen[t.Above] {
			r.add(path.Attr("above"), "Two prices", "Another tier also begins above %d tokens. Keep one of them.", t.Above)
		}
		seen[t.Above] = true
	}
}

func checkVerifier(b *verifierBlock) []pluginconfig.Problem {
	r := &rules{}
	budget(r, "", b.Budget)
	return r.ps
}

func checkUser(b *userBlock) []pluginconfig.Problem {
	r := &rules{}
	lasting(r, "time", b.Time)
	budget(r, "", b.Budget)
	return r.ps
}
