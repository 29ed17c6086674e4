package harbor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// What Harbor 0.24 and 0.25 accept in task.toml, and what it comes to.
func TestTOMLAccepts(t *testing.T) {
	t.Parallel()
	network := func(t *task.Task) any {
		return fmt.Sprintf("%s %v", t.Environment.Network.Mode, t.Environment.Network.Allow)
	}
	limits := func(t *task.Task) any {
		l := t.Environment.Limits
		return fmt.Sprint(l.CPUMilli, l.MemoryMiB, l.StorageMiB, l.GPUs, l.GPUTypes, l.TPU != nil)
	}
	for _, tt := range []struct {
		name, in string
		get      func(*task.Task) any
		want     any
	}{
		{"an empty file", "", func(t *task.Task) any { return t.Name }, "sample"},
		{"a version of the future", "schema_version = \"9.9\"", func(t *task.Task) any { return t.FormatVersion }, "9.9"},
		{"the version under its old name", "version = \"1.0\"", func(t *task.Task) any { return t.FormatVersion }, "1.0"},
		{"a name", "[task]\nname = \"org/a.b-c_d\"\nversion = \"x\"", func(t *task.Task) any { return t.Name + t.Version }, "org/a.b-c_dx"},
		{"authors", "[[task.authors]]\nname = \"A\"\nemail = \"a@b\"\n[task]\nname = \"o/n\"", func(t *task.Task) any { return t.Authors[0] }, "A <a@b>"},
		{"free metadata", "[metadata.harbor.lint]\nignore = [\"x\"]", func(t *task.Task) any { return string(t.Metadata) }, `{"harbor":{"lint":{"ignore":["x"]}}}`},
		{"labels", "[metadata]\ncategory = \"ops\"\ndifficulty = 3\ntags = [\"git\", 7, \"git\", true]\n[task]\nname = \"o/n\"\nkeywords = [\"shell\"]", func(t *task.Task) any { return fmt.Sprint(t.Labels) }, "{[git 7 shell] ops 3 map[]}"},
		{"a time without an end", "[agent]\ntimeout_sec = 0", func(t *task.Task) any { return t.Stages[0].Agent.Time }, task.Duration(0)},
		{"no steps", "steps = []", func(t *task.Task) any { return len(t.Stages) }, 1},
		{"negative cpus mean nothing", "[environment]\ncpus = -1", limits, "0 0 0 0 [] false"},
		{"fractional cpus (0.25)", "[environment]\ncpus = 1.5", limits, "1500 0 0 0 [] false"},
		{"numbers as text", "[environment]\ncpus = \"2\"\nmemory_mb = 2048.0", limits, "2000 2048 0 0 [] false"},
		{"sizes of schema 1.0", "[environment]\nmemory = \"2G\"\nstorage = \"512m\"", limits, "0 2048 512 0 [] false"},
		{"sizes said twice alike", "[environment]\nmemory = \"2G\"\nmemory_mb = 2048", limits, "0 2048 0 0 [] false"},
		{"accelerators", "[environment]\ngpus = 2\ngpu_types = [\"H100\"]\n[environment.tpu]\ntype = \"v4\"\ntopology = \"2x2x1\"", limits, "0 0 0 2 [H100] true"},
		{"a time as text", "[agent]\ntimeout_sec = \"60\"", func(t *task.Task) any { return t.Stages[0].Agent.Time.String() }, "1m0s"},
		{"allow_internet", "[environment]\nallow_internet = false", network, "none []"},
		{"allow_internet as a word", "[environment]\nallow_internet = \"no\"", network, "none []"},
		{"network_mode wins", "[environment]\nallow_internet = false\nnetwork_mode = \"public\"", network, "public []"},
		{"a list without hosts", "[environment]\nnetwork_mode = \"allowlist\"", network, "allow []"},
		{"an empty list with another mode", "[environment]\nnetwork_mode = \"no-network\"\nallowed_hosts = []", network, "none []"},
		{
			"hosts in one spelling",
			"[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"A.com.\", \"*.B.org\", \"2001:DB8::1\", \"192.0.2.1\", \"10.0.0.0/8\", \"2001:db8::/32\", \"a.com\"]",
			network, "allow [a.com *.b.org 2001:db8::1 192.0.2.1 10.0.0.0/8 2001:db8::/32]",
		},
		{"a mode of the agent's phase alone", "[agent]\nnetwork_mode = \"no-network\"", func(t *task.Task) any { return t.NetworkOf(&t.Stages[0].Agent).Mode }, task.NetworkNone},
		{"os in capitals", "[environment]\nos = \"Linux\"", func(t *task.Task) any { return t.Environment.OS }, "linux"},
		{"a numeric user", "[agent]\nuser = 1000\n[verifier]\nuser = \"root\"", func(t *task.Task) any { return fmt.Sprint(t.Environment.Users) }, "[1000 root]"},
		{"transport http", "[[environment.mcp_servers]]\nname = \"a\"\ntransport = \"http\"\nurl = \"http://x\"", func(t *task.Task) any { return t.MCPServers[0].Transport }, "streamable-http"},
		{"transport by default", "[[environment.mcp_servers]]\nname = \"a\"\nurl = \"http://x\"", func(t *task.Task) any { return t.MCPServers[0].Transport }, "sse"},
		{"artifacts", "artifacts = [\"/a\", {source = \"/b\", destination = \"x/y\", exclude = [\"*.o\"], service = \"main\"}]", func(t *task.Task) any {
			return fmt.Sprint(t.Stages[0].Artifacts)
		}, "[{/a  []  []} {/b x/y [*.o]  []}]"},
		{"a hook", "[[verifier.collect]]\ncommand = \"true\"\nuser = 5", func(t *task.Task) any {
			h := t.Stages[0].Hooks[0]
			return h.Argv[len(h.Argv)-1] + h.Service + h.User + h.Time.String()
		}, "true51m0s"},
		{"a healthcheck", "[environment.healthcheck]\ncommand = \"true\"", func(t *task.Task) any {
			h := t.Healthcheck
			return fmt.Sprint(h.Interval, h.Timeout, h.StartPeriod, h.StartInterval, h.Retries)
		}, "5s 30s 0s 5s 3"},
		{"skills", "[environment]\nskills_dir = \"/opt/skills\"", func(t *task.Task) any { return t.Skills[0].Dir }, "/opt/skills"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.get(configured(tt.in).must(t)); got != tt.want {
				t.Errorf("%s\n\ngot %v, want %v", tt.in, got, tt.want)
			}
		})
	}
}

