package feasible_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/trial/feasible"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

func plainTask() *task.Task {
	return &task.Task{
		Name: "t", Dir: "/nowhere", Mode: task.ModeLive,
		Environment: task.Environment{OS: "linux", Network: task.Network{Mode: task.NetworkNone}},
		Stages:      []task.Stage{{Name: "s", Instruction: []task.Part{{Text: "Do it."}}, Verifiers: []task.VerifierUse{{Name: "v"}}}},
	}
}

type unsupportedCase struct {
	name string
	set  func(t *task.Task, c *cell.Cell, k *feasible.Known)
	want string // in the one problem; empty: none
}

func unsupportedCases() []unsupportedCase {
	models := map[string]*cell.Model{"default": {Label: "m"}}
	return []unsupportedCase{
		{"plain", func(*task.Task, *cell.Cell, *feasible.Known) {}, ""},
		{"compose", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { t.Environment.Compose = "docker-compose.yaml" }, "several containers"},
		{"a sidecar", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Environment.Sidecars = []task.Sidecar{{Name: "db"}}
		}, ""},
		{"windows", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { t.Environment.OS = "windows" }, "Windows"},
		{"captures without a surface", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Stages[0].Captures = []task.Capture{{Name: "c"}}
		}, "captures"},
		{"a verifier with its own sandbox", func(_ *task.Task, _ *cell.Cell, k *feasible.Known) {
			k.Verifiers["v"] = verifier.Traits{Needs: verifier.NeedsOwn}
		}, ""},
		{"a verifier's own sandbox, of a compose file that was not read", func(t *task.Task, _ *cell.Cell, k *feasible.Known) {
			k.Verifiers["v"] = verifier.Traits{Needs: verifier.NeedsOwn}
			t.Stages[0].VerifyIn = &task.Environment{OS: "linux", Compose: "tests/docker-compose.yaml"}
		}, "several containers, by tests/docker-compose.yaml"},
		{"a verifier with a model", func(_ *task.Task, _ *cell.Cell, k *feasible.Known) {
			k.Verifiers["v"] = verifier.Traits{Needs: verifier.NeedsNone, Models: []string{"default"}}
		}, "There is no gateway"},
		{"a verifier without its model", func(_ *task.Task, _ *cell.Cell, k *feasible.Known) {
			k.Gateway = true
			k.Verifiers["v"] = verifier.Traits{Needs: verifier.NeedsNone, Models: []string{"default"}}
		}, `verifier "v" needs a model: In stage "s". Set model = model.<name> in a block verifier "v".`},
		{"a verifier without one of its models", func(_ *task.Task, c *cell.Cell, k *feasible.Known) {
			k.Gateway = true
			c.Verifiers = map[string]cell.Verifier{"v": {Plugin: "judge", Models: map[string]*cell.Model{"default": nil}}}
			k.Verifiers["v"] = verifier.Traits{Needs: verifier.NeedsNone, Models: []string{"default", "small"}}
		}, "Set models = { small = model.<name> }"},
		{"rounds in the sandbox", func(t *task.Task, _ *cell.Cell, k *feasible.Known) {
			t.Interaction = &task.Interaction{MaxFollowUps: 1}
			k.Verifiers["v"] = verifier.Traits{Needs: verifier.NeedsSandbox, Rounds: true}
		}, "works on copies only"},
		{"an agent with a model, no gateway", func(_ *task.Task, c *cell.Cell, k *feasible.Known) {
			k.Agent.Dialects, c.Agent.Models = []model.Dialect{"a", "b"}, models
		}, "no gateway"},
		{"an agent without a model", func(_ *task.Task, _ *cell.Cell, k *feasible.Known) {
			k.Agent.Dialects, k.Gateway = []model.Dialect{"a", "b"}, true
		}, "a model of provider a, b"},
		{"an agent with a model", func(_ *task.Task, c *cell.Cell, k *feasible.Known) {
			k.Agent.Dialects, k.Gateway, c.Agent.Models = []model.Dialect{"a"}, true, models
		}, ""},
		{"nothing to tell an agent with a model", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			k.Agent.Dialects, k.Gateway, c.Agent.Models, t.Stages[0].Instruction = []model.Dialect{"a"}, true, models, nil
		}, "no instruction"},
		{"nothing to tell an agent without one", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { t.Stages[0].Instruction = nil }, ""},
		{"an agent with a model of another dialect", func(_ *task.Task, c *cell.Cell, k *feasible.Known) {
			k.Agent.Dialects, k.Gateway = []model.Dialect{"a"}, true
			c.Agent.Models = map[string]*cell.Model{"default": {Label: "m", Provider: "b"}}
		}, `cannot use model "m"`},
		{"an agent that refuses", func(_ *task.Task, _ *cell.Cell, k *feasible.Known) { k.Agent.Refusals = []string{"no bundle"} }, "no bundle"},
		{"an agent with a surface", func(_ *task.Task, _ *cell.Cell, k *feasible.Known) { k.Agent.Surface = true }, "surface"},
		{"a user with a shell", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			t.Interaction, c.User, k.User = &task.Interaction{MaxFollowUps: 1}, &cell.User{}, &agent.Needs{Shell: true}
		}, "simulated user has no sandbox"},
		{"an oracle without a solution", func(_ *task.Task, c *cell.Cell, _ *feasible.Known) { c.Agent.Oracle = true }, "no reference solution"},
		{"public network", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Environment.Network = task.Network{Mode: task.NetworkPublic}
		}, ""},
		{"less network than asked", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Environment.Network = task.Network{Mode: task.NetworkPublic}
			c.Environment.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"a.example"}}
		}, "experiment grants allow"},
		{"more network than asked", func(_ *task.Task, c *cell.Cell, _ *feasible.Known) {
			c.Environment.Network = &task.Network{Mode: task.NetworkPublic}
		}, ""},
	}
}

