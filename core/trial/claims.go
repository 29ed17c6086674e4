package trial

import (
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
)

// modelled records what a session that has ended used of its models.
func (a *attempt) modelled(m models.Session, who string) {
	a.res.Usage = append(a.res.Usage, m.Usage()...)
	for _, f := range m.Findings() {
		a.recorder.Finding(record.Phase{Name: record.PhaseTurn, Who: record.ByModel}, who, f)
	}
}

// claim adds the usage that the agent reports for a turn.
func (s *session) claim(c *agent.Claim) {
	if c == nil || c.Input == nil || c.Output == nil {
		s.silent = true
		return
	}
	if s.claimed == nil {
		s.claimed = &agent.Claim{}
	}
	plus(&s.claimed.Input, c.Input)
	plus(&s.claimed.Cached, c.Cached)
	plus(&s.claimed.Output, c.Output)
	plus(&s.claimed.Cost, c.Cost)
}

func plus[N int64 | float64](sum **N, n *N) {
	if n == nil {
		return
	}
	if *sum == nil {
		*sum = new(N)
	}
	**sum += *n
}

// compare stores the usage that the agent reported next to the gateway's, and
// reports a difference. An agent that was stopped in a turn cannot have
// reported everything.
func (s *session) compare(used []record.Usage) {
	if s.claimed == nil || s.role != agent.RoleAgent {
		return
	}
	s.a.res.Claimed = append(s.a.res.Claimed, *s.claimed)
	var in, out int64
	for _, u := range used {
		in, out = in+u.InputTokens, out+u.OutputTokens
	}
	if !s.silent && (in != *s.claimed.Input || out != *s.claimed.Output) {
		s.a.recorder.Note(record.Phase{Name: record.PhaseTurn, Who: record.ByAgent}, "usage_differs",
			"the agent says that it used %d input and %d output tokens, and the gateway counted %d and %d", *s.claimed.Input, *s.claimed.Output, in, out)
	}
}