// What is rejected, with the line of the problem.
func TestTOMLRejects(t *testing.T) {
	t.Parallel()
	list := func(host string) string {
		return "[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"" + host + "\"]"
	}
	steps := func(names ...string) string {
		return "[[steps]]\nname = \"" + strings.Join(names, "\"\n[[steps]]\nname = \"") + "\"\n"
	}
	for _, tt := range []struct {
		name, in string
		line     int
		key      string
	}{
		{"not TOML", "a = \n", 1, ""},
		{"a key twice", "[agent]\nuser = \"a\"\nuser = \"b\"", 3, ""},
		{"cpus that are not a number", "[environment]\ncpus = \"many\"", 2, "environment.cpus"},
		{"cpus that are not finite", "[environment]\ncpus = inf", 2, "environment.cpus"},
		{"half a gpu", "[environment]\ngpus = 1.5", 2, "environment.gpus"},
		{"hosts without the mode", "[environment]\nallowed_hosts = [\"a.com\"]", 2, "environment.allowed_hosts"},
		{"hosts of a phase without the mode", "[agent]\nallowed_hosts = []", 2, "agent.allowed_hosts"},
		{"hosts and no-network", "[verifier]\nnetwork_mode = \"no-network\"\nallowed_hosts = [\"a.com\"]", 3, "verifier.allowed_hosts"},
		{"hosts and allow_internet", "[environment]\nallow_internet = false\nallowed_hosts = [\"a.com\"]", 3, "environment.allowed_hosts"},
		{"a URL", list("https://a.com"), 3, "environment.allowed_hosts[0]"},
		{"a port", list("a.com:80"), 3, "environment.allowed_hosts[0]"},
		{"a path", list("a.com/x"), 3, "environment.allowed_hosts[0]"},
		{"an address in brackets", list("[2001:db8::1]"), 3, "environment.allowed_hosts[0]"},
		{"a network with host bits", list("10.0.0.1/8"), 3, "environment.allowed_hosts[0]"},
		{"a star inside", list("a.*.com"), 3, "environment.allowed_hosts[0]"},
		{"a star alone", list("*"), 3, "environment.allowed_hosts[0]"},
		{"an underscore", list("a_b.com"), 3, "environment.allowed_hosts[0]"},
		{"an empty host", list(""), 3, "environment.allowed_hosts[0]"},
		{"stricter than Harbor: an address that is none", list("999.1.1.1"), 3, "environment.allowed_hosts[0]"},
		{"a mode of another name", "[environment]\nnetwork_mode = \"none\"", 2, "environment.network_mode"},
		{"a step with a separator", steps("a/b"), 2, "steps[0].name"},
		{"a step that ends with a dot", steps("a."), 2, "steps[0].name"},
		{"steps of one name", steps("one", "one"), 4, "steps[1].name"},
		{"a step without a name", "[[steps]]\n", 1, "steps[0].name"},
		{"an artifact that climbs", "artifacts = [\"/a/../b\"]", 1, "artifacts[0]"},
		{"an artifact to an absolute place", "artifacts = [{source = \"/a\", destination = \"/b\"}]", 1, "artifacts[0]"},
		{"an artifact to a place above", "artifacts = [{source = \"/a\", destination = \"../b\"}]", 1, "artifacts[0]"},
		{"an artifact that hides the manifest", "artifacts = [{source = \"/a\", destination = \"manifest.json/\"}]", 1, "artifacts[0]"},
		{"a relative artifact of a sidecar", "artifacts = [{source = \"a\", service = \"db\"}]", 1, "artifacts[0]"},
		{"an artifact of an unknown sidecar", "artifacts = [{source = \"/a\", service = \"db\"}]", 0, ""},
		{"an empty version", "[task]\nname = \"o/n\"\nversion = \"\"", 3, "task.version"},
		{"a name without an organization", "[task]\nname = \"n\"", 2, "task.name"},
		{"a name with two dots", "[task]\nname = \"o/a..b\"", 2, "task.name"},
		{"[task] without a name", "[task]\nversion = \"1\"", 1, "task"},
		{"sse without url", "[[environment.mcp_servers]]\nname = \"a\"", 1, "environment.mcp_servers[0]"},
		{"http without url", "[[environment.mcp_servers]]\nname = \"a\"\ntransport = \"http\"", 1, "environment.mcp_servers[0]"},
		{"stdio without command", "[[environment.mcp_servers]]\nname = \"a\"\ntransport = \"stdio\"", 1, "environment.mcp_servers[0]"},
		{"a shared verifier with an environment", "[verifier]\nenvironment_mode = \"shared\"\n[verifier.environment]\ncpus = 1", 2, "verifier.environment_mode"},
		{"sizes that contradict", "[environment]\nmemory = \"2G\"\nmemory_mb = 1024", 2, "environment.memory"},
		{"a size without a unit", "[environment]\nstorage = \"10\"", 2, "environment.storage"},
		{"a topology of words", "[environment.tpu]\ntype = \"v4\"\ntopology = \"big\"", 3, "environment.tpu.topology"},
		{"a variable that is a number", "[verifier.env]\nA = 1", 2, "verifier.env.A"},
		{"a hook without a command", "[[verifier.collect]]\nuser = \"root\"", 1, "verifier.collect[0].command"},
		{"a negative time", "[verifier]\ntimeout_sec = -1", 2, "verifier.timeout_sec"},
		{"authors that are texts", "[task]\nname = \"o/n\"\nauthors = [\"A\"]", 3, "task.authors[0]"},
		{"stricter than Harbor: a misspelt key", "[agent]\ntimout_sec = 60", 2, "agent.timout_sec"},
		{"stricter than Harbor: a misspelt table", "[environmnt]\ncpus = 1", 1, "environmnt"},
		{"stricter than Harbor: a relative workdir", "[environment]\nworkdir = \"app\"", 2, "environment.workdir"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, problems := configured(tt.in).load(t, task.Options{})
			if got != nil {
				t.Fatalf("accepted:\n%s", tt.in)
			}
			ok := slices.ContainsFunc(problems, func(p task.Problem) bool {
				return p.File == "task.toml" && p.Line == tt.line && p.Key == tt.key && p.Severity == task.Error && p.Detail != ""
			})
			if !ok {
				t.Errorf("%s\n\ngot %+v; want one at line %d for key %q", tt.in, problems, tt.line, tt.key)
			}
		})
	}
}