// modeCases are about the verification mode.
func modeCases() []unsupportedCase {
	return []unsupportedCase{
		{"weaker", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Mode, c.Verify = task.ModeRestarted, task.ModeLive
		}, "not stricter"},
		{"copies with a sandbox", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { t.Mode = task.ModeCopies }, "needs the sandbox"},
		{"copies for a verifier that needs the sandbox", func(_ *task.Task, c *cell.Cell, _ *feasible.Known) { c.Verify = task.ModeCopies }, "needs the sandbox"},
		{"copies for a verifier that reads copies", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			t.Mode, c.Verify, k.Verifiers["v"] = task.ModeLive, task.ModeCopies, verifier.Traits{Needs: verifier.NeedsNone}
		}, ""},
		{"copies without", func(t *task.Task, _ *cell.Cell, k *feasible.Known) {
			t.Mode, k.Verifiers["v"] = task.ModeCopies, verifier.Traits{Needs: verifier.NeedsNone}
		}, ""},
	}
}

// secondCases are about a second sandbox.
func secondCases() []unsupportedCase {
	return []unsupportedCase{
		{"a sidecar in mode image", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Environment.Sidecars, c.Verify = []task.Sidecar{{Name: "db"}}, task.ModeImage
		}, "work of the agent would be lost: In stage \"s\". Mode \"image\" copies the files of the main container and nothing else: container \"db\" would start anew."},
		{"a volume in mode image", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Environment.Volumes, c.Verify = []task.Volume{{Name: "data", Target: "/d"}}, task.ModeImage
		}, "volume \"data\" would be empty"},
		{"a volume in mode image that nothing needs", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			t.Environment.Volumes, c.Verify = []task.Volume{{Name: "data", Target: "/d"}}, task.ModeImage
			k.Verifiers["v"] = verifier.Traits{Needs: verifier.NeedsNone}
		}, ""},
		{"separate, nothing to verify", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { t.Mode = task.ModeSeparate }, "declares no artifacts"},
		{"separate, with the folder of artifacts", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Mode, t.Paths.Artifacts = task.ModeSeparate, "/logs/artifacts"
		}, ""},
		{"separate by the experiment, with the folder of artifacts", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			c.Verify, t.Paths.Artifacts = task.ModeSeparate, "/logs/artifacts"
		}, "declares no artifacts"},
		{"separate by the experiment", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			c.Verify, t.Stages[0].Artifacts = task.ModeSeparate, []task.Artifact{{Source: "/a"}}
		}, ""},
		{"separate by the experiment, with containers that were not read", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			c.Verify, t.Stages[0].Artifacts = task.ModeSeparate, []task.Artifact{{Source: "/a"}}
			t.Stages[0].VerifyIn = &task.Environment{OS: "linux", Compose: "tests/docker-compose.yaml"}
		}, "verifier asks for several containers, by tests/docker-compose.yaml"},
		{"containers of a verifier that nobody asks for", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Stages[0].VerifyIn = &task.Environment{OS: "linux", Compose: "tests/docker-compose.yaml"}
		}, ""},
		{"separate with less network than asked", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Mode, t.Stages[0].Artifacts = task.ModeSeparate, []task.Artifact{{Source: "/a"}}
			t.Stages[0].Verify.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"b.example"}}
			c.Environment.Network = &task.Network{Mode: task.NetworkNone}
		}, ""},
	}
}

