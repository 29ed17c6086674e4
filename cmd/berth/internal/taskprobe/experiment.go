package taskprobe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
)

// Experiments returns the texts of the experiments. path is the folder of the dataset,
// and include the pattern of the task in it, or empty.
func (p *Probe) Experiments(path, include string) (texts []string) {
	agents := []string{"agent.nop"}
	if p.hasSolution() {
		agents = append(agents, "agent.oracle")
	}
	var modes []string
	for _, m := range p.modes {
		if m != task.ModeCopies || len(p.modes) == 1 {
			modes = append(modes, strconv.Quote(string(m)))
		}
	}
	inModes := func(matrix string) string {
		return fmt.Sprintf("  repeat = %d\n  verify = matrix.mode\n  matrix {\n    mode = [%s]\n%s  }\n", p.times, strings.Join(modes, ", "), matrix)
	}
	const oracle = "  agent  = agent.oracle\n"
	texts = append(texts, p.text("solution", []variant{{label: "task", dir: path}}, include, inModes(fmt.Sprintf("    agent = [%s]\n", strings.Join(agents, ", ")))))
	for _, e := range []struct{ check, settings string }{
		{checkCheat, oracle + inModes("")}, {checkAnswers, oracle}, {checkNetwork, fmt.Sprintf("%s  repeat = %d\n", oracle, p.times)},
	} {
		if vs := p.of(e.check); len(vs) > 0 {
			texts = append(texts, p.text(e.check, vs, "", e.settings))
		}
	}
	return texts
}

// hasSolution reports whether each stage has a solution.
func (p *Probe) hasSolution() bool {
	return !slices.ContainsFunc(p.task.Stages, func(s task.Stage) bool { return s.Reference == nil })
}

// of returns the variants of a check.
func (p *Probe) of(check string) []variant {
	return slices.DeleteFunc(slices.Clone(p.variants), func(v variant) bool { return v.check != check })
}

// text is an experiment with the variants as its datasets.
func (p *Probe) text(name string, variants []variant, include, settings string) string {
	var labels []string
	var b strings.Builder
	for _, v := range variants {
		labels = append(labels, "dataset."+v.label)
		fmt.Fprintf(&b, "\ndataset %q {\n  format = %s\n  path   = %s\n", v.label, hcl(p.task.Format), hcl(v.dir))
		if include != "" {
			fmt.Fprintf(&b, "  include = [%s]\n", hcl(include))
		}
		b.WriteString("}\n")
	}
	return fmt.Sprintf(`experiment "check-%s" {
  datasets    = [%s]
  environment = environment.here
%s}
%s
environment "here" {
  plugin = %s # --environment
}

agent "oracle" {
  plugin = "oracle"
  oracle = true
}

agent "nop" {
  plugin = "nop"
}
`, name, strings.Join(labels, ", "), settings, b.String(), hcl(p.environment))
}

// hcl returns s as an HCL string without templates.
func hcl(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(s))
}
