package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
)

// conversationText prints who said what in an attempt of several turns.
func conversationText(p *terminal.Printer, turns []record.Turn, all bool) {
	if !slices.ContainsFunc(turns, func(t record.Turn) bool { return t.Turn > 1 }) {
		return
	}
	p.Printf("\n%s\n", terminal.Paint(p.Color, terminal.Bold, "conversation"))
	for i := range turns {
		switch t := &turns[i]; t.Kind {
		case record.TurnMessage:
			p.Hang(fmt.Sprintf("  %3d %-8s ", t.Turn, terminal.Clean(t.From)), brief(t.Text, 300, all))
		case record.TurnOver:
			p.Hang("      end      ", strings.TrimSuffix(fmt.Sprintf("%s: %s", t.Over, t.Reason), ": "))
		default:
			p.Hang("      agent    ", cmp.Or(brief(t.Message, 300, all), string(t.End)))
		}
	}
}