// networkCases are about lists of hosts, and phases that differ.
func networkCases() []unsupportedCase {
	return []unsupportedCase{
		{"a list of hosts", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Environment.Network = task.Network{Mode: task.NetworkAllow, Allow: []string{"a.example"}}
		}, ""},
		{"a list with an address of this machine", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Environment.Network = task.Network{Mode: task.NetworkAllow, Allow: []string{"a.example", "127.0.0.1"}}
		}, "name it in allow_hosts"},
		{"a list with an address of this machine, granted", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Environment.Network = task.Network{Mode: task.NetworkAllow, Allow: []string{"a.example", "127.0.0.1"}}
			c.Environment.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"*.example", "a.example", "127.0.0.0/8"}}
		}, ""},
		{"a list that the experiment does not grant", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Environment.Network = task.Network{Mode: task.NetworkAllow, Allow: []string{"a.example", "b.example"}}
			c.Environment.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"a.example"}}
		}, "a.example, b.example"},
		{"phases that differ", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Stages[0].Verify.Network = &task.Network{Mode: task.NetworkPublic}
		}, ""},
		{"phases that differ, and no network at all", func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			t.Stages[0].Verify.Network = &task.Network{Mode: task.NetworkPublic}
			c.Environment.Network = &task.Network{Mode: task.NetworkNone}
		}, ""},
	}
}

// sessionCases are about stages that share a session, and prior trajectories.
func sessionCases() []unsupportedCase {
	shared := func(more func(*task.Task, *cell.Cell, *feasible.Known)) func(*task.Task, *cell.Cell, *feasible.Known) {
		return func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			for _, name := range []string{"s2", "s3"} {
				s := t.Stages[0]
				s.Name = name
				t.Stages = append(t.Stages, s)
			}
			c.Agent.SameSession, k.Agent.KeepsSession = true, true
			more(t, c, k)
		}
	}
	prior := func(more func(*feasible.Known)) func(*task.Task, *cell.Cell, *feasible.Known) {
		return func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			t.Stages[0].PriorTrajectory, k.Gateway = "prior/trajectory.json", true
			c.Agent.Models = map[string]*cell.Model{"default": {Provider: "script"}}
			k.Agent.Dialects = []model.Dialect{model.DialectOpenAI}
			more(k)
		}
	}
	return []unsupportedCase{
		{"one session", shared(func(*task.Task, *cell.Cell, *feasible.Known) {}), ""},
		{"an agent that begins anew", shared(func(_ *task.Task, _ *cell.Cell, k *feasible.Known) { k.Agent.KeepsSession = false }), `In stage "s2". Remove same_session`},
		{"an agent that begins anew, of which the task asks it", shared(func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			c.Agent.SameSession, k.Agent.KeepsSession, t.Stages[2].SameSession = false, false, true
		}), `In stage "s3". The task asks for it`},
		{"an agent that begins anew, and one stage", func(_ *task.Task, c *cell.Cell, _ *feasible.Known) { c.Agent.SameSession = true }, ""},
		{"an agent that is not known", shared(func(_ *task.Task, _ *cell.Cell, k *feasible.Known) { k.Agent = nil }), ""},
		{"another user", shared(func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { t.Stages[1].Agent.User = "nobody" }), "cannot change its user"},
		{"other variables", shared(func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			t.Stages[2].Agent.Env = task.Text(map[string]string{"A": "b"})
		}), `others than in stage "s2"`},
		{"the same variables", shared(func(t *task.Task, _ *cell.Cell, _ *feasible.Known) {
			for i := range t.Stages {
				t.Stages[i].Agent.Env = task.Text(map[string]string{"A": "b"})
			}
		}), ""},
		{"an oracle", shared(func(t *task.Task, c *cell.Cell, _ *feasible.Known) {
			c.Agent.Oracle = true
			for i := range t.Stages {
				t.Stages[i].Reference = &task.Reference{}
			}
		}), "its own solution"},
		{"a prior trajectory", prior(func(k *feasible.Known) { k.Agent.TakesPrior = true }), ""},
		{"a prior trajectory that the agent would ignore", prior(func(*feasible.Known) {}), "cannot continue from a prior trajectory"},
		{"a prior trajectory of the experiment", func(_ *task.Task, c *cell.Cell, k *feasible.Known) {
			c.Agent.Prior, k.Agent.TakesPrior = "/x/trajectory.json", true
		}, ""},
		{"a prior trajectory of the experiment that the agent would ignore", func(_ *task.Task, c *cell.Cell, _ *feasible.Known) {
			c.Agent.Prior = "/x/trajectory.json"
		}, "Remove prior_trajectory"},
		{"a prior trajectory, and no model", prior(func(k *feasible.Known) { k.Agent.Dialects = nil }), ""},
	}
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	for _, tt := range slices.Concat(unsupportedCases(), modeCases(), secondCases(), networkCases(), sessionCases(), offerCases()) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tk, c := plainTask(), cell.Cell{Agent: cell.Agent{Plugin: "a"}}
			k := feasible.Known{Agent: &agent.Needs{Shell: true}, Verifiers: map[string]verifier.Traits{"v": {Needs: verifier.NeedsSandbox}}}
			tt.set(tk, &c, &k)
			ps := feasible.Unsupported(tk, c, k)
			switch {
			case tt.want == "" && len(ps) == 0:
			case tt.want == "" || len(ps) != 1 || !strings.Contains(ps[0].Summary+": "+ps[0].Detail, tt.want):
				t.Errorf("got %+v; want %q", ps, tt.want)
			case ps[0].Detail == "":
				t.Errorf("%+v does not say what to do", ps[0])
			}
		})
	}
}

