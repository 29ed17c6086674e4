package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/plugin"
)

// pluginsText prints the end of what the plugins wrote in the attempt.
func pluginsText(p *terminal.Printer, lines []plugin.Line, all bool) {
	if len(lines) == 0 {
		return
	}
	p.Printf("\n%s\n", terminal.Paint(p.Color, terminal.Bold, "output of plugins"))
	from := 0
	if !all && len(lines) > maxLines {
		from = len(lines) - maxLines
		p.Printf("  … %d earlier lines; use --all to print them\n", from)
	}
	for i := range lines[from:] {
		l := &lines[from+i]
		level := ""
		if l.Level != "" {
			level = l.Level + ": "
		}
		for i, text := range terminal.Lines(level + l.Text) {
			if i == 0 {
				p.Printf("  %s %s: %s\n", l.Time.Local().Format(clock), terminal.Clean(l.Plugin), text)
			} else {
				p.Printf("    %s\n", text)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(l.Fields)) {
			texts := terminal.Lines(fmt.Sprint(l.Fields[name]))
			if len(texts) == 1 {
				p.Printf("    %s: %s\n", terminal.Clean(name), texts[0])
				continue
			}
			p.Printf("    %s:\n", terminal.Clean(name))
			for _, text := range texts { // of a traceback
				p.Printf("      %s\n", text)
			}
		}
	}
}