func TestUnknownKeysComeWithASuggestion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"[agent]\ntimout_sec = 60", `Did you mean "timeout_sec"?`},
		{"[environmnt]\ncpus = 1", `Did you mean "environment"?`},
		{"[environment]\nmemory_MB = 1", `Did you mean "memory_mb"?`},
		{"timeout_sec = 60", "It belongs in [agent] or [verifier]."},
		{"[agent]\nsomething = 1", "Known here: allowed_hosts, network_mode, timeout_sec, user."},
	} {
		_, problems := configured(tt.in).load(t, task.Options{})
		if len(problems) != 1 || !strings.Contains(problems[0].String(), tt.want) {
			t.Errorf("%q: got %v; want %q", tt.in, problems, tt.want)
		}
	}
}

// A file of a stranger must not take the memory of the machine.
func TestWhatNestsTooDeeplyIsRefused(t *testing.T) {
	t.Parallel()
	const many = 20_000
	for _, tt := range []struct{ in, want string }{
		{"[agent]\ntimeout_sec = 60\n[" + strings.Repeat("a.", many) + "a]", "task.toml:3:130: Nested too deeply"},
		{strings.Repeat("a.", many) + "a = 1", "Nested too deeply"},
		{"a = " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "Nested too deeply"},
		{"a = " + strings.Repeat("{a = ", 1000) + "1" + strings.Repeat("}", 1000), "Nested too deeply"},
		{"a = " + strings.Repeat("[", many) + strings.Repeat("]", many), "Not valid TOML"},
	} {
		got, problems := configured(tt.in).load(t, task.Options{})
		if got != nil || len(problems) != 1 || !strings.Contains(problems[0].String(), tt.want) {
			t.Errorf("%.40q: got %.300v; want %q", tt.in, problems, tt.want)
		}
	}
}