func TestSpec(t *testing.T) {
	t.Parallel()
	tk := plainTask()
	tk.Environment.Limits = task.Limits{CPUMilli: 2000, MemoryMiB: 4096}
	tk.Environment.Network = task.Network{Mode: task.NetworkPublic}
	tk.Environment.Build = &task.Build{Context: "environment", File: "Dockerfile", Digest: "sha256:1"}
	tk.Interaction = &task.Interaction{MaxFollowUps: 2}
	tk.Services = []task.Service{{Name: "s", Command: task.Command{Argv: []string{"serve"}, User: "web"}}}
	c := cell.Cell{Environment: cell.Environment{
		Limits: task.Limits{MemoryMiB: 1024, Pids: 100}, Network: &task.Network{Mode: task.NetworkNone},
	}}
	s, modified, err := feasible.Spec(tk, c, agent.Needs{Bundles: []agent.Bundle{{Source: "/host/b", Target: "/opt/b"}}})
	testlevel.Must(t, err)
	wanted := environment.Limits{CPUMilli: 2000, MemoryMiB: 1024, Pids: 100}
	if s.Limits.CPUMilli != wanted.CPUMilli || s.Limits.MemoryMiB != wanted.MemoryMiB || s.Limits.Pids != wanted.Pids {
		t.Errorf("limits %+v; want %+v", s.Limits, wanted)
	}
	if s.Image.Build != "/nowhere/environment" || s.Image.File != "Dockerfile" || s.Image.Digest != "sha256:1" {
		t.Errorf("image %+v", s.Image)
	}
	if s.Network.Mode != environment.NetworkNone || len(s.Mounts) != 1 || !slices.Contains(s.Users, "web") {
		t.Errorf("spec %+v", s)
	}
	if len(modified) != 5 || !slices.Contains(modified, "memory_mib: 1024 instead of 4096") {
		t.Errorf("modified %q", modified)
	}
}

// A task's mode may be strengthened, and is never weakened. Copies may always be
// asked for: verifiers that need the sandbox are refused there, and to the others
// every mode shows the same files.
func TestADeclaredModeIsNeverWeakened(t *testing.T) {
	t.Parallel()
	const no = task.Mode("refused")
	const live, restarted, image, separate, copies = task.ModeLive, task.ModeRestarted, task.ModeImage, task.ModeSeparate, task.ModeCopies
	asked := []task.Mode{"", live, restarted, image, separate, copies}
	for declared, row := range map[task.Mode][]task.Mode{
		"":        {restarted, no, restarted, image, separate, copies},
		live:      {live, live, restarted, image, separate, copies},
		restarted: {restarted, no, restarted, image, separate, copies},
		image:     {image, no, no, image, separate, copies},
		separate:  {separate, no, no, no, separate, no},
		copies:    {copies, no, no, no, no, copies},
	} {
		for i, ask := range asked {
			tk := &task.Task{Mode: declared, Stages: []task.Stage{{Name: "main"}}}
			got, err := feasible.Mode(tk, &tk.Stages[0], ask)
			if err != nil {
				got = no
				if !strings.Contains(err.Error(), `"`+string(ask)+`"`) || !strings.Contains(err.Error(), "remove verify") {
					t.Errorf("declared %q, asked %q: %v", declared, ask, err)
				}
			}
			if got != row[i] {
				t.Errorf("declared %q, asked %q: %q, want %q", declared, ask, got, row[i])
			}
		}
	}
}

