package task

import (
	"slices"
	"strings"
	"testing"
)

func several() *Task {
	t := valid()
	t.Environment.Sidecars = []Sidecar{
		{Name: "web", Image: "x", DependsOn: map[string]string{"db": StateHealthy, MainContainer: StateStarted}, Expose: []int{80}},
		{Name: "db", Image: "x", Healthcheck: &Healthcheck{Argv: []string{"true"}}, Expose: []int{5432}, Volumes: []Volume{{Name: "v", Target: "/v"}}},
		{Name: "init", Image: "x", DependsOn: map[string]string{"db": StateStarted}},
	}
	t.Environment.DependsOn = map[string]string{"init": StateCompleted}
	return t
}

func TestContainersStartAfterThoseThatTheyDependOn(t *testing.T) {
	e := &several().Environment
	if order, loop := e.StartOrder(); !slices.Equal(order, []string{"db", "init", MainContainer, "web"}) || len(loop) > 0 {
		t.Errorf("order %q, loop %q", order, loop)
	}
	e.Sidecars[1].DependsOn = map[string]string{"web": StateStarted}
	if order, loop := e.StartOrder(); len(order) != 0 || !slices.Equal(loop, []string{MainContainer, "web", "db", "init"}) {
		t.Errorf("in a circle: order %q, loop %q", order, loop)
	}
}

func TestRulesOfContainers(t *testing.T) {
	if ps := several().Validate(); len(ps) > 0 {
		t.Fatalf("a valid task breaks %v", ps)
	}
	for want, spoil := range map[string]func(*Environment){
		"sidecars[0].name is \"main\"":                  func(e *Environment) { e.Sidecars[0].Name = MainContainer },
		"sidecars[2].name is \"db\"":                    func(e *Environment) { e.Sidecars[2].Name = "db" },
		"sidecars[0].hostname is \"main\"":              func(e *Environment) { e.Sidecars[0].Hostname = MainContainer },
		"sidecars[2].aliases[1] is \"db\"":              func(e *Environment) { e.Sidecars[2].Aliases = []string{"x", "db"} },
		"sidecars[1].aliases[0] is \"MAIN\"":            func(e *Environment) { e.Sidecars[1].Aliases = []string{"MAIN"} },
		"sidecars[2].aliases[0] is \"a\\nb\"":           func(e *Environment) { e.Sidecars[2].Aliases = []string{"a\nb"} },
		"environment.hostname is \"localhost\"":         func(e *Environment) { e.Hostname = "localhost" },
		"sidecars[2].name is \"a b\"":                   func(e *Environment) { e.Sidecars[2].Name = "a b" },
		"must have either an image or a build":          func(e *Environment) { e.Sidecars[0].Image = "" },
		"expose has 70000":                              func(e *Environment) { e.Sidecars[0].Expose = []int{70000} },
		"depends_on.no is not the name":                 func(e *Environment) { e.DependsOn = map[string]string{"no": StateStarted} },
		"depends_on.db is \"up\"":                       func(e *Environment) { e.DependsOn = map[string]string{"db": "up"} },
		"depends_on.init is healthy, and init has":      func(e *Environment) { e.DependsOn = map[string]string{"init": StateHealthy} },
		"depends_on.main is \"completed\"":              func(e *Environment) { e.Sidecars[0].DependsOn[MainContainer] = StateCompleted },
		"goes in a circle: none of main, web, db, init": func(e *Environment) { e.Sidecars[1].DependsOn = map[string]string{"web": StateStarted} },
		"volumes[0].target is \"v\"":                    func(e *Environment) { e.Volumes = []Volume{{Name: "v", Target: "v"}} },
		"volumes[1].target is \"/v\"":                   func(e *Environment) { e.Volumes = []Volume{{Name: "v", Target: "/v"}, {Name: "w", Target: "/v"}} },
		"sidecars[1].volumes[0].name is \"../etc\"":     func(e *Environment) { e.Sidecars[1].Volumes[0].Name = "../etc" },
	} {
		tk := several()
		spoil(&tk.Environment)
		if ps := tk.Validate(); !slices.ContainsFunc(ps, func(p Problem) bool { return strings.Contains(p.Summary, want) }) {
			t.Errorf("%s: got %v", want, ps)
		}
	}
}