func TestLenientTurnsUnknownKeysIntoWarnings(t *testing.T) {
	t.Parallel()
	f := configured("foo = 1\n[agent]\ntimout_sec = 60")
	got, problems := f.load(t, task.Options{Lenient: true})
	if got == nil || len(problems) != 2 || task.Broken(problems) {
		t.Errorf("got %v, %v; want a task and two warnings", got, problems)
	}
	if got, problems := configured("foo = 1\n[agent]\ntimeout_sec = -1").load(t, task.Options{Lenient: true}); got != nil {
		t.Errorf("another error is let through: %v", problems)
	}
}

func TestEveryProblemIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	f := configured("foo = 1\n[agent]\ntimeout_sec = \"soon\"\nuser = 1.5\n[environment]\nworkdir = \"x\"\n").
		with("instruction.md", "", "tests/test.sh", "")
	_, problems := f.load(t, task.Options{})
	if len(problems) != 6 {
		t.Errorf("got %d problems: %v", len(problems), problems)
	}
}

func TestHostVariables(t *testing.T) {
	t.Parallel()
	lookup := func(name string) (string, bool) { return "secret of " + name, name == "SET" || name == "TOKEN" }
	o := task.Options{AllowEnv: []string{"SET", "UNSET", "TOKEN"}, LookupEnv: lookup}
	for _, tt := range []struct {
		name, value string
		want        string // resolved; empty means that the task or the value is refused
	}{
		{"a literal", "abc", "abc"},
		{"a dollar", "a$b", "a$b"},
		{"a template inside a text is a text", "x${SET}", "x${SET}"},
		{"allowed and set", "${SET}", "secret of SET"},
		{"allowed and not set", "${UNSET}", ""},
		{"allowed, not set, with a default", "${UNSET:-d:-e}", "d:-e"},
		{"allowed and set, with a default", "${SET:-d}", "secret of SET"},
		{"not allowed", "${OTHER}", ""},
		{"not allowed, with a default", "${OTHER:-d}", "d"},
		{"an empty default", "${UNSET:-}", "empty"},
		{"a name that is none", "${1A}", ""},
	} {
		got, problems := configured("[environment.env]\nA = '"+tt.value+"'").load(t, o)
		if got == nil {
			if tt.name != "a name that is none" || problems[0].Key != "environment.env.A" || problems[0].Line != 2 {
				t.Errorf("%s: refused: %v; want %q", tt.name, problems, tt.want)
			}
			continue
		}
		env, err := got.Environment.Env.Resolve(o.Lookup)
		if want := strings.TrimPrefix(tt.want, "empty"); (err != nil) != (tt.want == "") || env["A"] != want {
			t.Errorf("%s: got %q, %v; want %q", tt.name, env["A"], err, tt.want)
		}
	}
}

