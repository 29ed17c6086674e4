package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
)

func TestSecretsAreRevealedWhereTheyBelong(t *testing.T) {
	o := options()
	e, ds := config.Load(t.Context(), "testdata/good/secrets.hcl", o)
	if e == nil {
		t.Fatal(ds)
	}
	c := e.Cells[0]
	agent, err := c.Agent.Config.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"effort":"%[1]s-x","extra":{"list":["a","%[1]s!"],"n":12345678901234567890},"headers":{"Accept":"text/plain","Authorization":"Bearer %[1]s"},"token":"other-%[1]s","words":["first","%[1]s"]}`, canary)
	if string(agent) != want {
		t.Errorf("agent's configuration\n got %s\nwant %s", agent, want)
	}
	env, err := c.Environment.Config.Reveal()
	if err != nil || !strings.Contains(string(env), `["--key","`+canary+`","--big","12345678901234567890"]`) {
		t.Errorf("environment's configuration %s, %v", env, err)
	}
	for name, want := range map[string]string{"PLAIN": "x", "TOKEN": canary, "UPPER": strings.ToUpper(canary), "REGION": "eu"} {
		text := c.Environment.Env[name]
		got, revealErr := text.Reveal()
		if revealErr != nil || got != want || (text.Secret() != nil) != (want != "x" && want != "eu") {
			t.Errorf("env %s = %q (secret: %v), %v; want %q", name, got, text.Secret() != nil, revealErr, want)
		}
	}
	key, err := c.Model.APIKey.Reveal()
	if err != nil || key != canary {
		t.Errorf("key %q, %v", key, err)
	}
	if ds := e.CheckSecrets(c); len(ds) > 0 {
		t.Errorf("CheckSecrets: %v", ds)
	}
	revealed, err := c.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{canary, "Bearer " + canary, "other-" + canary} {
		if !slices.Contains(revealed.Secrets, want) {
			t.Errorf("%q of a plugin's configuration is not kept out of records", want)
		}
	}
}

// A missing secret is not a fault of the file: it is found when a run is planned.
func TestMissingSecretsAreReportedWhenTheyAreNeeded(t *testing.T) {
	o := options()
	o.LookupEnv = func(name string) (string, bool) { return "", strings.HasPrefix(name, "BERTH_VAR_") || name == "REGION" }
	e, ds := config.Load(t.Context(), "testdata/good/secrets.hcl", o)
	if e == nil {
		t.Fatal(ds)
	}
	var text bytes.Buffer
	if err := e.CheckSecrets(e.Cells[0]).WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/missing_secrets.txt", text.Bytes())
	if _, err := e.Cells[0].Model.APIKey.Reveal(); !errors.Is(err, cell.ErrSecretMissing) || !strings.Contains(err.Error(), "KEY") {
		t.Errorf("got %v; want ErrSecretMissing with the name", err)
	}
	if _, err := e.Cells[0].Agent.Config.Reveal(); !errors.Is(err, cell.ErrSecretMissing) {
		t.Errorf("got %v; want ErrSecretMissing", err)
	}
}

// A replayed model asks no provider, so neither it nor its fallbacks need a key. A
// fallback that another model has, too, does.
func TestAReplayedModelNeedsNoKey(t *testing.T) {
	o := options()
	o.LookupEnv = func(string) (string, bool) { return "", false }
	e, ds := config.Load(t.Context(), "testdata/good/fallbacks.hcl", o)
	if e == nil {
		t.Fatal(ds)
	}
	c := e.Cells[0]
	if ds := e.CheckSecrets(c); len(ds) == 0 {
		t.Fatal("no key is missing")
	}
	for _, m := range append(slices.Collect(maps.Values(c.Agent.Models)), c.Model) {
		if m != nil {
			m.Replay = "runs/x"
		}
	}
	var text bytes.Buffer
	if err := e.CheckSecrets(c).WriteText(&text, false); err != nil || text.Len() > 0 {
		t.Errorf("%v, missing:\n%s", err, text.String())
	}
}

// A text that is made of a secret that is set is not complained about because
// its neighbor needs one that is not.
func TestAMissingSecretIsReportedOnceAndNotForItsNeighbors(t *testing.T) {
	o := config.Options{LookupEnv: func(name string) (string, bool) { return "x", name == "SET" }}
	e, ds := load(t, o, fmt.Sprintf(base, "")+`
