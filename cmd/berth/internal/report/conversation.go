package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
)

// conversationText prints who said what in an attempt in which work was judged
// between turns or a user answered, and what each role cost.
func conversationText(p *terminal.Printer, f *output.ShowFull, all bool) {
	if !slices.ContainsFunc(f.Verdicts, func(v record.Verdict) bool { return v.Round > 0 }) &&
		!slices.ContainsFunc(f.Turns, func(t record.Turn) bool { return t.From == userRole }) {
		return
	}
	p.Printf("\n%s\n", terminal.Paint(p.Color, terminal.Bold, "conversation"))
	stage, several := "", slices.ContainsFunc(f.Turns, func(t record.Turn) bool { return t.Stage != f.Turns[0].Stage })
	for i := range f.Turns {
		t := &f.Turns[i]
		if several && t.Stage != stage {
			stage = t.Stage
			p.Printf("  stage %s\n", terminal.Clean(stage))
		}
		said(p, t, all)
		if t.Kind != record.TurnYield {
			continue
		}
		for _, v := range f.Verdicts {
			if v.Round == t.Turn && v.Stage == t.Stage {
				verdictText(p, &v, all)
			}
		}
	}
	if f.Result != nil {
		rolesText(p, f.Result.Usage)
	}
}

// userRole is who sent a message of the simulated user.
const userRole = "user"

// whyOver says why no further message followed.
var whyOver = map[record.Over]string{
	record.OverDecided: "the verdict is final", record.OverTotal: "the time of all turns is over", record.OverFollowUps: "the user has no message left",
	record.OverAgent: "the agent cannot continue", record.OverSilent: "nothing was sent", record.OverUser: "the user ended the conversation",
}

// said prints a message to the agent, how its turn ended, or why no further message
// followed.
func said(p *terminal.Printer, t *record.Turn, all bool) {
	if t.Kind == record.TurnMessage {
		p.Hang(fmt.Sprintf("  %3d %-8s ", t.Turn, terminal.Clean(t.From)), brief(t.Text, 300, all))
		return
	}
	if t.Kind == record.TurnOver {
		text := cmp.Or(whyOver[t.Over], terminal.Clean(string(t.Over)))
		if t.Reason != "" {
			text += ": " + terminal.Clean(t.Reason)
		}
		p.Hang("      end      ", text)
		return
	}
	text := brief(t.Message, 300, all)
	if t.End != record.Yielded {
		text = strings.TrimSpace(fmt.Sprintf("(its turn ended by %s) %s", t.End, text))
	}
	p.Hang("      agent    ", cmp.Or(text, "(nothing)"))
}

// verdictText prints what a verifier said after a turn. A simulated user sees only the
// handoff.
func verdictText(p *terminal.Printer, v *record.Verdict, all bool) {
	parts := []string{string(v.Decision)}
	for _, name := range slices.Sorted(maps.Keys(v.Scores)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", name, v.Scores[name].Value))
	}
	text := strings.Join(parts, ", ")
	if v.Rationale != "" {
		text += ": " + brief(v.Rationale, 300, all)
	}
	p.Hang("      verifier ", v.Verifier+": "+text)
	if v.Handoff != "" {
		p.Hang("               ", "handoff: "+brief(v.Handoff, 300, all))
	}
}

// rolesText prints what the models of each role cost, with one line for each
// verifier.
func rolesText(p *terminal.Printer, us []record.Usage) {
	sums := map[string]*record.Usage{}
	for i := range us {
		role := us[i].Role
		if us[i].Verifier != "" {
			role = "verifier " + us[i].Verifier
		}
		if sums[role] == nil {
			sums[role] = &record.Usage{CostUSD: new(float64)}
		}
		sums[role].Add(&us[i])
	}
	if len(sums) == 0 {
		return
	}
	p.Printf("\n")
	t := terminal.Table{Head: []string{"role", "requests", "in", "out", "USD"}, Right: []bool{1: true, 2: true, 3: true, 4: true}}
	for _, role := range slices.Sorted(maps.Keys(sums)) {
		s, usd := sums[role], "unknown"
		if s.CostUSD != nil {
			usd = fmt.Sprintf("%.4f", *s.CostUSD)
		}
		t.Row(terminal.Clean(role), fmt.Sprint(s.Requests), fmt.Sprint(s.InputTokens), fmt.Sprint(s.OutputTokens), usd)
	}
	t.Write(p)
}
