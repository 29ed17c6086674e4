package taskprobe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// Main returns the experiment that runs the solution and nop in each mode. path
// is the folder of the dataset, and include the pattern of the task in it, or
// empty.
func (p *Probe) Main(path, include string) string {
	agents := []string{"agent.nop"}
	if p.hasSolution() {
		agents = append(agents, "agent.oracle")
	}
	return p.text("solution", []Variant{{Label: "task", Dir: path}}, include,
		fmt.Sprintf("  repeat = %d\n  verify = matrix.mode\n  matrix {\n    agent = [%s]\n    mode  = [%s]\n  }\n", p.Times, strings.Join(agents, ", "), p.modeList()))
}

// hasSolution reports whether each stage has a solution.
func (p *Probe) hasSolution() bool {
	for i := range p.Task.Stages {
		if p.Task.Stages[i].Reference == nil {
			return false
		}
	}
	return true
}

// Tricks returns the experiment with the solutions that must not pass; empty:
// there are none.
func (p *Probe) Tricks() string {
	return p.text("tricks", p.of(Cheat), "",
		fmt.Sprintf("  agent  = agent.oracle\n  repeat = %d\n  verify = matrix.mode\n  matrix {\n    mode = [%s]\n  }\n", p.Times, p.modeList()))
}

// Looks returns the experiment that looks into the sandbox, and the one whose
// tests have no network; empty: there are none.
func (p *Probe) Looks() []string {
	var texts []string
	for _, check := range []string{Answers, Network} {
		repeat := 1
		if check == Network {
			repeat = p.Times
		}
		if text := p.text(check, p.of(check), "", fmt.Sprintf("  agent  = agent.oracle\n  repeat = %d\n", repeat)); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

func (p *Probe) of(checks ...string) []Variant {
	var vs []Variant
	for _, v := range p.Variants {
		for _, check := range checks {
			if v.Check == check {
				vs = append(vs, v)
			}
		}
	}
	return vs
}

func (p *Probe) modeList() string {
	var ms []string
	for _, m := range p.Modes {
		if m != task.ModeCopies || len(p.Modes) == 1 {
			ms = append(ms, strconv.Quote(string(m)))
		}
	}
	return strings.Join(ms, ", ")
}

func (p *Probe) text(name string, variants []Variant, include, settings string) string {
	if len(variants) == 0 {
		return ""
	}
	var labels []string
	for _, v := range variants {
		labels = append(labels, "dataset."+v.Label)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "experiment \"check-%s\" {\n  datasets    = [%s]\n  environment = environment.here\n%s}\n", name, strings.Join(labels, ", "), settings)
	for _, v := range variants {
		fmt.Fprintf(&b, "\ndataset %q {\n  format = %s\n  path   = %s\n", v.Label, hcl(p.Task.Format), hcl(v.Dir))
		if include != "" {
			fmt.Fprintf(&b, "  include = [%s]\n", hcl(include))
		}
		b.WriteString("}\n")
	}
	fmt.Fprintf(&b, "\nenvironment \"here\" {\n  plugin = %s # --environment\n}\n\nagent \"oracle\" {\n  plugin = \"oracle\"\n  oracle = true\n}\n\nagent \"nop\" {\n  plugin = \"nop\"\n}\n", hcl(p.Environment))
	return b.String()
}

// hcl returns s as an HCL string without templates.
func hcl(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(s))
}