verifier "judge" {
  env = {
    A = secret("UNSET")
    B = "of ${secret("SET")}"
    C = "plain"
  }
}`)
	if e == nil {
		t.Fatal(ds)
	}
	got := e.CheckSecrets(e.Cells[0], "judge")
	if len(got) != 1 || !strings.Contains(got.Error(), "UNSET") {
		t.Errorf("got %d problems: %v; want one, about UNSET", len(got), got.Error())
	}
	if text, err := e.Cells[0].Verifiers["judge"].Env["B"].Reveal(); err != nil || text != "of x" {
		t.Errorf("B is %q, %v", text, err)
	}
}

// Verifiers that no task names need not have their secrets.
func TestSecretsOfVerifiersAreCheckedByName(t *testing.T) {
	e, ds := load(t, config.Options{}, fmt.Sprintf(base, "")+`
verifier "judge" {
  model = model.m
  env   = { A = secret("A_SECRET") }
}
model "m" {
  provider = "script"
  name     = "m"
  api_key  = secret("B_SECRET")
}`)
	if e == nil {
		t.Fatal(ds)
	}
	if ds := e.CheckSecrets(e.Cells[0], "other"); len(ds) != 0 {
		t.Errorf("without the verifier: %v", ds)
	}
	got := e.CheckSecrets(e.Cells[0], "judge").Error()
	if !strings.Contains(got, "A_SECRET") || !strings.Contains(got, "B_SECRET") {
		t.Errorf("with the verifier: %v", got)
	}
}

// What goes wrong only with the real value must not show it.
func TestErrorsWithRealValuesDoNotShowThem(t *testing.T) {
	for _, expr := range []string{
		`upper(jsondecode(secret("KEY")))`, `file(secret("KEY"))`, `format("%d", secret("KEY"))`, `tostring(1 + tonumber(secret("KEY")))`,
		`base64decode(secret("KEY"))`, `regex("[0-9]{99}", secret("KEY"))`, `{ a = "x" }[secret("KEY")]`, `tostring(parseint(secret("KEY"), 10))`,
		`file("${secret("KEY")}.txt")`, `"${jsondecode(secret("KEY")).a}"`, `split(",", secret("KEY"))[3]`, `secret("KEY") == "x" ? "a" : tostring(jsondecode(secret("KEY")))`,
	} {
		e, ds := load(t, options(), fmt.Sprintf(base, "token = "+expr))
		if e == nil {
			noCanary(t, expr, ds.Error())
			continue
		}
		raw, err := e.Cells[0].Agent.Config.Reveal()
		if err == nil {
			t.Errorf("%s gave %s", expr, raw)
			continue
		}
		var text bytes.Buffer
		if werr := e.CheckSecrets(e.Cells[0]).WriteText(&text, true); werr != nil {
			t.Fatal(werr)
		}
		noCanary(t, expr, err.Error(), text.String(), fmt.Sprintf("%+v", e.Cells[0]))
		if !strings.Contains(text.String(), "Secret cannot be read") {
			t.Errorf("%s: CheckSecrets says %q", expr, text.String())
		}
	}
}

// The label is part of trial ids, so it must tell different uses apart.
func TestIdentityTellsUsesOfASecretApart(t *testing.T) {
	seen := map[string]string{}
	for _, expr := range []string{
		`secret("KEY")`, `secret("OTHER")`, `"Bearer ${secret("KEY")}"`, `"$${secret(\"KEY\")}"`, `upper(secret("KEY"))`, `"x"`,
	} {
		e, ds := load(t, options(), fmt.Sprintf(base, "effort = "+expr))
		if e == nil {
			t.Fatal(ds)
		}
		id := string(e.Cells[0].Identity(&e.Cells[0].Datasets[0]))
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the same identity %s", expr, other, id)
		}
		seen[id] = expr
		noCanary(t, expr, id)
	}
}

// Identity is what can change a result, and nothing else.
func TestIdentityLeavesOutWhatChangesNothing(t *testing.T) {
	id := func(text string) string {
		e, ds := load(t, options(), text)
		if e == nil {
			t.Fatal(ds)
		}
		return string(e.Cells[0].Identity(&e.Cells[0].Datasets[0]))
	}
	model := `