func TestATaskThatNeedsHostVariablesIsValid(t *testing.T) {
	t.Parallel()
	toml := "[verifier.env]\nKEY = '${KEY}'\n[environment.env]\nA = '${OTHER:-x}'\n" +
		"[[environment.mcp_servers]]\nname = \"a\"\nurl = \"http://x\"\nheaders = {Authorization = \"Bearer ${TOKEN}\"}"
	got, problems := configured(toml).load(t, task.Options{})
	if got == nil {
		t.Fatalf("refused: %v", problems)
	}
	needs := got.Needs()
	if !slices.Contains(needs, task.Need{Feature: task.FeatureHostVariables, Detail: "KEY, TOKEN"}) || needs[len(needs)-1].Feature != task.FeatureMCP {
		t.Errorf("needs %+v", needs)
	}
}

func TestHeadersOfToolServers(t *testing.T) {
	t.Parallel()
	o := task.Options{AllowEnv: []string{"TOKEN", "NAME"}, LookupEnv: func(string) (string, bool) { return "v", true }}
	for _, tt := range []struct {
		header, value string
		want          string
	}{
		{"X-Team", "blue", "blue"},
		{"X-Team", "team ${NAME:-x} here", "team v here"},
		{"Authorization", "Bearer ${TOKEN}", "Bearer v"},
		{"Authorization", "${TOKEN}", "v"},
		{"Authorization", "Token ${NAME}:${TOKEN}", "Token v:v"},
		{"Authorization", "Bearer abc", ""},
		{"Authorization", "Bearer ${TOKEN:-abc}", ""},
		{"X-Team", "${TOKEN:-abc}", ""},
		{"Cookie", "a=b", ""},
		{"X Team", "blue", ""},
		{"X-Team", "${", ""},
		{"X-Team", `a\nb`, ""},
	} {
		in := "[[environment.mcp_servers]]\nname = \"a\"\nurl = \"http://x\"\nheaders = {\"" + tt.header + "\" = \"" + tt.value + "\"}"
		got, problems := configured(in).load(t, o)
		if got == nil {
			if tt.want != "" {
				t.Errorf("%s: %s is refused: %v", tt.header, tt.value, problems)
			}
			continue
		}
		env, err := got.MCPServers[0].Headers.Resolve(o.LookupEnv)
		if err != nil || env[tt.header] != tt.want || tt.want == "" {
			t.Errorf("%s: %s gives %q, %v; want %q", tt.header, tt.value, env[tt.header], err, tt.want)
		}
	}
	in := "[[environment.mcp_servers]]\nname = \"a\"\ntransport = \"stdio\"\ncommand = \"x\"\nheaders = {A = \"b\"}"
	if got, _ := configured(in).load(t, o); got != nil {
		t.Error("headers of a stdio server are accepted")
	}
}