// offers adds skills, and MCP servers of two transports, to a task.
func offers(t *task.Task) {
	t.Skills = []task.Skill{{Dir: "/skills"}}
	t.MCPServers = []task.MCPServer{{Name: "a", Transport: "stdio", Command: "a"}, {Name: "b", Transport: "sse", URL: "http://b"}}
}

// Whatever an agent says about skills and MCP servers, they are not lost silently.
func TestSkillsAndServersAreDeliveredToldOrRefused(t *testing.T) {
	t.Parallel()
	models := []model.Dialect{model.DialectOpenAIChat}
	const delivered, told, unused, refused = feasible.Delivered, feasible.Told, feasible.Unused, feasible.Refused
	for _, tt := range []struct {
		name        string
		needs       agent.Needs
		oracle      bool
		skills, mcp feasible.Delivery
	}{
		{"an agent that supports all", agent.Needs{Shell: true, Dialects: models, Skills: true, MCP: []string{"stdio", "sse"}}, false, delivered, delivered},
		{"an agent that supports one transport", agent.Needs{Shell: true, Dialects: models, MCP: []string{"stdio"}}, false, told, told},
		{"an agent that says nothing, with a shell", agent.Needs{Shell: true, Dialects: models}, false, told, told},
		{"an agent that says nothing, with a terminal", agent.Needs{Terminal: true, Dialects: models}, false, told, told},
		{"an agent that says nothing, without a shell", agent.Needs{Dialects: models}, false, refused, refused},
		{"an agent that supports all without a shell", agent.Needs{Dialects: models, Skills: true, MCP: []string{"stdio", "sse"}}, false, delivered, delivered},
		{"an agent without a model or a shell", agent.Needs{}, false, unused, unused},
		{"an oracle", agent.Needs{Shell: true}, true, unused, unused},
	} {
		tk, c := plainTask(), cell.Cell{Agent: cell.Agent{Plugin: "a", Oracle: tt.oracle}}
		offers(tk)
		skills, mcp := feasible.Deliver(tk, task.FeatureSkills, c, &tt.needs), feasible.Deliver(tk, task.FeatureMCP, c, &tt.needs)
		if skills != tt.skills || mcp != tt.mcp {
			t.Errorf("%s: skills %s, MCP servers %s; want %s, %s", tt.name, skills, mcp, tt.skills, tt.mcp)
		}
	}
	tk := plainTask()
	offers(tk)
	if way := feasible.Deliver(tk, task.FeatureSkills, cell.Cell{}, nil); way != "" {
		t.Errorf("an agent that could not be asked: %s", way)
	}
}

func offerCases() []unsupportedCase {
	without := func(t *task.Task, k *feasible.Known) {
		k.Agent, k.Gateway = &agent.Needs{}, true
		t.Stages[0].Reference = nil
	}
	return []unsupportedCase{
		{"skills for an agent without a shell", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			without(t, k)
			k.Agent.Dialects, c.Agent.Models = []model.Dialect{model.DialectOpenAIChat}, map[string]*cell.Model{"default": {Provider: "script"}}
			t.Skills = []task.Skill{{Dir: "/skills"}}
		}, `agent "a" cannot use the skills of the task: The task has skills in "/skills"`},
		{"MCP servers for an agent without a shell", func(t *task.Task, c *cell.Cell, k *feasible.Known) {
			without(t, k)
			k.Agent.Dialects, c.Agent.Models = []model.Dialect{model.DialectOpenAIChat}, map[string]*cell.Model{"default": {Provider: "script"}}
			t.MCPServers = []task.MCPServer{{Name: "m", Transport: "stdio", Command: "m"}}
		}, `agent "a" cannot use the MCP servers of the task: The task has MCP server "m"`},
		{"skills for an agent with a shell", func(t *task.Task, _ *cell.Cell, _ *feasible.Known) { offers(t) }, ""},
		{"skills for an agent without a model", func(t *task.Task, _ *cell.Cell, k *feasible.Known) {
			without(t, k)
			offers(t)
		}, ""},
	}
}
