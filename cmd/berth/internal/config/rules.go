package config

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/executors/slurm"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/dialect"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
)

// rules collects what is wrong with the values of a block.
type rules struct{ ps []pluginconfig.Problem }

func (r *rules) add(path pluginconfig.Path, summary, format string, a ...any) {
	r.ps = append(r.ps, pluginconfig.Problem{Path: path, Summary: summary, Detail: fmt.Sprintf(format, a...)})
}

// numbers checks the numbers of a block, and of the blocks in it, against the tags min
// and max. Without max, those that may be absent are above 0, and others are not below.
func (r *rules) numbers(path pluginconfig.Path, v reflect.Value) {
	for sf, f := range v.Fields() {
		at := path
		if !sf.Anonymous {
			at = path.Attr(sf.Tag.Get("berth"))
		}
		mayBeAbsent := f.Kind() == reflect.Pointer && !slices.Contains(prices, v.Type())
		switch f = reflect.Indirect(f); f.Kind() {
		case reflect.Struct:
			r.numbers(at, f)
		case reflect.Slice:
			for i := 0; i < f.Len() && f.Index(i).Kind() == reflect.Struct; i++ {
				r.numbers(at.Index(i), f.Index(i))
			}
		case reflect.Map:
			for _, key := range f.MapKeys() {
				if of := f.MapIndex(key); of.Kind() == reflect.Struct {
					r.numbers(at.Key(key.String()), of)
				}
			}
		case reflect.Int, reflect.Int64:
			r.number(at, sf.Tag, f, float64(f.Int()), mayBeAbsent)
		case reflect.Float64:
			r.number(at, sf.Tag, f, f.Float(), mayBeAbsent)
		default:
		}
	}
}

// prices are the blocks whose numbers may be absent, and may be 0.
var prices = []reflect.Type{reflect.TypeFor[dialect.Price](), reflect.TypeFor[dialect.PriceTier]()}

// number checks one number; x is its value.
func (r *rules) number(path pluginconfig.Path, tag reflect.StructTag, got reflect.Value, x float64, mayBeAbsent bool) {
	low := cmp.Or(tag.Get("min"), "0")
	least, _ := strconv.ParseFloat(low, 64) //nolint:errcheck // a test reads all tags
	most, unlimited := strconv.ParseFloat(tag.Get("max"), 64)
	want := ""
	switch duration := got.Type() == reflect.TypeFor[time.Duration](); {
	case unlimited == nil:
		if x < least || x > most {
			want = "a number from " + low + " to " + tag.Get("max")
		}
	case tag.Get("required") != "": // each has its own rule
	case mayBeAbsent && x <= 0 && duration:
		want = `a duration above 0, such as "10m", or leave it out`
	case mayBeAbsent && x <= 0:
		want = "a number above 0, or leave it out"
	case x < 0 && duration:
		want = `"0s" or more`
	case x < 0:
		want = "0 or more"
	}
	if want != "" {
		r.add(path, "Wrong value", "Got %v. Write %s.", got, want)
	}
}

// leastLost is the shortest time after which a pilot may count as lost.
const leastLost = time.Second

func checkExecutor(b *experiment.Executor) []pluginconfig.Problem {
	r := &rules{}
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

func checkPrice(r *rules, p *dialect.Price) {
	if p == nil {
		return
	}
	seen := map[int64]bool{}
	for i, t := range p.Tiers {
		above := pluginconfig.Path("price.tier").Index(i).Attr("above")
		if t.Above <= 0 {
			r.add(above, "Wrong value", "Got %d. Write the number of input tokens above which these prices apply.", t.Above)
		}
		if seen[t.Above] {
			r.add(above, "Two prices", "Another tier also begins above %d tokens. Keep one of them.", t.Above)
		}
		seen[t.Above] = true
	}
}