model "m" {
  provider = "openai"
  name     = "m"
  %s
}`
	full := strings.Replace(fmt.Sprintf(base, "turns = 3"), `"loop"`, "\"loop\"\n  model = model.m", 1)
	want := id(full + fmt.Sprintf(model, ""))
	for name, text := range map[string]string{
		"key, address, price": full + fmt.Sprintf(model, "api_key = secret(\"KEY\")\n base_url = \"http://x/v1\"\n price {\n input = 1\n }\n in_flight = 3\n context_tokens = 9000\n first_byte_timeout = \"5m\"\n idle_timeout = \"2m\""),
		"several keys":        full + fmt.Sprintf(model, "api_keys = [secret(\"KEY\"), secret(\"OTHER\")]"),
		"requests in flight":  strings.Replace(full, `"loop"`, "\"loop\"\n  in_flight = 3", 1) + fmt.Sprintf(model, ""),
		"labels":              strings.NewReplacer(`agent "a"`, `agent "b"`, "agent.a", "agent.b", `"t"`, `"u"`, "dataset.t", "dataset.u", `model "m"`, `model "n"`, "model.m", "model.n").Replace(full + fmt.Sprintf(model, "")),
		"limits of the run":   strings.Replace(full, "agent       = agent.a", "agent = agent.a\n repeat = 7\n limits {\n in_flight = 3\n }\n retry {\n max = 3\n }", 1) + fmt.Sprintf(model, ""),
		"how it is written":   strings.Replace(full, "turns = 3", "turns = \"3\" # three\n    effort = null", 1) + fmt.Sprintf(model, ""),
		"an empty block": strings.Replace(full, `"box"
}`, "\"box\"\n config {\n }\n}", 1) + fmt.Sprintf(model, ""),
	} {
		if got := id(text); got != want {
			t.Errorf("%s changes the identity\nfrom %s\n  to %s", name, want, got)
		}
	}
	for name, text := range map[string]string{
		"configuration": strings.Replace(full, "turns = 3", "turns = 4", 1) + fmt.Sprintf(model, ""),
		"model":         full + fmt.Sprintf(strings.Replace(model, `name     = "m"`, `name = "n"`, 1), ""),
		"parameters":    full + fmt.Sprintf(model, "parameters {\n a = 1\n }"),
		"fallback":      full + fmt.Sprintf(model, "fallback = [model.f]") + strings.Replace(fmt.Sprintf(model, ""), `"m"`, `"f"`, 1),
		"mode":          strings.Replace(full, "agent       = agent.a", "agent = agent.a\n verify = \"separate\"", 1) + fmt.Sprintf(model, ""),
		"limits":        strings.Replace(full, "agent       = agent.a", "agent = agent.a\n per_trial {\n max_steps = 3\n }", 1) + fmt.Sprintf(model, ""),
		"oracle":        strings.Replace(full, `"loop"`, "\"loop\"\n  oracle = true", 1) + fmt.Sprintf(model, ""),
		"session":       strings.Replace(full, `"loop"`, "\"loop\"\n  same_session = true", 1) + fmt.Sprintf(model, ""),
		"rule":          strings.Replace(full, `path   = "."`, "path = \".\"\n success {\n key = \"k\"\n at_least = 1\n }", 1) + fmt.Sprintf(model, ""),
		"network": strings.Replace(full, `"box"
}`, "\"box\"\n network = \"none\"\n}", 1) + fmt.Sprintf(model, ""),
	} {
		if id(text) == want {
			t.Errorf("%s does not change the identity", name)
		}
	}
}

// What a prior trajectory says is part of the identity, and not where it is.
func TestIdentityHasTheContentOfAPriorTrajectory(t *testing.T) {
	id := func(file, message string) string {
		text := strings.Replace(fmt.Sprintf(base, ""), `"loop"`, fmt.Sprintf("\"loop\"\n  prior_trajectory = %q", file), 1)
		dir := write(t, map[string]string{"x.hcl": text, file: fmt.Sprintf(
			`{"agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": %q}]}`, message)})
		e, ds := config.Load(t.Context(), filepath.Join(dir, "x.hcl"), options())
		if e == nil {
			t.Fatal(ds)
		}
		return string(e.Cells[0].Identity(&e.Cells[0].Datasets[0]))
	}
	if one := id("a.json", "one"); one != id("b.json", "one") || one == id("a.json", "two") {
		t.Errorf("identity %s", one)
	}
}

// The settings of a dataset are part of the identity of its trials, and without
// any the identity is as it was before there were such settings.
func TestIdentityHasTheSettingsOfTheDataset(t *testing.T) {
	id := func(settings string) (string, experiment.Dataset) {
		t.Helper()
		e, ds := load(t, options(), strings.Replace(fmt.Sprintf(base, ""), `path   = "."`, `path   = "."`+"\n"+settings, 1))
		if e == nil {
			t.Fatal(ds)
		}
		return string(e.Cells[0].Identity(&e.Cells[0].Datasets[0])), e.Cells[0].Datasets[0]
	}
	none, _ := id("")
	empty, _ := id("config {}")
	one, d := id("config {\n snapshot = true\n image = \"i\"\n}")
	other, _ := id("config {\n image = \"j\"\n}")
	if none != empty || strings.Contains(none, "config\":{}") || one == none || one == other || !strings.Contains(one, `"config":{"values":{"image":"i","snapshot":true}}`) {
		t.Errorf("without settings %s\nempty %s\nwith settings %s", none, empty, one)
	}
	if string(d.Config.JSON()) != `{"snapshot":true,"image":"i"}` && string(d.Config.JSON()) != `{"image":"i","snapshot":true}` {
		t.Errorf("settings %s", d.Config)
	}
}
